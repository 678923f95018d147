"""`--slots 2,30,58,last`: what a user knows of the places in a file's states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hsparity.capture.readers.base import LAST, Slot
from hsparity.errors import HsparityError
from hsprobe.schema import Site

HELP = (
    "2      the producer's own id 2; which boundary that is, the data say\n"
    "b3     boundary 3, the stream after 3 layers\n"
    "last   the last hidden state, normed or not; last-raw and last-normed say which\n"
    "?      not known"
)


@dataclass(frozen=True, slots=True)
class Name:
    """What is said of one place."""

    text: str
    native_id: int | None = None
    boundary: int | None = None
    last: bool = False
    normed: bool | None = None


def parse(text: str | None) -> tuple[Name, ...]:
    """The names of a list, in slot order; none when it is left out. Raises E102."""
    if not text:
        return ()
    names = tuple(_name(part.strip().lower(), text) for part in text.split(","))
    if sum(name.last for name in names) > 1:
        raise HsparityError("E102", f"bad --slots {text[:60]!r}: only one slot is the last state", help=HELP)
    return names


def _name(part: str, text: str) -> Name:
    if part.isdecimal() and len(part) < 7:
        return Name(part, native_id=int(part))
    if part[:1] == "b" and part[1:].isdecimal() and len(part) < 8:
        return Name(part, boundary=int(part[1:]))
    if part in ("last", "last-raw", "last-normed"):
        return Name(part, last=True, normed={"last-raw": False, "last-normed": True}.get(part))
    if part == "?":
        return Name(part)
    raise HsparityError("E102", f"bad --slots {text[:60]!r}: {part[:20]!r} names no slot", help=HELP)


def aux_count(names: Sequence[Name]) -> int | None:
    """How many of the names are auxiliary slots; None without names."""
    return sum(not name.last for name in names) if names else None


def given(slots: Sequence[Slot], names: Sequence[Name]) -> tuple[Slot, ...]:
    """The file's slots with what the user says of them. Raises E102 where the counts differ."""
    if not names:
        return tuple(slots)
    if len(names) != len(slots):
        notes = (
            f"--slots  {len(names)}: {', '.join(n.text for n in names)}",
            f"files    {len(slots)}: {', '.join(s.label for s in slots)}",
        )
        raise HsparityError(
            "E102", "--slots names another number of slots than the samples hold", notes, HELP
        )
    return tuple(
        replace(
            slot,
            role=LAST if name.last else "aux",
            native_id=name.native_id if name.native_id is not None else slot.native_id,
            normed=slot.normed if name.normed is None else name.normed,
            site=Site("boundary", name.boundary).key if name.boundary is not None else slot.site,
        )
        for slot, name in zip(slots, names, strict=True)
    )


def site_keys(slots: Sequence[Slot], num_layers: int) -> tuple[str, ...]:
    """The site of each slot: what is said for certain, else `slot.i`.

    A last state said to be normed is `final_norm`, one said not to be is boundary L where L is known. Raises E102 for a
    place named twice or outside the model.
    """
    keys: list[str] = []
    for i, slot in enumerate(slots):
        key = slot.site
        if not key and slot.role == LAST and slot.normed:
            key = "final_norm"
        elif not key and slot.role == LAST and slot.normed is False and num_layers:
            key = Site("boundary", num_layers).key
        key = key or Site("slot", i).key
        site = Site.parse(key)
        if site.kind == "boundary" and num_layers and site.index > num_layers:
            raise HsparityError(
                "E102", f"bad --slots: b{site.index} lies outside a model of {num_layers} layers"
            )
        if key in keys:
            raise HsparityError("E102", f"bad --slots: two slots are said to be {key}", help=HELP)
        keys.append(key)
    return tuple(keys)


def label(slot: Slot) -> str:
    """A slot as reports call it: "hidden_states[0] (id 2)"."""
    return slot.label + (f" (id {slot.native_id})" if slot.native_id is not None else "")
