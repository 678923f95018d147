"""What the demo captures and asks. The recorded captures and the live ones follow the same plan."""

from __future__ import annotations

from dataclasses import dataclass

from hsprobe.schema import CaptureSpec, PromptSpec

from ..models.checkpoint import BOS, FIRST_BYTE

TEXTS = (
    "Two engines, one model, the same tokens: where do the hidden states part, and is it more than rounding?",
    "A draft head reads three layers of its target. Feed it the wrong three and it guesses worse, silently.",
    "The ferry left the harbour at ten past six, twelve minutes late, and nobody stood at the rail.",
    "def mean(values):\n    return sum(values) / len(values)\n\n\ndef spread(values):\n    return max",
)
DRAFT_IDS = (2, 4, 6)
EVERYTHING = ("boundary.*", "final_norm")


@dataclass(frozen=True)
class Take:
    """One capture of the demo. `seconds` is what it takes on a 2-core CPU, for the time left."""

    name: str  # folder under captures/
    engine: str
    seconds: float
    dtype: str = "bfloat16"
    mechanism: str = "hooks"
    native_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scene:
    """A question, the captures that answer it, and the comparison to make."""

    report: str  # file stem of its report
    question: str
    model: str
    takes: tuple[Take, ...]
    ref: str
    cand: str
    floors: tuple[str, ...]
    recorded_tokens: int  # per prompt, in the captures that ship: all of them stay under one megabyte

    def spec(self, take: Take, model: str, *, recorded: bool = False) -> CaptureSpec:
        """The capture to make. `model` is the folder that the bundled model was built in."""
        length = self.recorded_tokens if recorded else None
        sites = () if take.mechanism == "native" else EVERYTHING
        return CaptureSpec(
            engine=take.engine,
            model=model,
            prompts=tuple(prompt(f"p{i}", text, length) for i, text in enumerate(TEXTS)),
            sites=EVERYTHING[:1] if recorded and sites else sites,
            mechanism=take.mechanism,
            native_ids=take.native_ids,
            dtype=take.dtype,
        )


def prompt(name: str, text: str, length: int | None = None) -> PromptSpec:
    """A prompt in the byte tokenizer's ids after BOS, cut to `length` tokens."""
    ids = (BOS, *(FIRST_BYTE + byte for byte in text.encode()))[:length]
    shown = bytes(i - FIRST_BYTE for i in ids[1:]).decode(errors="replace")
    return PromptSpec(name, ids, text=shown)


SCENES = (
    Scene(
        report="report",
        question="Do vLLM and SGLang hold the same hidden states? A tiny DeepSeek-V3, every boundary.",
        model="tiny:deepseek-v3",
        takes=(
            Take("hf-fp32", "hf", 9, dtype="float32"),
            Take("hf-bf16", "hf", 9),
            Take("vllm", "vllm", 20),
            Take("sglang", "sglang", 35),
        ),
        ref="vllm",
        cand="sglang",
        floors=("hf-fp32", "hf-bf16"),
        recorded_tokens=11,
    ),
    Scene(
        report="two-meanings",
        question="One draft config, aux layer ids 2,4,6: which layers does each engine feed? A tiny Llama.",
        model="tiny:llama",
        takes=(
            Take("vllm-draft", "vllm", 20, mechanism="both", native_ids=DRAFT_IDS),
            Take("sglang-draft", "sglang", 30, mechanism="native", native_ids=DRAFT_IDS),
        ),
        ref="vllm-draft",
        cand="sglang-draft",
        floors=(),
        recorded_tokens=6,
    ),
)
