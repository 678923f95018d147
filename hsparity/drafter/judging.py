"""The verdict on the cost, in words: it is about accepted tokens; what the states are, the comparison says beside it."""

from __future__ import annotations

from collections.abc import Sequence

from hsparity.drafter.draft import Draft
from hsparity.drafter.fed import Fed
from hsparity.drafter.result import Acceptance, Estimate
from hsparity.model import Comparison, Verdict

SLIGHT = 0.01  # of what the reference gets accepted: no engine runs alike to less
SMALL = 0.05  # what may be lost, at most, for a pair to cost nothing
IDLE = 0.2  # draft tokens a step on the reference's own states: the head drafts nothing worth measuring
BETTER = 1.2  # times as much accepted on another layer's states: the head was trained on those

Judgement = tuple[Verdict, str, list[str], list[str]]


def judged(
    made: Sequence[Acceptance],
    comparison: Comparison,
    feeds: tuple[Fed, Fed],
    draft: Draft,
    generated: bool,
) -> Judgement:
    """Verdict, headline, notes, and what to type next with {draft}, {ref} and {cand} in it."""
    known = {a.key: a for a in made}
    ref = known["ref"]
    notes: list[str] = []
    notes += _better_elsewhere(known)
    if not generated:
        notes.append(
            "no generated text is known: every row stands in for a step, prompts' too, from which an engine never drafts; capture "
            "with --generate N, or say where answers begin with --prompts or --measured"
        )
    broken = _broken(known)
    notes += broken
    if ref.steps == 0:
        headline = "no row of the shared text can be drafted from: it is shorter than the chain"
        return Verdict.INCONCLUSIVE, headline, notes, [_AGAIN]
    if known["cand"].steps == 0:
        headline = (
            "the candidate's last state says of no row what its target takes: it is not finite, or not there"
        )
        return Verdict.INCONCLUSIVE, headline, notes, ["hsparity compare {ref} {cand}"]
    if ref.accepted.value < IDLE:
        headline = (
            f"on the reference's own states this head gets {ref.accepted.value:.2f} draft tokens a step accepted: "
            "there is nothing to lose, and the head or what it is fed is to blame"
        )
        if ref.nonfinite:
            headline = "on the reference's own states this head drafts what is not finite: the head or those states are damaged"
        return (
            Verdict.INCONCLUSIVE,
            headline,
            notes,
            ["hsparity drafter check {draft} --engine {engine} --model M", *_trained_next(known)],
        )
    verdict, headline = _weighed(known, notes, comparison)
    if broken and verdict is Verdict.PARITY:
        verdict, headline = (
            Verdict.INCONCLUSIVE,
            "some of the rows are not finite: what they cost is not known",
        )
    return verdict, headline, notes, _following(known, comparison)


def _weighed(known: dict[str, Acceptance], notes: list[str], comparison: Comparison) -> tuple[Verdict, str]:
    ref, cand = known["ref"], known["cand"]
    lost = _lost(cand)
    per_step = f"{_two(ref.accepted.value)} accepted draft tokens a step"
    amount = f"{_two(lost.value)} of {per_step}"
    noise = known.get("noise")
    allowed = max(SLIGHT * ref.accepted.value, _lost(noise).high or 0.0 if noise else 0.0)
    if lost.low is None or lost.high is None:
        return Verdict.INCONCLUSIVE, f"the difference costs {amount} on one prompt, which has no interval"
    shown = f"{amount} (95 % interval {_two(lost.low)} to {_two(lost.high)})"
    if lost.low > allowed:
        return Verdict.DIVERGED, f"the difference costs {shown}{_cause(known, comparison, lost.value)}"
    if lost.high <= max(allowed, SMALL * ref.accepted.value):
        said = f"costs {amount}, within {_two(lost.low)} to {_two(lost.high)}"
        if lost.value < 0:
            said = f"gains {_two(-lost.value)} on {per_step}, within {_two(-lost.high)} to {_two(-lost.low)}"
        return Verdict.PARITY, f"no cost beyond noise: it {said}"
    notes.append("the interval is too wide for a verdict: more prompts, or longer answers, narrow it")
    return Verdict.INCONCLUSIVE, f"the difference costs {shown}: too few steps to tell it from none"


def _cause(known: dict[str, Acceptance], comparison: Comparison, lost: float) -> str:
    """ ": HS101 layer-offset": the finding that brings back at least half of the loss when it is undone; where none can be undone,
    the leading one."""
    found = {f.code: f.name for f in comparison.findings if f.severity == "cause" and not f.ruled_out}
    undone = [a for key, a in known.items() if key.startswith("undone:HS")]
    best = max(undone, key=lambda a: a.accepted.value, default=None)
    code = next(iter(found), "")
    if best is not None:
        regained = best.accepted.value - known["cand"].accepted.value
        code = best.key.partition(":")[2] if regained >= lost / 2 else ""
    return f": {code} {found[code]}" if code in found else ""


def _broken(known: dict[str, Acceptance]) -> list[str]:
    """One sentence for each side whose states, or whose drafts, are not finite."""
    return [
        f"fed with {words} {known[key].nonfinite:,} rows are not finite, or what the head makes of them: no draft there counts as "
        "accepted"
        for key, words in (("ref", "the reference's states"), ("cand", "the candidate's states"))
        if known[key].nonfinite
    ]


def _two(value: float) -> str:
    """Two decimals; no minus before nothing."""
    return f"{round(value, 2) + 0.0:.2f}"


def _lost(feeding: Acceptance) -> Estimate:
    """What a feeding loses against the reference's; positive is a loss."""
    change = feeding.change
    assert change is not None
    if change.low is None or change.high is None:
        return Estimate(-change.value)
    return Estimate(-change.value, -change.high, -change.low)


def _better_elsewhere(known: dict[str, Acceptance]) -> list[str]:
    """Where the head does better on other states than on the reference's: the candidate's, or those of other layers."""
    ref, cand, best = known["ref"], known["cand"], _best_shift(known)
    if cand.change and (cand.change.low or 0.0) > 0 and cand.accepted.value > BETTER * ref.accepted.value:
        return [
            "the candidate's states suit this head better than the reference's: REF is not what it was trained on"
        ]
    if best is None:
        return []
    word = "probably" if best.accepted.value > BETTER * ref.accepted.value else "perhaps"
    return [
        f"the head does better on other states of the reference, {best.words}: {best.accepted.value:.2f} accepted a step, against "
        f"{ref.accepted.value:.2f}. It was {word} trained on those, and is then at fault itself, or its config: hsparity drafter "
        "check --trained-on"
    ]


def _best_shift(known: dict[str, Acceptance]) -> Acceptance | None:
    others = [a for key, a in known.items() if key.startswith("shift:") and a.change is not None]
    best = max(others, key=lambda a: a.accepted.value, default=None)
    if best is None or best.change is None or best.change.low is None:
        return None
    return best if best.change.low > 0 and best.accepted.value >= IDLE else None


def _trained_next(known: dict[str, Acceptance]) -> list[str]:
    best = _best_shift(known)
    if best is None or best.key == "shift:norm":
        return []
    numbers = best.words.rpartition("boundaries ")[2].replace(" ", "")
    return [f"hsparity drafter {{draft}} {{ref}} {{cand}} --boundaries {numbers}"]


_AGAIN = "hsparity capture ENGINE --model M --generate 64 -o DIR"


def _following(known: dict[str, Acceptance], comparison: Comparison) -> list[str]:
    lines = _trained_next(known)
    if comparison.verdict is not Verdict.PARITY:
        lines.append("hsparity compare {ref} {cand}")
    return [*lines, "hsparity drafter measure {draft} --engine {engine} --model M"]
