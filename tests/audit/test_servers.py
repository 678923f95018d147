"""The same dataset before other servers: vLLM, and SGLang by the rule of its older versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.model import Verdict
from tests.audit import bench


def extracted(folder: Path, form: str, aux: tuple[int, ...]) -> Path:
    """SGLang's states, for a draft that vLLM serves."""
    made = bench.samples((*aux, bench.ENDS[form]), engine="sglang")
    return bench.written(folder, form, made, aux)


def test_vllm_takes_ids_as_boundaries(tmp_path: Path, floor: bench.Floor) -> None:
    """speculators 0.4's 1, 3, 4 are layer outputs, vLLM's 2, 4, 5 are boundaries: the same tensors."""
    server = bench.served(tmp_path / "server", engine="vllm")
    result = bench.run(extracted(tmp_path / "data", bench.V1, bench.FEEDS), tmp_path, server, floor)
    assert result.verdict is Verdict.PARITY
    assert "vllm feeds the draft: boundaries 2, 4, 5" in result.headline
    assert "1, 3, 4 to speculators" in result.numbering
    assert "2, 4, 5 to vllm are both boundaries 2, 4, 5: not your cause" in result.numbering


def test_the_seeds_question_before_vllm(tmp_path: Path, floor: bench.Floor) -> None:
    """The same ids to both: one layer earlier."""
    server = bench.served(tmp_path / "server", engine="vllm")
    result = bench.run(extracted(tmp_path / "data", bench.V1, (3, 5, 6)), tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert result.headline.startswith("One layer earlier: vllm feeds boundaries 2, 4, 5")
    assert any("write ids 3,5,6 for vllm" in text for text in result.fix)
    assert result.numbering.startswith("same ids, different tensors: 2, 4, 5 are boundaries 3, 5, 6 to ")


@pytest.mark.parametrize("version", ["0.5.5", "0.5.12"])
def test_sglang_before_0_5_13_adds_one(tmp_path: Path, floor: bench.Floor, version: str) -> None:
    """The older engine does not run here: today's states, given the ids that its rule makes these boundaries of."""
    server = bench.served(tmp_path / "server", (3, 5, 6), ids=(2, 4, 5), version=version)
    same = bench.run(bench.dataset(tmp_path / "same", bench.V1, (3, 5, 6)), tmp_path / "a", server, floor)
    assert same.verdict is Verdict.PARITY
    assert same.numbering.startswith("same ids, same tensors: 2, 4, 5 are boundaries 3, 5, 6")
    other = bench.run(bench.dataset(tmp_path / "other", bench.V1), tmp_path / "b", server, floor)
    assert other.verdict is Verdict.DIVERGED
    assert other.headline.startswith("One layer later: sglang feeds boundaries 3, 5, 6")
    (text,) = (text for text in other.fix if "write ids" in text)
    assert (
        f"write ids 1,3,4 for sglang {version} (eagle_config.eagle_aux_hidden_state_layer_ids [1,3,4]; adds 1 to every id)"
        in text
    )


def test_a_patched_engine_is_read_by_its_data_not_by_its_version(tmp_path: Path, floor: bench.Floor) -> None:
    """Today's version with a model file that adds one, as the patched kimi_k25 does: the rule of the version does not
    hold, the shift that is seen does."""
    server = bench.served(tmp_path / "server", (3, 5, 6), ids=(2, 4, 5))
    result = bench.run(bench.dataset(tmp_path / "data", bench.V1, (4, 6, 7)), tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert any("write ids 3,5,6 for sglang" in text for text in result.fix)
    (text,) = (text for text in result.fix if "write ids" in text)
    assert "by the data it adds 1 to every id" in text
