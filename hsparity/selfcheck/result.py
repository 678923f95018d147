"""What a self-check found, as plain records. Standard library only."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

SCHEMA = "hsparity.selfcheck/1"


class Verdict(str, Enum):
    """Of a claim and of the whole check."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Fit:
    """One site read in one way. Errors are in nats: |log p recomputed - log p of the engine| of the prompt's own
    next token, the median over the sampled tokens."""

    site: str  # "boundary.030", "final_norm", "slot.002"
    reading: str  # a name of `readings.READINGS`: what the site would hold if this one is right
    error: float
    floor: float  # median of what rounding the states and the logits to the compute dtype costs, for this reading
    top1: float  # share of tokens whose most likely token is the engine's; NaN where the ids do not say
    tokens: int

    @property
    def ratio(self) -> float:
        """Error over floor."""
        return self.error / self.floor if self.floor > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Claim:
    """What the capture says one site is, judged."""

    site: str
    reading: str  # what the capture claims: raw for boundary L, normed for final_norm
    verdict: Verdict
    reason: str  # one line
    claimed: Fit
    holds: str  # the reading that was proved: what the site does hold; "" when none was
    lies_in: str  # another site that was proved to hold the last state instead; else ""
    runner_up: Fit | None  # the strongest other explanation
    margin: float  # error of the runner-up over that of the winner, each at least the floor
    wins: float  # share of tokens at which the winner's error is the smaller
    repeats: str = ""  # a site whose states this one repeats, where nothing else explains it


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The verdict is on what the capture claims; `table` holds every site and reading, best first."""

    schema: str
    capture: str  # as the user typed it
    engine: str
    engine_version: str
    checkpoint: str
    head: str  # tensor that was read as the lm_head
    dtype: str  # compute dtype that the floor assumes
    tokens: int
    prompts: int
    verdict: Verdict
    headline: str
    winner: Fit | None  # the best fit of all
    runner_up: Fit | None  # the best that means something else
    margin: float
    table: tuple[Fit, ...]
    claims: tuple[Claim, ...]
    also: tuple[str, ...]  # one line per other site that is the last state too
    fix: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self, indent: int | None = None) -> str:
        """Sorted keys; a figure that is not finite is null."""
        return json.dumps(_plain(asdict(self)), indent=indent, sort_keys=True, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value
