"""vLLM with an EAGLE-3 draft: the driver's side of a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..measure import Drafted
from ..protocol import EngineInfo
from ..schema import CaptureSpec, PromptSpec
from . import vllm_engine

PREFIX = "vllm:spec_decode_"


def load(spec: CaptureSpec, out: Path) -> VllmDrafts:
    """Start vLLM with the draft. Raises what vllm_engine.load raises."""
    return VllmDrafts(vllm_engine.load(spec, out))


class VllmDrafts:
    """A loaded vLLM. See measure.DraftEngine."""

    def __init__(self, engine: vllm_engine.VllmEngine) -> None:
        self.engine, self.spec = engine, engine.spec

    def info(self) -> EngineInfo:
        return self.engine.info()

    def draft(self, prompt: PromptSpec) -> Drafted:
        """Write after `prompt`, greedily, to a stop id or the length asked for."""
        before = self.counters()
        (completion,) = self.engine.generate([prompt])
        after = self.counters()
        return Drafted(completion, {name: _less(value, before.get(name)) for name, value in after.items()})

    def counters(self) -> dict[str, Any]:
        """vLLM's counters of speculative decoding since it started, numbers or lists, by name."""
        found = {}
        for metric in self.engine.llm.get_metrics():
            if metric.name.startswith(PREFIX):
                values = getattr(metric, "values", None)
                found[metric.name] = list(values) if values is not None else metric.value
        return found

    def close(self) -> None:
        self.engine.close()


def _less(value: Any, before: Any) -> Any:
    if isinstance(value, list):
        return [a - b for a, b in zip(value, before or [0] * len(value), strict=True)]
    return value - (before or 0)
