"""Plan what is missing of a floor, capture it, and keep the index."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from hsparity import engines
from hsparity.capture import checkpoint, estimate, floorstore, launch, sides, specs
from hsparity.capture.floorstore import KINDS, REFERENCES, Entry
from hsparity.capture.read import open_source
from hsparity.capture.shards import HALF_ULP
from hsparity.engines import Interpreter, facts
from hsparity.errors import HsparityError
from hsparity.floors import kinds
from hsparity.floors.base import Base
from hsparity.floors.result import SCHEMA, FloorReport, Part
from hsprobe.schema import CaptureManifest, CaptureSpec

Say = Callable[[str], None]
# What ends the whole command: the disk, a folder that holds something else. The rest is a kind that cannot be made.
FATAL = ("E106", "E204", "E205")


def blank(base: Base, parts: Sequence[Part]) -> FloorReport:
    """What is there or planned, before anything is measured."""
    manifest = base.source.manifest
    return FloorReport(
        schema=SCHEMA,
        capture=str(base.path),
        engine=f"{manifest.engine} {manifest.engine_version}".strip(),
        store=str(floorstore.store_of(base.path)),
        resolution=HALF_ULP[manifest.dtype],
        parts=tuple(parts),
    )


def plan(base: Base, only: Collection[str]) -> tuple[Part, ...]:
    """What would be captured, kind by kind. Nothing is started."""
    return tuple(_planned(base, kind) for kind in KINDS if kind in only)


def _planned(base: Base, kind: str) -> Part:
    change = kinds.change(base, kind)
    if change.spec is None:
        return Part(kind, "none", reason=change.reason)
    store = floorstore.store_of(base.path)
    if launch.is_complete(store / kind, change.spec):
        return Part(kind, "kept", change.what, str(store / kind))
    if kind in REFERENCES and (found := shared(base, change.spec)):
        return Part(kind, "shared", change.what, str(found))
    try:
        _interpreter(base, kind)
    except HsparityError as error:
        return Part(kind, "none", change.what, reason=_told(error))
    shape = checkpoint.read_shape(change.spec.model, change.spec.revision)
    size = estimate.capture_bytes(change.spec, shape)[0] if shape else 0
    return Part(kind, "planned", change.what, str(store / kind), bytes=size, seconds=_seconds(base, kind))


def _seconds(base: Base, kind: str) -> float:
    """As long as the capture itself took on its engine; NaN for another engine."""
    if kind in REFERENCES and base.source.manifest.engine != "hf":
        return math.nan
    try:
        said = json.loads((base.path / "timing.json").read_text())
        return float(said["load_s"]) + sum(float(b["wall_s"]) + float(b["keep_s"]) for b in said["batches"])
    except (OSError, ValueError, KeyError, TypeError):
        return math.nan


def _interpreter(base: Base, kind: str) -> Interpreter:
    """What runs a kind. Raises E301 where it is not here, E251 for another release or device than the capture's."""
    if kind in REFERENCES:
        return engines.resolve("hf")
    manifest = base.source.manifest
    title = facts.facts(manifest.engine).title
    try:
        found = engines.resolve(f"{manifest.engine}@{manifest.engine_version}")
    except HsparityError as error:
        if error.code != "E301":
            raise
        found = engines.resolve(manifest.engine)
    if found.version != manifest.engine_version:
        raise HsparityError(
            "E251", f"the capture is of {title} {manifest.engine_version}, and {found.version} is here"
        )
    there = manifest.environment.get("device", "")
    if there and (there == "cpu") != (found.device == "cpu"):
        raise HsparityError("E251", f"the capture ran on {there}, and {title} runs on {found.device} here")
    return found


def _told(error: HsparityError) -> str:
    return f"{error.code}: {error.message}" + (f" ({error.notes[0]})" if error.notes else "")


def shared(base: Base, spec: CaptureSpec) -> Path | None:
    """A capture that lies beside the base, or in another's floor there, and is what `spec` asks for."""
    root = base.path.parent
    near = [base.path, *sorted(root.glob("*/")), *sorted(root.glob(f"*{floorstore.SUFFIX}/*/"))]
    own = floorstore.store_of(base.path)
    return next((p for p in near if p.parent != own and _serves(p, spec, base.source.manifest)), None)


def _serves(folder: Path, spec: CaptureSpec, about: CaptureManifest) -> bool:
    """Whether a folder holds a plain capture by the same engine of the same weights, tokens, phases and sites."""
    made = sides.spec_of(folder)
    if made is None or (made.engine, made.dtype, made.mechanism) != (spec.engine, spec.dtype, "hooks"):
        return False
    if made.engine_args or made.env or not set(spec.sites) <= set(made.sites):
        return False
    try:
        manifest = specs.read_manifest(folder)
    except HsparityError:
        return False
    known = {(p.token_ids_sha256, p.prefill) for p in manifest.prompts}
    wanted = {(p.token_ids_sha256, p.prefill) for p in about.prompts}
    return (
        manifest.status == "complete"
        and manifest.weights_sha256 == about.weights_sha256
        and (manifest.weights_sha256 != "" or manifest.model == about.model)
        and wanted <= known
    )


def make(base: Base, parts: Sequence[Part], say: Say, verbose: bool = False) -> tuple[Part, ...]:
    """Capture what is planned, one engine at a time, and write the index after each. A kind that an engine cannot make
    is a part with its reason; kinds that were not asked for keep their entries.

    Raises what ends every capture (E106, E204, E205), and E250 when nothing at all is there.
    """
    store, manifest = floorstore.store_of(base.path), base.source.manifest
    owner, before = floorstore.read(store)
    entries = {e.kind: e for e in before} if owner == floorstore.identity(manifest) else {}
    done = []
    for planned in parts:
        part = _made(base, planned, say, verbose)
        done.append(part)
        path = os.path.relpath(part.path, store) if part.path else ""
        entries[part.kind] = Entry(part.kind, path, part.reason, part.state == "shared")
        floorstore.write(store, manifest, [entries[k] for k in KINDS if k in entries])
    if not any(part.path for part in done):
        notes = [f"{p.kind}: {p.reason}" for p in done]
        raise HsparityError(
            "E250", f"no floor could be made for {base.path}", notes, "hsparity doctor says which engines run"
        )
    return tuple(done)


def _made(base: Base, part: Part, say: Say, verbose: bool) -> Part:
    if part.state == "planned":
        spec = kinds.change(base, part.kind).spec
        assert spec is not None  # or it would not be planned
        say(f"{part.kind}: {part.what}")
        try:
            launch.run_capture(spec, Path(part.path), _interpreter(base, part.kind), verbose)
        except HsparityError as error:
            if error.code in FATAL:
                raise
            return replace(part, state="none", path="", reason=_told(error))
        part = replace(part, state="made")
    if part.path and part.state != "shared" and part.kind not in REFERENCES:
        reason = kinds.ignored(part.kind, base, open_source(part.path, verify=False))
        if reason:
            return replace(part, state="none", path="", reason=reason)
    return part
