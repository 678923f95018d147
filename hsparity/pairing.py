"""Which site of the candidate is compared with which site of the reference, and what the user claimed of
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hsparity.capture.source import Source, site_order
from hsparity.errors import HsparityError
from hsparity.query import Query, span_text
from hsparity.solve.forms import Form, normed
from hsprobe.schema import Site

if TYPE_CHECKING:
    from hsparity.align.layers import Place
    from hsparity.metrics.kernel import Norm

BRANCHES = ("hidden", "residual", "attn_out", "mlp_out")


@dataclass(frozen=True, slots=True)
class SitePair:
    """A reference site and the candidate site that is compared with it."""

    ref: str
    cand: str
    boundary: int | None  # reference boundary that both stand for; None for other sites
    requested: bool
    floor_site: str  # the site of the floor's captures that is their yardstick
    landed: bool = False  # an unlabelled slot, paired where the data put it
    # What is compared in place of a site as it was captured; the floor's captures get the form of the reference.
    ref_form: Form | None = None
    cand_form: Form | None = None
    floor_form: Form | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """A requested boundary that a side did not hand over."""

    boundary: int
    side: str  # "ref" | "cand"


@dataclass(slots=True)
class Pairing:
    """The pairs, in site order, and what was claimed of slots."""

    requested: tuple[int, ...] = ()
    pairs: list[SitePair] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    claims: dict[str, dict[str, int]] = field(
        default_factory=dict
    )  # side -> slot key -> boundary in that side's count
    unplaced: dict[str, tuple[str, ...]] = field(default_factory=dict)  # side -> slots nothing is claimed of
    notes: list[str] = field(default_factory=list)  # uneven slot counts, one line each
    uneven: bool = False  # a side handed over fewer slots than the other, or than were asked


def boundaries_of(source: Source) -> dict[int, str]:
    """Boundary number -> site key, ascending."""
    sites = (Site.parse(key) for key in source.sites())
    return {s.index: s.key for s in sorted(sites) if s.kind == "boundary"}


def slots_of(source: Source) -> tuple[str, ...]:
    return tuple(key for key in source.sites() if key.startswith("slot."))


def pair_sites(ref: Source, cand: Source, query: Query) -> Pairing:
    """Pair what can be paired by claim. Slots of which nothing is claimed stay in `unplaced`.

    Raises E102, E210 (asked for but not captured) and E212 (no site in common).
    """
    layers = ref.manifest.num_layers
    asked = query.chosen_boundaries(layers)
    result = Pairing()
    held = {
        name: _held(source, name, asked, query, result) for name, source in (("ref", ref), ("cand", cand))
    }
    if asked is None:
        _pair_everything(held, query.offset, result)
    else:
        _pair_asked(held, asked, (ref, cand), query, result)
    _pair_slot_lists(ref, cand, result)
    _pair_other_sites(ref, cand, query, asked is None, result)
    result.pairs.sort(key=lambda p: (p.boundary is None, p.boundary or 0, site_order(p.ref)))
    if not result.pairs and not result.unplaced and not result.missing:
        notes = [f"{n:<4}  {s.path}  {holdings(s)}" for n, s in (("ref", ref), ("cand", cand))]
        help_text = "capture all boundaries on one side (the default for hf), or the same ones on both"
        raise HsparityError("E212", "nothing comparable: the sides have no site in common", notes, help_text)
    return result


def _held(
    source: Source, name: str, asked: Sequence[int] | None, query: Query, result: Pairing
) -> Mapping[int, str]:
    """Boundary -> site key of one side: its boundaries, else its slots taken as the boundaries asked for."""
    found = boundaries_of(source)
    slots = slots_of(source)
    if found and slots and asked is None and source.from_file:
        # A file's places are all of one kind: those that nobody has named are to be found as well.
        result.unplaced[name] = slots
    if found or not slots:
        return found
    if asked is None or len(slots) < len(asked):
        # With slots missing their order says nothing: the data have to say which are there.
        result.unplaced[name] = slots
        if asked is not None:
            result.notes.append(f"{name} handed over {len(slots)} slots for {len(asked)} requested layers")
            result.uneven = True
        return {}
    shift = query.offset if name == "cand" else 0
    claimed = {boundary - shift: slot for boundary, slot in zip(asked, slots, strict=False)}
    result.claims[name] = {slot: boundary for boundary, slot in claimed.items()}
    if len(slots) != len(asked):
        result.notes.append(f"{name} handed over {len(slots)} slots for {len(asked)} requested layers")
    return claimed


def _pair_everything(held: Mapping[str, Mapping[int, str]], offset: int, result: Pairing) -> None:
    pairs = [(r, held["ref"][r], held["cand"][r - offset]) for r in held["ref"] if r - offset in held["cand"]]
    result.pairs += [SitePair(key, other, r, True, Site("boundary", r).key) for r, key, other in pairs]
    result.requested = tuple(r for r, _, _ in pairs)
    if offset and not pairs and held["ref"] and held["cand"]:
        message = f"bad --offset {offset}: it leaves no boundary with a partner"
        notes = tuple(f"{name:<4}  boundaries {span_text(tuple(held[name]))}" for name in ("ref", "cand"))
        raise HsparityError("E102", message, notes, "an offset of a layer or two, as the report advises it")


def _pair_asked(
    held: Mapping[str, Mapping[int, str]],
    asked: Sequence[int],
    sources: tuple[Source, Source],
    query: Query,
    result: Pairing,
) -> None:
    result.requested = tuple(asked)
    for name, source, shift in (("ref", sources[0], 0), ("cand", sources[1], query.offset)):
        lacking = [r for r in asked if r - shift not in held[name]]
        if name in result.unplaced:
            continue
        if lacking and name not in result.claims:
            raise _not_captured(name, source, lacking, query, shift)
        result.missing += [Missing(r, name) for r in lacking]
    every = [r for r in held["ref"] if r - query.offset in held["cand"]]
    for r in sorted({*every, *asked}):
        left, right = held["ref"].get(r), held["cand"].get(r - query.offset)
        if left and right:
            result.pairs.append(SitePair(left, right, r, r in asked, Site("boundary", r).key))


def _not_captured(
    name: str, source: Source, lacking: Sequence[int], query: Query, shift: int
) -> HsparityError:
    what = f"boundaries {span_text(tuple(lacking))}"
    if not query.boundaries:
        what = f"layers {span_text(tuple(r - 1 for r in lacking))} ({what})"
    moved = f" less the offset {shift}" if shift else ""
    side = {"ref": "reference", "cand": "candidate"}[name]
    notes = (f"asked    {query.spelled}", f"{name:<4}     {source.path} holds {holdings(source)}")
    help_text = "ask for what is there, or capture again with --boundaries all"
    return HsparityError("E210", f"the {side} does not hold {what}{moved}", notes, help_text)


def holdings(source: Source) -> str:
    """What a side holds, in words: "boundaries 0-8, final_norm"."""
    parts = []
    if found := tuple(boundaries_of(source)):
        parts.append(f"boundaries {span_text(found)}")
    if slots := slots_of(source):
        parts.append(f"{len(slots)} slots")
    kinds = {Site.parse(k).kind for k in source.sites()} - {"boundary", "slot"}
    return ", ".join([*parts, *sorted(kinds)]) or "no sites"


def _pair_slot_lists(ref: Source, cand: Source, result: Pairing) -> None:
    """Two slot lists with nothing claimed of either: slot i is said to be slot i."""
    if set(result.unplaced) != {"ref", "cand"}:
        return
    left, right = result.unplaced.pop("ref"), result.unplaced.pop("cand")
    result.pairs += [SitePair(a, b, None, True, "") for a, b in zip(left, right, strict=False)]
    if len(left) != len(right):
        result.notes.append(f"ref handed over {len(left)} slots, cand {len(right)}")
        result.uneven = True


def _pair_other_sites(ref: Source, cand: Source, query: Query, everything: bool, result: Pairing) -> None:
    shared = [key for key in ref.sites() if key in cand.sites()]
    if "final_norm" in shared:
        result.pairs.append(SitePair("final_norm", "final_norm", None, everything, "final_norm"))
    if query.offset == 0:
        branches = [key for key in shared if Site.parse(key).kind in BRANCHES]
        result.pairs += [SitePair(key, key, None, False, key) for key in branches]


def land(pairing: Pairing, side: str, slot: str, place: Place, norm: Norm | None) -> None:
    """Pair an unplaced slot of `side` with the place on the other side that the data put it at."""
    final = place.normed or place.key == "final_norm"
    number = None if final else place.number
    left, right = (slot, place.key) if side == "ref" else (place.key, slot)
    floor_site = "final_norm" if final else Site("boundary", number or 0).key
    pair = SitePair(left, right, number, True, floor_site, landed=True)
    if place.normed and norm:
        form = normed(place.key, norm)
        pair = replace(pair, cand_form=form) if side == "ref" else replace(pair, ref_form=form)
    pairing.pairs.append(pair)
    if number is not None:
        pairing.requested = tuple(sorted({*pairing.requested, number}))
