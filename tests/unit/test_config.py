"""hsparity.toml: every key has a type, and a wrong one is named."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from hsparity import config
from hsparity.errors import HsparityError


def load(tmp_path: Path, text: str) -> config.Config:
    file = tmp_path / config.FILE
    file.write_text(textwrap.dedent(text))
    found = config.load(file)
    assert found is not None
    return found


def test_no_file(tmp_path: Path) -> None:
    """A folder without the file has no config."""
    assert config.load(tmp_path / config.FILE) is None


def test_documented_example(tmp_path: Path) -> None:
    """The example in the module's docstring is a config that loads."""
    example = textwrap.dedent(
        "\n".join(line for line in str(config.__doc__).splitlines() if line.startswith("    "))
    )
    found = load(tmp_path, example)
    assert (found.layers, found.generate, found.ref.engine, found.cand.engine) == (
        "2,30,58",
        8,
        "vllm",
        "sglang",
    )
    assert found.ref.engine_args == {"max_model_len": 4096}
    assert found.cand.native_ids == (2, 30, 58)
    assert found.floor.captures == ("captures/hf-fp32", "captures/hf-bf16")


def test_defaults(tmp_path: Path) -> None:
    """Two engines are a config."""
    found = load(tmp_path, '[ref]\nengine = "hf"\n[cand]\nengine = "vllm"\n')
    assert (found.tokens, found.batch, found.captures, found.layers) == ("all", 1, "captures", None)
    assert (found.ref.dtype, found.ref.mechanism, found.floor.make) == ("bfloat16", "hooks", None)


def test_lists_of_layers(tmp_path: Path) -> None:
    """Layers may be a list; it means what the option means."""
    assert load(tmp_path, "boundaries = [3, 31]\n").boundaries == "3,31"


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """A path in the file is meant from the file's folder."""
    found = load(tmp_path, 'prompts = "p.jsonl"\n')
    assert found.relative(found.prompts) == tmp_path / "p.jsonl"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('modle = "m"', "did you mean model"),
        ('[ref]\nengin = "hf"', "[ref] unknown key 'engin'"),
        ('[ref]\nengine = "hf"\ncapture = "x"', "exclude each other"),
        ('[ref]\nmechanism = "magic"', "known: hooks, native, both"),
        ('[ref]\nnative_ids = ["2"]', "[ref] native_ids is not a list of numbers"),
        ("[ref]\nengine_args = 3", "engine_args is not a table"),
        ("ref = 3", "ref is not a table"),
        ('layers = "2"\nboundaries = "3"', "layers and boundaries exclude each other"),
        ("model = 3", "model is not a string"),
        ("model = [1]", "model is not a string"),
        ("batch = true", "batch is not a number"),
        ("generate = -1", "generate is not a number"),
        ('[floor]\nmake = "yes"', "neither true nor false"),
        ('[floor]\nmake = true\ncaptures = ["a"]', "exclude each other"),
        ('[gate]\nmax_ratio = {"4" = 1.2, "04" = 500}', "'4' and '04' are one place"),
        ('[gate]\nmax_rel_l2 = {"slot.001" = 1, "slot.0001" = 2}', "are one place"),
        ('[gate]\nmax_ratio = {"\u0664" = 1.2}', "is no layer"),
        (f'[gate]\nmax_ratio = {{"{"1" * 5000}" = 1.2}}', "is no layer"),
        (f"[gate]\nmax_ratio = 1{'0' * 400}", "is not a number of 0 or more"),
        ("model = ", "is not TOML"),
    ],
)
def test_refuses(tmp_path: Path, text: str, words: str) -> None:
    """A mistake is E104 and names the key."""
    with pytest.raises(HsparityError) as caught:
        load(tmp_path, text)
    assert caught.value.code == "E104"
    assert words in caught.value.render()
