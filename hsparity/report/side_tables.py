"""The HTML page's tables of both captures: their settings, environments and labels, lined up."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import LEFT_OUT, Comparison, Side
from . import spelling as sp
from . import view
from .tables import Cell, HtmlTable


def compared_table(comparison: Comparison) -> HtmlTable:
    """Both sides' settings lined up; what differs is marked."""
    ref, cand = _facts(comparison.ref), _facts(comparison.cand)
    rows = [(k, ref.get(k, "-"), cand.get(k, "-")) for k in dict.fromkeys([*ref, *cand])]
    return _lined_up(_told_apart(rows), rows)


def _told_apart(rows: Sequence[tuple[str, str, str]]) -> str:
    """The caption: which rows differ; what one side alone says is no difference."""
    other = [sp.clean(key) for key, ref, cand in rows if _differ(key, ref, cand)]
    return f"Marked ≠ where both sides say something else: {', '.join(other) or 'nowhere'}."


def environments_table(comparison: Comparison) -> HtmlTable:
    """Environments of both sides, and the captures that made the floor."""
    ref, cand = comparison.ref.environment, comparison.cand.environment
    rows = [(k, ref.get(k, "-"), cand.get(k, "-")) for k in sorted({*ref, *cand})]
    labels = (comparison.ref.native_labels, comparison.cand.native_labels)
    rows += [
        (f"label of {k}", labels[0].get(k, "-"), labels[1].get(k, "-"))
        for k in sorted({*labels[0], *labels[1]})
    ]
    table = _lined_up("Rows that differ are marked ≠.", rows)
    others = []
    for s in comparison.others:
        facts = (
            f"{s.engine} {s.version}, {s.dtype}, {sp.count(s.prompts, 'prompt')}, "
            f"{sp.count(s.tokens, 'token')}"
        )
        others.append((Cell(sp.clean(s.role), "l"), Cell(sp.clean(s.path), "l"), Cell(sp.clean(facts), "l")))
    return HtmlTable(table.caption, table.heads, (*table.rows, *others))


def _facts(side: Side) -> dict[str, str]:
    boundaries = tuple(b for s in side.sites if (b := view.boundary_of(s)) is not None)
    rest = [s for s in side.sites if view.boundary_of(s) is None]
    sites = ", ".join(
        p for p in (f"boundaries {sp.numbers(boundaries)}" if boundaries else "", *rest[:12]) if p
    )
    facts = {
        "capture": side.path,
        "engine": f"{side.engine} {side.version}",
        "model": side.model,
        "architecture": f"{side.architecture}, {side.num_layers} layers, hidden {side.hidden_size}",
        "weights": _digest(side),
        "dtype": side.dtype,
        "prompts and rows": (
            f"{sp.count(side.prompts, 'prompt')}, {sp.count(side.tokens, 'token')}, "
            f"{sp.count(side.rows, 'row')}"
        ),
        "sites": sites + (f" and {len(rest) - 12} more" if len(rest) > 12 else ""),
        "made": side.created or "-",
    }
    return {**facts, **{k: _value(side.settings[k]) for k in sorted(side.settings)}}


def _digest(side: Side) -> str:
    if side.weights_sha256 == LEFT_OUT:
        return LEFT_OUT
    return f"sha256 {side.weights_sha256[:12]}…" if side.weights_sha256 else "not hashed"


def _lined_up(caption: str, rows: Sequence[tuple[str, str, str]]) -> HtmlTable:
    body = []
    for key, ref, cand in rows:
        differs = _differ(key, ref, cand)
        body.append(
            (
                Cell(sp.clean(key), "l"),
                Cell(sp.clean(ref), "l"),
                Cell(sp.clean(cand), "l diff" if differs else "l", icon="≠" if differs else ""),
            )
        )
    return HtmlTable(
        caption, (Cell("setting", "l"), Cell("reference", "l"), Cell("candidate", "l")), tuple(body)
    )


def _differ(key: str, ref: str, cand: str) -> bool:
    """Whether both sides say something, and not the same."""
    return ref != cand and "" not in (ref, cand) and "-" not in (ref, cand) and key not in ("capture", "made")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(v) for v in value)
    return "-" if value is None else str(value)
