"""docs/accuracy.md from what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from hsparity import models
from hsparity.capture.read import open_source

from .bisected import Answer
from .flips import Tally, layers, tally
from .measured import apart, gain

RUNS = (
    ("Transformers", "hf-bf16"),
    ("vLLM", "vllm-bf16"),
    ("vLLM, MLA off", "vllm-mha"),
    ("SGLang", "sglang-bf16"),
)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table."""
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows),
    ]


def distances(records: Sequence[dict[str, Any]]) -> list[str]:
    """How far apart the sides of each case lie, over the floor, at the last boundary that both hold."""
    head = ("case", "what", "pair", "ref", "cand", "position 0", "prefill", "decode", "bit-equal")
    rows = []
    for record in records:
        found = apart(record, open_source(record["ref"]).manifest.num_layers)
        if found is not None:
            over = (found.pair, found.ref, found.cand, found.first, found.prefill, found.decode)
            told = [f"{x:.2f}" for x in over]
            rows.append((record["name"], record["how"], *told, f"{100 * found.equal:.0f} %"))
    return table(head, rows)


GAINS = (
    ("vLLM, fp8 KV cache", "llama: vllm-fp8kv against vllm-bf16"),
    ("vLLM, fp8 KV cache, MLA off", "deepseek: vllm-mha-fp8kv against vllm-mha"),
    (
        "vLLM's W4A16 kernel against a bf16 matmul of the same weights",
        "llama: vllm-w4a16 against vllm-w4a16-dequant",
    ),
    ("vLLM bfloat16 against its float16", "llama: vllm-fp16 against vllm-bf16"),
)


def gains(records: Sequence[dict[str, Any]]) -> list[str]:
    """How much of its length layer 0's branches keep in the cases whose kernels cut instead of rounding."""
    known = {r["name"]: r for r in records}
    rows = []
    for said, name in GAINS:
        if name in known:
            record = known[name]
            # The side with the cut is the candidate everywhere but in float16 against bfloat16.
            sides = ("cand", "ref") if name.startswith("llama: vllm-fp16") else ("ref", "cand")
            turned = {"ref": record[sides[0]], "cand": record[sides[1]]}
            parts = [gain(turned, f"{part}.000") for part in ("attn_out", "mlp_out")]
            rows.append((said, *(f"{g:.4f} (error {e:.1e})" for g, e in parts)))
    return table(("", "attention, layer 0", "MLP, layer 0"), rows)


def bisected(answers: Sequence[Answer]) -> list[str]:
    """The cases as `hsparity bisect` answers them."""
    right, short, wrong = (sum(a.grade == g for a in answers) for g in ("right", "inconclusive", "wrong"))
    return [
        f"{len(answers)} cases: {right} right, {short} inconclusive, {wrong} wrong.",
        "",
        *table(
            ("case", "truth", "said", "share of the excess", ""),
            ((a.name, a.truth, a.said, a.share, a.grade) for a in answers),
        ),
    ]


def flips(captures: Path) -> list[str]:
    """The tiny DeepSeek's jumps, counted on each engine's bfloat16 run against Transformers float32."""
    weights = models.path("tiny:deepseek-v3") / "model.safetensors"
    with safe_open(weights, "pt") as file:
        name = "model.layers.{}.mlp.gate.e_score_correction_bias"
        bias_le = {k: file.get_tensor(name.format(k)).double() for k in range(1, 8)}
    counted = [
        (said, tally(layers(captures / f"deepseek-{label}", captures / "deepseek-hf-fp32", bias_le)))
        for said, label in RUNS
        if (captures / f"deepseek-{label}" / "manifest.json").exists()
    ]
    head = ("bf16 run", "token-layers", "other experts", "of these jump", "jumps")
    head += ("on a token that flipped before", "behind a flipped token", "no flip in reach", "worst of these")
    return [*table(head, (_counted(said, t) for said, t in counted)), "", *_margins(counted)]


def _counted(said: str, t: Tally) -> tuple[object, ...]:
    first = (said, t.tokens, t.flipped, t.jumped_flipped, t.jumped)
    return (*first, t.jumped_before, t.jumped_reached, t.jumped_clean, f"{t.worst_clean:.2f}× of {t.clean}")


def _margins(counted: Sequence[tuple[str, Tally]]) -> list[str]:
    margins, noises = ([getattr(t, k) for _, t in counted] for k in ("fresh_margin", "fresh_noise"))
    return [
        f"Tokens that flip first stand, in float32, {min(margins):.3f} to {max(margins):.3f} of the median margin from "
        f"the next expert, under router noise {min(noises):.1f} to {max(noises):.1f} times that of other tokens."
    ]


def cpu() -> str:
    """The CPU's bfloat16 units: what vLLM's kernels do depends on them."""
    units = {"AMX": torch.cpu._is_amx_tile_supported(), "avx512_bf16": torch.cpu._is_avx512_bf16_supported()}
    return ", ".join(f"{'with' if there else 'without'} {name}" for name, there in units.items())
