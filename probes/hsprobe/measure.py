"""The one loop that measures a draft, whatever the engine: a prompt at a time, its steps, the engine's own counters."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from . import measure_steps, stack
from .drive import Emit, guarded, print_event
from .protocol import MEASURED_FILE, Completion, EngineInfo, ProbeError
from .schema import CaptureSpec, PromptSpec
from .writer import coded, write_text


@dataclass(frozen=True)
class Drafted:
    """What the engine answered for one prompt, and what it counted while it did, by its own names."""

    completion: Completion
    counters: dict[str, Any]


class DraftEngine(Protocol):
    """One loaded engine with its draft. `load(spec, out)` in engines/<engine>_drafts.py returns it."""

    def info(self) -> EngineInfo: ...

    def draft(self, prompt: PromptSpec) -> Drafted: ...

    def close(self) -> None: ...


def measure(spec: CaptureSpec, out: Path, emit: Emit | None = None) -> None:
    """Serve `spec.draft` on every prompt of `spec` and write `out`/measured.json. Raises ProbeError.

    A prompt runs alone, greedily, so that its steps and the counters' increase are its own.
    """
    emit = emit or print_event
    emit({"event": "loading", "engine": spec.engine, "model": spec.model, "done": 0})
    clock = time.perf_counter()
    engine: DraftEngine = guarded(
        out, f"{spec.engine} failed while loading", lambda: _engine(spec).load(spec, out)
    )
    prompts = []
    try:
        info = engine.info()
        size = {"layers": info.num_layers, "hidden": info.hidden_size}
        emit({"event": "loaded", "seconds": time.perf_counter() - clock, **size})
        for number, prompt in enumerate(spec.prompts, 1):
            prompts.append(_run(spec, out, engine, prompt))
            emit({"event": "prompt", "done": number, "of": len(spec.prompts), "id": prompt.id})
        info = engine.info()  # asked again: some of it is known only once a draft has run
    finally:
        engine.close()
    said = stack.load_facts(out).get("draft") or {}
    record = {
        "engine": spec.engine,
        "version": info.version,
        "architecture": info.architecture,
        "num_layers": info.num_layers,
        "settings": info.settings,
        "environment": info.environment,
        "draft": said,
        "warnings": list(info.warnings),
        "prompts": prompts,
    }
    with coded(out):
        write_text(out / MEASURED_FILE, json.dumps(record))
    emit({"event": "complete", "path": str(out), "prompts": len(prompts)})


def _run(spec: CaptureSpec, out: Path, engine: DraftEngine, prompt: PromptSpec) -> dict[str, Any]:
    measure_steps.take(out)  # those of warm-up passes
    answer: Drafted = guarded(
        out, f"{spec.engine} failed on prompt {prompt.id!r}", lambda: engine.draft(prompt)
    )
    request = answer.completion.request
    steps = [s for s in measure_steps.take(out) if s.request == request]
    return {
        "id": prompt.id,
        "prompt": list(prompt.token_ids),
        "generated": list(answer.completion.generated),
        "steps": [[s.first, list(s.drafted), s.accepted, s.bonus] for s in steps],
        "counters": answer.counters,
    }


def _engine(spec: CaptureSpec) -> Any:
    name = f"{__package__}.engines.{spec.engine}_drafts"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ProbeError(
            "E306", f"{spec.engine} serves no EAGLE-3 draft", "take --engine vllm or sglang"
        ) from None
