"""What is planted in a running vLLM, how strongly, and what has to be said of it. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

LENGTHS, FORCED = (24, 33, 41, 52, 60, 72), 8
LAYERS, WINDOW = 8, 16
SITES = ("boundary.*", "final_norm", "attn_out.*", "mlp_out.*")
MOE_SITES = (*SITES, "router_logits.*", "experts.*")
EVERY = tuple(range(LAYERS))
MOE = EVERY[1:]


@dataclass(frozen=True)
class Planted:
    """One fault in one model. `layers` and `parts` are where it adds error; the others pass it on."""

    name: str
    model: str  # "deepseek" | "mistral": which of planted_checkpoints; "mistral-fp8" keeps its cache in fp8
    fault: str  # the key in planted_faults.FAULTS
    severities: tuple[float, ...]  # weakest first
    clear: float  # the one that tests plant
    truth: str  # the cause's name
    also: tuple[str, ...]  # other names that are right of it too
    layers: tuple[int, ...]
    parts: tuple[str, ...]  # "attention", "mlp", "router"
    what: str  # {s} is the severity
    layer: int = -1  # where the fault goes when it goes to one layer
    # The weakest severity at which the states left the bfloat16 floor on most tokens; NaN: none did.
    seen: float = math.nan

    @property
    def down(self) -> tuple[float, ...]:
        """From the clear severity down to the weakest."""
        return self.severities[self.severities.index(self.clear) :: -1]

    @property
    def visible(self) -> tuple[float, ...]:
        """The clear severity and those above it, with what leaves the floor below."""
        return tuple(s for s in self.severities if self.leaves_floor(s) or s not in self.down[1:])

    def leaves_floor(self, severity: float) -> bool:
        """Whether a comparison alone can see it."""
        return self.seen in self.severities and self.severities.index(severity) >= self.severities.index(
            self.seen
        )

    def folder(self, severity: float) -> str:
        return f"{self.name}-{severity:g}"

    def step(self, severity: float) -> dict[str, object]:
        """What the script in the engine is asked for."""
        return {
            "folder": self.folder(severity),
            "fault": self.fault,
            "severity": severity,
            "layer": self.layer,
        }


FACTORS = (1.001, 1.003, 1.01, 1.03, 1.1, 1.25, 1.5, 2.0)
ROUNDED = FACTORS[2:]  # of what is stored in bfloat16, where 1.001 times a number is that number
NOISES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
EPSILONS = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)

PLANTED = (
    Planted(
        "rope-theta", "deepseek", "rope-theta", FACTORS, 1.5,
        "rope", (), EVERY, ("attention",), "rope theta times {s}", seen=1.1,
    ),
    Planted(
        "rope-mscale", "deepseek", "rope-mscale", ROUNDED, 1.5,
        # Both the query's and the key's rotated part grow: the score's rotated share by the square.
        "rope", ("attention-semantics",), EVERY, ("attention",), "cosines and sines times {s} (yarn's mscale)", seen=1.03,
    ),
    Planted(
        "softmax-scale", "deepseek", "softmax-scale", (*FACTORS[:5], 0.874, *FACTORS[5:]), 1.5,
        # 0.874 is 1 / (0.1 ln 2 + 1)^2: mscale_all_dim left out, as an engine that does not know it would.
        "attention-semantics", (), EVERY, ("attention",), "scores scaled by {s} times what they should be", seen=1.03,
    ),
    Planted(
        "expert-scale", "deepseek", "expert-scale", (*ROUNDED, 4.0), 4.0,
        "moe-scale", ("layer-weights",), (4,), ("mlp",), "the down projection of expert 3 of layer 4 times {s}",
        layer=4, seen=4.0,
    ),
    Planted(
        "routed-scaling", "deepseek", "routed-scaling", (2.49, 2.475, 2.45, 2.4, 2.25, 2.0, 1.0), 1.0,
        "moe-scale", (), MOE, ("mlp",), "routed_scaling_factor {s} instead of 2.5", seen=2.45,
    ),
    Planted(
        "norm-eps", "deepseek", "norm-eps", EPSILONS, 1e-1,
        "norm-rounding", (), EVERY, ("attention", "mlp"), "eps of every layer's norms {s} instead of 1e-6", seen=0.03,
    ),
    Planted(
        "layer-weights", "deepseek", "o-proj-noise", NOISES, 3e-1,
        "layer-weights", (), (5,), ("attention",), "noise of {s} of its norm on o_proj of layer 5",
        layer=5, seen=0.3,
    ),
    Planted(
        "router-bias", "deepseek", "router-bias", (0.9, 0.5, 0.0), 0.0,
        # The bias is a tensor of the layer that does not act as the checkpoint says. No near-tie is broken: experts
        # change at margins far beyond rounding, which the benign name moe-routing-flip would hide.
        "layer-weights", ("unknown",), MOE, ("router",), "e_score_correction_bias times {s}", seen=0.9,
    ),
    Planted(
        "kv-scale", "deepseek", "mla-kv-scale", ROUNDED, 1.5,
        # CPU_MLA reads its cache in decode only.
        "attention-semantics", ("quantised-kv", "prefill-decode"), EVERY, ("attention",),
        "cached latents times {s}; only decode reads them",
    ),
    Planted(
        "m-rope-theta", "mistral", "rope-theta", FACTORS, 1.5,
        "rope", (), EVERY, ("attention",), "rope theta times {s}", seen=1.1,
    ),
    Planted(
        "m-softmax-scale", "mistral", "softmax-scale", FACTORS, 1.5,
        "attention-semantics", (), EVERY, ("attention",), "scores scaled by {s} times what they should be", seen=1.03,
    ),
    Planted(
        "m-norm-eps", "mistral", "norm-eps", EPSILONS, 1e-1,
        "norm-rounding", (), EVERY, ("attention", "mlp"), "eps of every layer's norms {s} instead of 1e-6", seen=0.01,
    ),
    Planted(
        "m-layer-weights", "mistral", "down-proj-noise", NOISES, 1e-1,
        "layer-weights", (), (3,), ("mlp",), "noise of {s} of its norm on down_proj of layer 3",
        layer=3, seen=0.03,
    ),
    Planted(
        "m-window", "mistral", "window", (1, -1, 2, 4, -8), 1,
        "window-edge", ("attention-semantics",), EVERY, ("attention",), "a window {s:+} tokens longer", seen=1,
    ),
    Planted(
        "m-kv-scale", "mistral", "kv-scale", ROUNDED, 1.5,
        # In a bfloat16 cache this is a gain of attention's output, which its weights could have too: it may stay open.
        "attention-semantics", ("quantised-kv", "unknown"), EVERY, ("attention",), "cached values times {s}, cache bfloat16",
        seen=1.03,
    ),
    Planted(
        "m-kv-scale-fp8", "mistral-fp8", "kv-scale", (1.1, 1.5, 2.0), 1.5,
        "quantised-kv", ("attention-semantics",), EVERY, ("attention",), "cached values times {s}, cache fp8", seen=1.1,
    ),
)  # fmt: skip


def of(model: str) -> Iterator[Planted]:
    """The faults of one model, in order."""
    return (p for p in PLANTED if p.model == model)
