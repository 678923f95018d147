"""Models to try things on: a tiny random checkpoint of each family, and SmolLM2-135M with real weights."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from pathlib import Path

from hsparity.errors import HsparityError

__all__ = ["cache_folder", "names", "path", "resolve"]

_TINY = "tiny:"
_REAL = "smollm2"


def cache_folder() -> Path:
    """Where bundled models are kept: $XDG_CACHE_HOME or ~/.cache, then hsparity/models."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hsparity" / "models"


def names() -> tuple[str, ...]:
    """Every bundled model, as `--model` takes it: "tiny:deepseek-v3", …, "smollm2"."""
    from .families import FAMILIES

    return (*(f"{_TINY}{family}" for family in sorted(FAMILIES)), _REAL)


def is_bundled(model: str) -> bool:
    """Whether the name is that of a model that hsparity builds itself."""
    return model == _REAL or model.startswith(_TINY)


def resolve(model: str) -> str:
    """The folder of a bundled model, built when missing; any other name comes back unchanged."""
    if is_bundled(model):
        return str(path(model))
    return model


def path(name: str) -> Path:
    """The folder of a bundled model, built when missing. Takes "tiny:llama" and "tiny-llama" alike.

    Raises HsparityError E107 (unknown name), E308 (SmolLM2 cannot be downloaded), E205 (disk full) and E106
    (the cache folder cannot be written).
    """
    known = names()
    spelled = name.replace("tiny-", _TINY, 1) if name.startswith("tiny-") else name
    if spelled not in known:
        near = difflib.get_close_matches(spelled, known, n=1)
        meant = f"did you mean {near[0]}?" if near else "the bundled models are " + ", ".join(known)
        raise HsparityError("E107", f"no bundled model is called {name!r}", help=meant)
    key = _key(spelled)
    folder = cache_folder() / f"{spelled.replace(':', '-')}-{key[:12]}"
    if not folder.is_dir():
        _build(spelled, folder)
    return folder


def _key(name: str) -> str:
    if name == _REAL:
        from .smollm2 import TENSORS_SHA256

        return TENSORS_SHA256
    from .families import FAMILIES

    return FAMILIES[name.removeprefix(_TINY)]().digest()


def _build(name: str, folder: Path) -> None:
    """Build beside `folder` and rename, so that a folder that exists is whole."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise HsparityError(
            "E106",
            f"cannot write {folder.parent}: {error.strerror}",
            help="set XDG_CACHE_HOME to a folder you may write to",
        ) from error
    try:
        staged = temporary / "checkpoint"
        staged.mkdir()
        _fill(name, staged, temporary)
        staged.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another process was first, with the same bytes
            raise HsparityError(
                "E205", f"cannot build {name} in {folder.parent}: {error.strerror}"
            ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill(name: str, staged: Path, scratch: Path) -> None:
    if name == _REAL:
        from . import smollm2

        smollm2.build(staged, scratch)
    else:
        from .checkpoint import build
        from .families import FAMILIES

        build(FAMILIES[name.removeprefix(_TINY)](), staged)
