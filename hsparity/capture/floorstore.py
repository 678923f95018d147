"""Where a capture's floor lies: CAPTURE.floor beside it, with an index that names each of its captures."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hsparity.capture.relay import Relay
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest

SUFFIX, INDEX, SCHEMA = ".floor", "floor.json", "hsparity.floor-index/1"
REFERENCES = ("fp32", "bf16")  # by Transformers; the other kinds are the capture's own engine against itself
KINDS = (*REFERENCES, "repeat", "batch", "prefilled", "decoded", "chunked")
WORDS = {
    "fp32": "Transformers in fp32",
    "bf16": "Transformers in bf16",
    "repeat": "the same again",
    "batch": "another batch shape",
    "prefilled": "decoded tokens given as prompt",
    "decoded": "prompt tokens decoded",
    "chunked": "prefill in other chunks",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of floor: the capture that holds it, or why there is none."""

    kind: str
    path: str = ""  # relative to the store; empty when there is none
    reason: str = ""  # why there is none
    shared: bool = False  # found beside the capture, not made for it


def store_of(capture: Path) -> Path:
    """The folder of a capture's floor, whether or not it is there."""
    if capture.name in ("", ".."):
        capture = capture.resolve()
    return capture.parent / (capture.name + SUFFIX)


def identity(manifest: CaptureManifest) -> dict[str, str]:
    """What a floor belongs to: a capture that was made again is another one."""
    return {"spec_sha256": manifest.spec_sha256, "created": manifest.created}


def write(store: Path, manifest: CaptureManifest, entries: Sequence[Entry]) -> None:
    """Replace the index, atomically. Raises E106 where it cannot be written."""
    said = {"schema": SCHEMA, "capture": identity(manifest), "entries": [asdict(e) for e in entries]}
    fresh = store / f"{INDEX}.{os.getpid()}"
    try:
        store.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(said, indent=1, sort_keys=True))
        fresh.replace(store / INDEX)
    except OSError as error:
        notes = (f"{type(error).__name__}: {error.strerror}",)
        help_text = "a floor lies beside its capture: copy the capture to a folder you may write to"
        raise HsparityError("E106", f"cannot write {store}", notes, help_text) from error


def read(store: Path) -> tuple[dict[str, str], tuple[Entry, ...]]:
    """What the index of a floor says: whose it is, and its entries. Empty where there is no index that is whole."""
    try:
        said = json.loads((store / INDEX).read_text())
        if said["schema"] != SCHEMA:
            return {}, ()
        known = Entry.__dataclass_fields__
        return dict(said["capture"]), tuple(
            Entry(**{k: v for k, v in e.items() if k in known}) for e in said["entries"]
        )
    except FileNotFoundError:
        return {}, ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        Relay("floor", 0).say(f"warning: {store / INDEX} cannot be read and is passed over ({error})")
        return {}, ()


def captures(store: Path, kinds: Sequence[str] = KINDS) -> tuple[Path, ...]:
    """The captures of these kinds that the index names and that are there, fp32 and bf16 first."""
    order = {kind: i for i, kind in enumerate(KINDS)}
    held = [
        e
        for e in read(store)[1]
        if e.kind in kinds and e.path and (store / e.path / "manifest.json").is_file()
    ]
    return tuple(tidy(store / e.path) for e in sorted(held, key=lambda e: order.get(e.kind, len(order))))


def tidy(path: Path) -> Path:
    """a.floor/../hf as hf beside it: what a user would type."""
    return Path(os.path.normpath(path))


def beside(capture: Path, kinds: Sequence[str] = KINDS) -> tuple[Path, ...]:
    """The captures of the floor that was made of exactly this capture; empty when there is none."""
    store = store_of(capture)
    owner, _ = read(store)
    if not owner:
        return ()
    try:
        manifest = CaptureManifest.from_json((capture / "manifest.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return captures(store, kinds) if owner == identity(manifest) else ()


def serving(ref: Path, cand: Path, found: Sequence[Path] = ()) -> list[Path]:
    """`found`, and what `hsparity floor` left beside either side that serves this pair."""
    ours = all((p / "manifest.json").is_file() for p in (ref, cand))
    # Files of another format would be imported twice; their engine's own floors are of no use to them.
    kinds = KINDS if ours else REFERENCES
    near = dict.fromkeys((*beside(ref, kinds), *beside(cand, kinds)))
    left = [p for p in near if p not in found]
    if not left or not ours:
        return [*found, *left]
    from ..yardstick import usable
    from .read import open_source

    first, second, *floors = (open_source(p, verify=False) for p in (ref, cand, *found, *left))
    return [Path(s.path) for s in usable(first, second, floors)]
