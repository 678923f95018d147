"""Loading a head: what it holds, what it borrows, how its vocabulary maps, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hsparity.drafter import library
from hsparity.drafter.chain import run
from hsparity.drafter.draft import open_draft
from hsparity.drafter.head import Head, load_head
from hsparity.errors import HsparityError
from hsparity.explain.drafts_head import TEXTS

from .heads import draftable, make_head, make_target

pytest.importorskip("transformers")


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target to borrow from, with an lm_head of its own."""
    return make_target(tmp_path_factory.mktemp("target"))


def load(folder: Path, target: Path, **flags: Any) -> Head:
    """A tiny head with these flags."""
    return load_head(open_draft(str(make_head(folder, **flags))), target)


def refused(folder: Path, target: Path, **flags: Any) -> HsparityError:
    """The error that loading such a head ends in; every one is explained and says what to change."""
    with pytest.raises(HsparityError) as caught:
        load(folder, target, **flags)
    error = caught.value
    assert error.code in {entry.code for entry in TEXTS}
    assert error.notes
    assert error.help
    return error


def test_sizes(target: Path, tmp_path: Path) -> None:
    """A head knows its widths, and both vocabularies."""
    head = load(tmp_path / "head", target, target_hidden=80, slots=4)
    assert (head.slots, head.hidden_size, head.target_hidden_size, head.vocab) == (4, 64, 80, 320)
    assert head.target_ids.shape == (96,)
    assert head.draftable.shape == (320,)
    assert head.combine(torch.randn(5, 320)).shape == (5, 64)
    assert head.logits(torch.randn(5, 64)).shape == (5, 96)


@pytest.mark.parametrize(
    ("flags", "reading"),
    [
        ({}, "offset"),
        ({"d2t": "absolute"}, "absolute"),
        ({"t2d": False}, "offset"),
        # As differences these ids lead outside: 320 tokens, of which the last drafted one is near the end.
        ({"d2t": "absolute", "t2d": False}, "absolute"),
    ],
)
def test_pruned_vocabulary(flags: dict[str, Any], reading: str, target: Path, tmp_path: Path) -> None:
    """d2t is read as differences or as ids by what t2d marks, and without it by what the numbers can be."""
    head = load(tmp_path / "head", target, **flags)
    assert head.reading == reading
    assert torch.equal(head.target_ids, draftable(320, 96))
    assert torch.equal(head.draftable.nonzero().flatten(), draftable(320, 96))


@pytest.mark.parametrize("flags", [{"draft_vocab": 320}, {"d2t": "none"}])
def test_no_map(flags: dict[str, Any], target: Path, tmp_path: Path) -> None:
    """A head without d2t drafts the target's first tokens, as it does in both engines."""
    head = load(tmp_path / "head", target, **flags)
    assert head.reading == "identity"
    assert torch.equal(head.target_ids, torch.arange(flags.get("draft_vocab", 96)))


def test_embedding_is_borrowed(target: Path, tmp_path: Path) -> None:
    """A head without an embedding, or with one that was never loaded, reads the target's."""
    lent = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    without = load(tmp_path / "without", target, embedding=False)
    assert torch.equal(without.embed(torch.tensor([3, 9])), lent[[3, 9]])
    own = load(tmp_path / "own", target)
    assert not torch.equal(own.embed(torch.tensor([3, 9])), lent[[3, 9]])
    fed, ids = torch.randn(6, 192), torch.randint(0, 320, (6,))
    assert not torch.allclose(run(own, fed, ids, 1), run(without, fed, ids, 1), atol=1e-2)
    from safetensors.torch import save_file

    file = tmp_path / "own" / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "embed_tokens.weight": torch.full((320, 64), torch.nan)}, file)
    never = load_head(open_draft(str(tmp_path / "own")), target)
    assert torch.equal(never.embed(torch.tensor([3, 9])), lent[[3, 9]])


def test_lm_head_is_borrowed(target: Path, tmp_path: Path) -> None:
    """A head without an lm_head takes the rows that it drafts of the target's, or of its own embedding where tied."""
    lent = load_file(target / "model.safetensors")["lm_head.weight"][draftable(320, 96)]
    states = torch.randn(4, 64)
    borrowed = load(tmp_path / "borrowed", target, lm_head=False)
    torch.testing.assert_close(borrowed.logits(states), states @ lent.T)
    tied = load(tmp_path / "tied", target, lm_head=False, tied=True)
    own = load_file(tmp_path / "tied" / "model.safetensors")["embed_tokens.weight"][draftable(320, 96)]
    torch.testing.assert_close(tied.logits(states), states @ own.T)


def test_lm_head_of_a_tied_target(tmp_path: Path) -> None:
    """A target whose lm_head is its embedding lends that."""
    target = make_target(tmp_path / "target", tied=True)
    lent = load_file(target / "model.safetensors")["model.embed_tokens.weight"][draftable(320, 96)]
    states = torch.randn(4, 64)
    borrowed = load(tmp_path / "head", target, lm_head=False, embedding=False)
    torch.testing.assert_close(borrowed.logits(states), states @ lent.T)


def test_logit_scale(target: Path, tmp_path: Path) -> None:
    """logit_scale multiplies the logits."""
    states = torch.randn(4, 64)
    one, two = load(tmp_path / "a", target), load(tmp_path / "b", target, logit_scale=0.25)
    torch.testing.assert_close(one.logits(states) / 4, two.logits(states))


def test_quantised_weights(target: Path, tmp_path: Path) -> None:
    """Projections stored in float8 with a scale are read as the numbers they stand for."""
    import json

    from safetensors.torch import save_file

    folder = make_head(tmp_path / "head")
    file, config = folder / "model.safetensors", folder / "config.json"
    plain, packed = load_file(file), load_file(file)
    for name in [n for n in packed if n.endswith("_proj.weight")]:
        scale = packed[name].abs().max() / 448
        packed[name] = (packed[name] / scale).to(torch.float8_e4m3fn)
        packed[f"{name}_scale"] = scale[None]
        plain[name] = packed[name].float() * scale
    save_file(plain, file)
    whole = load_head(open_draft(str(folder)), target)
    save_file(packed, file)
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
    stated = {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["fc", "lm_head"],
    }
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": stated}))
    stored = load_head(open_draft(str(folder)), target)
    fed, ids = torch.randn(6, 192), torch.randint(0, 320, (6,))
    torch.testing.assert_close(run(whole, fed, ids, 2), run(stored, fed, ids, 2), equal_nan=True)


def test_without_aux_states(target: Path, tmp_path: Path) -> None:
    """use_aux_hidden_state: false feeds one state past fc, as vLLM does."""
    head = load(tmp_path / "head", target, use_aux_hidden_state=False)
    assert (head.slots, head.target_hidden_size) == (1, 64)
    fed = torch.randn(5, 64)
    assert torch.equal(head.combine(fed), fed)


def test_use_aux_norm(target: Path, tmp_path: Path) -> None:
    """The first name of fc_norm, with its tensors' first names, is the same head."""
    from safetensors.torch import save_file

    new = load(tmp_path / "new", target, fc_norm=True)
    make_head(tmp_path / "old", fc_norm=True, config={"fc_norm": None, "use_aux_norm": True})
    file = tmp_path / "old" / "model.safetensors"
    names = {f"fc_norm.{i}.weight": f"aux_norm_{n}.weight" for i, n in enumerate(("low", "mid", "high"))}
    save_file({names.get(n, n): t for n, t in load_file(file).items()}, file)
    old = load_head(open_draft(str(tmp_path / "old")), target)
    fed = torch.randn(5, 192)
    assert torch.equal(new.combine(fed), old.combine(fed))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"drop": ["hidden_norm.weight"]}, "layers.0.hidden_norm.weight"),
        ({"drop": ["o_proj.weight"]}, "layers.0.self_attn.o_proj.weight"),
        ({"config": {"norm_before_fc": True}}, "input_norm.weight"),
        ({"config": {"fc_norm": True}}, "fc_norm.0.weight"),
        ({"config": {"attention_bias": True}}, "layers.0.self_attn.q_proj.bias"),
        ({"config": {"num_hidden_layers": 2}}, "layers.1.self_attn.q_proj.weight"),
        ({"mla": True, "drop": ["kv_a_layernorm.weight"]}, "layers.0.self_attn.kv_a_layernorm.weight"),
    ],
)
def test_absent_tensor(flags: dict[str, Any], named: str, target: Path, tmp_path: Path) -> None:
    """E263 names the tensor, and the setting that asks for it."""
    error = refused(tmp_path / "head", target, **flags)
    assert error.code == "E263"
    assert named in error.notes[0]
    for setting in flags.get("config", {}):
        assert setting in error.help or setting == "num_hidden_layers"


@pytest.mark.parametrize(
    ("flags", "held", "wanted"),
    [
        # Not a multiple of the target's width: the target is another one.
        ({"config": {"target_hidden_size": 80}}, "[64, 192]", "[64, 240]"),
        # One id too few: the engines build a narrower fc.
        ({"slots": 4, "ids": [2, 4, 5]}, "[64, 256]", "[64, 192]"),
        ({"config": {"head_dim": 32}}, "[64, 128]", "[128, 128]"),
        ({"config": {"num_key_value_heads": 1}}, "[32, 128]", "[16, 128]"),
        ({"config": {"intermediate_size": 100}}, "[96, 64]", "[100, 64]"),
        ({"mla": True, "config": {"v_head_dim": 16}}, "[80, 16]", "[96, 16]"),
    ],
)
def test_shape(flags: dict[str, Any], held: str, wanted: str, target: Path, tmp_path: Path) -> None:
    """E264 lines up what the file has and what the config says."""
    error = refused(tmp_path / "head", target, **flags)
    assert error.code == "E264"
    assert held in error.notes[0]
    assert wanted in error.notes[1]
    assert "config.json" in error.help


def test_size_is_not_stated(target: Path, tmp_path: Path) -> None:
    """E264 names a size that the config leaves out."""
    error = refused(tmp_path / "head", target, config={"num_attention_heads": None})
    assert error.code == "E264"
    assert "num_attention_heads" in error.notes[0]


def test_fed_another_width(target: Path, tmp_path: Path) -> None:
    """E264 where a head of three slots is fed one."""
    head = load(tmp_path / "head", target)
    with pytest.raises(HsparityError, match="another width") as caught:
        head.combine(torch.randn(4, 64))
    assert "192 = 3 x 64" in caught.value.notes[0]


def rewritten(folder: Path, target: Path, **tensors: torch.Tensor) -> HsparityError:
    """What loading a head ends in after some of its tensors are replaced."""
    from safetensors.torch import save_file

    file = make_head(folder) / "model.safetensors"
    save_file({**load_file(file), **tensors}, file)
    with pytest.raises(HsparityError) as caught:
        load_head(open_draft(str(folder)), target)
    return caught.value


def test_d2t_leads_outside(target: Path, tmp_path: Path) -> None:
    """E265 where neither reading of d2t stays within the target's vocabulary."""
    from safetensors.torch import save_file

    file = make_head(tmp_path / "head", t2d=False) / "model.safetensors"
    tensors = load_file(file)
    tensors["d2t"][7] = 5000
    save_file(tensors, file)
    with pytest.raises(HsparityError) as caught:
        load_head(open_draft(str(tmp_path / "head")), target)
    assert caught.value.code == "E265"
    assert "draft id 7 -> 5007 (1 outside)" in caught.value.notes[0]


def test_a_smaller_target(tmp_path: Path) -> None:
    """E265 for a head of another target, whose tokens this one does not have."""
    small = make_target(tmp_path / "target", vocab=64)
    error = refused(tmp_path / "head", small, t2d=False)
    assert error.code == "E265"


def test_maps_disagree(target: Path, tmp_path: Path) -> None:
    """E266 where t2d marks a token that d2t does not lead to."""
    ids = draftable(320, 96)
    marked = torch.zeros(320, dtype=torch.bool).index_fill(0, ids, True)
    marked[ids[0]], marked[int((~marked).nonzero()[0])] = False, True
    error = rewritten(tmp_path / "head", target, t2d=marked)
    assert error.code == "E266"
    assert [note.split()[0] for note in error.notes] == ["t2d", "d2t", "d2t"]


@pytest.mark.parametrize(("name", "length"), [("d2t", 95), ("t2d", 319)])
def test_map_of_another_length(name: str, length: int, target: Path, tmp_path: Path) -> None:
    """E264 for a map that is not as long as the vocabulary it maps."""
    kinds = {"d2t": torch.int64, "t2d": torch.bool}
    error = rewritten(tmp_path / "head", target, **{name: torch.ones(length, dtype=kinds[name])})
    assert error.code == "E264"
    assert str(length) in error.notes[0]


def test_target_of_another_width(tmp_path: Path) -> None:
    """E267 where the embedding would have to come from a target that is wider than the head."""
    wide = make_target(tmp_path / "target", hidden=128)
    error = refused(tmp_path / "head", wide, embedding=False)
    assert error.code == "E267"
    assert "[320, 128]" in error.notes[0]


def test_rope_that_nobody_knows(target: Path, tmp_path: Path) -> None:
    """E268 names the type, and where it stands."""
    error = refused(tmp_path / "head", target, rope={"rope_type": "spiral", "factor": 2.0})
    assert error.code == "E268"
    assert "spiral" in error.message


def test_the_library_is_for_its_own_format(target: Path, tmp_path: Path) -> None:
    """A head in another layout, or with layers that the library lacks, is not given to it, and that is said."""
    text = [torch.randn(5, 192)], [torch.randint(0, 320, (5,))]
    for flags, words in (
        ({"layout": "midlayer"}, "own format"),
        ({"layout": "speculators", "mla": True}, "deepseek_v3"),
    ):
        head = load(tmp_path / words.replace(" ", ""), target, **flags)
        made = library.run_library(head, target, *text, 2)
        assert words in made.why
        assert not made.states
