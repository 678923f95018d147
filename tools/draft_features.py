"""The target's own residual stream on a text, computed once and shared by every head that is trained on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tools.draft_text import Answer, load_target

NORMED = "normed"  # the last boundary after the target's final norm, as Transformers' hidden_states[-1]
# What the recipes of train_draft read of the training text.
TRAINED_ON = (1, 2, 3, 15, 16, 25, 27, 28, 29, 30)


@dataclass(frozen=True)
class Features:
    """States of answers laid end to end: `states[name]` is [rows, hidden] bf16, `greedy[name]` [rows] int64.

    `greedy` has the argmax over the whole vocabulary of lm_head on `normed` and, as "30", on the un-normed state.
    Answer n holds the rows starts[n] .. starts[n] + its length.
    """

    answers: tuple[Answer, ...]
    starts: tuple[int, ...]
    states: dict[str, torch.Tensor]
    greedy: dict[str, torch.Tensor]


def compute(
    answers: Sequence[Answer], dtype: torch.dtype, boundaries: Sequence[int], batch: int = 16
) -> dict[str, torch.Tensor]:
    """The tensors of Features, teacher-forced over each answer after its prompt."""
    model = load_target(dtype)
    base, names = model.model, [str(b) for b in boundaries]
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str) -> object:
        return lambda _module, _given, output: seen.update(
            {name: output[0] if isinstance(output, tuple) else output}
        )

    for boundary, name in zip(boundaries, names, strict=True):
        module = base.layers[boundary - 1] if boundary else base.embed_tokens
        module.register_forward_hook(keep(name))
    base.norm.register_forward_hook(keep(NORMED))
    starts = _starts(answers)
    rows, width = starts[-1] + _length(answers[-1]), model.config.hidden_size
    made = {f"state.{n}": torch.empty(rows, width, dtype=torch.bfloat16) for n in (*names, NORMED)}
    made |= {f"greedy.{n}": torch.empty(rows, dtype=torch.int64) for n in ("30", NORMED)}
    order = sorted(range(len(answers)), key=lambda n: _length(answers[n]))
    began = time.monotonic()
    for first in range(0, len(order), batch):
        some = order[first : first + batch]
        longest = max(_length(answers[n]) for n in some)
        # Padded on the right: under a causal mask no real row sees the padding.
        ids = torch.zeros(len(some), longest, dtype=torch.int64)
        for row, n in enumerate(some):
            ids[row, : _length(answers[n])] = torch.tensor(answers[n].prompt + answers[n].response)
        with torch.inference_mode():
            base(ids, use_cache=False)
            for row, n in enumerate(some):
                length, start = _length(answers[n]), starts[n]
                for name, state in seen.items():
                    made[f"state.{name}"][start : start + length] = state[row, :length].bfloat16()
                for name in ("30", NORMED):
                    logits = model.lm_head(seen[name][row, :length])
                    made[f"greedy.{name}"][start : start + length] = logits.argmax(-1)
        click.echo(f"features {first + len(some)}/{len(order)} {time.monotonic() - began:.0f} s", err=True)
    return made


def load(
    answers: Sequence[Answer], file: Path, dtype: torch.dtype, boundaries: Sequence[int] = TRAINED_ON
) -> Features:
    """The features of `answers`, from `file` where it exists, else computed in `dtype` and kept there."""
    if not file.is_file():
        part = file.with_name(f".{file.name}.part")
        save_file(compute(answers, dtype, boundaries), part)
        part.rename(file)
    with safe_open(file, "pt") as kept:
        tensors = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
    states = {n.removeprefix("state."): t for n, t in tensors.items() if n.startswith("state.")}
    greedy = {n.removeprefix("greedy."): t for n, t in tensors.items() if n.startswith("greedy.")}
    rows = _starts(answers)[-1] + _length(answers[-1])
    if states[NORMED].shape[0] != rows:
        raise SystemExit(f"{file} is of another text: delete it")
    return Features(tuple(answers), _starts(answers), states, greedy)


def _length(answer: Answer) -> int:
    return len(answer.prompt) + len(answer.response)


def _starts(answers: Sequence[Answer]) -> tuple[int, ...]:
    starts, row = [], 0
    for answer in answers:
        starts.append(row)
        row += _length(answer)
    return tuple(starts)
