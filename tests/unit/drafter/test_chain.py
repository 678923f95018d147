"""A head's chains from all rows at once are those of Transformers' own attention from one row at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.drafter import attention
from hsparity.drafter.chain import run
from hsparity.drafter.draft import open_draft
from hsparity.drafter.head import Head, load_head
from hsparity.drafter.rotary import Rotary, rotated
from hsparity.errors import HsparityError

from .heads import make_head, make_target
from .oracle import Oracle

pytest.importorskip("transformers")

T, STEPS = 13, 4
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
DEEP = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# What is turned on, and whether it must change the result: beside the same head without it.
HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_output": {"norm_output": True},
    "bias": {"attention_bias": True},
    "qk_norm": {"qk_norm": True},
    "layers": {"layers": 2},
    "one slot": {"slots": 1},
    "multi-head": {"kv_heads": 4},
    "wide target": {"target_hidden": 80},
    "llama3": {"rope": LLAMA3},
    "yarn": {"rope": YARN},
    "linear": {"rope": {"rope_type": "linear", "factor": 4.0}},
    "old key": {"rope": {"type": "linear", "factor": 2.0}},
    "theta": {"rope_theta": 100.0},
    "window": {"config": {"layer_types": ["sliding_attention"], "sliding_window": 4}},
    "narrow window": {"config": {"layer_types": ["sliding_attention"], "sliding_window": 2}},
    "eps": {"config": {"rms_norm_eps": 0.1}},
    "mla": {"mla": True, "config": {"rms_norm_eps": 1e-6}},
    "mla yarn": {"mla": True, "rope": DEEP, "config": {"rms_norm_eps": 1e-6}},
    "mla halves": {"mla": True, "config": {"rms_norm_eps": 1e-6, "rope_interleave": False}},
    "mla norms": {"mla": True, "fc_norm": True, "norm_output": True, "config": {"rms_norm_eps": 1e-6}},
}
ALIKE = ("plain", "one slot", "multi-head", "wide target", "layers")  # other weights, not another rule


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target to borrow from."""
    return make_target(tmp_path_factory.mktemp("target"))


def text(head: Head, rows: int = T) -> tuple[torch.Tensor, torch.Tensor]:
    """States that a target might feed the head, and a text."""
    generator = torch.Generator().manual_seed(7)
    width = head.slots * head.target_hidden_size
    return (
        torch.randn(rows, width, generator=generator) * torch.logspace(-1, 1, width),
        torch.randint(0, head.vocab, (rows,), generator=generator),
    )


@pytest.mark.parametrize("name", HEADS)
def test_against_one_start_at_a_time(name: str, target: Path, tmp_path: Path) -> None:
    """Every start and every position has the state that a slow chain of its own has."""
    folder = make_head(tmp_path / "head", **HEADS[name])
    head = load_head(open_draft(str(folder)), target)
    fed, ids = text(head)
    found = run(head, fed, ids, STEPS)
    assert found.shape == (STEPS, T - 1, head.hidden_size)
    oracle = Oracle(folder, target)
    with torch.no_grad():
        for start in range(T - 1):
            reach = min(STEPS, T - 1 - start)
            expected = oracle.run(fed, ids, start, reach)
            torch.testing.assert_close(found[:reach, start], expected, rtol=2e-4, atol=2e-5)
            assert bool(found[reach:, start].isnan().all())


@pytest.mark.parametrize("name", [n for n in HEADS if n not in ALIKE and not n.startswith("mla")])
def test_a_setting_changes_the_result(name: str, target: Path, tmp_path: Path) -> None:
    """No setting is read and then forgotten: with it the states are others than without."""
    plain, other = (
        load_head(open_draft(str(make_head(tmp_path / n, **HEADS[n]))), target) for n in ("plain", name)
    )
    fed, ids = text(plain)
    step = 1 if name == "norm_output" else 0  # feeds the second position
    one, two = (run(head, fed, ids, 2)[step, : T - 1 - step] for head in (plain, other))
    assert float((one - two).norm() / one.norm()) > 1e-2


@pytest.mark.parametrize("layout", ["speculators", "midlayer", "layers.0", "eagle"])
@pytest.mark.parametrize("mla", [False, True])
def test_layouts_are_one_head(layout: str, mla: bool, target: Path, tmp_path: Path) -> None:
    """The same weights are the same head in every layout; the reference's has the target's embedding."""
    share = layout == "eagle"
    one = load_head(open_draft(str(make_head(tmp_path / "a", mla=mla, embedding=not share))), target)
    two = load_head(open_draft(str(make_head(tmp_path / "b", layout=layout, mla=mla))), target)
    fed, ids = text(one)
    assert torch.equal(run(one, fed, ids, 2)[0], run(two, fed, ids, 2)[0])


@pytest.mark.parametrize("mla", [False, True])
def test_blocks_of_starts(mla: bool, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are worked through a few at a time have the states that they have all at once."""
    head = load_head(open_draft(str(make_head(tmp_path / "head", mla=mla))), target)
    fed, ids = text(head)
    whole = run(head, fed, ids, 3)
    monkeypatch.setattr(attention, "SCORES", 4 * (T - 1) * 5)
    torch.testing.assert_close(run(head, fed, ids, 3), whole, equal_nan=True)


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_short_texts(rows: int, target: Path, tmp_path: Path) -> None:
    """A text of one token starts no chain; one of two has one start, whose second position has nothing to read."""
    head = load_head(open_draft(str(make_head(tmp_path / "head"))), target)
    fed, ids = text(head, rows)
    found = run(head, fed, ids, 2)
    assert found.shape == (2, max(0, rows - 1), 64)
    assert found.isnan().any(-1).sum(-1).tolist() == ([0, 1] if rows > 1 else [0, 0])


def test_later_tokens_change_nothing(target: Path, tmp_path: Path) -> None:
    """A chain sees no state after its start and no token after the one it reads."""
    head = load_head(open_draft(str(make_head(tmp_path / "head"))), target)
    fed, ids = text(head)
    before = run(head, fed, ids, 3)
    fed, ids = fed.clone(), ids.clone()
    fed[6:], ids[8:] = 9.0, 5
    after = run(head, fed, ids, 3)
    assert torch.equal(before[0, :6], after[0, :6])
    assert torch.equal(before[1, :6], after[1, :6])
    assert torch.equal(before[2, :5], after[2, :5])
    assert not torch.equal(before[2, 5], after[2, 5])  # reads the eighth token
    assert not torch.equal(before[0, 6], after[0, 6])


def test_bfloat16(target: Path, tmp_path: Path) -> None:
    """In bfloat16 the states are those of float32 within its rounding."""
    draft = open_draft(str(make_head(tmp_path / "head", dtype=torch.bfloat16)))
    wide, narrow = load_head(draft, target), load_head(draft, target, torch.bfloat16)
    fed, ids = text(wide)
    fed = fed.bfloat16()
    one, two = run(wide, fed, ids, 2), run(narrow, fed, ids, 2)
    assert two.dtype == torch.bfloat16
    error = (one[0] - two[0].float()).norm() / one[0].norm()
    assert 1e-4 < float(error) < 2e-2


def test_a_text_of_another_tokenizer(target: Path, tmp_path: Path) -> None:
    """A token that the embedding does not have is a user's error, not an index error."""
    head = load_head(open_draft(str(make_head(tmp_path / "head"))), target)
    fed, ids = text(head)
    ids[3] = 320
    with pytest.raises(HsparityError, match="cannot embed the text") as caught:
        run(head, fed, ids, 1)
    assert caught.value.code == "E267"


def test_partial_rotation() -> None:
    """A partial_rotary_factor turns the first channels as a head of that many would be, and leaves the rest."""
    config = {"partial_rotary_factor": 0.5, "rope_theta": 100.0}
    assert rotated(config, 16) == 8
    states, positions = torch.randn(2, 5, 16), torch.arange(5)
    part = Rotary(config, 8, False, "a head")
    turned = part.turn(states, part.table(positions))
    assert torch.equal(turned[..., 8:], states[..., 8:])
    assert torch.equal(turned[..., :8], part.turn(states[..., :8], part.table(positions)))
    assert not torch.allclose(turned[:, 1:, :8], states[:, 1:, :8])
