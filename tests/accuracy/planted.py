"""Faults planted in a running engine: the captures under every severity, and the weakest that is found, as a table.

    python -m tests.accuracy.planted OUT [--table]

makes OUT/<model>/<fault>-<severity>/ in one engine start per model, and lists what leaves the floor in OUT/../cases.json.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.model import Comparison, Verdict
from hsparity.replay.replaying import replay
from hsparity.replay.result import Replay
from tests.engines.faults import planted_sglang
from tests.engines.faults.planted_cases import LAYERS, PLANTED, Planted, of
from tests.engines.faults.planted_run import checkpoint, floors, plant, plant_sglang

HEALTHY = (
    ("deepseek", "deepseek/healthy"),
    ("deepseek", "sglang/sglang-healthy"),
    ("mistral", "mistral/healthy"),
)
EVERYTHING = (*PLANTED, *planted_sglang.PLANTED)
MODELS = tuple(dict.fromkeys(p.model for p in PLANTED))


@dataclass(frozen=True)
class Planting:
    """One fault at one severity, and the captures that show it."""

    planted: Planted
    severity: float
    home: Path

    @property
    def name(self) -> str:
        return f"planted: {self.planted.folder(self.severity)}"

    @property
    def ref(self) -> Path:
        """The healthy capture of vLLM, its cache in bfloat16."""
        return self.home / self.planted.model.partition("-")[0] / "healthy"

    @property
    def cand(self) -> Path:
        engine = "sglang" if self.planted in planted_sglang.PLANTED else self.planted.model
        return self.home / engine / self.planted.folder(self.severity)

    @property
    def floors(self) -> tuple[Path, ...]:
        return floors(
            self.planted.model, checkpoint(self.planted.model, self.home / "checkpoints"), self.home
        )

    @cached_property
    def comparison(self) -> Comparison:
        sources = [open_source(folder) for folder in (self.ref, self.cand, *self.floors)]
        return compare(sources[0], sources[1], sources[2:], Query())

    @cached_property
    def replay(self) -> Replay:
        """Of the first faulty layer and its neighbours alone: the others repeat them."""
        first = self.planted.layers[0]
        layers = [k for k in (first - 1, first, first + 1) if 0 <= k < LAYERS]
        return replay(open_source(self.ref), open_source(self.cand), layers=layers)

    @cached_property
    def diagnosed(self) -> Comparison:
        """The comparison with the replay as evidence."""
        sources = [open_source(folder) for folder in (self.ref, self.cand, *self.floors)]
        return compare(sources[0], sources[1], sources[2:], Query(), replay=self.replay)

    def record(self) -> dict[str, Any]:
        """The case as cases.json holds it. `layers` and `parts` are what a replay has to name."""
        p = self.planted
        return {
            "name": self.name,
            "truth": p.truth,
            "also": list(p.also),
            "bisect_truth": "",  # no knob of the engine turns it
            "ref": str(self.ref),
            "cand": str(self.cand),
            "floors": [str(folder) for folder in self.floors],
            "model": p.model,
            "how": p.what.format(s=self.severity),
            "passive": p.leaves_floor(self.severity),
            "planted": True,
            "severity": self.severity,
            "layers": list(p.layers),
            "parts": list(p.parts),
        }


def make(home: Path) -> None:
    """Make the captures that are missing."""
    for model in MODELS:
        weights = checkpoint(model, home / "checkpoints")
        wanted = [(p, s) for p in of(model) for s in p.severities]
        steps = [p.step(s) for p, s in wanted if not (home / model / p.folder(s)).exists()]
        if steps:
            _grow(plant(model, weights, steps, home / f"{model}.new"), home / model)
        floors(model, weights, home)
    weights = checkpoint("deepseek", home / "checkpoints")
    plant_sglang(None, 0.0, weights, home / "sglang")
    for p in planted_sglang.PLANTED:
        for severity in p.severities:
            plant_sglang(p, severity, weights, home / "sglang")


def _grow(made: Path, into: Path) -> None:
    """Move what another start of the engine made beside what is there; both starts were healthy alike."""
    if into.exists():
        for shard in sorted((made / "healthy" / "shards").iterdir()):
            new, old = load_file(shard), load_file(into / "healthy" / "shards" / shard.name)
            assert all(torch.equal(new[key], old[key]) for key in old), f"{shard} is not what it was"
        shutil.rmtree(made / "healthy")
    into.mkdir(exist_ok=True)
    for folder in sorted(f for f in made.iterdir() if f.is_dir()):
        shutil.move(folder, into / folder.name)
    shutil.rmtree(made)


def healthy(home: Path) -> list[dict[str, Any]]:
    """Engines with nothing planted in them, on the same prompts."""
    found = []
    for model, cand in HEALTHY:
        fp32, bf16 = floors(model, checkpoint(model, home / "checkpoints"), home)
        found.append(
            {
                "name": f"planted: nothing, {cand}",
                "truth": "within-noise",
                "also": [],
                "bisect_truth": "within-noise",
                "ref": str(bf16),
                "cand": str(home / cand),
                "floors": [str(fp32), str(bf16)],
                "model": model,
                "how": "a healthy engine against Transformers",
                "passive": True,
                "planted": True,
                "severity": 0.0,
                "layers": [],
                "parts": [],
            }
        )
    return found


def enlist(records: Iterable[dict[str, Any]], listed: Path) -> None:
    """Put `records` into cases.json in the place of those of their names."""
    mine = {r["name"]: r for r in records}
    with listed.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        others = json.loads(listed.read_text()) if listed.exists() else []
        kept = [r for r in others if not r["name"].startswith("planted:")]
        write = listed.with_suffix(".new")
        write.write_text(json.dumps([*kept, *mine.values()], indent=1) + "\n")
        write.replace(listed)


def named(found: Replay) -> tuple[str, tuple[int, ...], str]:
    """The one side that a replay accuses, its layers, and the part that adds most in the first of them; "" for none
    or both."""
    own = [a for a in found.added if a.weights == "own" and a.verdict is Verdict.DIVERGED]
    sides = sorted({a.side for a in own})
    if len(sides) != 1:
        return " and ".join(sides), (), ""
    layers = tuple(sorted({a.layer for a in own}))
    parts = [a for a in own if a.layer == layers[0] and a.part != "layer"]
    return sides[0], layers, max(parts, key=lambda a: a.ratio).part if parts else ""


def replay_right(planted: Planted, found: Replay) -> bool:
    """Whether the replay accuses the candidate alone, from the first faulty layer on, no sound layer, the right part."""
    side, layers, part = named(found)
    first = layers[:1] == planted.layers[:1]
    return side == "cand" and first and set(layers) <= set(planted.layers) and part in planted.parts


def causes(result: Comparison) -> list[str]:
    """The hypotheses of a comparison, best first."""
    return [f.name for f in result.findings if f.severity == "hypothesis" and not f.ruled_out]


def cause_right(planted: Planted, result: Comparison) -> bool:
    return causes(result)[:1] in [[name] for name in (planted.truth, *planted.also)]


HEADER = (
    "| fault | model | must be named | compare sees it from | replay names layer and part from | diagnosis names it first from |",
    "|---|---|---|---|---|---|",
)


def rows(home: Path) -> str:
    """The weakest severity of each fault that is found, as a Markdown table; "-" where no severity is.

    From the clear severity down to the first that is missed: what is found below that again is not counted.
    """
    lines = list(HEADER)
    for planted in EVERYTHING:
        down = [Planting(planted, s, home) for s in planted.down]
        cells = [planted.name, planted.model, " or ".join((planted.truth, *planted.also))]
        cells.append(_weakest(down, lambda p: p.comparison.verdict is Verdict.DIVERGED))
        cells.append(_weakest(down, lambda p: replay_right(p.planted, p.replay)))
        cells.append(_weakest(down, lambda p: cause_right(p.planted, p.diagnosed)))
        lines.append(f"| {' | '.join(cells)} |")
        sys.stderr.write(lines[-1] + "\n")
    return "\n".join(lines) + "\n"


def _weakest(down: Sequence[Planting], found: Callable[[Planting], bool]) -> str:
    seen = list(takewhile(found, down))
    return f"{seen[-1].severity:g}" if seen else "-"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path, help="folder for the captures")
    parser.add_argument("--table", action="store_true", help="print the weakest severities found")
    chosen = parser.parse_args()
    make(chosen.home)
    # What stays within the floor says nothing about a diagnosis: the table has it.
    told = [Planting(p, s, chosen.home) for p in EVERYTHING for s in p.visible]
    enlist([*healthy(chosen.home), *(p.record() for p in told)], chosen.home.parent / "cases.json")
    if chosen.table:
        sys.stdout.write(rows(chosen.home))


if __name__ == "__main__":
    main()
