"""Make the corpus of real divergences: `python -m tests.accuracy.corpus OUT [--only PATTERN]`.

Every capture is made once, by the real engines through hsparity's own capture code; what is there already is kept.
OUT/cases.json lists the cases whose captures exist, and grows while this runs.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from hsparity import engines, models
from hsparity.capture.launch import run_capture
from hsparity.capture.prompts import load
from hsparity.capture.read import open_source
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureSpec, PromptSpec
from tests.engines.conftest import random_prompts

from . import quantise
from .cases import DECODED, MODELS, PAD, Case, Take, cases

LENGTHS = (72, 64, 56, 48, 40, 24)
VOCABULARY = 512  # of the tiny models
ENGLISH_TOKENS = 64  # per prompt
EVERY = 7  # in the padded prompts, tokens between two pad ids


class Corpus:
    """A folder of captures, checkpoints and cases."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.prompts: dict[tuple[str, str], tuple[PromptSpec, ...]] = {}

    def checkpoint(self, model: str, weights: str = "") -> Path:
        """The model's folder; quantised as `weights` says, built when missing."""
        source = models.path(MODELS[model])
        if not weights:
            return source
        folder = self.home / "checkpoints" / f"{model}-{weights}"
        if not folder.is_dir():
            scheme = weights.removesuffix("-dequant")
            quantise.write(source, folder.with_name(f"{model}-{scheme}"), scheme)
        return folder

    def of(self, model: str, kind: str) -> tuple[PromptSpec, ...]:
        """The prompts of a model: `forced`, `whole` or `padded` (see Take)."""
        if (model, "forced") not in self.prompts:
            self.prompts[model, "forced"] = self._english() if model == "smollm2" else _random()
        forced = self.prompts[model, "forced"]
        if kind == "whole":
            return tuple(replace(p, token_ids=(*p.token_ids, *p.forced[:-1]), forced=()) for p in forced)
        if kind == "padded":
            return tuple(replace(p, token_ids=_with_pads(p.token_ids)) for p in forced)
        return forced

    def spec(self, take: Take) -> CaptureSpec:
        prompts = self.of(take.model, take.prompts)
        decoded = max(len(p.forced) for p in prompts)
        model = str(self.checkpoint(take.model, take.weights))
        return CaptureSpec(take.engine, model, prompts, take.sites, generate=decoded, **take.spec)

    def capture(self, take: Take) -> Path:
        """The folder of `take`, captured when missing."""
        return run_capture(self.spec(take), self.home / "captures" / take.name, engines.resolve(take.engine))

    def record(self, case: Case) -> dict[str, Any]:
        """The case as cases.json holds it; makes the captures that are missing."""
        return {
            "name": case.name,
            "truth": case.truth,
            "also": list(case.also),
            "bisect_truth": case.bisect_truth or case.truth,
            "ref": str(self.capture(case.ref)),
            "cand": str(self.capture(case.cand)),
            "floors": [str(self.capture(take)) for take in case.floors],
            "model": case.ref.model,
            "how": case.how,
            "passive": case.passive,
            "planted": False,
        }

    def _english(self) -> tuple[PromptSpec, ...]:
        """Shipped English prompts, and what Transformers bf16 goes on with."""
        prompts = load(None, str(models.path("smollm2")), limit=len(LENGTHS), max_tokens=ENGLISH_TOKENS)
        spec = CaptureSpec("hf", str(models.path("smollm2")), prompts, ("final_norm",), generate=DECODED)
        greedy = run_capture(spec, self.home / "captures" / "smollm2-greedy", engines.resolve("hf"))
        said = {p.id: p.generated for p in open_source(greedy).manifest.prompts}
        return tuple(replace(p, forced=said[p.id]) for p in prompts)


def _random() -> tuple[PromptSpec, ...]:
    return random_prompts(LENGTHS, VOCABULARY, forced=DECODED)


def _with_pads(token_ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(PAD if at % EVERY == EVERY - 1 else token for at, token in enumerate(token_ids))


def make(home: Path, only: str = "") -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """cases.json as records, and the cases that could not be captured with the reason."""
    corpus, failed = Corpus(home), []
    listed = home / "cases.json"
    home.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate(todo := [c for c in cases() if re.search(only, c.name)]):
        begun = time.monotonic()
        sys.stderr.write(f"[{number + 1}/{len(todo)}] {case.name}\n")
        try:
            record = corpus.record(case)
        except HsparityError as error:
            failed.append((case.name, f"{error.code} {error.message}"))
            sys.stderr.write(f"    {failed[-1][1]}\n")
            continue
        _enlist(record, listed)
        sys.stderr.write(f"    {time.monotonic() - begun:.0f} s\n")
    return (json.loads(listed.read_text()) if listed.exists() else []), failed


def _enlist(record: dict[str, Any], listed: Path) -> None:
    """Put `record` into cases.json in the place of the one of its name; planted.py does the same with its own."""
    with listed.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        others = json.loads(listed.read_text()) if listed.exists() else []
        kept = [r for r in others if r["name"] != record["name"]]
        write = listed.with_suffix(".tmp")
        write.write_text(json.dumps([*kept, record], indent=1) + "\n")
        write.replace(listed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path, help="folder for captures/, checkpoints/ and cases.json")
    parser.add_argument("--only", default="", help="regular expression on the cases' names")
    chosen = parser.parse_args()
    made, failed = make(chosen.home, chosen.only)
    sys.stdout.write(f"{len(made)} cases in {chosen.home / 'cases.json'}\n")
    for name, why in failed:
        sys.stdout.write(f"not made: {name}: {why}\n")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
