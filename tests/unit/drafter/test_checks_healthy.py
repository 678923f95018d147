"""The static check says nothing against heads in the shapes that they are published in and served with."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.drafter.checking import DraftCheck, check
from hsparity.drafter.draft import open_draft

from .published import HEADS, publish


def run(folder: Path, name: str, engine: str, **more: str) -> DraftCheck:
    head, target = publish(folder, name)
    return check(open_draft(str(head)), engine, model=str(target), algorithm="EAGLE3", **more)


# A head whose rope is not its target's is right if it was trained so, and SGLang says itself that a head allows fewer
# positions than its target: both are notes.
SERVED = [
    ("reference-llama", "vllm", {}, {"HS631"}),
    ("redhat-llama", "vllm", {}, {"HS631"}),
    ("redhat-qwen3", "vllm", {}, {"HS631"}),
    ("specforge-qwen3-235b", "sglang", {}, set()),
    ("specforge-qwen3-235b", "vllm", {"runner": "v2"}, {"HS603"}),
    ("specforge-kimi-k2", "sglang", {}, {"HS631"}),
    ("specforge-kimi-k2", "vllm", {}, {"HS603", "HS631"}),
    ("specforge-kimi-k2", "vllm", {"runner": "v1"}, {"HS631"}),
    ("specforge-qwen3-30b-3.1", "sglang", {}, {"HS633"}),
    ("specforge-qwen3-30b-3.1", "vllm", {}, set()),
    ("mla-kimi-k2.5", "vllm", {}, set()),
    ("mla-kimi-k2.5", "sglang", {}, set()),
]


@pytest.mark.parametrize(("name", "engine", "more", "notes"), SERVED)
def test_a_published_shape_is_ok_where_it_is_served(
    name: str, engine: str, more: dict[str, str], notes: set[str], tmp_path: Path
) -> None:
    """No error and no warning, and the notes that are true of it."""
    result = run(tmp_path, name, engine, **more)
    assert [p for p in result.problems if p.severity != "note"] == []
    assert {p.code for p in result.problems} == notes
    assert result.verdict == "ok"


@pytest.mark.parametrize("name", HEADS)
def test_every_shape_reaches_every_check(name: str, tmp_path: Path) -> None:
    """What is unchecked has a reason that the shape explains, not one of reading it."""
    result = run(tmp_path, name, "vllm")
    assert len(result.fine) + len(result.unchecked) + len({p.code for p in result.problems}) >= 28
    reasons = {reason for _, reason in result.unchecked}
    assert not {r for r in reasons if "cannot be read" in r or "--model" in r}


def test_a_specforge_list_on_vllms_old_runner_is_a_layer_early(tmp_path: Path) -> None:
    """[1, 46, 90] means 2, 47, 91 to SGLang, for which it was written, and 1, 46, 90 to vLLM's V1 runner."""
    result = run(tmp_path, "specforge-qwen3-235b", "vllm", runner="v1", trained_by="specforge 0.2.0")
    (found,) = [p for p in result.problems if p.severity == "error"]
    assert found.code == "HS607"
    assert [(c.key, c.new) for c in found.changes] == [("eagle_aux_hidden_state_layer_ids", "[2,47,91]")]


def test_the_runner_decides_where_it_is_not_told(tmp_path: Path) -> None:
    """The same list without --runner is unclear: V2 feeds its default, which is right, V1 does not."""
    result = run(tmp_path, "specforge-qwen3-235b", "vllm")
    assert result.verdict == "unclear"
    assert {p.code for p in result.problems if p.severity == "warning"} == {"HS607"}


def test_a_speculators_head_does_not_load_on_sglang(tmp_path: Path) -> None:
    """Its layer is nested; and norm_before_residual would not be honoured."""
    result = run(tmp_path, "redhat-qwen3", "sglang")
    assert result.verdict == "problems"
    assert result.problems[0].code == "HS646"


def test_the_reference_shape_is_a_plain_llama_to_sglang(tmp_path: Path) -> None:
    """architectures says LlamaForCausalLM, which vLLM mends by itself."""
    result = run(tmp_path, "reference-llama", "sglang")
    assert result.problems[0].code == "HS646"
    assert result.problems[0].changes[0].new == '["LlamaForCausalLMEagle3"]'
