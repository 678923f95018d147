"""Remakes the small real streams that the fault tests stand on: python -m tests.causes.record [FOLDER].

Two models, four captures each, by the real engines; `packing` keeps them small. FOLDER holds captures that an
earlier run left, or is filled with new ones.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hsparity import models
from hsparity.capture.launch import run_capture
from hsparity.capture.prompts import continued
from hsparity.capture.specs import read_manifest
from hsparity.engines import resolve
from hsparity.models.checkpoint import BOS, FIRST_BYTE
from hsprobe.schema import CaptureSpec, PromptSpec
from tests.causes import packing

LIMIT = 3_000_000  # bytes, all recorded streams together

# The second prompt shares its first 32 tokens with the first: what a prefix cache skips. The lengths, 44 and 36,
# leave other last chunks for every chunk size. Only from eleven requests on do their numbers sort as text.
LONG = "The ferry left the harbour at ten past six."
SHORT = ("ab", "def", "Hi", "2+2", "tea", "if x", "Oh", "nine", "(a)", "moon", "zz")
BYTES = (LONG, LONG[:31] + "Pier", *SHORT)
# Ids of the model's own tokenizer, from the shipped prompts.
WORDS = (
    (504, 31936, 2049, 260, 28899, 418, 3772, 1896, 2976),
    (50, 1040, 13685, 975, 12827, 21910, 3982, 284),
    (1604, 13876, 24, 6347, 727),
)


@dataclass(frozen=True)
class Recorded:
    """A model, what is captured of it, and which captures also keep the branches."""

    name: str  # file stem in recorded/
    model: str
    prompts: tuple[tuple[int, ...], ...]
    generate: int = 0
    branches: tuple[str, ...] = ()  # site keys besides the boundaries
    branched: tuple[str, ...] = ()  # captures that keep them


@dataclass(frozen=True)
class Take:
    name: str
    engine: str
    dtype: str = "bfloat16"


TAKES = (
    Take("hf-bf16", "hf"),  # first: its continuation is forced on the rest
    Take("hf-fp32", "hf", "float32"),
    Take("vllm", "vllm"),
    Take("sglang", "sglang"),
)
MODELS = (
    Recorded(
        name="tiny-deepseek-v3",
        model="tiny:deepseek-v3",
        prompts=tuple((BOS, *(FIRST_BYTE + byte for byte in text.encode())) for text in BYTES),
        generate=3,
        branches=tuple(f"{kind}.{k:03d}" for k in range(1, 7) for kind in ("attn_out", "mlp_out")),
        branched=("hf-bf16", "vllm"),
    ),
    Recorded(name="smollm2", model="smollm2", prompts=WORDS),
)


def capture(recorded: Recorded, folder: Path) -> None:
    """Run the engines, one after the other, into `folder`/NAME/TAKE; finished captures are kept."""
    given = tuple(PromptSpec(f"p{i}", ids) for i, ids in enumerate(recorded.prompts))
    for take in TAKES:
        out = folder / recorded.name / take.name
        more = recorded.branches if take.name in recorded.branched else ()
        spec = CaptureSpec(
            engine=take.engine,
            model=str(models.path(recorded.model)),
            prompts=given,
            sites=("boundary.*", "final_norm", *more),
            generate=recorded.generate,
            dtype=take.dtype,
        )
        run_capture(spec, out, resolve(take.engine))
        if recorded.generate and take is TAKES[0]:
            given = continued(given, read_manifest(out), take.name)


def record(made: str = "") -> int:
    """Capture, or take what `capture` left in a folder, and replace the recorded streams. Returns their bytes."""
    with tempfile.TemporaryDirectory(prefix="hsparity-record-") as scratch:
        folder = Path(made or scratch)
        packed = {}
        for recorded in MODELS:
            capture(recorded, folder)
            takes = {take.name: folder / recorded.name / take.name for take in TAKES}
            packed[recorded.name] = packing.pack(takes, recorded.model)
    size = sum(map(len, packed.values()))
    if size > LIMIT:
        sys.exit(f"the streams are {size:,} bytes, more than {LIMIT:,}: shorten the prompts")
    packing.FOLDER.mkdir(exist_ok=True)
    for name, data in packed.items():
        (packing.FOLDER / f"{name}.zip").write_bytes(data)
    return size


if __name__ == "__main__":
    sys.stdout.write(f"{record(*sys.argv[1:2]):,} bytes in {packing.FOLDER.name}\n")
