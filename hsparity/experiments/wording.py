"""What a bisection says in sentences."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from .alike import Alike
from .result import Bisect, Blame, Outcome, Span, State

if TYPE_CHECKING:
    from .bisecting import Wanted

SHOWN = 3


def headline(found: Bisect, within: bool, repeats: bool, plan: bool) -> str:
    """One sentence."""
    ignored = [
        e
        for e in found.experiments
        if e.state is State.NOT_APPLIED and e.purpose == "alike" and not e.capture
    ]
    if plan:
        new = [e for e in found.experiments if not e.cached and e.state is State.PLANNED]
        return f"{_count(len(new), 'capture')} to make at most, {len(found.experiments) - len(new)} more in the cache"
    if found.outcome is Outcome.NOTHING:
        said = f"all {found.tokens:,} tokens are bit-equal at the boundaries measured"
        if ignored:
            names = ", ".join(n for e in ignored for n in e.knobs)
            said += f"; NOT APPLIED although asked for: {names}, so this says nothing of it"
        return said
    if found.outcome is Outcome.NOISE:
        ratio = (
            f"{found.ratio:.2g}× what bf16 arithmetic costs" if found.ratio is not None else "its own noise"
        )
        if repeats and not within:
            return "the reference's own repeats differ from it by as much as the candidate does"
        said = f"the difference is {ratio}"
        if not found.causes:
            return said + "; no knob that was turned makes it"
        return f"{said}; what there is comes from {_names(found.causes)}"
    if found.outcome is Outcome.SETTLED:
        return f"{_names(found.causes)}: {found.causes[0].headline}"
    if found.causes:
        lead = found.causes[0]
        if lead.confidence == "settled":
            return (
                f"{_names(found.causes)} makes the difference; whether it is beyond the floor is not settled"
            )
        rival = f"; its rival is {lead.rival}" if lead.rival else ""
        return f"{lead.confidence}: {lead.name} {_share(lead.share)}{rival}"
    made = [e for e in found.experiments if e.state is State.MEASURED]
    if not made:
        return "no knob could be turned: nothing is known of the cause"
    return f"none of {_count(len(made), 'knob')} turned makes the difference"


def _names(causes: tuple[Blame, ...]) -> str:
    lead = causes[:SHOWN]
    sure = [b for b in lead if b.confidence == lead[0].confidence]
    return ", ".join(f"{b.name} {_share(b.share)}" for b in sure)


def _share(share: Span | None) -> str:
    if share is None:
        return ""
    value, low, high = (min(v, 1.0) for v in (share.value, share.low, share.high))
    return f"{value:.0%}" if high - low < 0.005 else f"{value:.0%} ({low:.0%} to {high:.0%})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def notes(found: Bisect, alike: Alike, across: bool) -> tuple[str, ...]:
    """What a reader of the shares has to know."""
    said = []
    if alike.stopped and len(alike.players) > 1:
        others = [d.knob.name for d in alike.players if d.knob.name not in found.causes[0].knobs]
        verb = "differs" if len(others) == 1 else "differ"
        said.append(
            f"stopped when {alike.stopped} was settled; {', '.join(others)} {verb} too (--all goes on)"
        )
    if found.unexplained is not None and found.unexplained.low > 0.05:
        where = "between the engines" if across else "with every knob set alike"
        said.append(f"{_share(found.unexplained)} of the difference is left {where}")
    whole = alike.whole
    left = whole.left if whole is not None and alike.repeats and not whole.lent else None
    if left is not None and left.bulk == left.tail == 0.0:
        said.append("with every knob set alike the reference is reproduced bit for bit")
    if across and found.floor.startswith("none"):
        said.append("no bf16 floor was given, so what two healthy engines differ by is part of every share")
    elif not across and found.ratio is None and found.outcome is Outcome.SETTLED:
        said.append(
            "measured against the engine's own repeats: whether bf16 alone costs as much takes --floor"
        )
    return tuple(said)


def steps(found: Bisect, wanted: Wanted) -> tuple[str, ...]:
    """What to type next."""
    from .bisecting import command_of

    if wanted.plan:
        return (command_of(wanted),)
    made = [b.next for b in found.causes if b.next][:2]
    pair = [found.ref.path, found.cand.path]
    if found.outcome is Outcome.INCONCLUSIVE and not any(b.confidence == "settled" for b in found.causes):
        made.append(shlex.join(["hsparity", "replay", *pair]))
        if not wanted.everything:
            made.append(command_of(wanted, "--all"))
    if found.ratio is None and found.outcome in (Outcome.SETTLED, Outcome.INCONCLUSIVE):
        made.append(command_of(wanted, "--floor", "FP32", "--floor", "BF16"))
    return tuple(dict.fromkeys(made))
