"""What every slot of every sampled sample holds: the nearest of the server's boundaries, and the next best.

Per sample, because a dataset may change its make midway; over at most ROWS rows each, because a reading needs no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows
from hsparity.capture.source import Source
from hsparity.metrics.kernel import Norm, apply_norm
from hsparity.pairing import boundaries_of

ROWS = 64
PLAIN = 2.0  # times farther: the next best boundary must be, for a slot to count as read
FAR = 0.5  # of its size from every boundary: a slot holds none of them


@dataclass(frozen=True, slots=True, eq=False)
class SampleReading:
    """One sample's slots against the places of the reference: `errors` [slots, places], median over tokens of
    |state - place| / |place|."""

    prompt: str  # its name in the dataset
    errors: NDArray[np.float64]

    @property
    def signature(self) -> tuple[int, ...]:
        """The nearest place of each slot; -1 where none is near. How plainly it is nearest is for all samples together to
        say: in a short one a single expert may have gone another way."""
        best = self.errors.argmin(axis=1)
        return tuple(int(b) if self.errors[k, b] < FAR else -1 for k, b in enumerate(best))


def plain(errors: NDArray[np.float64]) -> bool:
    """Whether the best of a slot's places [places] is near, and plainly nearer than any other."""
    order = np.sort(errors)
    return bool(order[0] < FAR) and (len(order) < 2 or bool(order[1] >= PLAIN * order[0]))


def places_of(ref: Source, norm: Norm | None) -> list[tuple[int, str]]:
    """(boundary number, site key); the normed last one is L + 1, its key empty where it has to be computed."""
    held = boundaries_of(ref)
    found = list(held.items())
    last = ref.manifest.num_layers
    if "final_norm" in ref.sites():
        found.append((last + 1, "final_norm"))
    elif norm is not None and last in held:
        found.append((last + 1, ""))
    return found


def read(
    ref: Source, cand: Source, prompts: Sequence[PromptRows], slots: Sequence[str], norm: Norm | None
) -> list[SampleReading]:
    """A reading of each aligned prompt."""
    places = places_of(ref, norm)
    held = boundaries_of(ref)
    found = []
    for prompt in prompts:
        picked = np.unique(np.linspace(0, len(prompt.positions) - 1, ROWS).astype(int))
        left, right = prompt.rows[0][picked], prompt.rows[1][picked]
        states = [cand.rows(prompt.prompts[1], key, right).float() for key in slots]
        errors = np.full((len(slots), len(places)), np.nan)
        for j, (_, key) in enumerate(places):
            wanted = key or held[ref.manifest.num_layers]
            place = ref.rows(prompt.prompts[0], wanted, left).float()
            if not key and norm is not None:
                apply_norm(place, norm)
            size = place.norm(dim=1).clamp_min(1e-30)
            for k, state in enumerate(states):
                errors[k, j] = float(((state - place).norm(dim=1) / size).median())
        errors[np.isnan(errors)] = np.inf
        found.append(SampleReading(prompt.prompts[1], errors))
    return found


def grouped(readings: Sequence[SampleReading]) -> Mapping[tuple[int, ...], list[SampleReading]]:
    """Readings by signature, the largest group first."""
    groups: dict[tuple[int, ...], list[SampleReading]] = {}
    for reading in readings:
        groups.setdefault(reading.signature, []).append(reading)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
