"""Which site of one comparison is held against which of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hsparity.model import Comparison, SiteDelta
from hsparity.report import view

NAMED = 4  # sites in a sentence
Key = tuple[str, str]
Pair = tuple[SiteDelta | None, SiteDelta | None]


def matched(old: Comparison, new: Comparison) -> tuple[Pair, ...]:
    """(then, now) of every site of either, in the order of the new one; those that only the old one has come last."""
    key = _by_reference(old, new) if by_reference(old, new) else _by_both
    then, now = ({key(d): d for d in c.deltas} for c in (old, new))
    return tuple((then.get(k), now.get(k)) for k in dict.fromkeys([*now, *then]))


def shared(old: Comparison, new: Comparison) -> tuple[tuple[SiteDelta, SiteDelta], ...]:
    """The sites that both have."""
    return tuple((a, b) for a, b in matched(old, new) if a is not None and b is not None)


def by_reference(old: Comparison, new: Comparison) -> bool:
    """Whether sites are held by the reference's boundary alone: another offset, or slots on one side and boundaries on the
    other, name one question by other sites of the candidate."""
    if old.request.offset != new.request.offset:
        return True
    keys = [{_by_both(d) for d in c.deltas} for c in (old, new)]
    return not keys[0] & keys[1]


def _by_both(delta: SiteDelta) -> Key:
    return delta.ref, delta.cand


def _by_reference(old: Comparison, new: Comparison) -> Callable[[SiteDelta], Key]:
    """By the reference's boundary where each result has one site of the candidate on it, else by both sites."""
    counts = [Counter(d.ref for d in c.deltas) for c in (old, new)]
    several = {ref for count in counts for ref, n in count.items() if n > 1}

    def key(delta: SiteDelta) -> Key:
        alone = view.boundary_of(delta.ref) is not None and delta.ref not in several
        return (delta.ref, "") if alone else _by_both(delta)

    return key


def no_longer_asked(old: Comparison, new: Comparison) -> tuple[str, ...]:
    """The sites that decided then and do not now, in words; a few, then how many more."""
    lost = tuple(
        view.place_words(then.ref)
        for then, now in matched(old, new)
        if then is not None and then.requested and (now is None or not now.requested)
    )
    return (*lost[:NAMED], f"{len(lost) - NAMED} more") if len(lost) > NAMED else lost
