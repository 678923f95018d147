"""What finding out what every slot is costs, as a ratio to reading the same bytes.

    python benchmarks/bench_solve.py [--boundaries 62] [--tokens 2000] [--width 7168] [--cases NAME …]
                                     [--write docs/benchmarks.md]

Makes a reference with all boundaries in bf16 in a temporary folder (1.8 GB with the defaults) and one
candidate after another (at most as large), reads each pair once so that it lies in the page cache, and
measures, each in a process of its own,

* read: every row of every tensor of both sides read, and the relative L2 error of the pairs, on all cores;
* compare: `comparing.run` on opened sources: wall and processor time, peak memory of the process;
* with digests: `compare.compare`, which also computes the SHA-256 of every file, beside it, and waits for it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from bench_compare import Run, run
from page import machine, write_section
from safetensors.torch import load_file

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import Query, compare
from hsparity.comparing import run as compare_rows
from hsparity.metrics.kernel import Norm, apply_norm
from hsparity.stream import pool_map
from hsprobe.schema import SCHEMA, CaptureManifest, NormInfo, Prompt, ShardEntry, Site, token_ids_sha256
from hsprobe.writer import write_safetensors

PROMPTS = 8
EPS = 1e-6
BLOCK = 128  # rows that the plain read takes at a time
UPDATE, NOISE = 0.3, 2.0**-9

States = dict[int, torch.Tensor]  # boundary -> bf16 [T, H]


@dataclass(frozen=True)
class Shape:
    boundaries: int
    tokens: int
    width: int

    @property
    def last(self) -> int:
        return self.boundaries - 1

    @property
    def length(self) -> int:
        """Tokens of a prompt."""
        return self.tokens // PROMPTS

    @property
    def three(self) -> tuple[int, int, int]:
        """An early, a middle and the last boundary."""
        return (3, self.boundaries // 2, self.last)


@dataclass(frozen=True)
class Case:
    """`make` turns the reference's states of all prompts, by number, into the candidate's of one."""

    name: str
    words: str
    three: bool
    make: Callable[[Shape, Callable[[int], States], int], States]
    expected: tuple[str, ...]  # codes of the findings that say it
    goal: float


def healthy(shape: Shape, states: Callable[[int], States], p: int) -> States:
    return states(p)


def early(shape: Shape, states: Callable[[int], States], p: int) -> States:
    """Every slot one boundary early, the last one the normed last."""
    held = states(p)
    found = {k: held[max(k - 1, 0)] for k in held}
    last = held[shape.last].float()
    apply_norm(last, Norm(weight(shape), EPS))
    return {**found, shape.last: last.bfloat16()}


def moved(shape: Shape, states: Callable[[int], States], p: int) -> States:
    return states((3 * p + 1) % PROMPTS)


def shifted(shape: Shape, states: Callable[[int], States], p: int) -> States:
    held = states(p)
    return {k: held[max(k - 1, 0)] for k in held}


def branch(shape: Shape, states: Callable[[int], States], p: int) -> States:
    held = states(p)
    return {k: (held[k].float() - held[k - 1].float()).bfloat16() if k else held[k] for k in held}


def unknown(shape: Shape, states: Callable[[int], States], p: int) -> States:
    return walk(shape, PROMPTS + p)


CASES = (
    Case("three-healthy", "3 slots, healthy, no floor", True, healthy, (), 5.0),
    Case(
        "three-early",
        "3 slots, one layer early, the last one normed",
        True,
        early,
        ("layer-offset", "final-norm-applied"),
        5.0,
    ),
    Case(
        "three-moved",
        "3 slots, the requests in another order",
        True,
        moved,
        ("request-order",),
        5.0,
    ),
    Case("all-healthy", "all slots, healthy, no floor", False, healthy, (), 15.0),
    Case("all-early", "all slots, one layer early", False, shifted, ("layer-offset",), 15.0),
    Case("all-branch", "all slots without their residual", False, branch, ("residual-missing",), 15.0),
    Case("all-unknown", "all slots of another model", False, unknown, (), 15.0),
)


def weight(shape: Shape) -> torch.Tensor:
    return 1.0 + 0.3 * torch.randn(shape.width, generator=torch.Generator().manual_seed(7))


def walk(shape: Shape, p: int) -> States:
    """A residual stream: every layer adds an update; a few channels are massive."""
    generator = torch.Generator().manual_seed(p)
    state = torch.randn(shape.length, shape.width, generator=generator)
    state[:, :: max(1, shape.width // 8)] *= 50.0
    found = {}
    for k in range(shape.boundaries):
        if k:
            state += UPDATE * torch.randn(shape.length, shape.width, generator=generator)
        found[k] = state.bfloat16()
    return found


def noisy(states: Mapping[int, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The states as another engine has them: bf16 rounding noise on every value but the embedding's."""
    grain = torch.randn(next(iter(states.values())).shape, generator=torch.Generator().manual_seed(1))
    found = {}
    for k, values in states.items():
        rough = 1 + NOISE * grain.roll(k, 0).roll(31 * k, 1)
        found[Site("boundary", k).key] = (values.float() * rough).bfloat16() if k else values
    return found


def write_capture(folder: Path, shape: Shape, side: str, prompts: Iterator[dict[str, torch.Tensor]]) -> Path:
    """A capture in our format, one shard per prompt."""
    (folder / "shards").mkdir(parents=True)
    listed, shards = [], []
    for p, states in enumerate(prompts):
        name, generator = f"p{p}", torch.Generator().manual_seed(p)
        ids = torch.randint(0, 1000, (shape.length,), generator=generator, dtype=torch.int32)
        at = torch.arange(shape.length, dtype=torch.int32)
        path = folder / "shards" / f"{p:05d}.safetensors"
        rows = {"token_ids": ids, "positions": at, "steps": torch.zeros_like(at)}
        digest, size = write_safetensors(path, {**rows, **states}, {})
        shards.append(ShardEntry(f"shards/{path.name}", name, tuple(states), shape.length, size, digest))
        listed.append(
            Prompt(name, shape.length, shape.length, shape.length, (), token_ids_sha256(ids.tolist()))
        )
    digest, _ = write_safetensors(folder / "norm.safetensors", {"norm": weight(shape)}, {})
    manifest = CaptureManifest(
        SCHEMA, "synthetic", side, "synthetic", "", "Synthetic", "", shape.last, shape.width, "bfloat16",
        {"mode": "eager"}, {}, {}, tuple(listed), tuple(shards), "", "complete",
        norm=NormInfo("norm.safetensors", EPS, False, digest),
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.to_json())
    return folder


def write_candidate(folder: Path, shape: Shape, ref: Path, case: Case) -> Path:
    def states(p: int) -> States:
        held = load_file(ref / "shards" / f"{p:05d}.safetensors")
        return {Site.parse(key).index: value for key, value in held.items() if key.startswith("boundary")}

    def made() -> Iterator[dict[str, torch.Tensor]]:
        for p in range(PROMPTS):
            whole = case.make(shape, states, p)
            yield noisy({k: whole[k] for k in shape.three} if case.three else whole)

    return write_capture(folder, shape, "cand", made())


def read_all(sources: Sequence[Source]) -> None:
    """Every row of every tensor of both sides, and the relative L2 error where both hold it."""
    ref, cand = sources

    def work(task: tuple[str, str, int]) -> None:
        name, key, start = task
        stop = min(start + BLOCK, ref.prompt(name).rows)
        left = ref.block(name, key, start, stop).float()
        if cand.span(name, key) is not None:
            right = cand.block(name, key, start, stop).float()
            right.sub_(left).norm(dim=1).div_(left.norm(dim=1))

    tasks = [
        (p.id, key, start) for p in ref.prompts for key in ref.sites() for start in range(0, p.rows, BLOCK)
    ]
    pool_map(work, tasks)


def child(step: str, folders: Sequence[str]) -> None:
    """One measurement, as a line of JSON."""
    begun, busy = time.perf_counter(), time.process_time()
    sources = [open_source(folder, verify=step == "digests") for folder in folders]
    names: list[str] = []
    if step == "read":
        read_all(sources)
    else:
        work = compare if step == "digests" else compare_rows
        result = work(*sources, (), Query())
        names = [f.name for f in result.findings if f.severity == "cause" and not f.ruled_out]
    taken = {"seconds": time.perf_counter() - begun, "processor": time.process_time() - busy}
    print(json.dumps({**taken, "names": names}))


@dataclass(frozen=True)
class Measured:
    seconds: float
    processor: float
    peak: int
    names: tuple[str, ...]


def measured(step: str, folders: Sequence[Path]) -> Measured:
    result: Run = run([sys.executable, __file__, "--child", step, *map(str, folders)])
    if result.code:
        sys.exit(f"{step} ended with {result.code}:\n{result.output[-2000:]}")
    found = json.loads(result.output.splitlines()[-1])
    return Measured(found["seconds"], found["processor"], result.peak, tuple(found["names"]))


HEAD = ("", "read", "compare", "", "its processor time", "with digests", "peak memory", "goal")


def row(case: Case, pair: Sequence[Path], repeats: int) -> tuple[str, ...]:
    """One case, measured on its pair."""
    measured("read", pair)  # into the page cache
    read, plain, whole = (_fastest(step, pair, repeats) for step in ("read", "compare", "digests"))
    if set(plain.names) != set(case.expected):
        print(f"{case.words}: named {', '.join(plain.names) or 'nothing'}", file=sys.stderr)
    return (
        case.words,
        f"{read.seconds:.1f} s",
        f"{plain.seconds:.1f} s",
        f"{plain.seconds / read.seconds:.1f}× read",
        f"{plain.processor:.1f} s",
        f"{whole.seconds:.1f} s",
        f"{max(plain.peak, whole.peak) / 1e6:.0f} MB",
        f"{case.goal:.0f} s" + (", missed" if plain.seconds > case.goal else ""),
    )


def table(shape: Shape, rows: Sequence[Sequence[str]]) -> str:
    """The Markdown table."""
    lines = [f"| {' | '.join(HEAD)} |", "|---|" + "--:|" * (len(HEAD) - 1)]
    lines += [f"| {' | '.join(one)} |" for one in rows]
    size = f"{shape.boundaries} boundaries × {shape.tokens} tokens × {shape.width} in bf16"
    head = f"{time.strftime('%Y-%m-%d')}. Reference: {size}. {machine()}, torch {torch.__version__}."
    return "\n".join([head, "", *lines, ""])


def measure(shape: Shape, cases: Sequence[Case], repeats: int) -> str:
    """Every case, one after another, since a candidate may be as large as the reference."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="hsparity-bench-") as name:
        folder = Path(name)
        states = ({Site("boundary", k).key: v for k, v in walk(shape, p).items()} for p in range(PROMPTS))
        ref = write_capture(folder / "ref", shape, "ref", states)
        for case in cases:
            cand = write_candidate(folder / "cand", shape, ref, case)
            rows.append(row(case, (ref, cand), repeats))
            print(" | ".join(rows[-1]), file=sys.stderr)
            shutil.rmtree(cand)
    return table(shape, rows)


def _fastest(step: str, pair: Sequence[Path], repeats: int) -> Measured:
    return min((measured(step, pair) for _ in range(repeats)), key=lambda m: m.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boundaries", type=int, default=62)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--width", type=int, default=7168)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--cases", nargs="+", choices=[c.name for c in CASES], default=[c.name for c in CASES]
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this Markdown file")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1:])
        return
    shape = Shape(options.boundaries, options.tokens, options.width)
    text = measure(shape, [c for c in CASES if c.name in options.cases], options.repeats)
    print(text)
    if options.write:
        write_section(options.write, "solve", text)


if __name__ == "__main__":
    main()
