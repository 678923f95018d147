"""HS203."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class FinalNormTwice:
    """
    ## What it is
    The final norm was applied to a state that was normed already.
    ## Why it happens
    One part of a pipeline hands over `last_hidden_state`, which is normed; the next part, told to expect a raw
    state, norms it again.
    ## How it shows
    Almost nothing by cosine (0.97 in a measured case) and a relative error near 0.4: the norm's weight is
    squared. One application of the norm, and no raw boundary, fits far worse than two.
    ## Fix
    Leave out one of the two norms; say in the dump whether its last state is normed.
    """

    code, name = "HS203", "final-norm-twice"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("final-norm-twice")
        if not group:
            return None
        headline = (
            f"{whose(group)} {names(group)} {plural(group, 'was', 'were')} put through the final norm twice"
        )
        fix = {"any": "leave out one of the two norms: the state was normed when it was handed over"}
        return from_readings(evidence, self, group, headline, fix)


CAUSE = FinalNormTwice()
