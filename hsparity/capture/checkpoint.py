"""A model's config.json, read by us: how many layers, how wide. No transformers, no download."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
