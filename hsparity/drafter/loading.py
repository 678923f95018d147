"""A head's weights, read once and held to the shapes that its config gives; what it borrows from the target."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from hsparity.capture.checkpoint import read_config
from hsparity.drafter.draft import Draft, canonical, pickle_file
from hsparity.errors import HsparityError
from hsparity.selfcheck.checkpoint import EMBEDDINGS, HEADS, PREFIXES
from hsparity.weights.checkpoint import FLOATS, Checkpoint

Linear = tuple[torch.Tensor, torch.Tensor | None]  # weight [o, i], bias [o]


class Weights:
    """The tensors of a head by canonical name, in `dtype`; quantised ones are dequantised."""

    def __init__(self, draft: Draft, dtype: torch.dtype) -> None:
        self.draft, self.dtype = draft, dtype
        self.layer, self.spelled = draft.layer, draft.spelled
        self.eps = float(draft.says("rms_norm_eps", 1e-6))
        self._read, self.names = _reader(draft)

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number of the decoder layer's config. Raises E264 where it is absent and has no default."""
        value = self.layer.get(name)
        value = value if value is not None else self.draft.config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if default is not None:
            return default
        notes = (f"config.json  {name} is {'absent' if value is None else value}",)
        raise HsparityError(
            "E264",
            f"{self.spelled}: the config does not size the head",
            notes,
            f'state "{name}" in config.json',
        )

    def has(self, name: str) -> bool:
        """Whether the head holds this tensor."""
        return name in self.names

    def stored(self, name: str) -> torch.Tensor:
        """A tensor as it is stored, dequantised. Raises E263 when it is absent, E231 and E206 as `Checkpoint.read`."""
        if name not in self.names:
            raise self._lacking(name)
        return self._read(self.names[name])

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """A tensor of this shape, in the head's dtype. Raises E263 when it is absent, E264 when it has another shape."""
        value = self.stored(name)
        if tuple(value.shape) != shape:
            raise self.misfit(name, tuple(value.shape), shape)
        return value.to(self.dtype)

    def maybe(self, name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
        """A tensor that a head may do without. Raises E264."""
        return self.take(name, shape) if self.has(name) else None

    def linear(self, module: str, out: int, width: int, biased: bool = False) -> Linear:
        """A projection [out, width] with its bias where the head holds one. Raises E263 where `biased` and it does not."""
        weight = self.take(f"{module}.weight", (out, width))
        bias = f"{module}.bias"
        return weight, self.take(bias, (out,)) if biased else self.maybe(bias, (out,))

    def misfit(
        self, name: str, held: tuple[int, ...], wanted: tuple[int, ...], why: str = "", fix: str = ""
    ) -> HsparityError:
        """E264, both shapes lined up."""
        notes = (
            f"the file has    {list(held)}  {self.draft.stored.get(name, name)}",
            f"the config says {list(wanted)}" + (f"  {why}" if why else ""),
        )
        fix = fix or "change the size in config.json that disagrees with the weights"
        return HsparityError("E264", f"{self.spelled}: {name} has another shape than its config", notes, fix)

    def _lacking(self, name: str) -> HsparityError:
        last = name.rpartition(".")[0].rpartition(".")[2] or name
        near = [n for n in self.names if last in n] or list(self.names)
        notes = (f"wanted  {name}", f"has     {', '.join(sorted(near)[:3])}, {len(self.names)} in all")
        flags = {"input_norm": "norm_before_fc", "fc_norm": "fc_norm", "bias": "attention_bias"}
        flag = next((f for part, f in flags.items() if part in name), "")
        fix = f'set "{flag}": false in config.json, or ' if flag else ""
        return HsparityError(
            "E263",
            f"{self.spelled} lacks a tensor",
            notes,
            f"{fix}name the folder that holds all of the head's weights",
        )


class Lender:
    """The target's checkpoint, opened when a head borrows from it."""

    def __init__(self, folder: Path, draft: Draft) -> None:
        self.folder, self.draft = folder, draft

    @cached_property
    def vocab(self) -> int:
        """Tokens of the target: as its config says, else as the head's does."""
        if not (self.folder / "config.json").is_file():
            return self.draft.vocab_size
        value = read_config(self.folder).get("vocab_size")
        return value if isinstance(value, int) else self.draft.vocab_size

    def embedding(self) -> torch.Tensor:
        """The target's embedding [V, H] as it is stored. Raises E267 where it has none or is of another width."""
        return self._borrow([f"{p}{e}.weight" for p in PREFIXES for e in EMBEDDINGS], "embedding")

    def lm_head(self) -> torch.Tensor:
        """The target's lm_head [V, H], its embedding where they are tied. Raises E267."""
        if self._checkpoint.config.get("tie_word_embeddings"):
            return self.embedding()
        names = [f"{h}.weight" for h in HEADS]
        return self._borrow(names, "lm_head") if self._find(names) else self.embedding()

    @cached_property
    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self.folder)

    def _find(self, names: list[str]) -> str:
        return next((name for name in names if name in self._checkpoint.stored), "")

    def _borrow(self, names: list[str], what: str) -> torch.Tensor:
        name = self._find(names)
        if not name:
            notes = (f"looked for  {names[0]}", f"{self.folder} holds {len(self._checkpoint.files)} tensors")
            raise HsparityError(
                "E267",
                f"{self.draft.spelled} has no {what}, nor has the target",
                notes,
                "--model PATH: the whole target",
            )
        value = self._checkpoint.read(name)
        if value.ndim != 2 or value.shape[1] != self.draft.hidden_size:
            notes = (f"target  {list(value.shape)}  {name}", f"head    hidden size {self.draft.hidden_size}")
            raise HsparityError(
                "E267",
                f"{self.draft.spelled} has no {what} of its own, and the target's does not fit it",
                notes,
                "name the target that the head was trained for: --model PATH",
            )
        return value


def rms_norm(states: torch.Tensor, weight_h: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) x weight over the last axis, in float32, returned in the states' dtype."""
    wide = states.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * weight_h.float()).to(states.dtype)


def _reader(draft: Draft) -> tuple[Callable[[str], torch.Tensor], dict[str, str]]:
    """How to read a tensor by its name in the file, and those names by canonical name."""
    if pickled := pickle_file(draft.folder):
        from hsparity.capture.readers import pickled as reader

        held: dict[str, torch.Tensor] = reader.load(pickled)
        return held.__getitem__, {canonical(name): name for name in held}
    checkpoint = Checkpoint(draft.folder)

    def read(name: str) -> torch.Tensor:
        if checkpoint.is_quantised(name):
            return checkpoint.read(name)
        value = checkpoint.tensor(name)
        # Maps of a vocabulary are integers; weights stored so are read by the rule that they are stored by.
        return value if value.dtype in FLOATS or value.ndim == 1 else checkpoint.read(name)

    return read, {canonical(name): name for name in checkpoint.stored}


def flag(draft: Draft, *names: str) -> bool:
    """Whether a config sets any of these settings."""
    return any(bool(draft.says(name, False)) for name in names)


def whole(value: Any) -> int:
    """A whole number, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
