"""The page that `hsparity drafter` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .plain_page import STYLES, as_page, entry, framed, wrapped

if TYPE_CHECKING:
    from ..drafter.result import Acceptance, Beside, Bin, DraftCost, Estimate, FedSide
    from ..report.base import Options

SHOWN_PROMPTS = 3


def render(cost: DraftCost, options: Options) -> str:
    """The result as text at `options.width` columns."""
    from ..report.spelling import clean

    word = cost.verdict.value.upper()
    verdict = f"{word}  {clean(cost.headline)}"
    lines = [verdict]
    if not options.quiet:
        lines = [*_what(cost, options), "", *wrapped(verdict, options.width, ""), "", *_body(cost, options)]
    return framed(word, lines, STYLES[cost.verdict.value], options).rstrip()


def as_html(cost: DraftCost, options: Options) -> str:
    """The page as one HTML file that asks nothing of the network."""
    return as_page(f"{cost.verdict.value.upper()}: {cost.draft}", lambda wide: render(cost, wide), options)


def _what(cost: DraftCost, options: Options) -> list[str]:
    return [
        *entry("draft", f"{cost.draft}  ({cost.layout} layout; run by {cost.runner})", options),
        *entry("ref", _side(cost.ref), options),
        *entry("cand", _side(cost.cand), options),
        *entry("counted", f"{cost.prompts} prompts, {cost.feed('ref').steps:,} {cost.tokens}", options),
    ]


def _side(side: FedSide) -> str:
    places = [p.removeprefix("boundary ") for p in side.places]
    shown = "boundaries " + ", ".join(places) if places[0] != "not told" else "slots not told apart"
    return f"{side.path}  ({side.engine} {side.version}) feeds {shown}: {side.why}"


def _body(cost: DraftCost, options: Options) -> list[str]:
    main = [f for f in cost.feeds if f.key in ("ref", "cand", "noise") or f.key.startswith("undone:")]
    lines = _table("fed with", main, options)
    lines += [line for f in main if f.note for line in _how(f, options)]
    for head, prefix in (
        ("ref, but from the candidate", "only:"),
        ("ref, of other layers", "shift:"),
    ):
        rows = [f for f in cost.feeds if f.key.startswith(prefix)]
        lines += ["", *_table(head, rows, options, brief=True)] if rows else []
    lines += ["", *_bins("position in the text", cost.positions, options)] if cost.positions else []
    prompts = cost.by_prompt if options.verbose else _worst(cost.by_prompt)
    title = "prompt" if options.verbose else "prompt, those that lose most"
    lines += ["", *_bins(title, prompts, options)] if prompts else []
    for each in cost.beside:
        lines += ["", *_beside(each, options)]
    lines += ["", *entry("states", f"{cost.state_verdict.value.upper()}  {cost.states}", options)]
    lines += entry("target", _targets(cost), options)
    for text in (*cost.dropped[:3], *cost.notes):
        lines += entry("note", text, options)
    return [*lines, "", *(f"next      {command}" for command in cost.next)]


def _targets(cost: DraftCost) -> str:
    if cost.ref.target == cost.cand.target:
        return cost.ref.target
    return f"{cost.ref.target}; for the candidate {cost.cand.target}"


def _how(feeding: Acceptance, options: Options) -> list[str]:
    """What was fed in place of the faulty slots."""
    text = f"{feeding.words}: {feeding.note}"
    if feeding.stands_in:
        text += f"; the candidate's capture does not hold what {', '.join(feeding.stands_in)} should be"
    return entry("", text, options)


def _table(head: str, feeds: Sequence[Acceptance], options: Options, brief: bool = False) -> list[str]:
    from ..report.columns import Column, table

    columns = [
        Column(head, tuple(f.words for f in feeds), left=True),
        Column("accepted", tuple(f"{f.accepted.value:.2f}" for f in feeds)),
        Column("change", tuple(_change(f.change) for f in feeds), left=True, rank=3, name="change"),
        Column("change", tuple(_value(f.change) for f in feeds), left=True, name="change"),
    ]
    if not brief:
        columns += [
            Column(f"at {j + 1}", tuple(_share(f.by_position[j]) for f in feeds), rank=2)
            for j in range(len(feeds[0].by_position))
        ]
        columns.append(Column("sampled", tuple(_number(f.sampled_accepted) for f in feeds), rank=4))
    return [line.plain for line in table(tuple(columns), options.width)]


def _change(change: Estimate | None) -> str:
    return "" if change is None else _spread(change, signed=True)


def _value(change: Estimate | None) -> str:
    return "" if change is None else f"{change.value:+.2f}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _bins(head: str, bins: Sequence[Bin], options: Options) -> list[str]:
    from ..report.columns import Column, table

    columns = (
        Column(head, tuple(b.label for b in bins), left=True),
        Column("steps", tuple(f"{b.steps:,}" for b in bins)),
        Column("ref", tuple(f"{b.ref:.2f}" for b in bins)),
        Column("cand", tuple(f"{b.cand:.2f}" for b in bins)),
    )
    return [line.plain for line in table(columns, options.width)]


def _worst(bins: Sequence[Bin]) -> tuple[Bin, ...]:
    known = [b for b in bins if b.steps]
    return tuple(sorted(known, key=lambda b: b.cand - b.ref)[:SHOWN_PROMPTS]) if len(known) > 1 else ()


def _beside(each: Beside, options: Options) -> list[str]:
    """What an engine measured, beside the prediction for the same steps."""
    from ..drafter.result import Estimate
    from ..report.columns import Column, table

    name = f"{each.engine} {each.version} measured"
    if each.why_not:
        return entry("measured", f"{each.path}: not laid beside the prediction: {each.why_not}", options)
    assert each.predicted_accepted is not None
    assert each.measured_accepted is not None
    assert each.accepted_difference is not None
    labels = (*(f"position {j + 1}" for j in range(len(each.predicted))), "accepted a step")
    columns = [Column(f"fed {', '.join(map(str, each.boundaries))}", labels, left=True)]
    for head, shares, whole, signed in (
        ("predicted", each.predicted, each.predicted_accepted, False),
        (name, each.measured, each.measured_accepted, False),
        ("apart", each.difference, each.accepted_difference, True),
    ):
        wide = (*(_points(v, signed) for v in shares), _spread(whole, signed))
        plain = (
            *(_points(Estimate(v.value), signed) for v in shares),
            _spread(Estimate(whole.value), signed),
        )
        columns += [Column(head, wide, rank=1, name=head), Column(head, plain, name=head)]
    lines = [line.plain for line in table(columns, options.width)]
    lines += wrapped(
        f"{each.prompts} prompts; {each.predicted_steps:,} steps predicted, {each.measured_steps:,} measured, all of whose "
        f"drafts lie in text that both wrote ({each.path})",
        options.width,
        "",
    )
    if each.stand_ins:
        text = (
            f"measured over {len(each.stand_ins)} stand-ins of hsparity's for kernels that {each.engine} lacks on this "
            f"machine: {', '.join(each.stand_ins)}. It is not {each.engine}'s own behaviour on a CPU"
        )
        lines += entry("note", text, options)
    return lines


def _points(value: Estimate, signed: bool = False) -> str:
    sign = "+" if signed else ""
    shown = f"{100 * value.value:{sign}.1f} %"
    if value.low is None or value.high is None:
        return shown
    return f"{shown} ({100 * value.low:{sign}.1f} to {100 * value.high:{sign}.1f})"


def _spread(value: Estimate, signed: bool = False) -> str:
    sign = "+" if signed else ""
    if value.low is None or value.high is None:
        return f"{value.value:{sign}.2f}"
    return f"{value.value:{sign}.2f} ({value.low:{sign}.2f} to {value.high:{sign}.2f})"
