"""SGLang with an EAGLE-3 draft: the driver's side of a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..measure import Drafted
from ..protocol import EngineInfo
from ..schema import CaptureSpec, PromptSpec
from . import sglang_engine

PREFIX = "spec_"


def load(spec: CaptureSpec, out: Path) -> SglangDrafts:
    """Start SGLang with the draft. Raises what sglang_engine.load raises."""
    return SglangDrafts(sglang_engine.load(spec, out))


class SglangDrafts:
    """A running SGLang. See measure.DraftEngine."""

    def __init__(self, engine: sglang_engine.SglangEngine) -> None:
        self.engine = engine

    def info(self) -> EngineInfo:
        return self.engine.info()

    def draft(self, prompt: PromptSpec) -> Drafted:
        """Write after `prompt`, greedily, to a stop id or the length asked for."""
        ((completion, meta),) = self.engine.answers([prompt])
        counted: dict[str, Any] = {name: value for name, value in meta.items() if name.startswith(PREFIX)}
        return Drafted(completion, counted | {"completion_tokens": meta["completion_tokens"]})

    def close(self) -> None:
        self.engine.close()
