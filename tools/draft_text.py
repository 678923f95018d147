"""What SmolLM2 itself writes: `python -m tools.draft_text` answers the prompts of tools/topics.py.

Greedy answers to the training topics; with --sampled, sampled ones to the same; with --held-out, greedy ones to the
held-out topics, which are committed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import torch

import hsparity.models
from tools import topics

HERE = Path(__file__).parent
HELD_OUT_PROMPTS = HERE / "heldout.jsonl"
HELD_OUT_TEXT = HERE / "heldout-greedy.jsonl"


@dataclass(frozen=True)
class Answer:
    """One prompt and what the target wrote after it, as token ids; `response` ends at EOS or at the limit."""

    id: str
    topic: str
    prompt: list[int]
    response: list[int]


def folder() -> Path:
    """Where texts, features and drafts are kept: drafts/ beside the bundled models."""
    return hsparity.models.cache_folder().parent / "drafts"


def write(file: Path, answers: Sequence[Answer]) -> None:
    """One answer a line; the file appears whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.write_text("".join(json.dumps(asdict(a)) + "\n" for a in answers), encoding="utf-8")
    part.rename(file)


def read(file: Path) -> list[Answer]:
    """The answers of a file that `write` made."""
    return [Answer(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def held_out() -> list[Answer]:
    """The committed held-out prompts with the target's greedy text."""
    prompts = [json.loads(line) for line in HELD_OUT_PROMPTS.read_text(encoding="utf-8").splitlines()]
    texts = [json.loads(line) for line in HELD_OUT_TEXT.read_text(encoding="utf-8").splitlines()]
    said = {text["id"]: text for text in texts}
    return [
        Answer(p["id"], said[p["id"]]["topic"], p["token_ids"], said[p["id"]]["token_ids"]) for p in prompts
    ]


def load_target(dtype: torch.dtype) -> Any:
    """SmolLM2-135M in Transformers, its weights (stored in bf16) computed with in `dtype`."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(hsparity.models.path("smollm2")), dtype=dtype)
    return model.eval()


def answers(
    asked: Sequence[tuple[str, str]],
    *,
    prefix: str,
    dtype: torch.dtype,
    temperature: float,
    batch: int,
    limit: int,
) -> Iterator[Answer]:
    """What the target writes after each (topic, question): greedy where `temperature` is 0."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(hsparity.models.path("smollm2")))
    model = load_target(dtype)
    stop = int(model.config.eos_token_id)
    how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    started = time.monotonic()
    for first in range(0, len(asked), batch):
        some = asked[first : first + batch]
        prompts: list[list[int]] = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
            )
            for _, question in some
        ]
        longest = max(map(len, prompts))
        ids = torch.tensor([[stop] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        with torch.inference_mode():
            made = model.generate(ids, attention_mask=mask, max_new_tokens=limit, **how)
        for number, ((topic, _), prompt, row) in enumerate(zip(some, prompts, made.tolist(), strict=True)):
            said = row[longest:]
            said = said[: said.index(stop) + 1] if stop in said else said
            yield Answer(f"{prefix}{first + number:03}", topic, prompt, said)
        click.echo(f"{prefix} {first + len(some)}/{len(asked)} {time.monotonic() - started:.0f} s", err=True)


def write_held_out(made: Sequence[Answer]) -> None:
    """The held-out prompts as a prompts file of hsparity, and their greedy text beside it."""
    prompts = [json.dumps({"id": a.id, "token_ids": a.prompt}) for a in made]
    texts = [json.dumps({"id": a.id, "topic": a.topic, "token_ids": a.response}) for a in made]
    HELD_OUT_PROMPTS.write_text("\n".join(prompts) + "\n", encoding="utf-8")
    HELD_OUT_TEXT.write_text("\n".join(texts) + "\n", encoding="utf-8")


def main() -> None:
    """Write greedy.jsonl, or another text that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", action="store_true", help="rewrite tools/heldout*.jsonl, in bf16")
    parser.add_argument("--sampled", action="store_true", help="write sampled.jsonl instead")
    parser.add_argument("--output", type=Path, default=folder(), help="where the texts go")
    parser.add_argument("--batch", type=int, default=55)
    parser.add_argument("--limit", type=int, default=96, help="tokens of an answer")
    parser.add_argument("--temperature", type=float, default=0.8, help="of the sampled answers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    size = {"batch": given.batch, "limit": given.limit}
    if given.held_out:
        asked = topics.questions(topics.HELD_OUT, each=2)
        write_held_out(list(answers(asked, prefix="h", dtype=torch.bfloat16, temperature=0.0, **size)))
        return
    asked = topics.questions(topics.TRAINING, each=len(topics.TEMPLATES))
    temperature = given.temperature if given.sampled else 0.0
    # Float32 arithmetic on the bf16 weights: the same text but for near-ties, three times as fast without bf16 instructions.
    made = list(answers(asked, prefix="t", dtype=torch.float32, temperature=temperature, **size))
    write(given.output / ("sampled.jsonl" if given.sampled else "greedy.jsonl"), made)


if __name__ == "__main__":
    main()
