"""A model's checkpoint as it lies on disk: its folder, its config.json, where its tensors are. No transformers, no
download."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsparity import models
from hsparity.capture.shards import read_header
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest

# Families that Transformers knows under another name only.
ALIASES = {"kimi_k2": "deepseek_v3"}
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True)
class Shape:
    """What a capture's size depends on. `vocab_size` is 0 when the config does not say."""

    num_layers: int
    hidden_size: int
    vocab_size: int


def is_local(model: str) -> bool:
    """True for a folder on this machine, False for a hub name."""
    return Path(model).expanduser().is_dir()


def config_file(model: str, revision: str = "") -> Path | None:
    """config.json of a local folder or of a hub model that is already in the hub's cache."""
    local = Path(model).expanduser() / "config.json"
    if local.is_file():
        return local
    repository = _hub_cache() / f"models--{model.replace('/', '--')}"
    wanted = revision or "main"
    reference = repository / "refs" / wanted
    commit = reference.read_text().strip() if reference.is_file() else wanted
    cached = repository / "snapshots" / commit / "config.json"
    return cached if cached.is_file() else None


def read_shape(model: str, revision: str = "") -> Shape | None:
    """Layers, hidden size and vocabulary of a model; None when its config is not here or does not say."""
    file = config_file(model, revision)
    if file is None:
        return None
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    layers, hidden, vocabulary = (
        _number(config, name) for name in ("num_hidden_layers", "hidden_size", "vocab_size")
    )
    return Shape(layers, hidden, vocabulary) if layers and hidden else None


def find_checkpoint(manifest: CaptureManifest, model: str = "") -> Path:
    """The folder of a capture's checkpoint: `model` where given, else what the manifest names.

    A folder, a bundled model, which is built, or a hub model in the hub's cache. Raises E107 with the places that
    were looked at.
    """
    wanted = models.resolve(model or manifest.model)
    folder = Path(wanted).expanduser()
    if folder.is_dir():
        return folder
    # A capture from another machine names that machine's folder of a bundled model, digest included.
    bundled = models.cache_folder() / folder.name
    if not model and folder.is_absolute() and bundled.is_dir():
        return bundled
    if not folder.is_absolute() and (config := config_file(wanted, manifest.revision)) is not None:
        return config.parent
    looked = f"the folder {folder}" if folder.is_absolute() else f"the folder {folder} and the hub's cache"
    raise HsparityError(
        "E107",
        f"the checkpoint {wanted} is not on this machine",
        (f"looked at {looked}",),
        "name the folder that holds its safetensors files: --model PATH",
    )


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, the text model's part over the outer one."""
    try:
        raw = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        notes = (str(error),)
        raise HsparityError(
            "E107", f"{folder} holds no readable config.json", notes, "--model PATH"
        ) from None
    if not isinstance(raw, dict):
        raise HsparityError("E107", f"{folder / 'config.json'} holds no JSON object", help="--model PATH")
    inner: dict[str, Any] = next(
        (raw[k] for k in ("text_config", "llm_config") if isinstance(raw.get(k), dict)), {}
    )
    return {**raw, **{k: v for k, v in inner.items() if v is not None}}


def model_types(config: Mapping[str, Any]) -> frozenset[str]:
    """What a config calls its family: the model's type and its text part's, Kimi-K2 as the DeepSeek-V3 that it is."""
    inner = (config.get(k) for k in ("text_config", "llm_config"))
    stated = (c.get("model_type") for c in (config, *inner) if isinstance(c, Mapping))
    return frozenset(ALIASES.get(str(t), str(t)) for t in stated if t)


def tensor_files(folder: Path) -> dict[str, Path]:
    """Tensor name -> file, from the index or from the files' headers."""
    if (folder / INDEX).is_file():
        try:
            listed: Mapping[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
            return {name: folder / os.path.basename(file) for name, file in listed.items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise HsparityError(
                "E206", f"{folder / INDEX} cannot be read", (str(error),), "--model PATH"
            ) from None
    files = [folder / SINGLE] if (folder / SINGLE).is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise HsparityError(
            "E107", f"{folder} holds no safetensors files", help="name a folder that does: --model PATH"
        )
    return {name: file for file in files for name in read_header(file)}


def _number(config: dict[str, Any], name: str) -> int:
    """A number of the text model, which multimodal configs keep in text_config."""
    inner = config.get("text_config")
    value = inner.get(name) if isinstance(inner, dict) else None
    value = value if isinstance(value, int) else config.get(name)
    return value if isinstance(value, int) else 0


def _hub_cache() -> Path:
    if named := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("HF_HOME") or Path(base) / "huggingface") / "hub"
