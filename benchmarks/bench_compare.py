"""What a comparison costs, as ratios measured in one run: against the machine's copy, and against SGLang's
comparator.

    python benchmarks/bench_compare.py [--boundaries 33] [--tokens 2048] [--width 4096] [--sglang PYTHON|none]
                                       [--repeats 5] [--write docs/benchmarks.md]

Makes a bf16 pair in a temporary folder (1.1 GB with the defaults), in our format and as SGLang dumps, reads
it once so that it lies in the page cache, and measures

* copy: torch's copy of a bf16 tensor far larger than the caches, on all cores; bytes read per second;
* kernel: the per-token sums and metrics over states already in memory; bytes of both sides per second;
* compare: `hsparity compare` as a process, start-up, digests and reading included; wall time and peak memory;
* sglang: `python -m sglang.srt.debug_utils.comparator` as a process on equal states. It needs polars, which
  is put into a temporary folder when it is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from page import machine, write_section

from hsparity.errors import HsparityError
from hsparity.metrics.kernel import Kernel
from hsparity.stream import READ_BYTES, pool_map
from hsprobe.schema import SCHEMA, CaptureManifest, Prompt, ShardEntry, token_ids_sha256

SIDES = ("ref", "cand")


@dataclass(frozen=True)
class Shape:
    boundaries: int
    tokens: int
    width: int

    @property
    def side_bytes(self) -> int:
        return self.boundaries * self.tokens * self.width * 2


@dataclass(frozen=True)
class Run:
    """A process: wall seconds, processor seconds, peak resident bytes, exit code."""

    wall: float
    processor: float
    peak: int
    code: int
    output: str


def states(shape: Shape, boundary: int, side: str) -> torch.Tensor:
    """[tokens, width] bf16. The sides differ by bf16 rounding noise; a few channels are massive."""
    generator = torch.Generator().manual_seed(boundary)
    values = torch.randn(shape.tokens, shape.width, generator=generator)
    values[:, :: max(1, shape.width // 8)] *= 50.0
    if side == "cand":
        values *= 1 + 2.0**-8 * torch.randn(shape.tokens, shape.width, generator=generator)
    return values.bfloat16()


def write_capture(folder: Path, shape: Shape, side: str) -> None:
    """One prompt in two shards, as the probe splits it above 512 MiB."""
    (folder / "shards").mkdir(parents=True)
    ids = torch.arange(shape.tokens, dtype=torch.int32)
    keys = [f"boundary.{k:03d}" for k in range(shape.boundaries)]
    half = -(-len(keys) // 2)
    shards = []
    for g, group in enumerate((keys[:half], keys[half:])):
        path = folder / "shards" / f"00000.g{g}.safetensors"
        rows = {"token_ids": ids, "positions": ids, "steps": torch.zeros_like(ids)}
        header, offset = {}, 0
        for name in [*rows, *group]:
            size = rows[name].numel() * 4 if name in rows else shape.tokens * shape.width * 2
            dims = [shape.tokens] if name in rows else [shape.tokens, shape.width]
            header[name] = {
                "dtype": "I32" if name in rows else "BF16",
                "shape": dims,
                "data_offsets": [offset, offset + size],
            }
            offset += size
        text = json.dumps(header).encode()
        digest = hashlib.sha256()
        with path.open("wb") as file:
            for part in _parts(shape, side, text, rows, group):
                digest.update(part)
                file.write(part)
        entry = ShardEntry(
            f"shards/{path.name}", "p0", tuple(group), shape.tokens, path.stat().st_size, digest.hexdigest()
        )
        shards.append(entry)
    prompt = Prompt("p0", shape.tokens, shape.tokens, shape.tokens, (), token_ids_sha256(ids.tolist()))
    manifest = CaptureManifest(
        SCHEMA, "synthetic", side, "synthetic", "", "Synthetic", "", shape.boundaries - 1, shape.width,
        "bfloat16", {"mode": "eager"}, {}, {}, (prompt,), tuple(shards), "", "complete",
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.to_json())


def _parts(
    shape: Shape, side: str, text: bytes, rows: dict[str, torch.Tensor], group: list[str]
) -> list[memoryview]:
    yield memoryview(struct.pack("<Q", len(text)) + text)
    for tensor in rows.values():
        yield memoryview(tensor.numpy()).cast("B")
    for key in group:
        yield memoryview(states(shape, int(key[-3:]), side).view(torch.int16).numpy()).cast("B")


def write_dumps(folder: Path, shape: Shape, side: str) -> None:
    """The same states as SGLang's dumper writes them: one .pt per tensor."""
    folder.mkdir(parents=True)
    for k in range(shape.boundaries):
        tags = {"step": 0, "rank": 0, "dump_index": k, "name": f"boundary_{k:03d}"}
        name = "___".join(f"{key}={value}" for key, value in tags.items()) + ".pt"
        torch.save({"value": states(shape, k, side), "meta": {**tags, "dims": "t h"}}, folder / name)


def fastest(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of `repeats` runs, after one that is not counted."""
    work()
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def copy_rate(repeats: int) -> float:
    source = torch.empty(256 << 20, dtype=torch.bfloat16).fill_(1.0)
    target = torch.empty_like(source)
    return source.numel() * 2 / fastest(lambda: target.copy_(source), repeats)


def kernel_rate(shape: Shape, repeats: int) -> float:
    """Bytes of both sides per second through `Kernel.run`, from memory, on one thread per core."""
    sites = min(shape.boundaries, 8)
    pairs = [tuple(states(shape, k, side) for side in SIDES) for k in range(sites)]
    massive = torch.arange(0, shape.width, 100)
    step = max(1, READ_BYTES // (2 * shape.width))
    kernels: dict[int, Kernel] = {}

    def span(task: tuple[int, int]) -> None:
        import threading

        kernel = kernels.setdefault(threading.get_ident(), Kernel(shape.width, 2, [(0, 1)]))
        k, start = task
        kernel.run([side[start : start + step] for side in pairs[k]], massive)

    tasks = [(k, start) for k in range(sites) for start in range(0, shape.tokens, step)]

    def work() -> None:
        kernels.clear()
        pool_map(span, tasks)

    return 2 * sites * shape.tokens * shape.width * 2 / fastest(work, repeats)


# The peak memory that the system reports for a child includes its parent's at the time of the fork: the parent
# that forks must be small, so it is a Python of its own.
RUNNER = """
import json, os, subprocess, sys, time
with open(sys.argv[1], "wb") as out:
    begun = time.perf_counter()
    process = subprocess.Popen(sys.argv[2:], stdout=out, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
seconds = usage.ru_utime + usage.ru_stime
print(json.dumps([wall, seconds, usage.ru_maxrss * 1024, process.returncode]))
"""


def run(command: list[str], env: dict[str, str] | None = None) -> Run:
    """A process and what the kernel counted for it."""
    with tempfile.NamedTemporaryFile() as out:
        whole = [sys.executable, "-c", RUNNER, out.name, *command]
        done = subprocess.run(
            whole, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, text=True, check=True
        )
        wall, processor, peak, code = json.loads(done.stdout)
        return Run(wall, processor, peak, code, Path(out.name).read_text(errors="replace"))


def run_compare(folder: Path, repeats: int) -> list[Run]:
    command = [sys.executable, "-m", "hsparity", "compare", str(folder / "ref"), str(folder / "cand")]
    runs = [run(command) for _ in range(repeats + 1)][1:]
    wrong = [r for r in runs if r.code != 3]  # no floor: inconclusive
    if wrong:
        sys.exit(f"hsparity compare ended with {wrong[0].code}:\n{wrong[0].output[-2000:]}")
    return runs


def run_sglang(folder: Path, choice: str) -> Run | None:
    """SGLang's comparator under its own interpreter; None when there is none."""
    if choice == "none":
        return None
    env: dict[str, str] = {"HF_HUB_OFFLINE": "1"}
    if choice:
        python = Path(choice)
    else:
        from hsparity.engines import resolve

        try:
            found = resolve("sglang")
        except HsparityError as error:
            print(f"sglang's comparator is left out: {error.message}", file=sys.stderr)
            return None
        python, env = found.python, {**env, **found.env}
    if subprocess.run([python, "-c", "import polars"], capture_output=True, check=False).returncode:
        extra = folder / "polars"
        pip = [python, "-m", "pip", "install", "-q", "--target", str(extra), "polars"]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(extra), os.environ.get("PYTHONPATH", "")]))
    for side in SIDES:
        write_dumps(folder / "dumps" / side, Shape(*SHAPE), side)
    command = [
        str(python), "-m", "sglang.srt.debug_utils.comparator",
        "--baseline-path", str(folder / "dumps" / "ref"), "--target-path", str(folder / "dumps" / "cand"),
    ]  # fmt: skip
    result = run(command, env)
    if not re.search(rf"{SHAPE[0]} passed|boundary_{SHAPE[0] - 1:03d}", result.output):
        print(f"sglang's comparator compared nothing:\n{result.output[-2000:]}", file=sys.stderr)
        return None
    return result


SHAPE = (33, 2048, 4096)


def table(shape: Shape, copy: float, kernel: float, runs: list[Run], other: Run | None) -> str:
    """The Markdown table."""
    wall = statistics.median(r.wall for r in runs)
    peak = max(r.peak for r in runs)
    pair = 2 * shape.side_bytes
    rows = [
        ("copy, bytes read", f"{copy / 1e9:.1f} GB/s", "1", ""),
        ("kernel, bytes of the pair", f"{kernel / 1e9:.1f} GB/s", f"{kernel / copy:.2f} of the copy", "0.25"),
        ("hsparity compare, whole process", f"{wall:.2f} s", f"{pair / wall / 1e9:.2f} GB/s", "2.5 s"),
        ("its processor time", f"{statistics.median(r.processor for r in runs):.2f} s", "", ""),
        ("its peak memory", f"{peak / 1e6:.0f} MB", "", "600 MB"),
    ]
    if other:
        ratio = f"{other.wall / wall:.0f}× hsparity"
        rows.append(("SGLang's comparator, whole process", f"{other.wall:.1f} s", ratio, ""))
        rows.append(("its peak memory", f"{other.peak / 1e6:.0f} MB", "", ""))
    lines = ["| | measured | | goal |", "|---|--:|--:|--:|", *(f"| {' | '.join(r)} |" for r in rows)]
    size = f"{shape.boundaries} boundaries × {shape.tokens} tokens × {shape.width} in bf16"
    head = f"{size}: {pair / 1e9:.2f} GB for both sides. {machine()}, torch {torch.__version__}."
    return "\n".join([head, "", *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boundaries", type=int, default=SHAPE[0])
    parser.add_argument("--tokens", type=int, default=SHAPE[1])
    parser.add_argument("--width", type=int, default=SHAPE[2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--sglang", default="", metavar="PYTHON", help="interpreter that holds SGLang, or none"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this Markdown file")
    options = parser.parse_args()
    shape = Shape(options.boundaries, options.tokens, options.width)
    globals()["SHAPE"] = (shape.boundaries, shape.tokens, shape.width)
    with tempfile.TemporaryDirectory(prefix="hsparity-bench-") as name:
        folder = Path(name)
        for side in SIDES:
            write_capture(folder / side, shape, side)
        runs = run_compare(folder, options.repeats)
        copy, kernel = copy_rate(options.repeats), kernel_rate(shape, options.repeats)
        text = table(shape, copy, kernel, runs, run_sglang(folder, options.sglang))
    print(text)
    if options.write:
        write_section(options.write, "compare", text)


if __name__ == "__main__":
    main()
