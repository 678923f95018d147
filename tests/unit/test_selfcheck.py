"""The self-check of one engine alone: real captures by Transformers of tiny checkpoints, right and made wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.checkpoint import find_checkpoint
from hsparity.capture.read import open_source
from hsparity.causes.self_check_failed import CAUSE
from hsparity.cli.main import invoke
from hsparity.errors import HsparityError
from hsparity.selfcheck.checking import check
from hsparity.selfcheck.checkpoint import open_head
from hsparity.selfcheck.judging import FEWEST, wins
from hsparity.selfcheck.logits import rate
from hsparity.selfcheck.result import SelfCheck, Verdict
from hsprobe.drive import capture
from hsprobe.schema import CaptureManifest
from hsprobe.stack import rms_norm
from hsprobe.writer import file_sha256
from tests.integration.tiny_models import HIDDEN, LAYERS, VOCABULARY, make_spec, save_gemma, save_llama

Rows = dict[str, torch.Tensor]
Change = Callable[[Rows], Rows]
LAST, EARLY = f"boundary.{LAYERS:03d}", f"boundary.{LAYERS - 1:03d}"
SITES = ("boundary.*", "final_norm", "prompt_logprobs")


def rewritten(folder: Path, out: Path, change: Change, **manifest: object) -> Path:
    """A copy of a capture whose rows went through `change`, with digests that fit."""
    shutil.copytree(folder, out)
    known = CaptureManifest.from_json((folder / "manifest.json").read_text())
    shards = []
    for entry in known.shards:
        rows = change(load_file(out / entry.path))
        save_file({k: v.clone() for k, v in rows.items()}, out / entry.path)
        sites = tuple(
            k for k in rows if k.split(".")[0] in ("boundary", "final_norm", "slot", "prompt_logprobs")
        )
        size, digest = (out / entry.path).stat().st_size, file_sha256(out / entry.path)
        shards.append(replace(entry, bytes=size, sha256=digest, sites=sites))
    (out / "manifest.json").write_text(replace(known, shards=tuple(shards), **manifest).to_json())  # type: ignore[arg-type]
    return out


def checked(folder: Path, tokens: int = 256) -> SelfCheck:
    source = open_source(folder)
    try:
        return check(source, tokens=tokens)
    finally:
        source.close()


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def right(llama: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return captured(llama, tmp_path_factory.mktemp("right") / "capture", dtype=request.param)


def captured(model: Path, out: Path, **fields: object) -> Path:
    capture(make_spec(model, prompts=4, tokens=30, **{"sites": SITES, **fields}), out, lambda _event: None)
    return out


@pytest.fixture(scope="module")
def norm(llama: Path) -> Callable[[torch.Tensor], torch.Tensor]:
    """The model's final norm, in the dtype it is given."""
    weight_h = load_file(llama / "model.safetensors")["model.norm.weight"]
    return lambda x_nh: rms_norm(x_nh, weight_h, 1e-6, False).to(x_nh.dtype)


def test_a_right_capture_passes(right: Path) -> None:
    """Boundary L through the norm and final_norm as it is both give the engine's log-probabilities."""
    found = checked(right)
    assert found.verdict is Verdict.PASSED
    assert [(c.site, c.reading, c.holds) for c in found.claims] == [
        (LAST, "raw", "raw"),
        ("final_norm", "normed", "normed"),
    ]
    assert all(c.claimed.ratio < 1.5 and c.margin > 5 and c.wins > 0.9 for c in found.claims)
    assert found.winner is not None
    assert (found.winner.site, found.winner.reading) in {(LAST, "raw"), ("final_norm", "normed")}
    assert found.winner.top1 > 0.95


def test_the_states_of_one_boundary_early_fail(right: Path, tmp_path: Path) -> None:
    """Boundary L-1 in the place of L fails, and is named although no reading of it fits."""
    wrong = rewritten(right, tmp_path / "early", lambda rows: {**rows, LAST: rows[EARLY]})
    found = checked(wrong)
    claim = found.claims[0]
    assert (found.verdict, claim.verdict, claim.holds) == (Verdict.FAILED, Verdict.FAILED, "")
    assert claim.repeats == EARLY
    assert "one layer early" in found.headline
    assert found.claims[1].verdict is Verdict.PASSED


def test_an_early_state_without_its_neighbours_fails(right: Path, tmp_path: Path) -> None:
    """With boundary L alone in the capture the early state still fails, without a guess."""

    def alone(rows: Rows) -> Rows:
        kept = {k: v for k, v in rows.items() if not k.startswith(("boundary", "final_norm"))}
        return {**kept, LAST: rows[EARLY]}

    found = checked(rewritten(right, tmp_path / "alone", alone))
    assert found.verdict is Verdict.FAILED
    assert not found.claims[0].holds
    assert "in any reading" in found.headline


@pytest.mark.parametrize(("times", "reading"), [(1, "normed"), (2, "normed-twice")])
def test_a_normed_boundary_is_named(
    right: Path, norm: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path, times: int, reading: str
) -> None:
    """Boundary L taken behind one norm, or behind two, fails and says so."""

    def change(rows: Rows) -> Rows:
        state = norm(rows[LAST])
        return {**rows, LAST: state if times == 1 else norm(state)}

    found = checked(rewritten(right, tmp_path / "normed", change))
    assert (found.verdict, found.claims[0].holds) == (Verdict.FAILED, reading)
    assert found.fix
    assert "model.norm" in found.fix[0]


def test_a_raw_final_norm_is_named(right: Path, tmp_path: Path) -> None:
    """final_norm that holds the norm's input fails, boundary L beside it passes."""
    wrong = rewritten(right, tmp_path / "raw", lambda rows: {**rows, "final_norm": rows[LAST]})
    found = checked(wrong)
    assert [c.verdict for c in found.claims] == [Verdict.PASSED, Verdict.FAILED]
    assert found.claims[1].holds == "raw"


def test_boundaries_numbered_one_too_low_are_named(right: Path, tmp_path: Path) -> None:
    """The last state in the place of boundary L-1, and something else in that of L."""
    wrong = rewritten(right, tmp_path / "low", lambda rows: {**rows, LAST: rows[EARLY], EARLY: rows[LAST]})
    claim = checked(wrong).claims[0]
    assert (claim.verdict, claim.lies_in) == (Verdict.FAILED, EARLY)


def test_rows_of_other_tokens_fail(right: Path, tmp_path: Path) -> None:
    """States shifted by one row give no log-probability of the engine's."""
    wrong = rewritten(right, tmp_path / "rows", lambda rows: {**rows, LAST: rows[LAST].roll(1, 0)})
    assert checked(wrong).claims[0].verdict is Verdict.FAILED


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_a_temperature_is_no_fault_of_the_capture(right: Path, tmp_path: Path, temperature: float) -> None:
    """Log-probabilities under a temperature are inconclusive, and the temperature is found."""
    weight = load_file(
        Path(CaptureManifest.from_json((right / "manifest.json").read_text()).model) / "model.safetensors"
    )

    def change(rows: Rows) -> Rows:
        values = rows["prompt_logprobs"]
        logits_nv = rows["final_norm"][: len(values)].float() @ weight["lm_head.weight"].float().T
        hot_nv = torch.log_softmax(logits_nv / temperature, -1)
        return {**rows, "prompt_logprobs": hot_nv.gather(1, rows["prompt_logprob_ids"].long())}

    found = checked(rewritten(right, tmp_path / "hot", change))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert f"{1 / temperature:.2f}"[:3] in found.headline


def test_few_tokens_are_inconclusive(right: Path) -> None:
    """Below the least number of tokens nothing is passed and nothing accused."""
    found = checked(right, FEWEST - 1)
    assert (found.verdict, found.tokens) == (Verdict.INCONCLUSIVE, FEWEST - 1)


def test_nan_states_fail_and_are_counted(right: Path, tmp_path: Path) -> None:
    """Rows without a number are not passed over."""
    wrong = rewritten(right, tmp_path / "nan", lambda rows: {**rows, LAST: rows[LAST] * float("nan")})
    found = checked(wrong)
    assert found.claims[0].verdict is Verdict.FAILED
    assert any("NaN" in note for note in found.notes)


def test_a_slot_that_is_the_last_state_is_told(right: Path, tmp_path: Path) -> None:
    """Slots claim nothing: the capture of slots alone is inconclusive, and says which slot is the last state."""

    def change(rows: Rows) -> Rows:
        kept = {k: v for k, v in rows.items() if not k.startswith(("boundary", "final_norm"))}
        return {**kept, "slot.000": rows["boundary.001"], "slot.001": rows[LAST]}

    found = checked(rewritten(right, tmp_path / "slots", change))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert len(found.also) == 1
    assert found.also[0].startswith("slot.001 holds the state before the final norm")


def test_gemma_norms_caps_and_ties(tmp_path: Path) -> None:
    """A (1 + w) norm, a soft cap on the logits and a tied embedding are read from the checkpoint."""
    model = save_gemma(tmp_path / "gemma")
    source = open_source(captured(model, tmp_path / "capture"))
    found = check(source)
    head = open_head(model, source.manifest, source.norm())
    source.close()
    assert found.verdict is Verdict.PASSED
    assert (head.name, head.plus_one, head.cap) == ("model.embed_tokens.weight", True, 30.0)


def test_blocks_add_up_to_the_whole_vocabulary(right: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probabilities from a streamed vocabulary equal float64 ones of the whole."""
    monkeypatch.setattr("hsparity.selfcheck.logits.MOST_ROWS", 24)
    source = open_source(right)
    head = open_head(find_checkpoint(source.manifest), source.manifest, source.norm())
    source.close()
    inputs_cnh = torch.randn(3, 7, HIDDEN, generator=torch.Generator().manual_seed(3))
    next_n = torch.arange(7) * 18
    whole_vh = torch.cat([block for _, block in head.blocks(VOCABULARY)])
    want_cnv = torch.log_softmax(inputs_cnh.double() @ whole_vh.double().T, -1)
    got = rate(head, inputs_cnh, next_n)
    want_cn = want_cnv.gather(-1, next_n.expand(3, 7)[..., None])[..., 0]
    assert torch.allclose(got.logprob_cn, want_cn, atol=2e-5, rtol=0)
    assert torch.equal(got.top_cn, want_cnv.argmax(-1))


@pytest.mark.parametrize("prefix", ["language_model.", "model.language_model."])
def test_multimodal_names_are_found(llama: Path, right: Path, tmp_path: Path, prefix: str) -> None:
    """A text model inside another keeps its tensors under a prefix and its config in text_config."""
    weights = load_file(llama / "model.safetensors")
    inside = prefix if prefix.startswith("model") else f"{prefix}model."
    names = {"model.norm.weight": f"{inside}norm.weight"}
    names["lm_head.weight"] = f"{prefix}lm_head.weight" if inside != prefix else "lm_head.weight"
    save_file({new: weights[old] for old, new in names.items()}, tmp_path / "model.safetensors")
    config = json.loads((llama / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "outer", "text_config": config}))
    source = open_source(right)
    found = check(source, str(tmp_path))
    source.close()
    assert (found.verdict, found.head) == (Verdict.PASSED, names["lm_head.weight"])


def test_what_cannot_be_checked_is_a_coded_error(right: Path, llama: Path, tmp_path: Path) -> None:
    """Logits in their place, no log-probabilities, no checkpoint, another model's checkpoint."""
    bare = rewritten(right, tmp_path / "bare", lambda r: {k: v for k, v in r.items() if "logprob" not in k})
    lost = rewritten(right, tmp_path / "lost", dict, model="/nowhere/model")
    other = tmp_path / "other"
    shutil.copytree(llama, other)
    weights = load_file(llama / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"].flip(0)
    save_file(weights, other / "model.safetensors")
    logits = rewritten(
        right, tmp_path / "logits", lambda r: {**r, "prompt_logprobs": r["prompt_logprobs"] + 20.0}
    )
    for folder, model, code in (
        (logits, "", "E206"),
        (bare, "", "E210"),
        (lost, "", "E107"),
        (right, str(other), "E208"),
    ):
        source = open_source(folder)
        with pytest.raises(HsparityError) as caught:
            check(source, model)
        source.close()
        assert caught.value.code == code
        assert "--" in caught.value.help
    source = open_source(lost)
    assert check(source, str(llama)).verdict is Verdict.PASSED
    source.close()


@pytest.mark.parametrize(("name", "code"), [("right", 0), ("wrong", 1), ("few", 3), ("missing", 2)])
def test_the_command_exits_by_its_verdict(
    right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    """0 passed, 1 failed, 3 inconclusive, 2 for what cannot be checked; JSON goes to the file."""
    wrong = rewritten(right, tmp_path / "wrong", lambda rows: {**rows, LAST: rows[EARLY]})
    folder = {"wrong": wrong, "missing": tmp_path / "none"}.get(name, right)
    tokens = "5" if name == "few" else "64"
    out = tmp_path / "result.json"
    assert invoke(["selfcheck", str(folder), "--tokens", tokens, "--json", str(out)]) == code
    said = capsys.readouterr()
    if code == 2:
        assert "error[E202]" in said.err
        return
    result = json.loads(out.read_text())
    assert said.out.startswith(result["verdict"].upper())
    assert ("hsparity explain HS221" in said.out) == (code == 1)
    assert all(len(line) <= 80 or "/" in line for line in said.out.splitlines())


def test_a_comparison_names_the_side_that_fails(right: Path, tmp_path: Path) -> None:
    """The cause finds the wrong side, rules itself out where both pass, and is silent without log-probabilities."""
    wrong = rewritten(right, tmp_path / "wrong", lambda rows: {**rows, LAST: rows[EARLY]})
    bare = rewritten(right, tmp_path / "bare", lambda r: {k: v for k, v in r.items() if "logprob" not in k})
    sides = {
        name: open_source(folder) for name, folder in (("right", right), ("wrong", wrong), ("bare", bare))
    }

    def find(ref: str, cand: str) -> object:
        pair = {"ref": sides[ref], "cand": sides[cand]}
        return CAUSE.find(SimpleNamespace(side=pair.__getitem__))  # type: ignore[arg-type]

    found = CAUSE.find(SimpleNamespace(side={"ref": sides["right"], "cand": sides["wrong"]}.__getitem__))  # type: ignore[arg-type]
    assert found is not None
    assert (found.code, found.slots, found.ruled_out, found.structural) == ("HS221", (LAST,), False, True)
    assert "candidate" in found.headline
    passed = find("right", "bare")
    assert passed is not None
    assert passed.ruled_out  # type: ignore[attr-defined]
    assert find("bare", "bare") is None
    for source in sides.values():
        source.close()


def test_the_paired_test_needs_more_than_chance() -> None:
    """Equal errors win half; a winner at every token is beyond chance, at three of four of twelve it is not."""
    small_n, large_n = np.full(12, 0.1), np.full(12, 0.2)
    assert wins(small_n, small_n)[0] == 0.5
    assert wins(small_n, large_n)[1] > 0.5
    mixed_n = np.where(np.arange(12) % 4 == 0, 0.05, 0.2)
    assert wins(small_n, mixed_n)[0] == 0.75
    assert wins(small_n, mixed_n)[1] < 0.5
