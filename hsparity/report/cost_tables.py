"""The tables of the page about a draft's cost, as plain records the template prints."""

from __future__ import annotations

from collections.abc import Sequence

from ..drafter.result import Acceptance, Beside, Bin, DraftCost, FedSide
from . import spelling as sp
from .cost_values import apart, feeds_of, main_feeds, number, percent, points, spread
from .tables import Cell, HtmlTable


def feeds_table(cost: DraftCost) -> HtmlTable:
    """Every main feeding: accepted, change, acceptance by position, sampled."""
    return _feeds(
        "Accepted draft tokens a step, without the target's own. The change is against ref, paired by prompt, with its 95 % "
        "interval. At 1 to k: the share of steps in which that draft position is accepted, greedy. Sampled: when draft and "
        "target both sample at temperature 1.",
        "fed with",
        main_feeds(cost),
        sampled=True,
    )


def layers_table(cost: DraftCost) -> HtmlTable | None:
    """The head on other states of the reference; None where none were tried."""
    feeds = feeds_of(cost, "shift:")
    if not feeds:
        return None
    caption = (
        f"The reference's own states of other layers in place of those it is said to take, which get "
        f"{number(cost.feed('ref').accepted.value)}. A head does best on what it was trained on."
    )
    return _feeds(caption, "ref, of", feeds)


def _feeds(caption: str, head: str, feeds: Sequence[Acceptance], sampled: bool = False) -> HtmlTable:
    positions = range(max((len(f.by_position) for f in feeds), default=0))
    heads = [Cell(head, "l"), Cell("accepted"), Cell("change", "l")]
    heads += [Cell(f"at {j + 1}") for j in positions] + ([Cell("sampled")] if sampled else [])
    rows = []
    for f in feeds:
        cells = [Cell(sp.clean(f.words), "l words"), Cell(number(f.accepted.value))]
        cells += [Cell("" if f.change is None else spread(f.change, signed=True), "l")]
        cells += [Cell(percent(_at(f.by_position, j), 0)) for j in positions]
        cells += [Cell(number(f.sampled_accepted))] if sampled else []
        rows.append(tuple(cells))
    return HtmlTable(caption, tuple(heads), tuple(rows))


def positions_table(cost: DraftCost) -> HtmlTable:
    """Every figure by draft position."""
    rows = []
    for f in main_feeds(cost):
        for j in range(len(f.by_position)):
            figures = (f.by_position, f.conditional, f.agreement, f.sampled)
            cells = (Cell(sp.clean(f.words), "l words"), Cell(str(j + 1)), Cell(f"{f.steps:,}"))
            rows.append((*cells, *(Cell(percent(_at(values, j))) for values in figures)))
    caption = (
        "Accepted: of all steps. Given the one before: of the steps in which the position before it was accepted. Agreement: "
        "draft and target agree, whatever came before. Overlap: 1 - total variation of the two distributions, the expected "
        "acceptance when both sample."
    )
    heads = ("position", "steps", "accepted", "given the one before", "agreement", "overlap")
    return HtmlTable(caption, (Cell("fed with", "l"), *(Cell(h) for h in heads)), tuple(rows))


def slots_table(cost: DraftCost) -> HtmlTable:
    """What both sides feed into every slot, and what the candidate's costs alone."""
    alone = {f.key: f for f in feeds_of(cost, "only:")}
    heads = [Cell("slot", "l"), Cell("ref feeds", "l"), Cell("cand feeds", "l")]
    heads += [Cell("accepted"), Cell("change", "l")] if alone else []
    rows = []
    for i in range(max(len(cost.ref.slots), len(cost.cand.slots))):
        cells = [Cell(str(i), "l"), Cell(_fed(cost.ref, i), "l"), Cell(_fed(cost.cand, i), "l")]
        if alone:
            feed = alone.get(f"only:{i}")
            cells += [Cell("-" if feed is None else number(feed.accepted.value))]
            cells += [Cell("-" if feed is None else spread(feed.change, signed=True), "l")]
        rows.append(tuple(cells))
    caption = "What each side feeds the head, in the order in which its input layer takes the slots."
    if alone:
        caption += (
            " Accepted: with this slot alone from the candidate and the others from the reference. One wrong slot among right "
            "ones may cost little where all of them together cost much."
        )
    return HtmlTable(caption, tuple(heads), tuple(rows))


def _fed(side: FedSide, i: int) -> str:
    key, place = (values[i] if i < len(values) else "" for values in (side.slots, side.places))
    if not key:
        return "-"
    told = "not told apart" if place == "not told" else place
    return sp.clean(told if key.startswith("boundary.") and told.startswith("boundary") else f"{key}: {told}")


def beside_table(beside: Beside) -> HtmlTable:
    """Predicted, measured and their difference by position and in all, with intervals."""
    rows = [
        (f"position {j}", points(p), points(m), apart(d))
        for j, (p, m, d) in enumerate(
            zip(beside.predicted, beside.measured, beside.difference, strict=True), 1
        )
    ]
    rows.append(
        (
            "accepted a step",
            spread(beside.predicted_accepted),
            spread(beside.measured_accepted),
            spread(beside.accepted_difference, signed=True),
        )
    )
    heads = ("draft position", "predicted", "measured", "predicted less measured")
    caption = (
        f"{sp.count(beside.prompts, 'prompt')}; {sp.count(beside.predicted_steps, 'step')} predicted, "
        f"{beside.measured_steps:,} measured: those whose drafts all lie in text that both wrote. With 95 % intervals."
    )
    return HtmlTable(
        caption,
        tuple(Cell(h, "l" if i == 0 else "") for i, h in enumerate(heads)),
        tuple(tuple(Cell(t, "l" if i == 0 else "") for i, t in enumerate(row)) for row in rows),
    )


def bins_table(caption: str, head: str, bins: Sequence[Bin]) -> HtmlTable:
    """Accepted draft tokens a step of both sides, bin by bin."""
    rows = tuple(
        (
            Cell(sp.clean(b.label), "l words"),
            Cell(f"{b.steps:,}"),
            Cell(number(b.ref)),
            Cell(number(b.cand)),
            Cell(number(b.cand - b.ref, signed=True)),
        )
        for b in bins
    )
    heads = (Cell(head, "l"), Cell("steps"), Cell("ref"), Cell("cand"), Cell("change"))
    return HtmlTable(caption, heads, rows)


def sides_table(cost: DraftCost) -> HtmlTable:
    """Both sides lined up: whence, by which engine, what is fed and why."""
    ref, cand = _facts(cost.ref), _facts(cost.cand)
    rows = [
        (Cell(k, "l"), Cell(sp.clean(ref[k]), "l"), Cell(sp.clean(cand[k]), "l", icon=_mark(k, ref, cand)))
        for k in ref
    ]
    return HtmlTable(
        "Rows that differ are marked ≠.",
        (Cell("setting", "l"), Cell("reference", "l"), Cell("candidate", "l")),
        tuple(rows),
    )


def _facts(side: FedSide) -> dict[str, str]:
    return {
        "capture": side.path,
        "engine": f"{side.engine} {side.version}".rstrip(),
        "feeds": ", ".join(_fed(side, i) for i in range(len(side.slots))),
        "chosen so": side.why,
        "target's choice": side.target,
    }


def _mark(key: str, ref: dict[str, str], cand: dict[str, str]) -> str:
    return "≠" if key != "capture" and ref[key] != cand[key] else ""


def _at(values: Sequence[float], j: int) -> float | None:
    return values[j] if j < len(values) else None
