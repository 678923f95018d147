"""What the server feeds at each place of the dataset, and what the dataset holds there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hsparity.align.tokens import PromptRows
from hsparity.audit.readings import SampleReading, grouped, places_of, read
from hsparity.audit.result import Reading
from hsparity.capture.readers.base import LAST, Slot
from hsparity.capture.source import Source
from hsparity.metrics.kernel import Norm
from hsparity.pairing import slots_of
from hsprobe.schema import Site


@dataclass(frozen=True, slots=True)
class Claims:
    """Slot number -> the site it ought to be, by what the server feeds; empty where nothing says it."""

    sites: Mapping[int, str]
    why_not: str = ""  # why there are none


def fed(server: Source, prompts: Sequence[PromptRows], norm: Norm | None) -> tuple[int, ...]:
    """The boundaries that a capture's own slots are, in slot order, read on its own hooks; empty where it has no slots,
    or one of them is no plain boundary."""
    slots = slots_of(server)
    if not slots:
        return ()
    own = [
        PromptRows((p.prompts[0], p.prompts[0]), p.start, p.positions, p.token_ids, (p.rows[0], p.rows[0]))
        for p in prompts
    ]
    groups = grouped(read(server, server, own, slots, norm))
    places = [number for number, _ in places_of(server, norm)]
    signature = next(iter(groups), ())
    return () if -1 in signature else tuple(places[i] for i in signature)


def claims(slots: Sequence[Slot], feeds: Sequence[int], num_layers: int, last_normed: bool | None) -> Claims:
    """The auxiliary slots are the server's, in order; the last state is what the format's trainer takes it to be."""
    aux = [i for i, slot in enumerate(slots) if slot.role != LAST]
    found: dict[int, str] = {}
    why = ""
    if not feeds:
        why = "nothing says which boundaries the server feeds"
    elif len(aux) != len(feeds):
        why = f"the dataset holds {len(aux)} auxiliary slots, the server feeds {len(feeds)}"
    elif len(set(feeds)) < len(feeds):
        why = "the server feeds one boundary twice"
    else:
        for i, number in zip(aux, feeds, strict=True):
            found[i] = "final_norm" if number > num_layers else Site("boundary", number).key
    for i, slot in enumerate(slots):
        if slot.role == LAST and last_normed is not None:
            key = "final_norm" if last_normed else Site("boundary", num_layers).key
            if key not in found.values():
                found[i] = key
    return Claims(found if not why or not aux else {}, why)


def summed(
    group: Sequence[SampleReading],
    slots: Sequence[Slot],
    places: Sequence[tuple[int, str]],
    claimed: Claims,
    num_layers: int,
) -> tuple[Reading, ...]:
    """One reading per slot over the samples of a group: medians of their errors."""
    errors = np.median(np.stack([r.errors for r in group]), axis=0)
    made = []
    for k, slot in enumerate(slots):
        order = np.argsort(errors[k], kind="stable")
        best, rival = int(order[0]), int(order[1]) if len(order) > 1 else int(order[0])
        plain = all(r.plain(k) and r.best(k) == best for r in group)
        number = places[best][0] if plain else None
        wanted = _number(claimed.sites.get(k, ""), num_layers)
        made.append(
            Reading(
                slot=slot.label,
                role=slot.role,
                said=_said(slot),
                holds=worded(places[best][0], num_layers) if plain else "",
                boundary=number,
                error=float(errors[k, best]),
                rival=worded(places[rival][0], num_layers),
                rival_error=float(errors[k, rival]),
                server=worded(wanted, num_layers) if wanted is not None else "",
                right=None if wanted is None else number == wanted,
            )
        )
    return tuple(made)


def worded(number: int, num_layers: int) -> str:
    """ "boundary 3", "boundary 8 after the final norm"."""
    return f"boundary {number}" if number <= num_layers else f"boundary {num_layers} after the final norm"


def _number(key: str, num_layers: int) -> int | None:
    if not key:
        return None
    return num_layers + 1 if key == "final_norm" else Site.parse(key).index


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
