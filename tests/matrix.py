"""The wide sweep: every bundled model on every engine, and every setting that may move a hidden state.

    python -m tests.matrix docs/matrix.md [--models tiny:llama,...] [--keep DIR]

Each row is one capture compared with Transformers bf16 by the bf16 floor (Transformers fp32 and bf16 of the
same tokens). What fails is a row too: its error code and first line are the result.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hsparity import engines, models
from hsparity.capture.launch import run_capture
from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.demo.plan import TEXTS, prompt
from hsparity.errors import HsparityError
from hsparity.model import Comparison
from hsprobe.schema import CaptureSpec

BOTH_IDS = ((2, 4, 6), (1, 3, 5))
SITES = ("boundary.*", "final_norm")


@dataclass(frozen=True)
class Row:
    engine: str
    model: str
    what: str = "default"
    spec: dict[str, Any] = field(default_factory=dict)


def rows(chosen: list[str]) -> list[Row]:
    """Native ids for every model, then settings on the two models that tell most."""
    found = [
        Row(engine, model, f"native ids {','.join(map(str, ids))}", {"mechanism": "both", "native_ids": ids})
        for model in chosen
        for engine in ("vllm", "sglang")
        for ids in BOTH_IDS
    ]
    for model in ("tiny:llama", "tiny:deepseek-v3"):
        if model in chosen:
            found += [Row(engine, model, what, spec) for engine, what, spec in _settings()]
    return found


def _settings() -> list[tuple[str, str, dict[str, Any]]]:
    found = [
        (engine, what, spec)
        for engine in ("vllm", "sglang")
        for what, spec in (
            ("float16", {"dtype": "float16"}),
            ("float32", {"dtype": "float32"}),
            ("batch of 4", {"batch": 4}),
            ("8 decoded tokens", {"generate": 8}),
        )
    ]
    args: list[tuple[str, str, dict[str, Any]]] = [
        ("vllm", "chunks of 16", {"enable_chunked_prefill": True, "max_num_batched_tokens": 16}),
        ("vllm", "prefix cache", {"enable_prefix_caching": True}),
        ("vllm", "fp8 KV cache", {"kv_cache_dtype": "fp8"}),
        ("sglang", "chunks of 16", {"chunked_prefill_size": 16}),
        ("sglang", "radix cache", {"disable_radix_cache": False}),
    ]
    found += [(engine, what, {"engine_args": values}) for engine, what, values in args]
    compiled = {"mechanism": "native", "native_ids": BOTH_IDS[0], "engine_args": {"enforce_eager": False}}
    return [*found, ("vllm", "compiled, native ids 2,4,6", compiled)]


def capture(home: Path, name: str, row: Row) -> Path:
    fields = {"sites": () if row.spec.get("mechanism") == "native" else SITES, **row.spec}
    prompts = tuple(prompt(f"p{i}", text) for i, text in enumerate(TEXTS))
    if row.model == "smollm2":
        from hsparity.capture.prompts import load

        prompts = load(None, str(models.path("smollm2")), engine="hf", limit=4)
    spec = CaptureSpec(row.engine, str(models.path(row.model)), prompts, **fields)
    return run_capture(spec, home / name, engines.resolve(row.engine))


def line(row: Row, result: Comparison) -> list[str]:
    """verdict, largest median ratio to the floor, where the ids landed, findings."""
    ratios = [r.median for d in result.deltas for r in d.ratios if r.of == "cand"]
    lands = sorted((s.cand, s.best, s.proved) for s in result.alignment.slots if s.side == "cand self")
    lands = lands or sorted((s.cand, s.best, s.proved) for s in result.alignment.slots if s.side == "cand")
    where = ",".join(f"{best}{'' if proved else '?'}" for _, best, proved in lands)
    codes = [f.code for f in result.findings if not f.ruled_out and f.severity == "cause"]
    return [result.verdict.value, f"{max(ratios):.2f}" if ratios else "", where, " ".join(codes)]


def sweep(home: Path, chosen: list[str]) -> list[list[str]]:
    floors: dict[str, list[Path]] = {}
    table = []
    todo = rows(chosen)
    for number, row in enumerate(todo):
        sys.stderr.write(f"[{number + 1}/{len(todo)}] {row.model} {row.engine} {row.what}\n")
        try:
            if row.model not in floors:
                made = [Row("hf", row.model, spec={"dtype": dtype}) for dtype in ("float32", "bfloat16")]
                name = row.model.replace(":", "-")
                floors[row.model] = [capture(home, f"{name}-{r.spec['dtype']}", r) for r in made]
            taken = open_source(capture(home, f"{number:03d}-{row.engine}", row))
            fp32, bf16 = (open_source(folder) for folder in floors[row.model])
            found = line(row, compare(bf16, taken, [fp32, bf16], Query()))
        except HsparityError as error:
            found = [error.code, "", "", error.message.splitlines()[0].replace("|", "/")[:90]]
        table.append([row.model, row.engine, row.what, *found])
        sys.stderr.write(f"    {' '.join(found)}\n")
    return table


def render(table: list[list[str]]) -> str:
    versions = {name: engines.resolve(name).version for name in ("hf", "vllm", "sglang")}
    names = ["model", "engine", "what", "verdict", "x floor", "ids landed on", "finding or error"]
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "# What was tried",
        "",
        f"{datetime.date.today()}, {told}, Python {platform.python_version()}, CPU ({platform.machine()}).",
        "Made by `make matrix`. Each row is one capture against Transformers bf16, judged by the bf16 floor.",
        "",
        f"| {' | '.join(names)} |",
        f"|{'---|' * len(names)}",
        *(f"| {' | '.join(cells)} |" for cells in table),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", help="Markdown file to write")
    parser.add_argument("--models", default=",".join(models.names()))
    parser.add_argument("--keep", help="folder to keep the captures in")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hsparity-matrix-") as scratch:
        table = sweep(Path(chosen.keep or scratch), chosen.models.split(","))
    Path(chosen.output).write_text(render(table))


if __name__ == "__main__":
    main()
