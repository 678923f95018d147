"""How often healthy engines are accused, and the smallest excess that is found, by simulation.

    python -m benchmarks.bench_floor [--runs N]

A comparison is K boundaries over N tokens in prompts of 32. Tokens are drawn from those that real engines were
recorded with (tests/causes/recorded): the yardstick is the error of Transformers in bf16 to its fp32, the side's error
that of vLLM or SGLang on the same token, scaled at every boundary so that the ratio of medians over all tokens is
exactly 1; whole columns at a time, so that neighbouring boundaries err together as they do. "jumps" is a log-normal
with 3 % of jumps to fifty times its median, independent at every boundary and between the two. Tokens are drawn one by
one: what a prompt does to all of its tokens is not simulated. Every comparison that any of its boundaries makes DIVERGED
is one false alarm.

"alone" judges every boundary by its own 95 % interval, "all" by the interval that holds over all of them, which is
what `floor.judge` does. Errors c times as large have an interval c times as high, so one pass says how large a true
ratio has to be for the bulk to accuse in 80 % of the comparisons.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hsparity.floor import ACCUSING_TOKENS, LIMIT, Bootstrap, Errors, ceiling, judge, simultaneous
from hsparity.model import Verdict
from tests.causes import real

TOKENS = (32, 128, 512, 2000)
CELLS = [(real.TINY, 9), (real.SMOL, 31), *((n, k) for k in (31, 62) for n in (real.TINY, "jumps"))]
PROMPT, JITTER = 32, 0.1
POWER = 0.8
HALF_ULP = 2.0**-9

Table = NDArray[np.float64]  # [K, N]


@cache
def recorded(model: str) -> tuple[Table, Table]:
    """Errors of the healthy engines and of Transformers bf16 on the same tokens, [boundaries, tokens of both engines]."""
    truth, bf16 = (real.load(model, name).states for name in ("hf-fp32", "hf-bf16"))
    sides, yards = [], []
    for name in ("vllm", "sglang"):
        parts = [
            (_errors(states, truth[prompt]), _errors(bf16[prompt], truth[prompt]))
            for prompt, states in real.load(model, name).states.items()
        ]
        error, yard = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        sides.append(error)
        yards.append(yard)
    return np.concatenate(sides, axis=1), np.concatenate(yards, axis=1)


def _errors(states: dict[str, Table], truth: dict[str, Table]) -> Table:
    keys = sorted(k for k in states if k.startswith("boundary.") and k != "boundary.000")
    pairs = [(states[k], truth[k]) for k in keys]
    return np.stack([np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1) for a, b in pairs])


def drawn(population: str, sites: int, tokens: int, rng: np.random.Generator) -> tuple[Table, Table]:
    """A healthy side's errors, and their yardstick, which is never below half a unit in the last place."""
    error, yard = _raw(population, sites, tokens, rng)
    return error * _scale(population, sites)[:, None], yard


@cache
def _scale(population: str, sites: int) -> Table:
    """What makes the ratio of medians over the whole population 1 at every boundary, [K]."""
    error, yard = _raw(population, sites, 40_000, np.random.default_rng(1))
    scale: Table = np.median(yard, axis=1) / np.median(error, axis=1)
    return scale


def _raw(population: str, sites: int, tokens: int, rng: np.random.Generator) -> tuple[Table, Table]:
    if population == "jumps":
        error, yard = (4e-3 * np.exp(0.15 * rng.standard_normal((sites, tokens))) for _ in range(2))
        for values in (error, yard):
            values[rng.random((sites, tokens)) < 0.03] *= 50.0
    else:
        pools = recorded(population)
        depth = np.arange(sites) * len(pools[0]) // sites
        chosen = rng.integers(0, pools[0].shape[1], tokens)
        # Few tokens were recorded: copies of one are made to differ.
        error, yard = (
            p[depth][:, chosen] * np.exp(JITTER * rng.standard_normal((sites, tokens))) for p in pools
        )
    return error, np.maximum(yard, HALF_ULP)


@cache
def bootstrap(tokens: int) -> Bootstrap:
    last = tokens % PROMPT
    return Bootstrap.over([PROMPT] * (tokens // PROMPT) + ([last] if last else []))


@dataclass(frozen=True)
class Run:
    """One healthy comparison: its highest lower ends, and whether another test than the bulk's accuses."""

    alone: float
    all: float
    others: bool


def compared(error: Table, yard: Table) -> Run:
    """Every boundary, once."""
    sites, tokens = error.shape
    top = ceiling(list(yard), True)
    sets = [Errors("cand", e, y) for e, y in zip(error, yard, strict=True)]
    ends = [simultaneous(each, bootstrap(tokens), sites) for each in sets]
    others = any(judge(each, silent(tokens), top, sites, sets=1).verdict is Verdict.DIVERGED for each in sets)
    return Run(max(i.low for i in ends), max(i.low_all for i in ends), others)


class Silent(Bootstrap):
    """An interval so wide that only tails and single tokens can accuse."""

    def medians(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.geomspace(1e-3, 1e3, 500) * np.median(values)

    def yard_medians(self, yard: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.full(500, np.median(yard))


@cache
def silent(tokens: int) -> Silent:
    made = bootstrap(tokens)
    return Silent(made.cluster_n, made.weights)


def row(population: str, sites: int, runs: int) -> str:
    cells = []
    for tokens in TOKENS:
        rng = np.random.default_rng(11)
        made = [compared(*drawn(population, sites, tokens, rng)) for _ in range(runs)]
        for which in ("alone", "all"):
            lows = np.array([getattr(run, which) for run in made])
            speaks = tokens >= ACCUSING_TOKENS
            healthy = np.mean([run.others for run in made] | (speaks & (lows > LIMIT)))
            limit = np.mean(speaks & (lows > 1.0))
            cells.append(f"{healthy:.0%}, {limit:.0%}, {np.quantile(LIMIT / lows, POWER):.2f}")
    return f"| {population} | {sites} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    heads = [f"N={n} {which}" for n in TOKENS for which in ("alone", "all")]
    sys.stdout.write(
        f"{runs} comparisons a cell: false alarms at ratio 1; of the bulk at the limit; ratio found in 80 %\n\n"
    )
    sys.stdout.write(f"| errors | K | {' | '.join(heads)} |\n{'|---' * (len(heads) + 2)}|\n")
    for population, sites in CELLS:
        sys.stdout.write(row(population, sites, runs) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
