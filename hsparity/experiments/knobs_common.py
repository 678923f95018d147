"""Knobs that every engine has alike: the part of the spec that is hsparity's own, and not one engine's argument."""

from __future__ import annotations

from .knob import Knob, Value


def weights(engine: str, args: tuple[str, ...]) -> Knob:
    """The checkpoint, and its dequantised twin; `args` are the engine's arguments on how it reads one."""
    return Knob(
        engine,
        "weights",
        "quantised-weights",
        "the checkpoint's weights",
        "model",
        proof="weights",
        setting="quantization",
        args=args,
        fields=("model", "revision"),
        values=(Value("twin", make="twin", needs=("quantised",)),),
        likely=1.0,
        precision=True,
    )


def dtype(engine: str) -> Knob:
    """What the engine computes in."""
    return Knob(
        engine,
        "dtype",
        "dtype-rounding",
        "the dtype of the arithmetic",
        "dtype",
        proof="dtype",
        fields=("dtype",),
        values=(
            Value("float32", fields={"dtype": "float32"}),
            Value("bfloat16", fields={"dtype": "bfloat16"}, coarse=True),
            Value("float16", fields={"dtype": "float16"}, coarse=True),
        ),
        likely=0.9,
        precision=True,
    )


def padding(engine: str) -> Knob:
    """The eager run that has to come before a graph is blamed."""
    return Knob(
        engine,
        "padding",
        "batch-variance",
        "eager passes padded to the sizes that CUDA graphs were captured for",
        "batch",
        proof="together",
        fields=("batch", "prompts"),
        values=(Value("padded to a bucket", make="pad", needs=("gpu",)),),
        likely=0.2,
    )


def batch(engine: str, sizes: tuple[int, ...] = (1, 4, 8), likely: float = 0.4) -> Knob:
    """Prompts in one pass; without `sizes` it is noticed, and never turned."""
    return Knob(
        engine,
        "batch",
        "batch-variance",
        "prompts submitted together",
        "batch",
        proof="together",
        fields=("batch",),
        values=tuple(Value(str(n), fields={"batch": n}) for n in sizes),
        likely=likely,
    )


def decode(engine: str) -> Knob:
    """Decoded tokens given as part of the prompt."""
    return Knob(
        engine,
        "decode",
        "prefill-decode",
        "tokens decoded one by one, or as part of the prompt",
        "prompts",
        proof="passes",
        fields=("prompts", "generate"),
        values=(Value("in the prompt", make="whole", needs=("decoded",)),),
        likely=0.3,
    )


def clone_only(engine: str) -> Knob:
    """The run that tells aliasing from precision."""
    return Knob(
        engine,
        "clone-only",
        "aliased-capture",
        "the same settings read by hsparity's cloning hooks in place of the native hand-over",
        "mechanism",
        proof="mechanism",
        setting="mechanism",
        fields=("mechanism", "native_ids", "sites"),
        values=(Value("hooks", make="clone", needs=("native", "hooks-fire")),),
        likely=0.2,
    )
