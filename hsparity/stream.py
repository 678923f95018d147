"""One pass over both sides (and the floor's captures): every site, every aligned token, into a `TokenTable`.

Tasks are spans of rows of one prompt, over all sites, handed to as many threads as there are cores. Each
thread reads by pread into its own buffers and runs torch on one core: OpenMP teams would wait for each other
at every small block.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity import registry
from hsparity.align.tokens import PromptRows
from hsparity.capture.shards import runs_of
from hsparity.capture.source import Source
from hsparity.metrics.base import Sums, ratio
from hsparity.metrics.kernel import BlockSums, Kernel
from hsparity.pairing import SitePair
from hsparity.solve.forms import Form, site
from hsparity.table import TokenTable
from hsparity.yardstick import Roles

READ_BYTES = 2 << 20  # of one side at a time
MASSIVE_SHARE = 0.01
MASSIVE_TOKENS = 256
FIXED = ("rest_rel_l2", "rest_cosine", "massive_rel_l2", "ref_norm", "equal", "bad_ref", "bad_cand")
YARDSTICK = ("e0", "e0_rest", "ref_error", "ref_error_rest", "cand_error", "cand_error_rest")
# What a side's engine differs by from itself, and which phase made the row: 0 prefill, 1 decode, 2 not the same one.
OWN = ("own", "own_rest", "phase")

Progress = Callable[[float, float, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything a pass needs."""

    sources: tuple[Source, ...]  # ref, cand, then the floor's captures
    prompts: tuple[PromptRows, ...]
    pairs: tuple[SitePair, ...]
    massive: Mapping[str, NDArray[np.int64]]  # reference site -> channels
    roles: Roles = field(default_factory=Roles)

    @property
    def tokens(self) -> int:
        return self.prompts[-1].stop if self.prompts else 0


def columns() -> tuple[str, ...]:
    return (*registry.metrics(), *FIXED, *YARDSTICK, *OWN)


def pool_map(
    work: Callable[[Any], None], tasks: Sequence[Any], done: Callable[[Any], None] | None = None
) -> None:
    """Run tasks on one thread per core, each with torch on one core; the first error is raised."""
    workers = min(os.cpu_count() or 1, 8, max(1, len(tasks)))
    before = torch.get_num_threads()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = {pool.submit(work, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                if done:
                    done(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    torch.set_num_threads(before)


def run(plan: Plan, progress: Progress | None = None, table: TokenTable | None = None) -> TokenTable:
    """The pass. `table`: where to put the figures; a new one otherwise."""
    table = table or TokenTable(len(plan.pairs), columns(), plan.tokens)
    local = threading.local()
    finished = 0

    def done(task: tuple[PromptRows, int, int]) -> None:
        nonlocal finished
        finished += task[2] - task[1]
        if progress:
            progress(finished, plan.tokens, f"prompt {task[0].prompts[0]}")

    def work(task: tuple[PromptRows, int, int]) -> None:
        if not hasattr(local, "worker"):
            local.worker = _Worker(plan, table)
        local.worker.span(*task)

    pool_map(work, list(_spans(plan)), done)
    return table


def _spans(plan: Plan) -> Iterable[tuple[PromptRows, int, int]]:
    step = max(1, READ_BYTES // (2 * plan.sources[0].manifest.hidden_size))
    for prompt in plan.prompts:
        count = len(prompt.positions)
        for start in range(0, count, step):
            yield prompt, start, min(start + step, count)


class _Worker:
    """One thread's buffers."""

    def __init__(self, plan: Plan, table: TokenTable) -> None:
        self.plan, self.table = plan, table
        self.metrics = list(registry.metrics().values())
        # A floor's capture may be one of the two sides; it is read once.
        self.used = sorted({0, 1, *(i for pair in plan.roles.pairs() for i in pair)})
        self.kernels: dict[tuple[int, int], Kernel] = {}
        self.buffers: dict[int, torch.Tensor] = {}
        self.massive = {key: torch.from_numpy(np.asarray(v, np.int64)) for key, v in plan.massive.items()}

    def span(self, prompt: PromptRows, start: int, stop: int) -> None:
        """All sites of rows [start, stop) of a prompt."""
        runs, present = {}, {}
        for i in self.used:
            rows = prompt.rows[i][start:stop]
            present[i] = rows >= 0
            runs[i] = runs_of(rows[present[i]])
        phase_n = self._phase(prompt, start, stop)
        for k, pair in enumerate(self.plan.pairs):
            values = self._site(prompt, pair, stop - start, runs, present)
            values[self.table.columns["phase"]] = phase_n
            self.table.write(k, prompt.start + start, values)

    def _phase(self, prompt: PromptRows, start: int, stop: int) -> NDArray[np.float32]:
        decoded = [
            prompt.positions[start:stop] >= self.plan.sources[i].prompt(prompt.prompts[i]).prefill
            for i in (0, 1)
        ]
        return np.where(decoded[0] == decoded[1], decoded[0], 2).astype(np.float32)

    def _site(
        self,
        prompt: PromptRows,
        pair: SitePair,
        count: int,
        runs: Mapping[int, list[tuple[int, int, int]]],
        present: Mapping[int, NDArray[np.bool_]],
    ) -> NDArray[np.float32]:
        forms = {0: pair.ref_form or site(pair.ref), 1: pair.cand_form or site(pair.cand)}
        floor = pair.floor_form or site(pair.floor_site)
        blocks: dict[int, torch.Tensor] = {}
        for i in self.used:
            block = self._read(i, prompt, forms.get(i, floor), runs[i])
            if block is not None and present[i].all():
                blocks[i] = block
            elif block is not None and present[i].any():
                whole = block.new_zeros(count, block.shape[1])
                whole[torch.from_numpy(present[i])] = block
                blocks[i] = whole
        if 0 not in blocks or 1 not in blocks:
            return np.full((len(self.table.columns), count), np.nan, np.float32)
        place = {side: k for k, side in enumerate(blocks)}
        pairs = tuple((place[i], place[j]) for i, j in self.plan.roles.pairs() if i in blocks and j in blocks)
        kernel = self._kernel(blocks[0].shape[1], len(blocks), pairs)
        massive = self.massive[pair.ref]
        sums = kernel.run(list(blocks.values()), massive)
        return self._figures(sums, place, present, len(massive))

    def _read(
        self, i: int, prompt: PromptRows, form: Form, runs: list[tuple[int, int, int]]
    ) -> torch.Tensor | None:
        source, name = self.plan.sources[i], prompt.prompts[i]
        if not name:
            return None
        count = sum(stop - first for first, stop, _ in runs)

        def read(key: str) -> torch.Tensor | None:
            span = source.span(name, key)
            if span is None:
                return None
            size = count * span.row_bytes
            if i not in self.buffers or self.buffers[i].numel() < size:
                self.buffers[i] = torch.empty(size, dtype=torch.uint8)
            return source.gather(name, key, runs, self.buffers[i], span)

        rows = None
        if form.row_gains:
            rows = np.empty(count, np.int64)
            for first, stop, at in runs:
                rows[at : at + stop - first] = np.arange(first, stop)
        return form.make(read, name, rows)

    def _kernel(self, width: int, sides: int, pairs: tuple[tuple[int, int], ...]) -> Kernel:
        key = (width, sides)
        if key not in self.kernels or self.kernels[key].pairs != pairs:
            self.kernels[key] = Kernel(width, sides, pairs)
        return self.kernels[key]

    def _figures(
        self, sums: BlockSums, place: Mapping[int, int], present: Mapping[int, NDArray[np.bool_]], narrow: int
    ) -> NDArray[np.float32]:
        (ref_rest, ref_massive), (cand_rest, cand_massive) = sums.norms[place[0]], sums.norms[place[1]]
        diff_rest, diff_massive = sums.diffs[0, 1]
        width = self.plan.sources[0].manifest.hidden_size
        whole = Sums(
            ref_rest + ref_massive, cand_rest + cand_massive, diff_rest + diff_massive, sums.largest, width
        )
        rest = Sums(ref_rest, cand_rest, diff_rest, sums.largest, max(1, width - narrow))
        known = registry.metrics()
        figures = {m.name: m.of(whole) for m in self.metrics}
        figures["rest_rel_l2"], figures["rest_cosine"] = known["rel_l2"].of(rest), known["cosine"].of(rest)
        figures["massive_rel_l2"] = ratio(np.sqrt(diff_massive), np.sqrt(ref_massive))
        figures["ref_norm"] = np.sqrt(whole.ref)
        figures["equal"] = sums.equal.astype(float)
        bad = sums.nonfinite.sum(0) > 0
        for name, values in figures.items():
            if name != "equal":
                values[bad] = np.nan
        figures["bad_ref"], figures["bad_cand"] = (
            sums.nonfinite[0].astype(float),
            sums.nonfinite[1].astype(float),
        )
        self._yardstick(figures, sums, place, present)
        blank = np.full(len(bad), np.nan)
        with np.errstate(over="ignore"):
            return np.stack([figures.get(name, blank) for name in self.table.columns]).astype(np.float32)

    def _yardstick(
        self,
        figures: dict[str, NDArray[np.float64]],
        sums: BlockSums,
        place: Mapping[int, int],
        present: Mapping[int, NDArray[np.bool_]],
    ) -> None:
        roles = self.plan.roles
        if roles.fp32 is not None and roles.bf16 is not None:
            base, wanted = roles.fp32, {"e0": roles.bf16, "ref_error": 0, "cand_error": 1}
        elif roles.repeat is not None:
            base, wanted = roles.repeated, {"e0": roles.repeat}
        else:
            return
        for name, side in wanted.items():
            self._error(figures, name, (base, side), sums=sums, place=place, present=present)
        for own in roles.wider:
            found: dict[str, NDArray[np.float64]] = {}
            self._error(found, "own", (own.side, own.place), sums=sums, place=place, present=present)
            for name, error in found.items():
                figures[name] = np.fmax(figures[name], error) if name in figures else error

    @staticmethod
    def _error(
        figures: dict[str, NDArray[np.float64]],
        name: str,
        between: tuple[int, int],
        *,
        sums: BlockSums,
        place: Mapping[int, int],
        present: Mapping[int, NDArray[np.bool_]],
    ) -> None:
        """Put the error of the second source to the first as `name` and `name`_rest; NaN where one lacks the row."""
        base, side = between
        if base not in place or side not in place:
            return
        here = present[base] & present[side]
        for suffix, parts in (("", (0, 1)), ("_rest", (0,))):
            below = sum(sums.norms[place[base]][k] for k in parts)
            if side == base:
                error = np.zeros_like(below)
            else:
                key = (place[base], place[side])
                both = sums.diffs.get(key) or sums.diffs[key[::-1]]
                error = ratio(np.sqrt(sum(both[k] for k in parts)), np.sqrt(below))
            error[~here | ~np.isfinite(below)] = np.nan
            figures[name + suffix] = error


def massive_channels(
    source: Source, prompts: Sequence[PromptRows], sites: Sequence[str]
) -> dict[str, NDArray[np.int64]]:
    """Per site the top 1 % of channels by RMS over the first 256 aligned tokens, ascending int64 [m]."""
    found: dict[str, NDArray[np.int64]] = {}

    def work(site: str) -> None:
        total: torch.Tensor | None = None
        left = MASSIVE_TOKENS
        for prompt in prompts:
            if left <= 0:
                break
            rows = prompt.rows[0][:left]
            if source.span(prompt.prompts[0], site) is None:
                continue
            for start in range(0, len(rows), 32):
                block = source.rows(prompt.prompts[0], site, rows[start : start + 32]).float()
                energy = block.nan_to_num_(0.0, 0.0, 0.0).square_().sum(0, dtype=torch.float64)
                total = energy if total is None else total.add_(energy)
            left -= len(rows)
        if total is None:
            found[site] = np.zeros(0, np.int64)
            return
        count = max(1, round(len(total) * MASSIVE_SHARE))
        found[site] = np.sort(total.topk(count).indices.numpy())

    pool_map(work, list(sites))
    return found
