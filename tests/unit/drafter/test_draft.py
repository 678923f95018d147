"""Opening a head: what cannot be one, or cannot be read, ends in a coded error that says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.drafter.draft import LAYERS, MIDLAYER, SPECULATORS, open_draft
from hsparity.errors import HsparityError

from .heads import make_head


def refused(folder: Path) -> HsparityError:
    with pytest.raises(HsparityError) as raised:
        open_draft(str(folder))
    return raised.value


@pytest.mark.parametrize(
    ("layout", "read"),
    [("speculators", SPECULATORS), ("midlayer", MIDLAYER), ("layers.0", LAYERS), ("eagle", MIDLAYER)],
)
def test_every_layout_has_one_set_of_names(layout: str, read: str, tmp_path: Path) -> None:
    """Whoever wrote the head, its layer is layers.0 and its fc is fc."""
    draft = open_draft(str(make_head(tmp_path / "h", layout)))
    assert draft.layout == read
    assert {"fc.weight", "layers.0.hidden_norm.weight", "norm.weight", "d2t"} <= set(draft.tensors)
    assert (draft.slots, draft.hidden_size, draft.draft_vocab_size) == (3, 64, 96)
    assert draft.ids == (2, 4, 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_size", "64"),
        ("num_attention_heads", 0),
        ("num_hidden_layers", -1),
        ("vocab_size", 10**40),
        ("rms_norm_eps", "abc"),
        ("rms_norm_eps", -5.0),
        ("rope_theta", "x"),
        ("rope_theta", 10**400),
        ("rope_scaling", "x"),
        ("rope_parameters", {"rope_type": "yarn", "factor": "x"}),
        ("rope_parameters", -1),
        ("layer_types", [[1]]),
    ],
)
def test_a_value_that_nobody_can_read(name: str, value: Any, tmp_path: Path) -> None:
    """The error names the key, what it holds and what it should."""
    error = refused(make_head(tmp_path / "h", config={name: value}))
    assert error.code == "E260"
    assert name in error.message
    assert name in error.help


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000])
def test_a_config_that_is_none(text: str, tmp_path: Path) -> None:
    """Whatever stands there, it ends in E260 with what to do."""
    folder = make_head(tmp_path / "h")
    (folder / "config.json").write_text(text)
    error = refused(folder)
    assert error.code == "E260"
    assert error.help


@pytest.mark.parametrize("held", [{"fc.weight": 3}, {1: torch.ones(2)}, [torch.ones(2)]])
def test_a_pickle_of_something_else(held: Any, tmp_path: Path) -> None:
    """Weights are tensors by name."""
    folder = make_head(tmp_path / "h", "eagle")
    torch.save(held, folder / "pytorch_model.bin")
    assert refused(folder).code == "E206"


def test_what_is_no_head(tmp_path: Path) -> None:
    """No folder, no weights, no fc."""
    assert refused(tmp_path / "absent").code == "E260"
    folder = make_head(tmp_path / "h")
    (folder / "model.safetensors").unlink()
    assert refused(folder).code == "E261"
    assert refused(make_head(tmp_path / "bare", drop=("fc.weight",))).code == "E262"
