"""What a head is worth on the held-out topics, on the states it should see and on the same states a layer away.

`python -m tools.evaluate_draft FOLDER… [--slots 2,15,27]`: teacher-forced on the target's greedy text, which decides
greedy acceptance exactly: a draft is accepted when it names the next token of that text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
import torch
from safetensors.torch import load_file

from tools import draft_text
from tools.draft_batch import collate
from tools.draft_features import NORMED, Features, load
from tools.draft_model import Head, Shape
from tools.train_draft import STEPS


@dataclass(frozen=True)
class Acceptance:
    """`conditional`: share of rows where draft j is right, of those where the drafts before it are.

    `at`: share of the walk's steps in which draft j was accepted; `length`: tokens per step of that walk with the
    target's own token, 1 to STEPS + 1. The walk starts at the prompt's last row and goes on behind what it accepted.
    """

    conditional: tuple[float, ...]
    at: tuple[float, ...]
    length: float
    rows: int


def read_head(folder: Path) -> tuple[Head, torch.Tensor]:
    """A head that train_draft wrote, computed with in f32, and its draft vocabulary as target ids."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "model.safetensors")
    vocabulary = tensors.pop("d2t") + torch.arange(config["draft_vocab_size"])
    tensors.pop("t2d")
    shape = Shape(
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        intermediate=config["intermediate_size"],
        draft_vocab=config["draft_vocab_size"],
        rope_theta=config["rope_theta"],
        eps=config["rms_norm_eps"],
    )
    head = Head(shape)
    head.load_state_dict(tensors)
    return head.eval(), vocabulary


@torch.inference_mode()
def acceptance(
    head: Head, vocabulary: torch.Tensor, embeddings: torch.Tensor, features: Features, slots: Sequence[str]
) -> Acceptance:
    """The head's acceptance on `features` with the states named in `slots`."""
    right_so_far = torch.zeros(STEPS + 1)
    accepted = torch.zeros(STEPS)
    steps = 0
    for number in range(len(features.answers)):
        batch = collate(features, [number], slots, NORMED)
        logits = head(batch.slots, embeddings[batch.tokens], batch.real, batch.first, STEPS)
        whole = logits[-1].shape[1]  # start rows all of whose drafts the text decides
        if whole < 1:
            continue
        hits = torch.stack(
            [
                vocabulary[drafts[0].argmax(-1)[:whole]] == batch.truth[0, batch.first + step :][:whole]
                for step, drafts in enumerate(logits)
            ]
        )
        runs = hits.cumprod(0)  # [STEPS, whole]: the drafts up to this one are all right
        right_so_far += torch.tensor([whole, *runs.sum(1).tolist()])
        row = 0
        while row < whole:
            accepted += runs[:, row]
            steps += 1
            row += 1 + int(runs[:, row].sum())
    conditional = right_so_far[1:] / right_so_far[:-1]
    return Acceptance(
        tuple(conditional.tolist()),
        tuple((accepted / steps).tolist()),
        1 + float(accepted.sum()) / steps,
        int(right_so_far[0]),
    )


def shifted(slots: Sequence[str], by: int) -> tuple[str, ...]:
    """The same slots `by` boundaries later; the normed state stays."""
    return tuple(s if s == NORMED else str(int(s) + by) for s in slots)


def distance(features: Features, one: str, other: str) -> float:
    """Median over tokens of |one - other| / |one|."""
    ref, cand = features.states[one].float(), features.states[other].float()
    return float(((cand - ref).norm(dim=-1) / ref.norm(dim=-1)).median())


def main() -> None:
    """Print a table: a line for each head and each set of slots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("heads", type=Path, nargs="*")
    parser.add_argument("--slots", nargs="+", default=["2,15,27", "3,16,28", "1,14,26"])
    parser.add_argument("--f32", action="store_true", help="states of float32 arithmetic instead of bf16")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    dtype = torch.float32 if given.f32 else torch.bfloat16
    name = f"heldout-{'f32' if given.f32 else 'bf16'}.safetensors"
    features = load(draft_text.held_out(), draft_text.folder() / name, dtype, range(31))
    embeddings = draft_text.load_target(torch.float32).get_input_embeddings().weight.detach()
    for folder in given.heads:
        head, vocabulary = read_head(folder)
        covered = torch.isin(torch.tensor([t for a in features.answers for t in a.response]), vocabulary)
        click.echo(f"{folder.name}: {covered.float().mean():.3f} of the text is in the draft vocabulary")
        for slots in given.slots:
            got = acceptance(head, vocabulary, embeddings, features, slots.split(","))
            conditional, at = ([f"{share:.3f}" for share in shares] for shares in (got.conditional, got.at))
            click.echo(
                f"  {slots:12} conditional {conditional} at {at} length {got.length:.3f} rows {got.rows}"
            )
    if not given.heads:
        names = sorted((n for n in features.states if n != NORMED), key=int)
        pairs = [(a, b) for a, b in pairwise(names) if int(b) == int(a) + 1]
        for one, other in [*pairs, ("30", NORMED)]:
            click.echo(f"{one} -> {other}: {distance(features, one, other):.3f}")


if __name__ == "__main__":
    main()
