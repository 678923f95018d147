"""The captures of a bisection: the two sides, and variants of them in a cache that is keyed by setting."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hsprobe.schema import CaptureSpec, canonical_sha256

from .. import engines
from ..capture import launch
from ..capture.read import open_source
from ..capture.source import Source
from ..engines import Interpreter
from ..engines.facts import release
from ..errors import HsparityError
from .knobs import Situation
from .proofs import Made

DIGITS = 12


@dataclass(frozen=True, slots=True)
class Cost:
    """What a capture takes: seconds (None: its base was not timed) and bytes on disk."""

    seconds: float | None
    bytes: int


class Side(Made):
    """One side: its capture, the spec that makes it again, and the interpreter that can."""

    def __init__(self, role: str, path: str) -> None:
        source = open_source(path)
        super().__init__(_spec(source), source)
        self.role, self.path = role, path

    @property
    def engine(self) -> str:
        return self.manifest.engine

    @cached_property
    def interpreter(self) -> Interpreter:
        """An interpreter of the release that made the capture, on the same kind of device. Raises E301, E241."""
        version = self.manifest.engine_version
        found = engines.resolve(self.engine)
        if release(found.version) != release(version):
            found = engines.resolve(f"{self.engine}@{version.partition('+')[0]}")
        was = device_of(self.source)
        if was and was != found.device:
            raise HsparityError(
                "E241",
                f"{self.path} cannot be made again here: it was made on another device",
                (f"capture  {was}", f"here     {found.device}"),
                "run bisect on the machine that made it, or capture both sides here",
            )
        return found

    @property
    def situation(self) -> Situation:
        return Situation(self.interpreter.device, self.manifest.engine_version, self.spec, self.manifest)

    @cached_property
    def cost(self) -> Cost:
        """What making it again takes, from its own timing.json."""
        size = sum(entry.bytes for entry in self.manifest.shards)
        try:
            said = json.loads((Path(self.source.folder) / "timing.json").read_text())
            spent = sum(float(b["wall_s"]) + float(b["keep_s"]) for b in said["batches"])
            prompts = sum(int(b["prompts"]) for b in said["batches"])
            whole = spent * len(self.source.prompts) / prompts
            return Cost(float(said["load_s"]) + whole, size)
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
            return Cost(None, size)


class Cache:
    """A folder of captures by setting: NAME is the engine and a digest of spec, release and device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def twins(self) -> Path:
        """Where dequantised checkpoints are kept."""
        return self.folder / "twins"

    def place(self, spec: CaptureSpec, interpreter: Interpreter) -> Path:
        key = canonical_sha256([spec.sha256(), interpreter.version, interpreter.device])[:DIGITS]
        return self.folder / f"{spec.engine}-{key}"

    def holds(self, spec: CaptureSpec, interpreter: Interpreter) -> bool:
        """Whether it is there, whole."""
        return launch.is_complete(self.place(spec, interpreter), spec)

    def make(self, spec: CaptureSpec, interpreter: Interpreter, verbose: bool = False) -> Made:
        """The capture of `spec`, made when missing and gone on with when it was begun. Raises what capturing raises."""
        out = launch.run_capture(spec, self.place(spec, interpreter), interpreter, verbose)
        return Made(spec, open_source(out))


def device_of(source: Source) -> str:
    """ "cuda", "cpu", or "" where the capture does not say."""
    said = source.manifest.environment
    word = said.get("device_type") or said.get("device") or ""
    if "cpu" in word.lower() or "cpu_capability" in said:
        return "cpu"
    return "cuda" if word else ""


def _spec(source: Source) -> CaptureSpec:
    """What made a capture. Raises E240."""
    file = Path(source.folder) / "spec.json"
    try:
        spec = CaptureSpec.from_json(file.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        made = source.manifest
        engine = made.engine if made.engine in ("hf", "vllm", "sglang") else "ENGINE"
        command = ["hsparity", "capture", engine, "--model", made.model or "MODEL", "-o", "captures/side"]
        raise HsparityError(
            "E240",
            f"{source.path} cannot be made again: it holds no spec.json",
            (f"{type(error).__name__}: {file}",),
            f"capture that side with hsparity first:\n{shlex.join(command)}",
        ) from None
    if not spec.prompts:
        raise HsparityError("E240", f"{source.path} cannot be made again: its spec.json names no prompts")
    return spec


def forced(spec: CaptureSpec, other: Source) -> CaptureSpec:
    """`spec` with the tokens that `other` decoded forced on it, so that a variant decodes the same ones. SGLang cannot
    be forced, and what was forced already stays."""
    if spec.engine == "sglang" or not spec.generate or any(p.forced for p in spec.prompts):
        return spec
    said = {p.id: p.generated for p in other.prompts}
    return replace(
        spec, prompts=tuple(replace(p, forced=said.get(p.id, ())[: spec.generate]) for p in spec.prompts)
    )
