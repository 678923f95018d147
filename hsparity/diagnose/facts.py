"""Everything that the causes are weighed by, measured once per comparison."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hsparity.causes.config_differs import difference
from hsparity.diagnose.equality import Equality, equality_of
from hsparity.diagnose.places import (
    EXACT,
    UNCLEAR,
    Edge,
    First,
    Growth,
    chunks,
    edge,
    first_token,
    growth,
    since,
    step,
)
from hsparity.diagnose.profile import Profile, accused, profile_of
from hsparity.diagnose.ran import Ran, differing, ran
from hsparity.diagnose.routing import Routing, routing_of
from hsparity.diagnose.tokens import Tokens, tokens_of
from hsparity.diagnose.updates import Update, updates_of
from hsparity.evidence import Evidence
from hsparity.replay.result import Replay

SPIKE = 1.4  # times the later layers' update error
MOSTLY = 0.5
STEEP = 0.6
FLAT = 0.3  # rank correlations below are no growth
PATTERNS = ("phase", "decode", "pass", "alone")


@dataclass(frozen=True, eq=False)
class Facts:
    """Measured lazily: a setting that rules a cause out needs no states."""

    evidence: Evidence  # rows and slots put right
    side: str  # "ref" | "cand": who is beyond the floor; "both", "pair" when no fp32 says
    replay: Replay | None = None
    tokens: Tokens = field(init=False)

    def __post_init__(self) -> None:
        found = tokens_of(self.evidence.rows.prompts, self.evidence.ref, self.evidence.cand)
        object.__setattr__(self, "tokens", found)

    @property
    def one(self) -> str:
        """The side whose run is looked at: the accused one, the candidate where both or neither is."""
        return self.side if self.side in ("ref", "cand") else "cand"

    @cached_property
    def mine(self) -> Ran:
        return ran(self.evidence.side(self.one))

    @cached_property
    def other(self) -> Ran:
        return ran(self.evidence.side("cand" if self.one == "ref" else "ref"))

    @cached_property
    def differing(self) -> tuple[str, ...]:
        return differing(self.evidence)

    def only(self, *names: str) -> bool:
        """Whether nothing but these settings differs."""
        return bool(self.differing) and set(self.differing) <= set(names)

    @property
    def same_weights(self) -> bool:
        """Whether both digests are known and equal."""
        return bool(self.mine.weights) and self.mine.weights == self.other.weights

    @cached_property
    def config(self) -> tuple[str, ...]:
        """What the two model configs state differently, as HS404 words it."""
        found = difference(self.evidence.ref.manifest.model_config, self.evidence.cand.manifest.model_config)
        return found.evidence if found is not None and found.structural else ()

    @cached_property
    def profile(self) -> Profile | None:
        """None where the floor says nothing, or nothing is beyond it."""
        if not self.side:
            return None
        found = profile_of(self.evidence, self.side if self.side in ("ref", "cand") else "pair")
        return found if found is not None and found.onset is not None else None

    @cached_property
    def equal_until(self) -> int | None:
        """The boundary up to which all tokens are equal in every bit, where later ones are not and it is a layer's."""
        found = self.equality
        if found is None or found.until is None or found.until < 1 or found.first is None:
            return None
        return found.until

    @cached_property
    def onset(self) -> int:
        """Number of the boundary that the error enters at: the first that is not equal in every bit, where those before
        are; else the first beyond the floor. 0 without a profile."""
        if self.profile is None:
            return 0
        if self.equal_until is not None and self.equality is not None and self.equality.first is not None:
            return self.profile.boundaries.index(self.equality.first)
        return self.profile.onset or 0

    @cached_property
    def hit_n(self) -> NDArray[np.bool_]:
        """Tokens that the error touches where it enters, [N]."""
        if self.profile is None:
            return np.zeros(0, bool)
        if self.equal_until is not None:
            return self.profile.apart_kn[self.onset]
        return self.profile.beyond_n(self.onset)

    @cached_property
    def boundary(self) -> int | None:
        """The first boundary beyond the floor."""
        return None if self.profile is None else self.profile.boundaries[self.onset]

    @cached_property
    def layer(self) -> int | None:
        """The layer that the error enters at; None where the boundary before it was not compared."""
        if self.profile is None or self.boundary is None or self.boundary == 0:
            return None
        before = self.profile.boundaries[self.onset - 1] if self.onset else -1
        return self.boundary - 1 if before == self.boundary - 1 else None

    @cached_property
    def start(self) -> str:
        """ "embedding", "first" layer, first layer with "experts" behind dense ones, a "later" layer, or "" unknown."""
        if self.boundary == 0:
            return "embedding"
        if self.layer is None:
            return ""
        if self.layer == 0:
            return "first"
        return "experts" if self.mine.routed and self.layer == self.mine.dense_layers else "later"

    @cached_property
    def dense_beyond(self) -> bool:
        """Whether layers without experts are beyond the floor already."""
        return bool(self.boundary is not None and 0 < self.boundary <= self.mine.dense_layers)

    @cached_property
    def ratio(self) -> float:
        """Median error over floor where it enters, or the largest one where few tokens carry it."""
        return float("nan") if self.profile is None else self.profile.ratio(self.onset)

    @cached_property
    def few(self) -> bool:
        """Whether few tokens carry the error where it enters."""
        return self.profile is not None and self.ratio <= self.profile.limit

    @cached_property
    def one_kernel(self) -> bool:
        """Whether first tokens are equal in every bit at all boundaries where most later ones are not: one kernel, one
        set of weights, and a difference that acts through scores."""
        if self.profile is None or self.evidence.ref.manifest.dtype != self.evidence.cand.manifest.dtype:
            return False
        first_n = self.profile.tokens.first_n
        apart_n: NDArray[np.bool_] = np.any(self.profile.apart_kn, axis=0)
        return bool(first_n.any() and not apart_n[first_n].any() and apart_n[~first_n].mean() >= MOSTLY)

    @cached_property
    def first(self) -> First:
        if self.profile is None:
            return First(UNCLEAR, float("nan"), float("nan"), 0)
        found = first_token(self.profile, self.onset)
        if self.one_kernel:
            found = replace(found, word=EXACT)
        if found.word == EXACT and self.mine.routed and self.start != "first":
            # A token whose experts are right is spared, wherever it stands.
            return replace(found, word=UNCLEAR)
        return found

    @cached_property
    def growth(self) -> Growth | None:
        if self.profile is None or (self.few and not self.one_kernel):
            return None
        return growth(self.profile, self.onset, self.one_kernel, self.mine.window)

    @property
    def grows(self) -> bool:
        return self.growth is not None and self.growth.low > FLAT

    @property
    def steep(self) -> bool:
        """Whether position explains most of the error: a turned angle does that, a wrong scale a little at most."""
        return self.growth is not None and self.growth.low > STEEP

    @property
    def falls(self) -> bool:
        return self.growth is not None and self.growth.high < -FLAT

    @property
    def even(self) -> bool:
        """Whether position makes no difference behind the first token: no slope that is small but there, as angles leave
        that are off so far that most positions have no more to lose."""
        return self.growth is not None and -FLAT < self.growth.value < FLAT and self.growth.low <= 0.0

    @cached_property
    def edges(self) -> dict[str, Edge]:
        """ "pass", "phase", "decode", "masked", "position": those that are there."""
        profile = self.profile
        if profile is None:
            return {}
        k, tokens = self.onset, profile.tokens
        masks = [m for m in (self.mine.masked, self.other.masked) if m is not None] or self._special
        found = {
            "pass": chunks(profile, k, self.one),
            "phase": edge(profile, k, tokens.phase_n, "phase"),
            "decode": edge(profile, k, tokens.passes(self.one).decode_n, "decode"),
            "masked": since(profile, k, np.isin(tokens.id_n, masks)) if masks else None,
        }
        known = {name: e for name, e in found.items() if e is not None}
        place = None if known else step(profile, k)
        return known if place is None else {"position": place}

    @cached_property
    def _special(self) -> list[int]:
        given = [self.mine.config.get(key) for key in ("pad_token_id", "eos_token_id")]
        return [int(i) for i in given if isinstance(i, int) and i >= 0]

    @cached_property
    def updates(self) -> tuple[Update, ...]:
        return () if self.profile is None else updates_of(self.evidence, self.one)

    @cached_property
    def entry(self) -> Update | None:
        """The update of the layer that the error enters at."""
        return next((u for u in self.updates if u.layer == self.layer), None)

    @cached_property
    def spike(self) -> float | None:
        """Update error of the layer that the error enters at, over the median of later ones; None with few of them."""
        later = [u.ratio for u in self.updates if self.layer is not None and u.layer > self.layer]
        if self.entry is None or len(later) < 2 or not np.isfinite([self.entry.ratio, *later]).all():
            return None
        return self.entry.ratio / float(np.median(later))

    @cached_property
    def routing(self) -> Routing | None:
        return routing_of(self.evidence) if self.mine.routed else None

    @cached_property
    def equality(self) -> Equality | None:
        return equality_of(self.evidence, self.tokens)

    @property
    def pattern(self) -> str:
        """The pattern of bit-equal tokens, where it names who is spared."""
        found = self.equality
        return found.pattern if found is not None and found.pattern in PATTERNS else ""


def facts_of(evidence: Evidence) -> Facts:
    """The facts of a comparison; `evidence` may hold moved rows: what is judged are the tokens' own."""
    slots = evidence.slots
    return Facts(slots, accused(slots), evidence.replay)
