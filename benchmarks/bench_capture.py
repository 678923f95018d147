"""What the probe costs an engine: prefill tokens per second without it, with it, and on the native path.

    python benchmarks/bench_capture.py [--engines vllm,sglang] [--model smollm2] [--rounds 3] [--json FILE]

Each variant is a process of its own. A round runs them one after the other, and a ratio is always to the run
without a probe of the same round, so a machine that slows down slows both. `engine` is the time inside the
engine, which is what a served model would lose; `whole` adds checking the rows and committing them to disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from page import machine, write_section

from hsparity import engines, models
from hsparity.capture.checkpoint import read_shape
from hsparity.capture.launch import run_capture
from hsprobe.schema import CaptureSpec, PromptSpec

WARM = 2  # prompts that warm the engine up and are not counted
GOAL = 1.1  # times the probe-less time, for three boundaries


@dataclass(frozen=True)
class Speed:
    """Seconds per prefill token."""

    engine: float
    whole: float


def variants(engine: str, model: str, prompts: tuple[PromptSpec, ...]) -> dict[str, CaptureSpec]:
    """What is measured, the probe-less run first."""
    shape = read_shape(model, "")
    if shape is None:
        sys.exit(f"{model} holds no config.json")
    layers = shape.num_layers
    ids = (2, layers // 2, layers - 3)
    three = tuple(f"boundary.{r:03d}" for r in ids)
    bare = CaptureSpec(engine, model, prompts, (), mechanism="none")
    return {
        "no probe": bare,
        "hooks, 3 boundaries": replace(bare, mechanism="hooks", sites=three),
        f"hooks, all {layers + 1}": replace(bare, mechanism="hooks", sites=("boundary.*",)),
        "native, 3 ids": replace(bare, mechanism="native", native_ids=ids),
    }


def measure(spec: CaptureSpec, interpreter: engines.Interpreter) -> Speed:
    """Run one variant and read what the probe's driver timed."""
    with tempfile.TemporaryDirectory(prefix="hsparity-bench-") as folder:
        out = Path(folder) / "capture"
        run_capture(spec, out, interpreter)
        batches = json.loads((out / "timing.json").read_text())["batches"][WARM:]
    tokens = sum(b["prefill_tokens"] for b in batches)
    inside = sum(b["wall_s"] for b in batches)
    return Speed(inside / tokens, (inside + sum(b["keep_s"] for b in batches)) / tokens)


def random_prompts(count: int, length: int, vocabulary: int) -> tuple[PromptSpec, ...]:
    """Prompts that share no prefix, so that no cache serves any of them."""
    ids = torch.randint(100, vocabulary, (count, length), generator=torch.Generator().manual_seed(1))
    return tuple(PromptSpec(f"p{i:03d}", tuple(row.tolist())) for i, row in enumerate(ids))


def table(engine: str, rounds: list[dict[str, Speed]]) -> tuple[list[str], dict[str, object]]:
    """One line per variant: tokens per second, and the median ratio over the rounds with its range."""
    lines, record = [f"{engine:<22} tokens/s   engine            whole"], {}
    for name in rounds[0]:
        inside = [r[name].engine / r["no probe"].engine for r in rounds]
        whole = [r[name].whole / r["no probe"].engine for r in rounds]
        speed = statistics.median(1 / r[name].engine for r in rounds)
        lines.append(f"  {name:<20} {speed:8.0f}   {_ratio(inside)}  {_ratio(whole)}")
        record[name] = {"tokens_per_s": speed, "engine_ratio": inside, "whole_ratio": whole}
    return lines, record


def _ratio(values: list[float]) -> str:
    return f"{statistics.median(values):.2f}x ({min(values):.2f}-{max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", default="vllm,sglang")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=12, help="prompts counted; two more warm up")
    parser.add_argument("--tokens", type=int, default=512, help="tokens per prompt")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this Markdown file")
    chosen = parser.parse_args()
    model = models.resolve(chosen.model)
    vocabulary = json.loads((Path(model) / "config.json").read_text())["vocab_size"]
    prompts = random_prompts(chosen.prompts + WARM, chosen.tokens, vocabulary)
    record: dict[str, object] = {"model": chosen.model, "tokens": chosen.tokens, "prompts": chosen.prompts}
    head = f"{chosen.model}, {chosen.prompts} prompts of {chosen.tokens} tokens, {chosen.rounds} rounds"
    print(head)
    page: list[str] = []
    for engine in chosen.engines.split(","):
        interpreter = engines.resolve(engine)
        specs = variants(engine, model, prompts)
        rounds = []
        for number in range(chosen.rounds):
            # Every other round backwards: what drifts with time hits each variant from both sides.
            order = list(specs) if number % 2 == 0 else list(specs)[::-1]
            found = {name: measure(specs[name], interpreter) for name in order}
            rounds.append({name: found[name] for name in specs})
        lines, record[engine] = table(f"{engine} {interpreter.version}", rounds)
        print("\n".join(lines), flush=True)
        page += lines
    print(f"goal: at most {GOAL}x inside the engine with three boundaries")
    if chosen.write:
        write_section(chosen.write, "capture", "\n".join([f"{head}. {machine()}.", "", "```", *page, "```"]))
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
