"""The command to type after a capture: a comparison that means something, else the capture it still needs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsprobe.schema import CaptureManifest


@dataclass(frozen=True)
class _Capture:
    path: Path
    manifest: CaptureManifest

    @property
    def digests(self) -> set[str]:
        return {p.token_ids_sha256 for p in self.manifest.prompts}

    def is_transformers(self, dtype: str) -> bool:
        return (self.manifest.engine, self.manifest.dtype) == ("hf", dtype)


def audit_command(source: str, model: str, has_ids: bool = True) -> str:
    """The next command for a dataset. What is in capitals is the user's to fill in: a model that is not found here under
    the name in the files, and the ids of the draft's config, on which what a server feeds depends."""
    from ..capture import specs
    from ..errors import HsparityError

    if not has_ids:
        return shlex.join(
            ["hsparity", "import", source, "--token-ids", "IDS.jsonl", "-o", "captures/imported"]
        )
    try:
        known = bool(model) and bool(specs.resolve_model(model))
    except HsparityError:
        known = False
    words = [
        "hsparity",
        "audit",
        source,
        "--engine",
        "sglang",
        "--model",
        model if known else "MODEL",
        "--ids",
        "IDS",
    ]
    return shlex.join(words)


def after_capture(out: Path, typed: Mapping[str, object]) -> str:
    """The next command after the capture in `out`, which was asked for with the options `typed`.

    Both halves of a floor are never compared with each other: fp32 is what differences are measured from.
    """
    new = _read(out)
    assert new is not None  # it was made a moment ago
    beside = [_read(p.parent) for p in sorted(out.parent.glob("*/manifest.json")) if p.parent != out]
    alike = [c for c in beside if c and c.manifest.model == new.manifest.model and c.digests & new.digests]
    whole = [new, *(c for c in alike if c.digests == new.digests)]
    fp32 = next((c for c in whole if c.is_transformers("float32")), None)
    bf16 = next((c for c in whole if c.is_transformers("bfloat16")), None)
    if new is fp32 and bf16 is None:
        return _capture("hf", new, {**typed, "--dtype": "bfloat16"})
    sides = [c for c in (*alike, new) if not c.is_transformers("float32")]
    floors = [c for c in (fp32, bf16) if c] if fp32 and bf16 else []
    pair = _pair(sides, new, floors)
    if pair is None:
        other = "vllm" if new.manifest.engine != "vllm" else "sglang"
        return _capture(other, new, {**typed, "--dtype": None} if new is fp32 else typed)
    words = ["hsparity", "compare", *(_spelled(c.path) for c in pair)]
    # A side that is the bf16 half serves as such without being named.
    for half in floors:
        words += [] if half in pair else ["--floor", _spelled(half.path)]
    return shlex.join(words)


def _pair(sides: list[_Capture], new: _Capture, floors: list[_Capture]) -> tuple[_Capture, _Capture] | None:
    """Two sides, `new` among them unless it is half of a floor; engines before that floor's other half."""
    free = [c for c in sides if c not in floors]
    if new in free:
        rest = [c for c in sides if c is not new]
        # Another engine says more than this one's own repeat, an engine more than the floor's half.
        rest.sort(key=lambda c: (c.manifest.engine == new.manifest.engine, c in floors))
        return (rest[0], new) if rest else None
    first = next(iter(free), None)
    second = next((c for c in free if first and c.manifest.engine != first.manifest.engine), None)
    if first and second:
        return first, second
    half = next((c for c in sides if c in floors), None)
    return (half, first) if half and first else None


def _capture(engine: str, new: _Capture, typed: Mapping[str, object]) -> str:
    """The same capture by another engine, or by Transformers in another dtype."""
    words = ["hsparity", "capture", engine]
    for name, value in typed.items():
        if engine == "hf" and name in ("--mechanism", "--native-ids"):
            continue  # Transformers has hooks only
        if value:
            words += [name] if value is True else [name, str(value)]
    name = "hf-bf16" if engine == "hf" else engine
    numbers = ("", *(f"-{n}" for n in range(2, 1000)))
    free = (p for n in numbers if not (p := new.path.with_name(name + n)).exists())
    return shlex.join([*words, "-o", str(next(free))])


def _spelled(path: Path) -> str:
    """A bare "vllm" would name the engine."""
    return str(path) if len(path.parts) > 1 else f"./{path}"


def _read(folder: Path) -> _Capture | None:
    from ..capture import specs
    from ..errors import HsparityError

    try:
        return _Capture(folder, specs.read_manifest(folder))
    except HsparityError:
        return None
