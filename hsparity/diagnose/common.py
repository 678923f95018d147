"""Readings of the facts that several causes share, worded once."""

from __future__ import annotations

from hsparity.diagnose.facts import SPIKE, Facts
from hsparity.diagnose.places import EXACT, OFF
from hsparity.diagnose.weighing import Hypothesis

CLEAR = 2.0
SIDES = {"ref": "the reference", "cand": "the candidate"}


def times(ratio: float) -> str:
    """ "3.1x" with the sign that the reports print."""
    return f"{ratio:.2g}×"


def first_words(f: Facts) -> str:
    """What position 0 shows against later positions."""
    if f.one_kernel:
        return f"position 0 is equal in every bit at every boundary, later positions are not (boundary {f.boundary})"
    return (
        f"position 0 stands at {times(f.first.ratio)} the floor, later positions at {times(f.first.later)} "
        f"(boundary {f.boundary})"
    )


def needs_first_off(f: Facts, h: Hypothesis, points: float = 1.0) -> None:
    """For what would be wrong at every token: position 0 at the floor rules it out."""
    if f.first.word == EXACT:
        h.out(f"{first_words(f)}: wrong weights, norms or linear layers would show there as well")
    elif f.first.word == OFF:
        h.plus(points, f"{first_words(f)}: it is not attention over several keys")


def needs_first_exact(f: Facts, h: Hypothesis, points: float = 2.0) -> None:
    """For what acts through scores: softmax over one key is exact, whatever the score."""
    if f.first.word == OFF:
        h.out(f"{first_words(f)}: a softmax over one key is exact, so scores cannot be what is wrong")
    elif f.first.word == EXACT:
        # A separation that a token's own luck nearly makes is worth less.
        points *= 1.0 if f.few or f.one_kernel or f.first.later >= CLEAR * f.first.ratio else 0.75
        h.plus(points, f"{first_words(f)}: a softmax over one key is exact, whatever the scores")


def start_words(f: Facts) -> str:
    if f.equal_until is not None:
        return f"all tokens are equal in every bit up to boundary {f.equal_until}, and not at boundary {f.boundary}"
    return f"boundary {f.boundary} is the first beyond the floor ({times(f.ratio)})"


def from_first_layer(f: Facts, h: Hypothesis, points: float, later: float) -> None:
    """For what every layer does: the first layer shows it already."""
    if f.start == "first":
        h.plus(points, f"{start_words(f)}: it is there from the first layer on")
    elif f.start in ("later", "experts"):
        h.minus(later, f"{start_words(f)}: the layers before are at the floor")


def one_layer(f: Facts) -> bool:
    """Whether the layer that the error enters at adds more than those behind it."""
    return f.spike is not None and f.spike >= SPIKE


def no_edges(f: Facts, h: Hypothesis, points: float = 2.0) -> None:
    for found in f.edges.values():
        what = {
            "position": f"position {found.position} on",
            "pass": f"the second pass on (position {found.position})",
            "token": "one kind of token on",
        }.get(found.kind, f"{found.kind} rows")
        h.minus(points + 1.0 * (found.kind == "position"), f"the error begins at an edge: {what}")
        break


def setting(f: Facts, h: Hypothesis, name: str, points: float, text: str) -> None:
    """A setting that differs, and more if it is the only one."""
    alone = f.mine.engine == f.other.engine and f.only(name, "weights" if name == "quantisation" else name)
    h.plus(
        points + 1.0 * alone, f"{text}; nothing else that changes the arithmetic differs" if alone else text
    )


def states(f: Facts, h: Hypothesis, *words: str) -> None:
    """Values that the two configs state differently."""
    h.stated = [line for line in f.config if line.startswith(words)]
    if h.stated:
        h.plus(3.0, f"the configs differ in {h.stated[0].partition('; expect')[0]}")


def captured(f: Facts) -> str:
    """The side whose run is looked at, for a sentence."""
    return SIDES[f.one]
