"""Damages recorded streams of real engines and keeps what `compare` says of them: python -m reports.damaged"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.model import Comparison, to_json
from tests.causes.faults.base import handed
from tests.causes.faults.rows import last_chunk_only, request_order
from tests.causes.faults.slots import layer_offset
from tests.causes.faults.states import final_norm_applied
from tests.causes.real import TINY, load
from tests.causes.streams import Capture

from .build import ROOT

REF, CAND, FLOORS = "captures/hf-bf16", "captures/vllm", ("captures/hf-fp32", "captures/hf-bf16")


def _slots(made: Capture) -> Capture:
    """Three slots: the first two one layer late, the last after the final norm."""
    made = final_norm_applied(layer_offset(made, by=1, which="inner"), which="last")
    return handed(made, "three-last")


def _order(made: Capture) -> Capture:
    """The batch comes back in the order of request numbers sorted as text."""
    return handed(request_order(made, order="text"), "all")


def _chunk(made: Capture) -> Capture:
    """Of every prompt longer than 16 tokens only the rows of its last chunk."""
    made = replace(made, settings={**made.settings, "chunked_prefill": True, "max_num_batched_tokens": 16})
    return handed(last_chunk_only(made, chunk=16), "all")


@dataclass(frozen=True)
class Specimen:
    """One folder: what is done to vLLM's capture, the boundaries asked for, and the causes that must be named."""

    damage: Callable[[Capture], Capture]
    boundaries: str
    causes: tuple[str, ...]


SPECIMENS = {
    "which-tensor": Specimen(_slots, "2,4,8", ("layer-offset", "final-norm-applied")),
    "last-chunk": Specimen(_chunk, "2,4,6", ("last-chunk-only",)),
    "request-order": Specimen(_order, "2,4,6", ("request-order",)),
}


def compared(specimen: Specimen) -> Comparison:
    """The damaged capture against Transformers, in a folder that is gone afterwards."""
    query = Query(boundaries=specimen.boundaries)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            os.chdir(scratch)  # the report shows paths as they were typed
            for path in FLOORS:
                load(TINY, Path(path).name).write(Path(path))
            specimen.damage(load(TINY, Path(CAND).name)).write(Path(CAND))
            sources = [open_source(Path(path)) for path in (REF, CAND, *FLOORS)]
            result = compare(sources[0], sources[1], sources[2:], query)
        finally:
            os.chdir(before)
    floors = " ".join(f"--floor {path}" for path in FLOORS)
    typed = f"hsparity compare {REF} {CAND} --boundaries {specimen.boundaries} {floors}"
    return replace(result, command=tuple(shlex.split(typed)))


def build() -> None:
    """Write the results; `python -m reports.build` renders them."""
    for name, specimen in SPECIMENS.items():
        folder = ROOT / name
        folder.mkdir(exist_ok=True)
        (folder / "report.json").write_text(to_json(compared(specimen), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    build()
