"""Datasets as trainers keep them, and the capture of the server that is to serve their drafts: recorded states of real
engines on the same tokens. vLLM's are the dataset's, SGLang's are the server's, Transformers' make the floor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hsparity import registry
from hsparity.audit.auditing import audit
from hsparity.audit.case import Wanted
from hsparity.audit.result import Audit, Reading, Trouble
from hsparity.capture import foreign, slotnames
from hsparity.capture.readers.base import Sample
from hsparity.capture.writers.base import Layout
from hsprobe.schema import Site
from tests.causes import real
from tests.causes.streams import Capture, States, as_slots

LAYERS = 8
FEEDS = (2, 4, 5)  # DeepSeek's default on the server: 2, L//2, L-3
LAST, NORMED = 8, 9  # 9 stands for the last state after the final norm
V1, V2, FORGE = "speculators-v1", "speculators-v2", "specforge"
FORMATS = (V1, V2, FORGE)
ENDS = {V1: LAST, V2: LAST, FORGE: NORMED}  # what the format's trainer takes the last state to be

Change = Callable[[int, Sample], Sample]


@dataclass(frozen=True)
class Floor:
    """Where the captures that make the floor are."""

    paths: tuple[str, ...]


def key(number: int) -> str:
    return "final_norm" if number == NORMED else Site("boundary", number).key


def served(
    folder: Path,
    feeds: Sequence[int] = FEEDS,
    ids: Sequence[int] | None = None,
    only: Collection[str] | None = None,
    slots: Callable[[str, States], States] | None = None,
    engine: str = "sglang",
    version: str = "",
) -> Path:
    """The server's capture; with `feeds` its native path too, which hands over these boundaries for `ids`. `only`: these
    prompts; `slots(prompt, sites)`: what the native path hands over in place of them."""
    made = real.load(real.TINY, engine)

    def native(prompt: str, sites: States) -> States:
        return slots(prompt, sites) if slots else as_slots(sites, feeds)

    states = {p: {**s, **native(p, s)} for p, s in made.states.items() if only is None or p in only}
    given = list(feeds if ids is None else ids)
    said = {**made.settings, "native_ids": given, "mechanism": "both" if feeds else "hooks"}
    return replace(made, states=states, settings=said, version=version or made.version).write(folder)


def samples(
    slots: Sequence[int] = (*FEEDS, LAST), engine: str = "vllm", change: Change | None = None
) -> list[Sample]:
    """The recorded prompts, slot by slot the boundary named; `change(i, sample)` damages number i."""
    made: Capture = real.load(real.TINY, engine)
    found = []
    for number, (prompt, sites) in enumerate(made.states.items()):
        ids = np.array(made.ids[prompt], np.int64)
        states = tuple(torch.from_numpy(sites[key(b)]).to(torch.bfloat16) for b in slots)
        sample = Sample(ids, states, loss_mask=np.ones(len(ids), np.uint8))
        found.append(change(number, sample) if change else sample)
    return found


def written(
    folder: Path, form: str, made: Sequence[Sample], boundaries: Sequence[int] = (), model: str = "M"
) -> Path:
    """The samples in a trainer's format. `boundaries`: what its configuration says of the auxiliary slots, where the
    format has one."""
    folder.mkdir(parents=True, exist_ok=True)
    sink = registry.writers()[form].begin(folder, Layout(model, tuple(boundaries), LAYERS))
    for number, sample in enumerate(made):
        sink.add(number, sample)
    sink.finish()
    return folder


def dataset(
    folder: Path,
    form: str = V1,
    aux: Sequence[int] = FEEDS,
    last: int | None = None,
    change: Change | None = None,
    said: Sequence[int] | None = None,
) -> Path:
    """vLLM's states at boundaries `aux`, and the last one as the format has it. speculators v1 says so: its ids are
    those of `aux`, unless `said` is given."""
    end = ENDS[form] if last is None else last
    return written(folder, form, samples((*aux, end), change=change), aux if said is None else said)


def run(
    path: Path, tmp: Path, server: Path | None = None, floor: Floor | None = None, slots: str = "", **kw: Any
) -> Audit:
    """The audit, in this process; without a server, of the files alone."""
    opened = foreign.open_dataset(path, str(path))
    names = slotnames.parse(slots)
    opened.claimed = slotnames.aux_count(names)
    wanted = Wanted(
        dataset=opened,
        work=kw.pop("work", tmp / "work"),
        names=names,
        against=str(server) if server else "",
        floors=floor.paths if floor else ("none",),
        **kw,
    )
    return audit(wanted)


def holds(readings: Sequence[Reading]) -> tuple[int | None, ...]:
    return tuple(r.boundary for r in readings)


def causes(result: Audit) -> set[str]:
    """Codes of the causes that were found and not ruled out, over all groups."""
    return {
        f.code
        for g in result.groups
        if g.comparison
        for f in g.comparison.findings
        if f.severity == "cause" and not f.ruled_out
    }


def troubles(result: Audit) -> Mapping[str, Trouble]:
    kinds = [t.kind for t in result.integrity.troubles]
    assert len(kinds) == len(set(kinds)), f"named twice: {kinds}"
    return {t.kind: t for t in result.integrity.troubles}
