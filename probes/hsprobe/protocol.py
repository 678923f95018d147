"""What an engine file gives the driver. `drive.py` is the one loop; engines/foo_engine.py only knows its engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .schema import CaptureSpec, PromptSpec

SPEC_ENV = "HSPROBE_SPEC"  # path of the spec file; unset means the plugin stays inert
OUT_ENV = "HSPROBE_OUT"  # the capture folder
SHIMS_ENV = (
    "HSPROBE_SHIMS"  # comma list of shims the launcher put around the engine: "libcuda-stub,mla-absorb"
)
MEASURED_FILE = "measured.json"  # in the working folder of a measurement: what measure.py wrote


@dataclass(frozen=True)
class Completion:
    """What the engine answered for one prompt."""

    prompt: str  # PromptSpec.id
    request: str  # the request id that the spool's spans carry
    generated: tuple[int, ...]
    cached_tokens: int = 0  # prompt tokens the engine served from a prefix cache
    # Row t describes token t+1 given tokens 0..t: column 0 the prompt's own next token, then the top k. [T-1, 1+k]
    logprob_ids: tuple[tuple[int, ...], ...] = ()
    logprobs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class EngineInfo:
    """What the manifest says of the engine; known once the model is loaded."""

    version: str
    architecture: str
    num_layers: int
    hidden_size: int
    dtype: str
    settings: dict[
        str, Any
    ]  # "mode": "eager" | "compiled" | "graphs" is mandatory, and what was asked but not applied
    environment: dict[str, str]
    native_labels: dict[str, str] = field(default_factory=dict)
    norm_eps: float | None = None
    norm_plus_one: bool = False
    model_config: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Engine(Protocol):
    """One loaded engine. `load(spec, out)` in each engine file returns it."""

    def info(self) -> EngineInfo: ...

    def generate(self, prompts: Sequence[PromptSpec]) -> list[Completion]: ...

    def close(self) -> None: ...


class ProbeError(Exception):
    """A failure the launcher turns into a coded error. `code` is E3xx."""

    def __init__(self, code: str, message: str, help: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.code, self.message, self.help = code, message, help


def from_environment() -> tuple[CaptureSpec, Path] | None:
    """The spec and folder that the launcher left in the environment, or None when hsprobe was not asked for anything."""
    spec, out = os.environ.get(SPEC_ENV), os.environ.get(OUT_ENV)
    if not spec or not out:
        return None
    return CaptureSpec.from_json(Path(spec).read_text()), Path(out)
