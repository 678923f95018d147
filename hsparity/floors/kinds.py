"""The kinds of floor: how the capture is made again with one thing changed, and whether the engine did it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hsparity.capture import passes
from hsparity.capture.source import Source
from hsparity.engines import facts
from hsparity.floors.base import Base
from hsprobe.schema import CaptureSpec, PromptSpec

BATCH = 8
CHUNK = 16  # the least that every engine takes
DECODED = 16  # tokens of each prompt that `decoded` decodes at most, and a third of it
# How an engine is told to prefill in chunks of n tokens, and the arguments to drop for a whole prefill.
CHUNKS: dict[str, Callable[[int], dict[str, object]]] = {
    "vllm": lambda n: {"enable_chunked_prefill": True, "max_num_batched_tokens": n},
    "sglang": lambda n: {"chunked_prefill_size": n},
}
CHUNK_ARGUMENTS = ("enable_chunked_prefill", "max_num_batched_tokens", "chunked_prefill_size")


@dataclass(frozen=True, slots=True)
class Change:
    """A capture to make; or, with `reason`, why it cannot be made."""

    spec: CaptureSpec | None
    what: str = ""  # what is changed, in words
    reason: str = ""


def change(base: Base, kind: str) -> Change:
    """What has to be captured for a kind of floor."""
    if kind in ("fp32", "bf16"):
        dtype = {"fp32": "float32", "bf16": "bfloat16"}[kind]
        return Change(base.reference(dtype), f"the same tokens in {dtype}")
    if base.spec is None:
        return Change(None, reason="a file: no engine of ours made it, so none can make it again")
    return {
        "repeat": _repeat,
        "batch": _batch,
        "prefilled": _prefilled,
        "decoded": _decoded,
        "chunked": _chunked,
    }[kind](base)


def _repeat(base: Base) -> Change:
    return Change(base.remade, "nothing: the same run again")


def _batch(base: Base) -> Change:
    before = base.remade.batch
    if base.remade.engine == "hf":
        return Change(None, reason=f"{facts.facts('hf').title} runs every prompt alone here")
    if before > 1:
        return Change(replace(base.remade, batch=1), f"batch {before} to 1")
    count = min(BATCH, len(base.prompts))
    if count < 2:
        return Change(None, reason="one prompt makes no batch: capture with more --prompts")
    return Change(replace(base.remade, batch=count), f"batch 1 to {count}")


def _prefilled(base: Base) -> Change:
    if not base.decodes:
        return Change(None, reason="nothing was decoded: capture with --generate")
    prompts = tuple(replace(p, token_ids=(*p.token_ids, *p.forced[:-1]), forced=()) for p in base.prompts)
    count = sum(len(p.forced[:-1]) for p in base.prompts)
    return Change(
        replace(base.remade, prompts=prompts, generate=0), f"{count} decoded tokens are given as prompt"
    )


def _decoded(base: Base) -> Change:
    if base.remade.mechanism != "hooks" and "prompt_logprobs" in base.remade.sites:
        return Change(None, reason="prompt log-probabilities end where the prompt does")
    lengths = [len(p.token_ids) for p in base.prompts]
    # Engines decode equally many tokens after every prompt: as many as makes most rows, by the prompts long enough.
    most = max(range(1, DECODED + 1), key=lambda n: n * sum(length >= 3 * n for length in lengths))
    prompts = tuple(_cut(p, most) for p in base.prompts if len(p.token_ids) >= 3 * most)
    if not prompts:
        return Change(None, reason="every prompt is too short to decode a part of it: 3 tokens are needed")
    generate = len(prompts[0].forced)
    what = f"the last {most} tokens of {len(prompts)} prompts are decoded"
    return Change(replace(base.remade, prompts=prompts, generate=generate), what)


def _cut(prompt: PromptSpec, count: int) -> PromptSpec:
    """The prompt's last tokens as its continuation. What comes after the last one fed is never fed itself."""
    after = prompt.forced or prompt.token_ids[:1]
    return replace(
        prompt, token_ids=prompt.token_ids[:-count], forced=(*prompt.token_ids[-count:], *after), text=""
    )


def _chunked(base: Base) -> Change:
    engine = base.remade.engine
    if engine not in CHUNKS:
        return Change(None, reason=f"{facts.facts(engine).title} runs a prompt in one pass")
    whole = {k: v for k, v in base.remade.engine_args.items() if k not in CHUNK_ARGUMENTS}
    if passes.chunked(base.source):
        return Change(replace(base.remade, engine_args=whole), "the prompts in one pass each")
    if base.longest <= CHUNK:
        return Change(None, reason=f"no prompt is longer than a chunk of {CHUNK} tokens")
    size = max(CHUNK, base.longest // 4 // CHUNK * CHUNK)
    # vLLM takes no more sequences than a pass has tokens.
    spec = replace(base.remade, engine_args=whole | CHUNKS[engine](size), batch=min(base.remade.batch, size))
    return Change(spec, f"the prompts in chunks of {size} tokens")


def ignored(kind: str, base: Base, made: Source) -> str:
    """Why a capture is not the floor it was made as, though the engine finished; empty when it is."""
    refused = made.manifest.settings.get("not_applied") or {}
    title = facts.facts(made.manifest.engine).title
    if kind == "batch":
        if "batch" in refused:
            return f"{title} runs every prompt alone here: batch={refused['batch']} was not applied"
        count, before = (int(s.manifest.settings.get("batch") or 1) for s in (made, base.source))
        larger = made if count > before else base.source
        held = (passes.prefill_passes(larger), passes.decode_passes(larger))
        if not any(passes.together(each) for each in held):
            return f"{title} put no two prompts into one pass, so no batch shape was changed"
    if kind == "chunked" and passes.chunked(made) == passes.chunked(base.source):
        told = "; ".join(f"{k}: {_words(v)}" for k, v in refused.items() if k in CHUNK_ARGUMENTS)
        return f"{title} did not chunk: every prompt ran in as many passes as before" + (
            f" ({told})" if told else ""
        )
    return ""


def _words(said: object) -> str:
    """asked True, applied False."""
    if not isinstance(said, dict):
        return str(said)
    return ", ".join(f"{name} {said[name]}" for name in ("asked", "applied") if name in said)
