"""A staged probe is found by the engines' loaders, identified by a digest, and needs nothing but torch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from safetensors.torch import save_file
from torch import ones

from hsprobe import stage
from hsprobe.weights import embedding_multipliers, model_config, weights_sha256

FIND = """
import importlib.metadata as metadata, sys
for group in ("vllm.general_plugins", "sglang.srt.plugins"):
    for entry in metadata.entry_points(group=group):
        print(group, entry.name, entry.value)
import hsprobe; print(hsprobe.__file__)
assert not {"torch", "transformers", "vllm", "sglang"} & set(sys.modules)
"""


def test_a_staged_folder_carries_the_package_and_its_entry_points(tmp_path: Path) -> None:
    """importlib.metadata finds both plugins through PYTHONPATH alone, with nothing installed."""
    folder = stage.stage(tmp_path / "path")
    program = [sys.executable, "-S", "-c", FIND]
    environment = {"PYTHONPATH": str(folder), "PATH": ""}
    found = subprocess.run(program, env=environment, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    assert "vllm.general_plugins hsprobe hsprobe.engines.vllm_engine:plugin" in found
    assert "sglang.srt.plugins hsprobe hsprobe.engines.sglang_engine:plugin" in found
    assert str(folder / "hsprobe" / "__init__.py") in found


def test_the_digest_follows_the_bytes(tmp_path: Path) -> None:
    """Equal for the copy, different after one changed character."""
    folder = stage.stage(tmp_path)
    show = [sys.executable, "-c", "from hsprobe.stage import digest; print(digest())"]

    def digest_there() -> str:
        run = subprocess.run(
            show, env={"PYTHONPATH": str(folder)}, check=True, capture_output=True, text=True
        )
        return run.stdout.strip()

    assert digest_there() == stage.digest()
    with (folder / "hsprobe" / "spool.py").open("a") as file:
        file.write("#")
    assert digest_there() != stage.digest()


def test_staging_twice_is_staging_once(tmp_path: Path) -> None:
    """A second launch into the same folder finds the same files."""
    before = sorted(p.relative_to(tmp_path) for p in stage.stage(tmp_path).rglob("*"))
    after = sorted(p.relative_to(tmp_path) for p in stage.stage(tmp_path).rglob("*"))
    assert before == after
    assert not [p for p in after if "__pycache__" in p.parts]


def test_equal_weights_have_equal_digests_wherever_they_lie(tmp_path: Path) -> None:
    """The digest is of the shards' bytes, not their names; one changed value changes it."""
    first = tmp_path / "first"
    first.mkdir()
    save_file({"w": ones(4)}, first / "a.safetensors")
    save_file({"w": ones(5)}, first / "b.safetensors")
    second = Path(shutil.copytree(first, tmp_path / "second"))
    (second / "a.safetensors").rename(second / "z.safetensors")
    assert weights_sha256(str(first)) == weights_sha256(str(second))
    assert len(weights_sha256(str(first))[0]) == 64
    save_file({"w": ones(5) * 2}, second / "b.safetensors")
    assert weights_sha256(str(first)) != weights_sha256(str(second))


def test_weights_that_cannot_be_hashed_say_why(tmp_path: Path) -> None:
    """A hub name and a folder without safetensors leave an empty digest and a reason."""
    for model in ("some-org/some-model", str(tmp_path)):
        digest, reason = weights_sha256(model)
        assert digest == ""
        assert model in reason


def test_the_config_keeps_what_changes_hidden_states() -> None:
    """Rope, scaling, experts and quantisation stay; paths and tokens of no consequence go."""
    config = {
        "architectures": ["Wrapper"],
        "transformers_version": "5",
        "text_config": {
            "hidden_size": 8,
            "rope_scaling": {"factor": 4},
            "routed_scaling_factor": 2.5,
            "bos_token_id": 1,
        },
        "quantization_config": {"bits": 4},
    }
    assert model_config(config) == {
        "architectures": ["Wrapper"],
        "hidden_size": 8,
        "rope_scaling": {"factor": 4},
        "routed_scaling_factor": 2.5,
        "quantization_config": {"bits": 4},
    }


def test_only_models_that_scale_their_embedding_are_allowed_to() -> None:
    """Gemma's sqrt(H), as a float and as bf16 keeps it; a config's own factor; nothing else."""
    assert embedding_multipliers({"model_type": "llama"}, 64) == (1.0,)
    assert embedding_multipliers({"model_type": "granite", "embedding_multiplier": 12.0}, 64) == (1.0, 12.0)
    assert embedding_multipliers({"model_type": "gemma2"}, 2304) == (1.0, 48.0, 48.0)
