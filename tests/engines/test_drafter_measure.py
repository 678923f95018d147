"""A trained head served by the real engines: steps, counters and layers are what the record says, and our own head drafts
what theirs do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

from hsparity import models
from hsparity.drafter import measuring
from hsparity.drafter.chain import run
from hsparity.drafter.draft import Draft, open_draft
from hsparity.drafter.head import load_head
from hsparity.drafter.measurement import Measurement, counts, disagreements
from hsprobe.schema import PromptSpec

from .conftest import ROOT

pytestmark = pytest.mark.engine

HEAD = ROOT / "tools" / "drafts" / "smollm2-eagle3"  # trained on boundaries 2, 15, 27
QUESTIONS = ("Why is the sky blue?", "What do bees do in winter?", "How does a train stay on its track?")
FED, OFF_BY_ONE = (2, 15, 27), (3, 16, 28)


@pytest.fixture(scope="module")
def draft() -> Draft:
    return open_draft(str(HEAD))


@cache
def questions(model: Path) -> tuple[PromptSpec, ...]:
    """Chat prompts of the model's template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    made = []
    for number, text in enumerate(QUESTIONS):
        chat = tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
        made.append(PromptSpec(f"q{number}", tuple(chat["input_ids"])))
    return tuple(made)


@cache
def states(model: Path, text: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Boundaries 0 to L - 1 of a text in Transformers, bf16, each [T, H]."""
    from transformers import AutoModelForCausalLM

    target = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    with torch.no_grad():
        return tuple(s[0] for s in target(torch.tensor(text)[None], output_hidden_states=True).hidden_states)


def agreement(record: Measurement, draft: Draft, boundaries: tuple[int, ...]) -> float:
    """How many of the engine's drafts our own head makes of Transformers' states at `boundaries`: of those that stand
    behind accepted drafts only, for our chain reads the text's tokens and the engine's its own."""
    model = Path(record.model)
    head = load_head(draft, model)
    same, seen = 0, 0
    for prompt in record.prompts:
        held = states(model, prompt.text)
        fed_tk = torch.cat([held[b] for b in boundaries], dim=-1).float()
        hidden = run(head, fed_tk, torch.tensor(prompt.text), record.k).nan_to_num()
        drafted = head.target_ids[head.logits(hidden).argmax(-1)]
        for step in prompt.steps:
            for j, token in enumerate(step.drafted[: step.accepted + 1]):
                row = step.first - 2  # holds the states of the token before the last settled one
                if row + j < drafted.shape[1]:
                    seen += 1
                    same += int(drafted[j, row]) == token
    return same / seen


def measure(engine: str, draft: Draft, ids: tuple[int, ...] | None = None) -> Measurement:
    model = models.path("smollm2")
    asked = measuring.Asked(engine, str(model), generate=32, ids=ids)
    return measuring.measure(draft, asked, questions(model))


def check_steps(record: Measurement) -> None:
    """The record agrees with the engine's counters; every step has k drafts; what was accepted is in the text."""
    assert not disagreements(record)
    assert record.k == 3
    assert all(len(step.drafted) == 3 for prompt in record.prompts for step in prompt.steps)
    for prompt in record.prompts:
        for step in prompt.steps:
            taken = prompt.text[step.first : step.first + step.accepted + 1]
            assert taken == (*step.drafted[: step.accepted], step.bonus)
    # Chance is 1 in 1,536, the head's vocabulary.
    counted = counts(record)
    assert counted.accepted_per_position[0] > 0.15 * counted.drafts
    assert Measurement.from_json(record.to_json()) == record


def test_vllm_serves_the_head_and_the_steps_are_those_it_counted(draft: Draft) -> None:
    """The config's ids are boundaries in vLLM, and our head makes the same drafts of those states."""
    record = measure("vllm", draft)
    check_steps(record)
    assert (record.ids, record.ids_asked, record.aux_layers) == ((2, 15, 27), "config", (2, 15, 27))
    assert record.runner == "CPUModelRunner"
    assert not record.stand_ins
    assert agreement(record, draft, FED) > max(0.9, agreement(record, draft, OFF_BY_ONE) + 0.05)


def test_sglang_serves_the_head_over_stand_ins_that_the_record_names(draft: Draft) -> None:
    """SGLang's Llama adds 1 to ids given: 1, 14, 26 feed what 2, 15, 27 feed in vLLM. The head's own folder stays as it
    is, and no kernel that is absent is forgotten in the record."""
    before = {path.name: path.read_bytes() for path in HEAD.iterdir()}
    record = measure("sglang", draft, ids=(1, 14, 26))
    assert {path.name: path.read_bytes() for path in HEAD.iterdir()} == before
    check_steps(record)
    assert (record.ids, record.ids_asked, record.aux_layers) == ((1, 14, 26), "given", (2, 15, 27))
    assert "sgl_kernel.verify_tree_greedy_cpu" in record.stand_ins
    assert "torch_native attention of the draft" in record.stand_ins
    assert agreement(record, draft, FED) > max(0.9, agreement(record, draft, OFF_BY_ONE) + 0.05)
