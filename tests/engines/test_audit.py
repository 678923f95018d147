"""Audits on the real engines: the first user's question and its neighbours, and a dataset that speculators itself made.

Every server is a capture that other tests here make too, but for two starts of SGLang: the older rule of its DeepSeek
class, which added one to every id (0.5.5 to 0.5.12), is had by giving today's the ids that rule would have produced; and
the default list.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hsparity.audit.auditing import audit
from hsparity.audit.case import Wanted
from hsparity.audit.result import Audit
from hsparity.capture import foreign
from hsparity.cli.main import invoke as main
from hsparity.model import Verdict
from hsprobe.schema import PromptSpec

from . import test_sglang, test_vllm
from .conftest import Capture, manifest, tensors
from .speculators.v1 import make_v1_dataset

# One worker: what these tests share is made once, and nobody waits for it.
pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("audit")]

L = 8
FIRST: dict[str, Any] = {"prompts": test_sglang.PROMPTS, "mechanism": "both", "generate": 4}


def transformers(capture: Capture, model: Path) -> tuple[str, ...]:
    """The floor on the prompts alone: a dataset holds no decoded tokens."""
    prompts = tuple(PromptSpec(p.id, p.token_ids) for p in test_vllm.PROMPTS)
    return tuple(str(capture("hf", model=model, prompts=prompts, dtype=d)) for d in ("float32", "bfloat16"))


@pytest.fixture(scope="session")
def floor(capture: Capture, tiny_deepseek: Path) -> tuple[str, ...]:
    return transformers(capture, tiny_deepseek)


@pytest.fixture(scope="session")
def llama_floor(capture: Capture, tiny_llama: Path) -> tuple[str, ...]:
    return transformers(capture, tiny_llama)


@pytest.fixture(scope="session")
def trained(capture: Capture, tiny_deepseek: Path) -> Path:
    """vLLM's states of every boundary, which datasets are made of."""
    return capture(
        "vllm",
        model=tiny_deepseek,
        prompts=test_vllm.PROMPTS,
        sites=("boundary.*", "final_norm", *test_vllm.PART_SITES, "prompt_logprobs"),
        mechanism="both",
        native_ids=(2, 4, 6),
        generate=4,
        batch=4,
        engine_args={"max_num_batched_tokens": 16, "block_size": 32, "enable_chunked_prefill": True},
    )


@pytest.fixture(scope="session")
def sglang(capture: Capture, tiny_deepseek: Path) -> Path:
    """SGLang given 2,4,6, which its DeepSeek class takes as they are."""
    return capture(
        "sglang",
        model=tiny_deepseek,
        sites=("boundary.*", "final_norm", *test_sglang.PART_SITES, "prompt_logprobs"),
        native_ids=(2, 4, 6),
        batch=4,
        **FIRST,
    )


def v1(out: Path, capture: Path, ids: tuple[int, ...], last: str = "") -> Path:
    """A dataset as speculators 0.4 writes it for these ids; `last`: a site in place of the last state."""
    states, tokens = [], []
    for prompt in manifest(capture).prompts:
        held = tensors(capture, prompt.id)
        length = prompt.prefill
        sample = {r: held[f"boundary.{r:03d}"][:length] for r in range(L + 1)}
        if last:
            sample[L] = held[last][:length]
        states.append(sample)
        tokens.append(held["token_ids"][:length].tolist())
    return make_v1_dataset(out, states, tokens, ids)


def audited(dataset: Path, work: Path, against: Path, floors: tuple[str, ...]) -> Audit:
    opened = foreign.open_dataset(dataset, str(dataset))
    return audit(Wanted(opened, work, against=str(against), floors=floors))


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """speculators 0.4 told 2,4,6: outputs of those layers, boundaries 3, 5, 7, and the last state un-normed."""
    return v1(tmp_path_factory.mktemp("seed") / "data", trained, (2, 4, 6, L - 1))


def test_the_server_takes_ids_as_they_are(
    seed: Path, sglang: Path, floor: tuple[str, ...], tmp_path: Path
) -> None:
    found = audited(seed, tmp_path, sglang, floor)
    assert found.verdict is Verdict.DIVERGED
    assert found.headline == (
        "One layer earlier: sglang feeds boundaries 2, 4, 6, the dataset holds 3, 5, 7. This is your cause."
    )
    assert "same ids, different tensors" in found.numbering
    assert found.fix[0].startswith("for a draft trained on this dataset: write ids 3,5,7 for sglang")
    assert [r.right for r in found.groups[0].readings] == [False, False, False, True]
    assert found.repair is not None
    assert not found.repair.possible


def test_the_server_adds_one(
    seed: Path, capture: Capture, tiny_deepseek: Path, floor: tuple[str, ...], tmp_path: Path
) -> None:
    """Today's SGLang given 3,5,7 stands for the release that made those of 2,4,6."""
    server = capture("sglang", model=tiny_deepseek, native_ids=(3, 5, 7), batch=4, **FIRST)
    found = audited(seed, tmp_path, server, floor)
    assert "same tensors, different numbering" in found.numbering
    assert "not your cause" in found.numbering
    assert found.verdict is Verdict.PARITY, found.headline
    assert all(r.right for r in found.groups[0].readings)
    assert not found.fix


def test_the_default_triple(
    trained: Path, capture: Capture, tiny_deepseek: Path, floor: tuple[str, ...], tmp_path: Path
) -> None:
    """speculators 0.4's default is one layer later than everybody else's."""
    server = capture("sglang", model=tiny_deepseek, native_ids=(), batch=4, **FIRST)
    dataset = v1(tmp_path / "data", trained, (2, L // 2, L - 3, L - 1))
    found = audited(dataset, tmp_path / "work", server, floor)
    assert found.verdict is Verdict.DIVERGED
    assert found.server is not None
    assert found.server.feeds == (2, L // 2, L - 3)
    assert found.headline.startswith(
        "One layer earlier: sglang feeds boundaries 2, 4, 5, the dataset holds 3, 5, 6"
    )


def test_vllm_serving(seed: Path, trained: Path, floor: tuple[str, ...], tmp_path: Path) -> None:
    found = audited(seed, tmp_path, trained, floor)
    assert found.verdict is Verdict.DIVERGED
    assert found.headline.startswith("One layer earlier: vllm feeds boundaries 2, 4, 6")
    assert "write ids 3,5,7 for vllm" in found.fix[0]


def test_the_last_state(
    trained: Path, capture: Capture, tiny_deepseek: Path, floor: tuple[str, ...], tmp_path: Path
) -> None:
    """Un-normed is what speculators 0.4 writes and its trainer takes; a normed one is a cause, and not to be repaired."""
    server = capture("sglang", model=tiny_deepseek, native_ids=(3, 5, 7), batch=4, **FIRST)
    dataset = v1(tmp_path / "data", trained, (2, 4, 6, L - 1), last="final_norm")
    found = audited(dataset, tmp_path / "work", server, floor)
    assert found.verdict is Verdict.DIVERGED
    comparison = found.groups[0].comparison
    assert comparison is not None
    causes = [f.name for f in comparison.findings if f.severity == "cause" and not f.ruled_out]
    assert causes[0] == "final-norm-applied"
    assert "layer-offset" not in causes
    assert found.repair is not None
    assert not found.repair.possible
    assert "cannot be undone" in found.repair.text


def test_llama_adds_one(
    capture: Capture, tiny_llama: Path, llama_floor: tuple[str, ...], tmp_path: Path
) -> None:
    """The rule that adds one is alive in SGLang's Llama: the same ids are the same tensors there."""
    server = capture("sglang", model=tiny_llama, native_ids=(2, 4, 6), **FIRST)
    trained = capture(
        "vllm",
        model=tiny_llama,
        prompts=test_vllm.PROMPTS,
        mechanism="both",
        native_ids=(2, 4, 6),
        generate=4,
    )
    found = audited(v1(tmp_path / "data", trained, (2, 4, 6, L - 1)), tmp_path / "work", server, llama_floor)
    assert found.numbering.startswith("same ids, same tensors: 2, 4, 6 are boundaries 3, 5, 7")
    assert found.verdict is Verdict.PARITY, found.headline


def test_speculators_own_dataset(
    speculators_dataset: Path,
    capture: Capture,
    tiny_llama: Path,
    llama_floor: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """What speculators 0.9 wrote with ids 2,4,6: boundaries 2, 4, 6 as vLLM feeds them, and a layer early for SGLang's Llama."""
    options = ["--slots", "2,4,6,last", *(word for path in llama_floor for word in ("--floor", path))]
    ours = capture(
        "vllm",
        model=tiny_llama,
        prompts=test_vllm.PROMPTS,
        mechanism="both",
        native_ids=(2, 4, 6),
        generate=4,
    )
    theirs = capture("sglang", model=tiny_llama, native_ids=(2, 4, 6), **FIRST)
    told = capture("sglang", model=tiny_llama, native_ids=(1, 3, 5), batch=4, **FIRST)
    seen = {}
    for name, against in (("vllm", ours), ("sglang", theirs), ("sglang told 1,3,5", told)):
        out = tmp_path / f"{name}.json"
        command = ["audit", str(speculators_dataset), "--against", str(against), *options]
        main([*command, "--work", str(tmp_path / name), "--json", str(out)])
        seen[name] = json.loads(out.read_text())
    assert seen["vllm"]["verdict"] == "parity"
    assert seen["sglang"]["headline"] == (
        "One layer later: sglang feeds boundaries 3, 5, 7, the dataset holds 2, 4, 6. This is your cause."
    )
    assert "write ids 1,3,5 for sglang" in seen["sglang"]["fix"][0]
    assert "same tensors, different numbering" in seen["sglang told 1,3,5"]["numbering"]
