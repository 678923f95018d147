"""A head run here is the head that the speculators library runs, and vLLM where it attends as DeepSeek does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.drafter import measuring
from hsparity.drafter.chain import run
from hsparity.drafter.draft import open_draft
from hsparity.drafter.head import load_head
from hsparity.drafter.library import run_library
from tests.unit.drafter.heads import make_head, make_target

from .conftest import random_prompts

pytestmark = pytest.mark.engine

STEPS = 3
# vLLM's attention for these on a CPU has one size of a row, the published models'.
RANKS = {
    "q_lora_rank": 96,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.7,
    "mscale_all_dim": 1.0,
}


@pytest.mark.parametrize(
    "flags",
    [
        {
            "norm_before_residual": True,
            "norm_output": True,
            "layers": 2,
            "embedding": False,
            "lm_head": False,
        },
        {"norm_before_fc": True, "qk_norm": True, "attention_bias": True, "slots": 4, "ids": [1, 2, 4, 6]},
    ],
)
def test_speculators_runs_the_same_head(flags: dict[str, Any], tmp_path: Path) -> None:
    """States agree to float32's rounding and drafted tokens agree, at every position of texts of two lengths."""
    target = make_target(tmp_path / "target")
    head = load_head(open_draft(str(make_head(tmp_path / "head", layout="speculators", **flags))), target)
    fed = [torch.randn(rows, head.slots * head.target_hidden_size) for rows in (90, 7, 1)]
    ids = [torch.randint(0, head.vocab, (len(rows),)) for rows in fed]
    made = run_library(head, target, fed, ids, STEPS)
    assert made.why == ""
    for text in range(3):
        ours = run(head, fed[text], ids[text], STEPS)
        torch.testing.assert_close(made.states[text], ours, rtol=1e-4, atol=1e-5, equal_nan=True)
        read = ours.isfinite().all(-1)
        assert torch.equal(made.drafted[text] >= 0, read)
        same = made.drafted[text][read] == head.logits(ours[read]).argmax(-1)
        assert float(same.float().mean()) >= 0.99 or not len(same)


@pytest.fixture(scope="module")
def latent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head with multi-head latent attention for the tiny DeepSeek, random."""
    return make_head(
        tmp_path_factory.mktemp("latent") / "head",
        layout="layers.0",
        mla=True,
        ranks=RANKS,
        rope=YARN,
        fc_norm=True,
        norm_output=True,
        hidden=256,
        vocab=512,
        draft_vocab=192,
        slots=1,
        # Before the first layer of experts: where a router flips, two engines feed a head different states.
        ids=(1,),
        dtype=torch.bfloat16,
        # vLLM takes a draft of model_type deepseek_v3 for the model's own MTP layers.
        config={"model_type": "deepseek_v2", "rms_norm_eps": 1e-6},
    )


def test_vllm_drafts_the_same_with_latent_attention(latent: Path, tiny_deepseek: Path) -> None:
    """vLLM drafts what this head drafts of Transformers' states and vLLM's own earlier drafts, but where two tokens are as
    good as tied in bfloat16."""
    from transformers import AutoModelForCausalLM

    draft = open_draft(str(latent))
    asked = measuring.Asked("vllm", str(tiny_deepseek), generate=24, k=STEPS)
    record = measuring.measure(draft, asked, random_prompts((40, 31), 512))
    assert record.draft_class == "Eagle3DeepseekV2ForCausalLM"
    head = load_head(draft, tiny_deepseek)
    target = AutoModelForCausalLM.from_pretrained(tiny_deepseek, dtype=torch.bfloat16)
    same, gaps = [], []
    for prompt in record.prompts:
        with torch.no_grad():
            states = target(torch.tensor(prompt.text)[None], output_hidden_states=True).hidden_states
        fed = torch.cat([states[b][0] for b in draft.ids or ()], -1).float()
        for step in prompt.steps:
            start = step.first - 2  # its states are of the last row before the newest token
            ids = torch.tensor(prompt.text[: step.first] + step.drafted)
            rows = torch.cat([fed[: start + 1], fed.new_zeros(len(ids) - start - 1, fed.shape[1])])
            logits = head.logits(run(head, rows, ids, STEPS)[:, start])
            for ours, token in zip(logits, step.drafted, strict=True):
                theirs = ours[head.target_ids == token]
                same.append(int(head.target_ids[ours.argmax()]) == token)
                gaps.append(float(ours.max() - theirs))
    assert len(same) >= 60
    assert sum(same) / len(same) >= 0.95
    assert max(gaps) < 0.1  # of logits whose standard deviation is one
