"""What the server feeds at each place of the dataset, and what the dataset holds there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows
from hsparity.audit.readings import FAR, PLAIN, SampleReading, places_of, plain, read
from hsparity.audit.result import Reading
from hsparity.capture.readers.base import LAST, Slot
from hsparity.capture.source import Source
from hsparity.metrics.kernel import Norm
from hsparity.pairing import slots_of
from hsprobe.schema import Site

OWN = (
    2.0**-6
)  # a slot is what the hook beside it saw: the sum of hidden and residual, rounded once more at most
STRAY = 0.01  # of the rows may be otherwise


@dataclass(frozen=True, slots=True)
class Claims:
    """What the slots of a dataset ought to be, by what the server feeds."""

    sites: Mapping[int, str]  # slot number -> site, each site once; empty where nothing says it
    why_not: str = ""  # why there are none
    numbers: Mapping[int, int] = field(
        default_factory=dict
    )  # slot number -> boundary; L + 1: the normed last one
    places: tuple[
        int, ...
    ] = ()  # what a dataset for this server holds, slot by slot; empty where it is not known
    free_last: bool = False  # nothing says what a last state ought to be
    refuted: bool = False  # the number of slots alone shows that these are not what the server feeds


def fed(server: Source, prompts: Sequence[PromptRows], norm: Norm | None) -> tuple[int, ...]:
    """The boundaries that a capture's own slots are, in slot order, read on its own hooks; empty where it has no slots,
    or one of them is not what the hook beside it saw."""
    slots = slots_of(server)
    if not slots:
        return ()
    own = [
        PromptRows((p.prompts[0], p.prompts[0]), p.start, p.positions, p.token_ids, (p.rows[0], p.rows[0]))
        for p in prompts
    ]
    errors = np.max(np.stack([r.errors for r in read(server, server, own, slots, norm)]), axis=0)
    places = places_of(server, norm)
    found = []
    for k, slot in enumerate(slots):
        best = int(errors[k].argmin())
        number, key = places[best]
        if errors[k, best] > OWN or not plain(errors[k]) or (key and _strays(server, own, slot, key) > STRAY):
            return ()
        found.append(number)
    return tuple(found)


def _strays(server: Source, prompts: Sequence[PromptRows], slot: str, key: str) -> float:
    """Share of rows in which two sites of a capture differ: medians see none of it."""
    apart = total = 0
    for p in prompts:
        held, seen = (server.rows(p.prompts[0], name, p.rows[0]).float() for name in (slot, key))
        near = (held - seen).norm(dim=1) <= OWN * seen.norm(dim=1)
        apart, total = apart + int((~near).sum()), total + len(near)
    return apart / total


def claims(slots: Sequence[Slot], feeds: Sequence[int], num_layers: int, last_normed: bool | None) -> Claims:
    """The auxiliary slots are the server's, in order; the last state is what the format's trainer takes it to be."""
    aux = [i for i, slot in enumerate(slots) if slot.role != LAST]
    ends = [i for i, slot in enumerate(slots) if slot.role == LAST] if last_normed is not None else []
    end = num_layers + 1 if last_normed else num_layers
    why, refuted = _mismatch(len(aux), len(slots) > len(aux), feeds)
    # Slots that the files or the user name, as those of a capture, are no list that a draft is fed as it stands.
    refuted = refuted and not any(slots[i].site for i in aux)
    places = (*feeds, *(end for _ in ends)) if feeds and len(set(feeds)) == len(feeds) else ()
    if why and aux:
        return Claims({}, why, places=places, free_last=last_normed is None, refuted=refuted)
    numbers = {**({} if why else dict(zip(aux, feeds, strict=True))), **dict.fromkeys(ends, end)}
    sites: dict[int, str] = {}
    for i, number in numbers.items():
        key = key_of(number, num_layers)
        if key not in sites.values():
            sites[i] = key
    return Claims(sites, why, numbers, places, last_normed is None)


def _mismatch(aux: int, has_last: bool, feeds: Sequence[int]) -> tuple[str, bool]:
    """Why slots and feeds cannot be put side by side, and whether their numbers alone refute the dataset: not where a
    slot more or less may be the last state, unnamed or named in error."""
    if not feeds:
        return "nothing says which boundaries the server feeds", False
    if len(set(feeds)) < len(feeds):
        return "the server feeds one boundary twice", False
    if aux == len(feeds):
        return "", False
    why = f"the dataset holds {aux} auxiliary slots, the server feeds {len(feeds)}"
    if has_last and aux == len(feeds) - 1:
        return f"{why}; where its last slot is one too, --slots {','.join('?' * (aux + 1))} says so", False
    if not has_last and aux == len(feeds) + 1:
        return f"{why}; where one is the last state, --slots {'?,' * len(feeds)}last says so", False
    return why, True


def summed(
    group: Sequence[SampleReading],
    slots: Sequence[Slot],
    places: Sequence[tuple[int, str]],
    claimed: Claims,
    num_layers: int,
) -> tuple[Reading, ...]:
    """One reading per slot over the samples of a group: medians of their errors."""
    errors = np.median(np.stack([r.errors for r in group]), axis=0)
    numbers = [number for number, _ in places]
    made = []
    for k, slot in enumerate(slots):
        order = np.argsort(errors[k], kind="stable")
        best, rival = int(order[0]), int(order[1]) if len(order) > 1 else int(order[0])
        read_plainly = plain(errors[k])
        wanted = claimed.numbers.get(k)
        told = _told(slot, num_layers)
        made.append(
            Reading(
                slot=slot.label,
                role=slot.role,
                said=_said(slot),
                holds=worded(numbers[best], num_layers) if read_plainly else "",
                boundary=numbers[best] if read_plainly else None,
                error=float(errors[k, best]),
                rival=worded(numbers[rival], num_layers),
                rival_error=float(errors[k, rival]),
                server=worded(wanted, num_layers) if wanted is not None else "",
                right=_right(errors[k], numbers.index(wanted)) if wanted in numbers else None,
                refuted=told in numbers and _right(errors[k], numbers.index(told)) is False,
            )
        )
    return tuple(made)


def _told(slot: Slot, num_layers: int) -> int | None:
    """The place that the files or the user say a slot is; L + 1: the normed last one."""
    if slot.role == LAST and slot.normed is not None:
        return num_layers + int(slot.normed)
    site = Site.parse(slot.site) if slot.site else None
    if site is None or site.kind not in ("boundary", "final_norm"):
        return None
    return num_layers + 1 if site.kind == "final_norm" else site.index


def _right(errors: NDArray[np.float64], wanted: int) -> bool | None:
    """Whether a slot's errors [places] put it where it ought to be; None where they are no plain answer: the comparison
    gives one."""
    best = float(errors.min())
    if best >= FAR:
        return False
    if errors[wanted] == best:  # two places may hold the same tensor
        return True if (errors[errors > best] >= PLAIN * best).all() else None
    return False if errors[wanted] >= PLAIN * best else None


def key_of(number: int, num_layers: int) -> str:
    """The site of a place; L + 1 is the state after the final norm."""
    return "final_norm" if number > num_layers else Site("boundary", number).key


def worded(number: int, num_layers: int) -> str:
    """ "boundary 3", "boundary 8, normed"."""
    return f"boundary {number}" if number <= num_layers else f"boundary {num_layers}, normed"


def _said(slot: Slot) -> str:
    parts = []
    if slot.native_id is not None:
        parts.append(f"id {slot.native_id}")
    if slot.site:
        parts.append(_place(slot.site))
    if slot.normed is not None:
        parts.append("normed" if slot.normed else "before the norm")
    return ", ".join(parts)


def _place(key: str) -> str:
    site = Site.parse(key)
    return f"boundary {site.index}" if site.kind == "boundary" else site.kind
