"""Checkpoints whose head or norm the self-check cannot compute with, and a comparison whose last state is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.read import open_source
from hsparity.cli.main import invoke
from hsparity.compare import Query, compare
from hsparity.errors import HsparityError
from hsparity.model import Verdict
from hsparity.selfcheck.checking import check
from tests.causes.judged import finding
from tests.integration.tiny_models import LAYERS, save_llama
from tests.unit.test_selfcheck import Rows, captured, rewritten

LAST = f"boundary.{LAYERS:03d}"


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def right(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture by Transformers with the engine's own log-probabilities."""
    return captured(llama, tmp_path_factory.mktemp("right") / "capture")


def fp8_head(weights: Rows) -> Rows:
    return {**weights, "lm_head.weight": weights["lm_head.weight"].to(torch.float8_e4m3fn)}


def packed_head(weights: Rows) -> Rows:
    packed = weights["lm_head.weight"].to(torch.int8)
    return {k: v for k, v in weights.items() if k != "lm_head.weight"} | {"lm_head.qweight": packed}


def biased_norm(weights: Rows) -> Rows:
    return {**weights, "model.norm.bias": torch.zeros_like(weights["model.norm.weight"])}


def stacked_head(weights: Rows) -> Rows:
    return {**weights, "lm_head.weight": weights["lm_head.weight"][None].contiguous()}


def no_head(weights: Rows) -> Rows:
    return {k: v for k, v in weights.items() if "lm_head" not in k and "embed" not in k}


@pytest.mark.parametrize("tied", [None, False])
@pytest.mark.parametrize("change", [fp8_head, packed_head, biased_norm, stacked_head, no_head])
def test_a_head_that_cannot_be_read_is_e214(
    llama: Path, right: Path, tmp_path: Path, change: Callable[[Rows], Rows], tied: bool | None
) -> None:
    """The checkpoint is not called damaged, and no embedding is read in place of a packed head."""
    model = tmp_path / "model"
    shutil.copytree(llama, model)
    save_file(change(load_file(llama / "model.safetensors")), model / "model.safetensors")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
    source = open_source(right)
    with pytest.raises(HsparityError) as caught:
        check(source, str(model))
    source.close()
    assert caught.value.code == "E214"
    assert "--model" in caught.value.help or "hsparity compare" in caught.value.help


def test_a_damaged_checkpoint_stays_e206(llama: Path, right: Path, tmp_path: Path) -> None:
    """A file cut short is damage, not another kind of head."""
    model = tmp_path / "model"
    shutil.copytree(llama, model)
    data = (llama / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(data[: len(data) // 2])
    source = open_source(right)
    with pytest.raises(HsparityError) as caught:
        check(source, str(model))
    source.close()
    assert caught.value.code == "E206"


def test_the_command_exits_2_and_explains(
    llama: Path, right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E214 at the command line, and `hsparity explain` knows it."""
    shutil.copytree(llama, tmp_path / "model")
    save_file(fp8_head(load_file(llama / "model.safetensors")), tmp_path / "model" / "model.safetensors")
    assert invoke(["selfcheck", str(right), "--model", str(tmp_path / "model")]) == 2
    assert "error[E214]" in capsys.readouterr().err
    assert invoke(["explain", "E214"]) == 0
    assert capsys.readouterr().out.startswith("E214 head-unreadable")


@pytest.mark.parametrize("side", ["cand", "ref"])
@pytest.mark.parametrize("holds", ["boundary.002", "final_norm"])
def test_a_comparison_names_the_side_by_its_own_log_probabilities(
    right: Path, tmp_path: Path, side: str, holds: str
) -> None:
    """A last boundary replaced by another state is self-check-failed among the causes, whichever side holds it."""
    wrong = rewritten(right, tmp_path / "wrong", lambda rows: {**rows, LAST: rows[holds]})
    ref, cand = (open_source(f) for f in ((wrong, right) if side == "ref" else (right, wrong)))
    result = compare(ref, cand, [], Query())
    ref.close()
    cand.close()
    found = finding(result, "HS221")
    assert result.verdict is Verdict.DIVERGED
    assert (found.name, found.severity, found.ruled_out) == ("self-check-failed", "cause", False)
    assert found.slots == (LAST,)
    assert {"ref": "reference", "cand": "candidate"}[side] in found.headline


def test_equal_right_captures_have_no_cause(right: Path, tmp_path: Path) -> None:
    """The same comparison of the capture with a copy of it finds nothing."""
    same = rewritten(right, tmp_path / "same", dict)
    ref, cand = open_source(right), open_source(same)
    result = compare(ref, cand, [], Query())
    ref.close()
    cand.close()
    assert result.verdict is not Verdict.DIVERGED
    assert [f.code for f in result.findings if f.severity == "cause" and not f.ruled_out] == []
