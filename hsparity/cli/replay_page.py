"""The page that `hsparity replay` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .plain_page import STYLES, entry, framed, wrapped

if TYPE_CHECKING:
    from ..replay.result import Added, Replay
    from ..report.base import Options
    from ..report.columns import Column

PARTS = ("layer", "attention", "mlp", "router")
SHORT = {"layer": "layer", "attention": "attention", "mlp": "MLP", "router": "router"}
WORDS = {"parity": "", "diverged": "beyond", "inconclusive": "unsettled"}


def render(result: Replay, options: Options) -> str:
    """The result as text at `options.width` columns."""
    from ..report.spelling import clean

    word = result.verdict.value.upper()
    verdict = f"{word}  {clean(result.headline)}"
    lines = [verdict]
    if not options.quiet:
        lines = [*_what(result, options), "", *wrapped(verdict, options.width, ""), ""]
        lines += [*_table(result, options), "", *_closing(result, options)]
    return framed(word, lines, STYLES[result.verdict.value], options)


def _what(result: Replay, options: Options) -> list[str]:
    lines = entry("ref", f"{result.ref}  (weights {result.ref_model})", options)
    if result.cand:
        lines += entry("cand", f"{result.cand}  (weights {result.cand_model})", options)
    tokens = max((a.tokens + a.left_out for a in result.added), default=0)
    said = "each layer in float32 on its captured input; the floor is the same layer in the capture's dtype"
    return lines + entry("replayed", f"{said}; {tokens:,} tokens", options)


def _table(result: Replay, options: Options) -> list[str]:
    from ..report.columns import Column, table

    sides = [s for s in ("ref", "cand") if result.of(s)]
    layers = sorted({a.layer for a in result.added})
    held = {(a.side, a.weights, a.part, a.layer): a for a in result.added}

    def column(head: str, of: Sequence[str], rank: int, group: str = "", left: bool = False) -> Column:
        return Column(head, tuple(of), rank=rank, group=group, left=left)

    kinds = {a.layer: a.kind for a in result.added}
    columns = [
        column("layer", [str(k) for k in layers], 0),
        column("kind", [kinds[k] for k in layers], 5, left=True),
    ]
    for side in sides:
        own = [held.get((side, "own", "layer", k)) for k in layers]
        columns += [
            column("adds", [_error(a) for a in own], 1, side),
            column("× floor", [_ratio(a) for a in own], 0, side),
        ]
        for part in PARTS[1:]:
            mine = [held.get((side, "own", part, k)) for k in layers]
            if any(mine):
                columns.append(column(SHORT[part], [_ratio(a) for a in mine], 2, side))
        routers = [held.get((side, "own", "router", k)) for k in layers]
        if any(a is not None and a.experts_differ > 0 for a in routers):
            columns.append(column("experts", [_experts(a) for a in routers], 3, side))
        other = [held.get((side, "other", "layer", k)) for k in layers]
        if any(other):
            columns.append(column("other's weights", [_ratio(a) for a in other], 4, side))
        columns.append(column("", [_verdicts(result, side, k) for k in layers], 0, side, left=True))
    return [line.plain for line in table(columns, options.width)]


def _error(added: Added | None) -> str:
    from ..report.spelling import error

    return "-" if added is None else error(added.error.p50)


def _ratio(added: Added | None) -> str:
    from ..report.spelling import ratio

    return "-" if added is None else ratio(added.ratio)


def _experts(added: Added | None) -> str:
    """Tokens whose captured choice is another; `3!` when rounding does not explain all of them."""
    if added is None or added.experts_differ < 0:
        return "-"
    return f"{added.experts_differ}{'!' if added.experts_wide > 0 else ''}"


def _verdicts(result: Replay, side: str, layer: int) -> str:
    """The worst verdict of a layer and its parts, and which part has it."""
    mine = [a for a in result.added if (a.side, a.weights, a.layer) == (side, "own", layer)]
    for word in ("diverged", "inconclusive"):
        parts = [SHORT[a.part] for a in mine if a.verdict.value == word and a.part != "layer"]
        if parts or any(a.verdict.value == word for a in mine):
            return f"{WORDS[word]}{': ' + ', '.join(parts) if parts else ''}"
    return "within" if mine else "-"


def _closing(result: Replay, options: Options) -> list[str]:
    lines: list[str] = []
    told = [a for a in result.added if a.weights == "own" and a.verdict.value != "parity"]
    for added in told if options.verbose else told[:4]:
        lines += entry(
            added.side if added is told[0] or options.verbose else "",
            f"layer {added.layer} {SHORT[added.part]}: {added.reason}",
            options,
        )
    notes = (
        result.notes
        if options.verbose
        else tuple(n for n in result.notes if "weights not quantised" not in n)
    )
    lines += [line for note in notes for line in entry("note", note, options)]
    return lines
