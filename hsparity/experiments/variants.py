"""Specs that have to be worked out: the dequantised twin, cloning hooks, padded batches, decoded tokens as prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from hsprobe.schema import CaptureSpec, PromptSpec, canonical_sha256

from ..capture.checkpoint import config_file
from ..errors import HsparityError
from .knob import Knob, Slice, Value
from .proofs import Made

EVERYTHING = ("boundary.*", "final_norm")
FILLER = "hsparity-filler-"
STEP = 8  # both engines capture prefill graphs for multiples of 8 tokens or coarser


@dataclass(frozen=True, slots=True)
class Turn:
    """One knob put somewhere. `label` says where, for people."""

    knob: Knob
    part: Slice | Value
    label: str


@dataclass(frozen=True, slots=True)
class Variant:
    """One side with some of its knobs turned."""

    role: str  # "ref" | "cand"
    turns: tuple[Turn, ...]

    @property
    def cost(self) -> float:
        return max((t.knob.cost for t in self.turns), default=1.0)


def build(base: Made, variant: Variant, twins: Path) -> CaptureSpec:
    """The spec of a variant of `base`. Raises what making a twin raises."""
    spec = base.spec
    for turn in variant.turns:
        how = turn.part.make if isinstance(turn.part, Value) else ""
        spec = _made(spec, base, how, twins) if how else turn.knob.put(spec, turn.part)
    return spec


def _made(spec: CaptureSpec, base: Made, how: str, twins: Path) -> CaptureSpec:
    if how == "twin":
        return twinned(spec, twins)
    if how == "clone":
        return replace(spec, mechanism="hooks", native_ids=(), sites=EVERYTHING)
    if how == "whole":
        return whole(spec, base)
    return padded(spec)


def twinned(spec: CaptureSpec, folder: Path) -> CaptureSpec:
    """On the checkpoint's weights dequantised to 16 bits, written to `folder` when missing. Raises what making it raises."""
    from ..weights.twin import twin

    config = config_file(spec.model, spec.revision)
    if config is None:
        raise HsparityError("E107", f"no such model here: {spec.model}")
    home = config.absolute().parent
    made = twin(home, folder / f"{home.name}-{canonical_sha256(str(home))[:8]}")
    args = {k: v for k, v in spec.engine_args.items() if k not in ("quantization", "quantization_config")}
    return replace(spec, model=str(made.resolve()), revision="", engine_args=args)


def whole(spec: CaptureSpec, base: Made) -> CaptureSpec:
    """The tokens that were decoded as part of the prompts: the same rows in one pass each."""
    said = {p.id: p.generated for p in base.source.prompts}
    prompts = tuple(
        replace(p, token_ids=(*p.token_ids, *said.get(p.id, ())[:-1]), forced=()) for p in spec.prompts
    )
    return replace(spec, prompts=prompts, generate=0)


def bucket(count: int) -> int:
    """The batch size that graphs are captured for, as both engines choose it: 1, 2, 4, then multiples of 8."""
    return next((n for n in (1, 2, 4) if count <= n), -(-count // STEP) * STEP)


def padded(spec: CaptureSpec) -> CaptureSpec:
    """Filler prompts beside the real ones, so that an eager pass has the shape of the graph that would be replayed: as many
    requests as the bucket of its batch, and prompt tokens to a multiple of 8."""
    size = max(spec.batch, 1)
    target = bucket(size)
    fill = max(target - size, 1)
    prompts: list[PromptSpec] = []
    for start in range(0, len(spec.prompts), size):
        group = spec.prompts[start : start + size]
        tokens = sum(len(p.token_ids) for p in group)
        spare = -(tokens + fill) % STEP + fill
        ids = group[0].token_ids
        longest = [1] * (fill - 1) + [spare - (fill - 1)]
        # A forced continuation has to be as long as the others': every pass then has the same number of rows.
        fillers = [
            PromptSpec(f"{FILLER}{start}-{n}", (ids * length)[:length], group[0].forced)
            for n, length in enumerate(longest)
        ]
        prompts += [*group, *fillers]
    return replace(spec, prompts=tuple(prompts), batch=size + fill)
