"""The one loop that makes a capture, whatever the engine: submit, collect, assemble, check, commit."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from . import selfcheck, spool, stage
from .assemble import assemble
from .manifest import Setup, build, read_setup, refuse_failed
from .protocol import Completion, ProbeError
from .schema import CaptureManifest, CaptureSpec, PromptSpec
from .writer import CaptureWriter, coded, disk_full, write_text

MECHANISMS = (
    "hooks",
    "native",
    "both",
    "none",
)  # "none" measures an engine without a probe and keeps no rows
Emit = Callable[[dict[str, Any]], None]
Answer = TypeVar("Answer")


def capture(spec: CaptureSpec, out: Path, emit: Emit | None = None) -> CaptureManifest:
    """Capture `spec` into `out`, or finish what an earlier run left there.

    One batch is in memory at a time. `emit` receives progress events, by default as JSON lines on stdout.
    Raises ProbeError, and then there is no manifest.json; with mechanism "none" there never is one.
    """
    emit = emit or print_event
    if spec.mechanism not in MECHANISMS:
        raise ProbeError("E306", f"unknown mechanism {spec.mechanism!r}", f"known: {', '.join(MECHANISMS)}")
    writer = CaptureWriter(out, spec)
    if (finished := writer.complete) is not None:
        emit({"event": "complete", "path": str(out), "prompts": len(finished.prompts)})
        return finished
    emit({"event": "loading", "engine": spec.engine, "model": spec.model, "done": len(writer.done)})
    clock = time.perf_counter()
    engine = guarded(out, f"{spec.engine} failed while loading", lambda: _engine(spec).load(spec, out))
    try:
        info = engine.info()
        timing = Timing(out, spec, time.perf_counter() - clock)
        size = {"layers": info.num_layers, "hidden": info.hidden_size}
        emit({"event": "loaded", "seconds": timing.load_s, **size})
        setup = read_setup(spec, out, info)
        todo = [prompt for prompt in spec.prompts if prompt.id not in writer.done]
        for start in range(0, len(todo), max(spec.batch, 1)):
            batch = todo[start : start + max(spec.batch, 1)]
            clock = time.perf_counter()
            completions = _generate(spec, out, engine, batch)
            wall_s = time.perf_counter() - clock
            clock = time.perf_counter()
            collected = spool.collect(out)
            if spec.mechanism != "none":
                _keep(spec, batch, completions, collected, setup=setup, writer=writer, emit=emit)
            timing.add(batch, completions.values(), wall_s, time.perf_counter() - clock)
        # Asked again: an engine knows only afterwards whether it replayed graphs, and what it had to warn of.
        setup = read_setup(spec, out, engine.info())
        manifest = build(spec, out, setup, [writer.done[p.id] for p in spec.prompts if p.id in writer.done])
    finally:
        engine.close()
    if spec.mechanism != "none":
        writer.finish(manifest)
    emit({"event": "complete", "path": str(out), "prompts": len(manifest.prompts)})
    return manifest


class Timing:
    """Wall times of this run in timing.json, after each batch; prefill_tokens / wall_s is the speed."""

    def __init__(self, out: Path, spec: CaptureSpec, load_s: float) -> None:
        self.out, self.load_s = out, load_s
        self.head = {
            "engine": spec.engine,
            "mechanism": spec.mechanism,
            "batch": spec.batch,
            "load_s": load_s,
        }
        self.batches: list[dict[str, float]] = []

    def add(
        self, prompts: Sequence[PromptSpec], completions: Iterable[Completion], wall_s: float, keep_s: float
    ) -> None:
        """Note a batch: seconds in the engine, and seconds to assemble, check and write."""
        completions = list(completions)
        cached = sum(c.cached_tokens for c in completions)
        self.batches.append(
            {
                "prompts": len(prompts),
                "prefill_tokens": sum(len(p.token_ids) for p in prompts) - cached,
                "decode_tokens": sum(max(len(c.generated) - 1, 0) for c in completions),
                "wall_s": wall_s,
                "keep_s": keep_s,
            }
        )
        with coded(self.out):
            write_text(self.out / "timing.json", json.dumps({**self.head, "batches": self.batches}, indent=1))


def print_event(event: dict[str, Any]) -> None:
    """One JSON line on stdout, flushed: what a launcher relays."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _keep(
    spec: CaptureSpec,
    batch: Sequence[PromptSpec],
    completions: Mapping[str, Completion],
    collected: spool.Collected,
    *,
    setup: Setup,
    writer: CaptureWriter,
    emit: Emit,
) -> None:
    places = {prompt.id: index for index, prompt in enumerate(spec.prompts)}
    padded = collected.padded
    for prompt in batch:
        completion = completions[prompt.id]
        rows = assemble(prompt, completion, collected.pieces.get(completion.request, []), setup.expected)
        figures = selfcheck.measure(rows, completion.cached_tokens, setup.reference)
        # Judged at once: a broken probe stops at the first prompt, not after hours.
        refuse_failed(selfcheck.judge([figures], setup.reference, setup.info.hidden_size))
        figures.update(setup=setup.digest, padded=padded)
        padded = 0  # padding belongs to passes, not prompts; it is counted once per batch
        shards = writer.commit(
            places[prompt.id],
            rows.prompt,
            {"token_ids": rows.token_ids, "positions": rows.positions, "steps": rows.steps},
            {**rows.sites, **_logprobs(spec, completion)},
            figures,
        )
        emit(
            {
                "event": "prompt",
                "done": len(writer.done),
                "of": len(spec.prompts),
                "id": prompt.id,
                "tokens": rows.prompt.tokens,
                "bytes": sum(shard.bytes for shard in shards),
            }
        )


def _generate(
    spec: CaptureSpec, out: Path, engine: Any, batch: Sequence[PromptSpec]
) -> dict[str, Completion]:
    what = f"{spec.engine} failed on a batch of {len(batch)} prompts from {batch[0].id!r}"
    answers: list[Completion] = guarded(out, what, lambda: engine.generate(batch))
    completions = {}
    for answer in answers:
        # Some engines have to generate one token to run a prompt at all; what nobody asked for is left out.
        kept = answer.generated[: spec.generate]
        if len(kept) < spec.generate:
            raise ProbeError(
                "E304",
                f"prompt {answer.prompt!r}: {len(kept)} of {spec.generate} tokens were generated",
                "the engine stopped early; its context length may be too short",
            )
        completions[answer.prompt] = replace(answer, generated=kept)
    if lost := [prompt.id for prompt in batch if prompt.id not in completions]:
        raise ProbeError("E304", f"{spec.engine} answered nothing for prompts {', '.join(lost[:4])}")
    return completions


def _logprobs(spec: CaptureSpec, completion: Completion) -> dict[str, torch.Tensor]:
    """prompt_logprobs float32 and prompt_logprob_ids int32, both [P-1, 1+k], where they were asked for."""
    if "prompt_logprobs" not in spec.sites:
        return {}
    if not completion.logprobs:
        message = f"{spec.engine} gave no log-probabilities for prompt {completion.prompt!r}"
        raise ProbeError("E306", message, "leave out the site prompt_logprobs")
    return {
        "prompt_logprobs": torch.tensor(completion.logprobs, dtype=torch.float32),
        "prompt_logprob_ids": torch.tensor(completion.logprob_ids, dtype=torch.int32),
    }


def _engine(spec: CaptureSpec) -> Any:
    name = f"{__package__}.engines.{spec.engine}_engine"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        known = ", ".join(stage.engines())
        raise ProbeError("E107", f"no engine is called {spec.engine!r}", f"known: {known}") from None


def guarded(out: Path, what: str, call: Callable[[], Answer]) -> Answer:
    """The result of `call`; an engine's own failure becomes ProbeError E303, a full disk E205."""
    try:
        return call()
    except ProbeError:
        raise
    except Exception as error:
        if disk_full(error):
            help_text = "free some space and run the same command again: finished prompts are kept"
            raise ProbeError("E205", f"the disk holding {out} is full", help_text) from error
        raise ProbeError("E303", f"{what}: {type(error).__name__}: {error}") from error
