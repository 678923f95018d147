"""The distributions of a floor: per site and kind, over the tokens that it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows, align_rows
from hsparity.capture import floorstore
from hsparity.capture.read import open_source
from hsparity.capture.shards import HALF_ULP
from hsparity.capture.source import Source
from hsparity.errors import HsparityError
from hsparity.floors.base import Base
from hsparity.floors.making import blank
from hsparity.floors.result import FloorReport, Noise, Part
from hsparity.pairing import pair_sites
from hsparity.query import Query
from hsparity.stream import Plan, run
from hsprobe.schema import Site

STREAMS = ("boundary", "final_norm", "slot")  # what a floor is reported for
SQRT2 = math.sqrt(2.0)

Vector = NDArray[np.float64]


def report(base: Base, parts: Sequence[Part], say: Callable[[str], None]) -> FloorReport:
    """Every capture of the floor that is there, measured. Files are verified before their figures are returned."""
    paths = {p.kind: p.path for p in parts if p.path and p.state != "planned"}
    noises: list[Noise] = []
    e0: dict[str, float] = {}
    if "fp32" in paths:
        truth = open_source(paths["fp32"])
        if "bf16" in paths:
            noises += _measured("e0", truth, open_source(paths["bf16"]), e0={})
            e0 = {n.site: max(n.median, HALF_ULP["bfloat16"]) for n in noises}
        noises += _measured("capture", truth, open_source(base.path), e0=e0)
    for kind in floorstore.KINDS:
        if kind in paths and kind not in floorstore.REFERENCES:
            say(f"{kind}: measuring")
            other = open_source(paths[kind])
            noises += _measured(kind, open_source(base.path), other, e0=e0)
    return replace(blank(base, parts), noises=tuple(noises))


def _measured(kind: str, ref: Source, cand: Source, *, e0: dict[str, float]) -> list[Noise]:
    """`cand` against `ref`, site by site; no rows where the two hold no site in common."""
    try:
        rows = align_rows(ref, cand, (), Query())
        pairs = [p for p in pair_sites(ref, cand, Query()).pairs if Site.parse(p.ref).kind in STREAMS]
    except HsparityError as error:
        if error.code not in ("E203", "E212"):
            raise
        return []
    massive = {p.ref: np.zeros(0, np.int64) for p in pairs}
    table = run(Plan((ref, cand), tuple(rows.prompts), tuple(pairs), massive))
    phases = {"all": np.ones(rows.tokens, bool)} if kind == "e0" else _phases(kind, (ref, cand), rows.prompts)
    scale = 1.0 if kind == "capture" else SQRT2
    found = []
    for k, pair in enumerate(pairs):
        size, equal = table.read(k, "rel_l2").astype(np.float64), table.read(k, "equal") == 1
        for words, at in phases.items():
            known = size[at & np.isfinite(size)]
            if not len(known):
                continue
            median, p95, p99 = (float(q) for q in np.quantile(known, (0.5, 0.95, 0.99)))
            base = e0.get(pair.ref, math.nan)
            equal_n = int(equal[at].sum())
            over = math.nan if equal_n == len(known) or not known.any() else median / (scale * base)
            noise = Noise(
                kind,
                pair.ref,
                words,
                len(known),
                int(equal[at].sum()),
                median,
                p95,
                p99,
                float(known.max()),
                over,
            )
            found.append(noise)
    ref.verify()
    cand.verify()
    return found


def _phases(
    kind: str, sources: Sequence[Source], prompts: Sequence[PromptRows]
) -> dict[str, NDArray[np.bool_]]:
    """Which aligned rows were prefilled and which decoded, and which were the one in `sources[0]` and the other in
    `sources[1]`; what there is no row of is left out. Against fp32 only the capture's own phase counts."""
    was, now = (
        np.concatenate([p.positions >= source.prompt(p.prompts[i]).prefill for p in prompts])
        for i, source in enumerate(sources)
    )
    was = now if kind == "capture" else was
    phases = {
        "prefill": ~was & ~now,
        "decode": was & now,
        "decode as prefill": was & ~now,
        "prefill as decode": ~was & now,
    }
    return {words: at for words, at in phases.items() if at.any()}
