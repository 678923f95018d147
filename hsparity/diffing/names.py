"""What a model is called, whichever way it was named."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hsparity.report import spelling as sp

_CACHED = re.compile(r"(.+)-([0-9a-f]{12})")  # how a bundled model's folder is called
_TINY = re.compile(r"tiny-(?=.)")


def split(model: str) -> tuple[str, str]:
    """(name, digest) of a folder, a hub name or a bundled model: tiny:llama and its folder tiny-llama-5c21a5665983 have
    one name. The digest is empty where none is in the name."""
    base = sp.clean(model).rstrip("/").rsplit("/", 1)[-1]
    cached = _CACHED.fullmatch(base)
    return (_TINY.sub("tiny:", cached[1]), cached[2]) if cached else (base, "")


def same(a: str, b: str) -> bool:
    """Whether two names may be one model's: one name, and no two digests."""
    (name, digest), (other, second) = split(a), split(b)
    return name == other and (not digest or not second or digest == second)


def shown(models: Iterable[str]) -> dict[str, str]:
    """How each is called where all of them stand together: with its digest only where one name stands for several."""
    parts = {model: split(model) for model in models}
    digests: dict[str, set[str]] = {}
    for name, digest in parts.values():
        digests.setdefault(name, set()).update({digest} - {""})
    return {
        model: (f"{name}-{digest}" if digest and len(digests[name]) > 1 else name) or "-"
        for model, (name, digest) in parts.items()
    }
