"""Trains a small EAGLE-3 head for SmolLM2-135M: `python -m tools.train_draft right`."""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from safetensors.torch import save_file
from torch.nn import functional

from tools import draft_text
from tools.draft_batch import Batch, collate
from tools.draft_features import NORMED, Features, load
from tools.draft_model import Head, Shape
from tools.draft_text import Answer

STEPS = 3
DECAY = 0.8  # what a step's loss counts, against the step before it


@dataclass(frozen=True)
class Recipe:
    """What a head is trained on: the states in its slots, the ids its config names, the state it learns from."""

    slots: tuple[str, ...]
    ids: tuple[int, ...]
    target: str = NORMED


RECIPES = {
    "right": Recipe(("2", "15", "27"), (2, 15, 27)),
    "layer-off": Recipe(("3", "16", "28"), (2, 15, 27)),
    "unnormed": Recipe(("2", "15", "27"), (2, 15, 27), target="30"),
    # Across the two layers that change the stream most; ids as SGLang, which adds 1, must be given them.
    "sensitive": Recipe(("1", "25", "29"), (0, 24, 28)),
    # Far from the 2, 15, 27 that engines take when they do not find the ids.
    "late": Recipe(("25", "27", "29"), (25, 27, 29)),
    "normed-slot": Recipe(("2", "15", NORMED), (2, 15, 30)),
}


def draft_vocabulary(answers: Sequence[Answer], size: int) -> torch.Tensor:
    """The `size` most frequent tokens of the responses, ascending; ties go to the smaller id."""
    seen = Counter(token for answer in answers for token in answer.response)
    ranked = sorted(seen, key=lambda token: (-seen[token], token))[:size]
    unused = (token for token in range(size) if token not in set(ranked))
    return torch.tensor(sorted([*ranked, *(next(unused) for _ in range(size - len(ranked)))]))


class Trainer:
    """A head and what it is trained with; embeddings and the target's lm_head are one matrix in SmolLM2."""

    def __init__(self, features: Features, recipe: Recipe, embeddings: torch.Tensor, shape: Shape) -> None:
        self.features, self.recipe, self.embeddings = features, recipe, embeddings
        self.vocabulary = draft_vocabulary(features.answers, shape.draft_vocab)
        self.drafted = torch.full((len(embeddings),), -1)  # target id -> draft id
        self.drafted[self.vocabulary] = torch.arange(shape.draft_vocab)
        self.head = Head(shape)
        self.target_head = embeddings[self.vocabulary]
        with torch.no_grad():
            self.head.lm_head.weight.copy_(self.target_head)
        # fc learns on channels of one size; the size is folded into its weight when the head is saved.
        self.scale = torch.cat([_rms(features.states[s]) for s in recipe.slots])

    def batch(self, chosen: Sequence[int]) -> Batch:
        """The chosen answers with this recipe's states."""
        return collate(self.features, chosen, self.recipe.slots, self.recipe.target)

    def loss(self, batch: Batch) -> tuple[torch.Tensor, list[tuple[float, int]]]:
        """Cross-entropy to the target's distribution over the draft vocabulary, and (hits, rows) of each step."""
        embeds = self.embeddings[batch.tokens]
        logits = self.head(batch.slots / self.scale, embeds, batch.real, batch.first, STEPS)
        wanted = (batch.taught @ self.target_head.T).softmax(-1)
        drafted = self.drafted[batch.greedy]
        counted = batch.real[:, batch.first :] & (drafted >= 0)
        total = torch.zeros(())
        hits = []
        for step, drafts in enumerate(logits):
            rows = counted[:, step:]
            soft = functional.cross_entropy(drafts[rows], wanted[:, step:][rows])
            total = total + DECAY**step * soft
            right = drafts.detach()[rows].argmax(-1) == drafted[:, step:][rows]
            hits.append((float(right.sum()), len(right)))
        return total, hits

    def train(self, *, epochs: int, batch: int, rate: float, seed: int) -> None:
        """AdamW with a short warm-up and a cosine to nothing; progress on stderr."""
        order, draw = list(range(len(self.features.answers))), random.Random(seed)
        steps = epochs * math.ceil(len(order) / batch)
        warm = max(1, steps // 20)
        optimizer = torch.optim.AdamW(self.head.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda n: min((n + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * min(1.0, (n + 1) / steps))),
        )
        began = time.monotonic()
        for epoch in range(epochs):
            draw.shuffle(order)
            seen = [[0.0, 0] for _ in range(STEPS)]
            for first in range(0, len(order), batch):
                loss, hits = self.loss(self.batch(order[first : first + batch]))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                for total, (right, rows) in zip(seen, hits, strict=True):
                    total[0] += right
                    total[1] += rows
            said = " ".join(f"{right / rows:.3f}" for right, rows in seen)
            click.echo(f"epoch {epoch + 1}/{epochs} {time.monotonic() - began:.0f} s hits {said}", err=True)

    def save(self, folder: Path) -> None:
        """config.json and model.safetensors as SpecForge writes them; d2t holds offsets, embeddings stay out."""
        tensors = {name: value.detach() for name, value in self.head.state_dict().items()}
        tensors["fc.weight"] = tensors["fc.weight"] / self.scale
        tensors = {name: value.bfloat16().contiguous() for name, value in tensors.items()}
        tensors["d2t"] = self.vocabulary - torch.arange(len(self.vocabulary))
        tensors["t2d"] = self.drafted >= 0
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config = _config(self.head.shape, self.recipe, len(self.embeddings))
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _rms(state: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(state.shape[1])
    for rows in state.split(8192):
        total += rows.float().square().sum(0)
    return (total / len(state)).sqrt().clamp_min(1e-6)


def _config(shape: Shape, recipe: Recipe, vocab: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "target_hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": 8192,
        "vocab_size": vocab,
        "draft_vocab_size": shape.draft_vocab,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "bfloat16",
        "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": list(recipe.ids)},
    }


def main() -> None:
    """Train one recipe and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument(
        "--output", type=Path, help="folder of the head (default: in the cache, drafts/RECIPE)"
    )
    parser.add_argument(
        "--text", type=Path, nargs="+", help="texts (default: greedy.jsonl of tools.draft_text)"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8, help="answers in a step")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="the same head needs the same number")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    # Gradients of improbable tokens are denormal numbers, with which a matmul takes ten times as long.
    torch.set_flush_denormal(True)
    texts = given.text or [draft_text.folder() / "greedy.jsonl"]
    features = joined([load(draft_text.read(t), t.with_suffix(".safetensors"), torch.float32) for t in texts])
    embeddings = draft_text.load_target(torch.float32).get_input_embeddings().weight.detach()
    trainer = Trainer(features, RECIPES[given.recipe], embeddings, Shape())
    trainer.train(epochs=given.epochs, batch=given.batch, rate=given.rate, seed=given.seed)
    trainer.save(given.output or draft_text.folder() / given.recipe)


def joined(parts: Sequence[Features]) -> Features:
    """Several texts as one."""
    if len(parts) == 1:
        return parts[0]
    answers: list[Answer] = []
    starts: list[int] = []
    rows = 0
    for part in parts:
        answers += part.answers
        starts += [rows + start for start in part.starts]
        rows += len(part.states[NORMED])
    states = {name: torch.cat([p.states[name] for p in parts]) for name in parts[0].states}
    greedy = {name: torch.cat([p.greedy[name] for p in parts]) for name in parts[0].greedy}
    return Features(tuple(answers), tuple(starts), states, greedy)


if __name__ == "__main__":
    main()
