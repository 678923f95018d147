"""Which of the captures at hand serve as the floor of a pair."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hsparity.align.tokens import RowAlignment
from hsparity.capture import floorstore, passes
from hsparity.capture.read import MANIFEST, open_source
from hsparity.capture.shards import HALF_ULP
from hsparity.capture.source import Source
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    from hsparity.deltas import Judge

TRANSFORMERS = ("hf", "transformers")
PLAUSIBLE = 16.0
EXPECTED = 4.0  # half-ulps times sqrt(r + 1): the largest median e0 measured here is 4.4, most are near 2
# Settings that change the arithmetic; engines spell some of them in two ways.
SETTINGS = {
    "mode": ("mode",),
    "batch": ("batch",),
    "tp": ("tp",),
    "pp": ("pp",),
    "expert parallel": ("expert_parallel",),
    "attention backend": ("attention_backend",),
    "decode attention backend": ("decode_attention_backend",),
    "experts": ("experts_implementation",),
    "quantisation": ("quantization", "quantisation"),
    "kv dtype": ("kv_cache_dtype",),
    "chunked prefill": ("chunked_prefill",),
    "prefix cache": ("prefix_cache", "prefix_caching"),
}


# What an engine's own floor is called, and what it changes.
OWN_WORDS = {
    "repeat": "a repeat",
    "batch": "another batch shape",
    "prefill-decode": "prefill against decode",
    "chunked": "other chunks",
}


@dataclass(frozen=True, slots=True)
class Own:
    """A capture by the engine of one side, with nothing or one thing changed: what that engine differs by from
    itself."""

    kind: str  # "repeat" | "batch" | "prefill-decode" | "chunked"
    side: int  # 0 ref, 1 cand
    place: int


@dataclass(frozen=True, slots=True)
class Roles:
    """Places of the floor's captures among ref (0), cand (1) and the floors (2…). All None: no floor."""

    fp32: int | None = None
    bf16: int | None = None
    repeat: int | None = None  # the engine's own floor that is the yardstick where there is no reference
    repeated: int = 0  # the side that `repeat` is a floor of
    own: str = "repeat"  # the kind of `repeat`
    wider: tuple[Own, ...] = ()  # beside a reference: floors of one kind that widen the rows they measured

    @property
    def kind(self) -> str:
        if self.fp32 is not None and self.bf16 is not None:
            return "bf16-reference"
        return "repeat" if self.repeat is not None else "none"

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Sides to subtract, (0, 1) first."""
        wanted = [(0, 1)]
        if self.fp32 is not None and self.bf16 is not None:
            wanted += [(self.fp32, i) for i in (0, 1, self.bf16) if i != self.fp32]
            wanted += [(own.side, own.place) for own in self.wider]
        elif self.repeat is not None:
            wanted.append((self.repeated, self.repeat))
        unique: list[tuple[int, int]] = []
        for i, j in wanted:
            if (i, j) not in unique and (j, i) not in unique:
                unique.append((i, j))
        return tuple(unique)


def setting(source: Source, name: str) -> str | None:
    """A setting under whichever name the engine gives it, in words; None when it says nothing."""
    said = source.manifest.settings
    value = next((said[key] for key in SETTINGS[name] if key in said), None)
    if name == "kv dtype" and value == "auto":
        return source.manifest.dtype
    if value in (None, "auto"):
        return None
    return "none" if value == "" else str(value).lower()


def same_run(one: Source, other: Source) -> bool:
    """Same engine, version, dtype and arithmetic: a difference between the two is the engine's own noise."""
    return changed(one, other) == ()


def changed(one: Source, other: Source) -> tuple[str, ...] | None:
    """The settings that two runs of one engine differ in; None for two engines, releases or dtypes."""
    a, b = one.manifest, other.manifest
    if (a.engine, a.engine_version, a.dtype) != (b.engine, b.engine_version, b.dtype) or a.engine == "plain":
        return None
    return tuple(name for name in SETTINGS if setting(one, name) != setting(other, name))


def own_kind(side: Source, floor: Source) -> str | None:
    """What a capture is to a side of the same engine: the one thing that was changed; None when it is no floor of its."""
    differs = changed(side, floor)
    if differs is None or set(differs) - {"batch", "chunked prefill"}:
        return None
    other = [
        *(["prefill-decode"] if phases_differ(side, floor) else []),
        *(["batch"] if "batch" in differs else []),
        *(["chunked"] if passes.chunked(side) != passes.chunked(floor) else []),
    ]
    # A budget that is asked for and changes no pass changes nothing.
    return "repeat" if not other else other[0] if len(other) == 1 else None


def phases_differ(one: Source, other: Source) -> bool:
    """Whether a token that both hold was prefilled in the one and decoded in the other."""
    known = {p.token_ids_sha256: p.prefill for p in other.prompts}
    return any(known.get(p.token_ids_sha256, p.prefill) != p.prefill for p in one.prompts)


def question(ref: Source, cand: Source) -> str:
    """The kind of an engine's own floor that a pair asks for: what, besides the engine, its sides did otherwise."""
    if phases_differ(ref, cand):
        return "prefill-decode"
    if setting(ref, "batch") != setting(cand, "batch"):
        return "batch"
    return "chunked" if passes.chunked(ref) != passes.chunked(cand) else "repeat"


def _is_transformers(source: Source, dtype: str) -> bool:
    return source.manifest.engine in TRANSFORMERS and source.manifest.dtype == dtype


def assign(ref: Source, cand: Source, floors: Sequence[Source]) -> Roles:
    """The roles of the captures at hand.

    fp32 comes from the floors only, bf16 from them or from a side that is one: a side that were its own fp32 would be
    right by definition. Raises E211 for a floor that is of no use to this pair.
    """
    sources = [ref, cand, *floors]
    for floor in floors:
        for name in ("num_layers", "hidden_size"):
            own, other = getattr(ref.manifest, name), getattr(floor.manifest, name)
            if own != other:
                notes = (f"ref    {ref.path}  {name} {own}", f"floor  {floor.path}  {name} {other}")
                raise HsparityError("E211", "the floor is a capture of another model", notes, _HELP)
        sides = {s.manifest.weights_sha256 for s in (ref, cand)}
        digest = floor.manifest.weights_sha256
        if digest and "" not in sides and digest not in sides:
            notes = (f"floor  {floor.path}  sha256 {digest[:16]}…", "neither side ran these weights")
            raise HsparityError("E211", "the floor is a capture of other weights", notes, _HELP)
    given = range(2, len(sources))
    fp32 = next((i for i in given if _is_transformers(sources[i], "float32")), None)
    # In the order they were named: an index names the plain one before those with one thing changed.
    bf16 = next((i for i in (*given, 0, 1) if _is_transformers(sources[i], "bfloat16")), None)
    both = fp32 is not None and bf16 is not None
    owns = [
        Own(kind, side, i)
        for i in given
        for side in (0, 1)
        if not (both and i in (fp32, bf16))
        and not any(_same_folder(sources[i], s) for s in (ref, cand))
        and (kind := own_kind(sources[side], sources[i])) is not None
    ]
    asked = question(ref, cand) if owns else "repeat"
    if fp32 is not None and bf16 is not None:
        return Roles(fp32, bf16, wider=tuple(o for o in owns if o.kind == asked != "repeat"))
    best = next((o for kind in (asked, "repeat") for o in owns if o.kind == kind), None)
    if best is not None:
        return Roles(repeat=best.place, repeated=best.side, own=best.kind)
    if floors:
        made = [
            f"{s.path}  {s.manifest.engine} {s.manifest.engine_version} {s.manifest.dtype}" for s in floors
        ]
        raise HsparityError("E211", "no floor can be made of these captures for this pair", made, _HELP)
    return Roles()


def _same_folder(one: Source, other: Source) -> bool:
    return Path(one.path).resolve() == Path(other.path).resolve()


def check_plausible(judge: Judge) -> None:
    """Raises E211 for an e0 that bf16 arithmetic does not explain.

    Rounding errors of r layers add up like a random walk: a few half-ulps times sqrt(r). Measured medians are 3 at
    boundary 1 and 10 at boundary 30; PLAUSIBLE allows 16 sqrt(r + 1).
    """
    for k, pair in enumerate(judge.pairs):
        errors = judge.table.read(k, "e0")
        number = pair.boundary
        if number is None or not np.isfinite(errors).any():
            continue
        e0 = float(np.nanmedian(errors))
        most = PLAUSIBLE * HALF_ULP["bfloat16"] * math.sqrt(number + 1)
        if e0 > most:
            notes = (
                f"boundary {number}: the bf16 capture lies {e0:.2g} from the fp32 one, bf16 explains {most:.2g}",
            )
            raise HsparityError("E211", "the floor's own captures do not agree with each other", notes, _HELP)


def check_shares_tokens(roles: Roles, rows: RowAlignment, sources: Sequence[Source]) -> None:
    """Raises E211 when a floor's capture has fewer than half of the aligned tokens."""
    for i in (roles.fp32, roles.bf16, roles.repeat, *(own.place for own in roles.wider)):
        if i is None:
            continue
        held = sum(int((p.rows[i] >= 0).sum()) for p in rows.prompts)
        if 2 * held < rows.tokens:
            note = f"floor  {sources[i].path}: {held} of the {rows.tokens} aligned tokens"
            raise HsparityError("E211", "the floor was captured from other tokens", (note,), _HELP)


def describe(roles: Roles, sources: Sequence[Source]) -> str:
    """The floor as a sentence that names its captures."""

    def named(i: int) -> str:
        return f"{sources[i].path}" + {0: " (the reference)", 1: " (the candidate)"}.get(i, "")

    if roles.fp32 is not None and roles.bf16 is not None:
        m = sources[roles.fp32].manifest
        tokens = sum(p.rows for p in m.prompts)
        made = f"{m.engine} {m.engine_version}".strip()
        size = f"{len(m.prompts)} prompt{'s' * (len(m.prompts) != 1)}, {tokens:,} tokens"
        paths = dict.fromkeys(named(own.place) for own in roles.wider)
        wider = f"; beside it {', '.join(paths)}, {OWN_WORDS[roles.wider[0].kind]}" if paths else ""
        return f"fp32 {named(roles.fp32)} and bf16 {named(roles.bf16)} by {made}, {size}{wider}"
    if roles.repeat is not None:
        side = ("reference", "candidate")[roles.repeated]
        return f"{named(roles.repeat)}, {OWN_WORDS[roles.own]} of the {side}"
    return "none"


def find_floors(path: str | os.PathLike[str]) -> list[Source]:
    """A capture, the captures that a floor's index names, or those directly inside a folder. Raises E211 when there
    is none of these."""
    folder = Path(path)
    if indexed := floorstore.captures(folder):
        return [open_source(p) for p in indexed]
    if (folder / MANIFEST).is_file() or (folder / "plain.json").is_file():
        return [open_source(path)]
    inside = sorted(p.parent for p in [*folder.glob(f"*/{MANIFEST}"), *folder.glob("*/plain.json")])
    if not inside:
        raise HsparityError("E211", f"no capture in {path}", help=_HELP)
    return [open_source(p) for p in inside]


def usable(ref: Source, cand: Source, found: Sequence[Source]) -> list[Source]:
    """Of captures that nobody named, those that serve this pair."""
    kept = [floor for floor in found if _fits(ref, cand, floor)]
    try:
        roles = assign(ref, cand, kept)
    except HsparityError as error:
        if error.code != "E211":
            raise
        return []
    used = {roles.fp32, roles.bf16, roles.repeat, *(own.place for own in roles.wider)}
    return [floor for i, floor in enumerate(kept, 2) if i in used]


def _fits(ref: Source, cand: Source, floor: Source) -> bool:
    """Whether a floor is of the model and the weights of this pair."""
    a, b = ref.manifest, floor.manifest
    digests = {s.manifest.weights_sha256 for s in (ref, cand)}
    same = not b.weights_sha256 or "" in digests or b.weights_sha256 in digests
    return (a.num_layers, a.hidden_size) == (b.num_layers, b.hidden_size) and same


_HELP = (
    "across engines: a Transformers capture in fp32 and one in bf16 of the same prompts\n"
    "(hsparity capture hf --dtype float32 …); for one engine against itself: a repeat of one side"
)
