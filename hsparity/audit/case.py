"""From what is asked to what is compared: the sample, the captures on its tokens, what the server feeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hsparity.align.tokens import PromptRows, align_rows
from hsparity.audit import serving
from hsparity.audit.claims import Claims, claims, fed
from hsparity.audit.repair import unfit
from hsparity.audit.result import Integrity, Server
from hsparity.audit.sample import stratified
from hsparity.audit.scan import Facts, learnt
from hsparity.audit.serving import Serving
from hsparity.capture import importing, slotnames
from hsparity.capture.importing import Wish
from hsparity.capture.read import open_source
from hsparity.capture.readers.base import LAST, Dataset, Record, Slot, read_sample
from hsparity.capture.slotnames import Name
from hsparity.capture.source import Source
from hsparity.capture.stamps import stamps_sha256
from hsparity.capture.view import View
from hsparity.compare import check_models
from hsparity.comparing import final_norm
from hsparity.errors import HsparityError
from hsparity.metrics.kernel import Norm
from hsparity.model import Cost
from hsparity.pairing import boundaries_of, slots_of
from hsparity.query import Query
from hsparity.yardstick import find_floors
from hsprobe.schema import token_ids_sha256

Progress = Callable[[float, float, str], None]
LEAST = 4  # tokens that a sample and a prompt must share from the start


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked. `serving` runs an engine, `against` is a capture in its place; neither: integrity only."""

    dataset: Dataset
    work: Path
    names: tuple[Name, ...] = ()
    serving: Serving | None = None
    against: str = ""
    boundaries: tuple[int, ...] = ()  # what the draft is to be fed, where no native path says it
    floors: tuple[str, ...] = ()  # captures, or "none"; empty: made where Transformers is installed
    sample: int = 64
    seed: int = 0
    max_tokens: int = 512
    scan: bool = True
    repair: Path | None = None
    typed: tuple[str, ...] = ()  # the command line, for the commands that are advised
    # What a draft head loses: asked of the dataset, the server and the floor's captures.
    price: Callable[[Source, Source, Sequence[Source]], Cost | None] | None = None


@dataclass(eq=False)
class Case:
    """What the steps share."""

    wanted: Wanted
    records: Sequence[Record]
    facts: list[Facts]
    integrity: Integrity
    slots: tuple[Slot, ...]
    cand: Source  # the sampled samples, every slot as slot.i
    server: Source
    prompts: Sequence[PromptRows]  # the rows that both hold
    floors: list[Source]
    norm: Norm | None
    said: Server
    claimed: Claims

    @property
    def layers(self) -> int:
        return self.server.manifest.num_layers

    @cached_property
    def place(self) -> dict[str, int]:
        """A sample's id -> where it stands in the dataset."""
        return {record.id: i for i, record in enumerate(self.records)}


def prepare(
    wanted: Wanted,
    records: Sequence[Record],
    facts: list[Facts],
    integrity: Integrity,
    step: Callable[[str], Progress | None],
) -> Case:
    """Sample, import, run the engine and the floor, and find what the server feeds."""
    dataset = wanted.dataset
    # A damaged sample is told of already: it must not stand for the others.
    damaged = unfit(integrity, facts)
    readable = [r for r in records if r.id not in damaged]
    against = open_source(wanted.against) if wanted.against else None
    matched: list[tuple[Record, str, int]] = []
    if against is not None:
        matched = _matching(dataset, readable, against, wanted)
        drawn = set(stratified([record for record, _, _ in matched], wanted.sample, wanted.seed))
        matched = [each for each in matched if each[0] in drawn]
        picked = [record for record, _, _ in matched]
    else:
        picked = stratified(readable, wanted.sample, wanted.seed)
    wish = Wish(wanted.names, max_tokens=wanted.max_tokens, unnamed=True)
    made = importing.import_dataset(
        dataset, wanted.work / _key(wanted, picked), wish, picked, step("sampling")
    )
    cand = open_source(made.folder, verify=False)
    slots = _slots(dataset, picked, wanted.names)
    if against is None:
        assert wanted.serving is not None
        kept = {p.id for p in cand.prompts}
        cand = View(cand, cut={r.id: learnt(read_sample(dataset, r)) for r in picked if r.id in kept})
        ids = {p.id: tuple(int(i) for i in cand.token_ids(p.id)) for p in cand.prompts}
        top = max(max(i) for i in ids.values())
        serving.check_model(wanted.serving, cand.manifest.hidden_size, top, dataset.spelled)
        run = replace(wanted.serving, ids=_server_ids(wanted.serving, slots))
        specs = serving.prompts_of(cand.manifest, ids)
        server = open_source(serving.run(run, specs, wanted.work))
        made_floor = [] if wanted.floors else serving.floor(run, specs, wanted.work)
        floors = [*_floors(wanted), *(open_source(p) for p in made_floor)]
    else:
        server, floors = View(against, cut={name: length for _, name, length in matched}), _floors(wanted)
        cand = View(cand, cut={record.id: length for record, _, length in matched})
    check_models(server, cand)
    _check_boundaries(server)
    norm, _ = final_norm(server, server)
    m = server.manifest
    prompts = align_rows(server, cand, (), Query()).prompts
    feeds = wanted.boundaries or fed(server, prompts, norm)
    ids_given = m.settings.get("native_ids") or ()
    model = wanted.serving.typed if wanted.serving and wanted.serving.typed else m.model
    said = Server(
        server.path,
        m.engine,
        m.engine_version,
        model,
        m.architecture,
        m.num_layers,
        tuple(ids_given),
        tuple(feeds),
        own=bool(ids_given) and wanted.serving is not None and wanted.serving.ids is None,
        named=bool(wanted.boundaries),
        slots=fed(server, prompts, norm) if wanted.boundaries else tuple(feeds),
    )
    claimed = claims(slots, feeds, m.num_layers, dataset.last_normed)
    if dataset.said().settings.get("modules"):
        claimed = Claims({}, "its slots are modules' outputs, and which of them a draft is fed is not said")
    elif not feeds and slots_of(server):
        claimed = replace(claimed, why_not="the server's own slots are no states of its layers")
    return Case(wanted, records, facts, integrity, slots, cand, server, prompts, floors, norm, said, claimed)


def _server_ids(run: Serving, slots: Sequence[Slot]) -> tuple[int, ...]:
    """The ids asked for, else the dataset's own: one draft config for both."""
    if run.ids is not None:
        return run.ids
    ids = [s.native_id for s in slots if s.role != LAST]
    return tuple(i for i in ids if i is not None) if ids and None not in ids else ()


def _key(wanted: Wanted, picked: Sequence[Record]) -> str:
    # With the stamps: what was imported of a dataset that has changed since is another dataset's.
    files = stamps_sha256(wanted.dataset, picked)
    text = f"{wanted.max_tokens} {[n.text for n in wanted.names]} {files}"
    return f"dataset-{token_ids_sha256(text.encode())[:12]}"


def _slots(dataset: Dataset, picked: Sequence[Record], names: Sequence[Name]) -> tuple[Slot, ...]:
    for record in picked:
        try:
            return slotnames.given(dataset.slots(read_sample(dataset, record)), names)
        except HsparityError as error:
            if error.code == "E102":
                raise
    raise importing.nothing_readable(dataset, ())


def _matching(
    dataset: Dataset, records: Sequence[Record], against: Source, wanted: Wanted
) -> list[tuple[Record, str, int]]:
    """(record, the capture's prompt, shared length) of every record whose tokens, up to the last learnt one, begin a prompt
    of the capture, or go on from one. Raises E203."""
    left: dict[tuple[int, ...], list[str]] = {}
    for prompt in against.prompts:
        left.setdefault(tuple(against.token_ids(prompt.id)[:LEAST].tolist()), []).append(prompt.id)
    found: list[tuple[Record, str, int]] = []
    for record in records:
        if not left:
            break
        try:
            sample = read_sample(dataset, record)
        except HsparityError:
            continue
        if sample.token_ids is None:
            continue
        ids = sample.token_ids[: min(wanted.max_tokens, learnt(sample))]
        start = tuple(ids[:LEAST].tolist())
        for name in left.get(start, ()):
            other = against.token_ids(name)
            length = min(len(ids), len(other))
            if np.array_equal(ids[:length], other[:length]):
                found.append((record, name, length))
                left[start].remove(name)
                if not left[start]:
                    del left[start]
                break
    if not found:
        notes = (
            f"dataset  {dataset.spelled}: {len(records)} samples",
            f"capture  {against.path}: {len(against.prompts)} prompts",
        )
        engine = against.manifest.engine
        again = f"run the engine on the dataset's own tokens: hsparity audit {dataset.spelled} --engine {engine} --model M"
        raise HsparityError("E203", "the capture and the dataset share no prompt", notes, again)
    return found


def _floors(wanted: Wanted) -> list[Source]:
    return [source for path in wanted.floors if path != "none" for source in find_floors(path)]


def _check_boundaries(server: Source) -> None:
    # Where a neighbour is lacking, a state would be taken for the nearest that is there.
    if not set(range(1, server.manifest.num_layers + 1)) <= set(boundaries_of(server)):
        raise HsparityError(
            "E210",
            f"{server.path} does not hold the boundaries to read a dataset on",
            (f"it holds {', '.join(server.sites()) or 'nothing'}",),
            "capture every boundary: hsparity capture ENGINE --model M --mechanism both -o DIR",
        )
