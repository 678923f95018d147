"""The page that `hsparity drafter` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .output import tell_reports, write_texts
from .plain_page import STYLES, entry, framed, wrapped

if TYPE_CHECKING:
    from ..drafter.result import Acceptance, Beside, Bin, DraftCost, FedSide
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


def publish(cost: DraftCost, outputs: dict[str, str], options: Options) -> None:
    """Write every report asked for; the page goes to stdout unless a report took it with '-'. Raises E106."""
    from ..report.cost_page import render as as_html

    texts = {
        "json": lambda: cost.to_json(indent=1) + "\n",
        "html": lambda: as_html(cost),
        "terminal": lambda: render(cost, options),
    }
    write_texts(outputs, lambda name: texts[name](), options)
    tell_reports(outputs)


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
    from ..report.cost_values import feeds_of, main_feeds
    from ..report.spelling import clean
    from ..report.view import REDACTED

    main = main_feeds(cost)
    lines = _table("fed with", main, options)
    lines += [line for f in main if f.note for line in _how(f, options)]
    for head, prefix in (
        ("ref, but from the candidate", "only:"),
        ("ref, of other layers", "shift:"),
    ):
        rows = feeds_of(cost, prefix)
        lines += ["", *_table(head, rows, options, brief=True)] if rows else []
    lines += ["", *_bins("position, every row as a start", cost.positions, options)] if cost.positions else []
    prompts = cost.by_prompt if options.verbose else _worst(cost.by_prompt)
    title = "prompt" if options.verbose else "prompt, those that lose most"
    lines += ["", *_bins(title, prompts, options)] if prompts else []
    for each in cost.beside:
        lines += ["", *_beside(each, options)]
    lines += ["", *entry("states", f"{cost.state_verdict.value.upper()}  {cost.states}", options)]
    if options.verbose or cost.ref.target.startswith("the text"):
        lines += entry("target", _targets(cost), options)
    for text in (*cost.dropped[:3], *cost.notes):
        lines += entry("note", text, options)
    if cost.fix:
        lines += ["", *(line for text in cost.fix for line in entry("fix", text, options))]
    lines += ["", *(f"next      {clean(command)}" for command in cost.next)]
    return [*lines, "", *wrapped(REDACTED, options.width, "")] if cost.redacted else lines


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
    from ..report.cost_values import number, percent, spread
    from ..report.spelling import clean

    changes = [f.change for f in feeds]
    columns = [
        Column(head, tuple(clean(f.words) for f in feeds), left=True),
        Column("accepted", tuple(number(f.accepted.value) for f in feeds)),
        Column(
            "change", tuple(spread(c, True) if c else "" for c in changes), left=True, rank=3, name="change"
        ),
        Column(
            "change", tuple(number(c.value, True) if c else "" for c in changes), left=True, name="change"
        ),
    ]
    if not brief:
        columns += [
            Column(f"at {j + 1}", tuple(percent(f.by_position[j], 0) for f in feeds), rank=2)
            for j in range(len(feeds[0].by_position))
        ]
        columns.append(Column("sampled", tuple(number(f.sampled_accepted) for f in feeds), rank=4))
    return [line.plain for line in table(tuple(columns), options.width)]


def _bins(head: str, bins: Sequence[Bin], options: Options) -> list[str]:
    from ..report.columns import Column, table
    from ..report.cost_values import number
    from ..report.spelling import clean

    columns = (
        Column(head, tuple(clean(b.label) for b in bins), left=True),
        Column("steps", tuple(f"{b.steps:,}" for b in bins)),
        Column("ref", tuple(number(b.ref) for b in bins)),
        Column("cand", tuple(number(b.cand) for b in bins)),
    )
    return [line.plain for line in table(columns, options.width)]


def _worst(bins: Sequence[Bin]) -> tuple[Bin, ...]:
    known = [b for b in bins if b.steps and b.cand < b.ref]
    return tuple(sorted(known, key=lambda b: b.cand - b.ref)[:SHOWN_PROMPTS]) if len(known) > 1 else ()


def _beside(each: Beside, options: Options) -> list[str]:
    """What an engine measured, beside the prediction for the same steps."""
    from ..drafter.result import Estimate
    from ..report.columns import Column, table
    from ..report.cost_values import apart, points, spread
    from ..report.spelling import clean

    name = clean(f"{each.engine} {each.version} measured")
    if each.why_not:
        return entry("measured", f"{each.path}: not laid beside the prediction: {each.why_not}", options)
    assert each.predicted_accepted is not None
    assert each.measured_accepted is not None
    assert each.accepted_difference is not None
    labels = (*(f"position {j + 1}" for j in range(len(each.predicted))), "accepted a step")
    columns = [Column(f"fed {', '.join(map(str, each.boundaries))}", labels, left=True)]
    for head, spelled, shares, whole, signed in (
        ("predicted", points, each.predicted, each.predicted_accepted, False),
        (name, points, each.measured, each.measured_accepted, False),
        ("apart", apart, each.difference, each.accepted_difference, True),
    ):
        # Without their intervals where the page is narrow.
        for figures, rank in (((*shares, whole), 1), (tuple(Estimate(v.value) for v in (*shares, whole)), 0)):
            cells = (*(spelled(v) for v in figures[:-1]), spread(figures[-1], signed))
            short = head if rank else head.rpartition(" ")[2]
            columns.append(Column(short, cells, rank=rank, name=head))
    lines = [line.plain for line in table(columns, options.width)]
    lines += wrapped(
        f"{each.prompts} prompts; {each.predicted_steps:,} steps predicted, {each.measured_steps:,} measured, all of whose "
        f"drafts lie in text that both wrote ({clean(f'{each.path}, {each.engine} {each.version}')})",
        options.width,
        "",
    )
    if each.stand_ins:
        named = f": {', '.join(each.stand_ins)}" if options.verbose else " (-v names them)"
        text = (
            f"measured over {len(each.stand_ins)} stand-ins of hsparity's for kernels that {each.engine} lacks on this "
            f"machine{named}. It is not {each.engine}'s own behaviour on a CPU"
        )
        lines += entry("note", text, options)
    return lines
