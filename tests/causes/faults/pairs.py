"""Two faults at once: each has to be named, one of them first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.causes.faults import inputs, rows, slots, states, storage
from tests.causes.faults.base import FAULTS, Change, Fault, Variant, v
from tests.causes.real import SMOL, TINY

T, S = (TINY,), (SMOL,)
Step = tuple[Change, Mapping[str, Any]]


@dataclass(frozen=True)
class Pair:
    """Both faults with their options, in the order they are made; the variant's own options are not used."""

    steps: tuple[Step, Step]
    how: Variant

    @property
    def faults(self) -> tuple[Fault, Fault]:
        one, other = (next(f for f in FAULTS if f.change is change) for change, _ in self.steps)
        return one, other


def _pair(one: Step, other: Step, **how: Any) -> Pair:
    return Pair((one, other), v("", **how))


OFFSET: Step = (slots.layer_offset, {"by": 1})
INNER: Step = (slots.layer_offset, {"by": 1, "which": "inner"})
NORMED: Step = (states.final_norm_applied, {"which": "last"})
UPDATE: Step = (states.residual_missing, {"branch": "update"})

PAIRS = (
    _pair(INNER, NORMED, shape="three-last"),
    _pair(INNER, NORMED, shape="three-last", cand="sglang", floor=False),
    _pair((rows.prefix_cache_skip, {"rows": 16}), OFFSET, models=T),
    _pair((rows.prefix_cache_skip, {"rows": 32}), OFFSET, models=T, shape="three", cand="sglang"),
    _pair((rows.request_order, {"order": "text"}), UPDATE, models=T),
    _pair((rows.request_order, {"order": "swapped"}), UPDATE, shape="three"),
    _pair((storage.stored_fp8, {"form": "e4m3", "scaled": "token"}), OFFSET),
    _pair((storage.stored_fp8, {"form": "e5m2", "scaled": "not"}), OFFSET, shape="three"),
    _pair((states.gain, {"factor": 0.5}), OFFSET),
    _pair((states.gain, {"factor": 2.0}), OFFSET, shape="three", cand="sglang"),
    _pair((rows.rows_shifted, {"by": 1}), NORMED),
    _pair((rows.rows_scattered, {"ranks": 2}), OFFSET, cand="sglang"),
    _pair((rows.last_chunk_only, {"chunk": 16}), NORMED, models=T),
    _pair(
        (rows.prefix_cache_skip, {"rows": 16}),
        (storage.stored_fp8, {"form": "e4m3", "scaled": "token"}),
        models=T,
    ),
    _pair(NORMED, (slots.slots_permuted, {"order": (1, 0, 2)}), shape="three-last"),
    _pair(INNER, (slots.slot_count, {"kept": (0, 1)}), shape="three-last"),
    _pair((states.rotated_basis, {"how": "random"}), OFFSET),
    _pair((states.channels_permuted, {"how": "halves"}), OFFSET, shape="three"),
    _pair((states.final_norm_missing, {}), OFFSET),
    _pair((inputs.weights_differ, {"size": 0.0}), OFFSET),
    _pair((inputs.tokens_differ, {"how": "bos", "spared": 1}), OFFSET, models=T),
    _pair((inputs.config_differs, {"name": "rms_norm_eps", "value": 1e-3}), NORMED),
    _pair((storage.nonfinite, {"how": "one"}), OFFSET),
)
