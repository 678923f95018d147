"""What bit-equality says: the strongest passive evidence there is, as no rounding is that lucky."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.diagnose.tokens import Tokens
from hsparity.evidence import Evidence

FEWEST = 8  # equal tokens, and tokens that differ
FEWEST_FIRST = 2  # first tokens
EQUAL, APART = 0.98, 0.5  # share of bit-equal tokens in the two parts of a pattern

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Equality:
    """Which tokens are equal in every bit at all boundaries that were compared."""

    tokens: int
    equal: int
    first: int | None  # first boundary where a token differs; None: all are equal
    until: int | None  # boundaries up to here are equal for every token; None: not even the first compared
    # The pattern that parts equal tokens from others: "phase", "decode", "pass", "alone", "token0"; "" for none.
    pattern: str
    equal_share: float  # of bit-equal tokens where the pattern says equal
    apart_share: float  # of tokens that differ where it says they do


def equality_of(evidence: Evidence, tokens: Tokens) -> Equality | None:
    """None when the sides store different dtypes, whose states are never equal in their bits for a reason."""
    if evidence.ref.manifest.dtype != evidence.cand.manifest.dtype:
        return None
    places = sorted((p.boundary, k) for k, p in enumerate(evidence.pairs) if p.boundary is not None)
    if not places:
        return None
    equal_kn: Flags = np.stack([evidence.judge.table.read(k, "equal") == 1 for _, k in places])
    equal_n: Flags = np.all(equal_kn, axis=0)
    whole: Flags = np.all(equal_kn, axis=1)
    first = next((int(places[i][0] or 0) for i in range(len(places)) if not whole[i]), None)
    until = (
        None
        if not whole[0]
        else max(int(places[i][0] or 0) for i in range(len(places)) if whole[: i + 1].all())
    )
    best = ("", 0.0, 0.0)
    for name, apart_n in _patterns(tokens).items():
        inside, outside = ~apart_n, apart_n
        if inside.sum() < (FEWEST_FIRST if name == "token0" else FEWEST) or outside.sum() < FEWEST:
            continue
        shares = float(equal_n[inside].mean()), float((~equal_n[outside]).mean())
        if shares[0] >= EQUAL and shares[1] >= APART and sum(shares) > best[1] + best[2] + 1e-9:
            best = (name, *shares)
    return Equality(len(equal_n), int(equal_n.sum()), first, until, *best)


def _patterns(tokens: Tokens) -> dict[str, Flags]:
    """Tokens that would differ, for each thing that may part them, what is most specific first."""
    ref, cand = tokens.ref, tokens.cand
    found = {"phase": tokens.phase_n}
    if ref.known and cand.known:
        found["pass"] = (ref.start_n != cand.start_n) & ~ref.decode_n & ~cand.decode_n
        found["alone"] = (ref.shared_n != cand.shared_n) & (ref.start_n == cand.start_n) & ~tokens.phase_n
    found["decode"] = ref.decode_n & cand.decode_n
    found["token0"] = ~tokens.first_n
    return found
