"""HS209."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RotatedBasis:
    """
    ## What it is
    The states are the other side's in a rotated basis: one orthogonal matrix turns one into the other.
    ## Why it happens
    Rotation-based quantisers (QuaRot, SpinQuant) turn the residual stream and fold the rotation into the weights:
    the model's outputs are equal, its states are not. A draft trained on plain states then accepts nothing.
    ## How it shows
    Norm ratio 1 and cosine about 0: it looks like garbage. The inner products between rows are those of one
    boundary, which noise cannot do.
    ## Fix
    Turn the states back with the quantiser's matrix, fold the matrix into the draft's input weights, or train on
    the rotated target.
    """

    code, name = "HS209", "rotated-basis"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("rotated-basis")
        if not group:
            return None
        headline = f"{whose(group)} {names(group)} {plural(group, 'is', 'are')} in a rotated basis"
        fix = {"any": "undo the quantiser's rotation on the states, or fold it into the draft's first layer"}
        return from_readings(evidence, self, group, headline, fix)


CAUSE = RotatedBasis()
