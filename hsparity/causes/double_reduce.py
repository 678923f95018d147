"""HS213."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class DoubleReduce:
    """
    ## What it is
    A branch is in the state n times: it was reduced over n ranks although every rank held the whole.
    ## Why it happens
    Two parts of a communicator each sum over the ranks, or a replicated branch goes through an all-reduce.
    ## How it shows
    The update of a layer is n times too large while its direction is right; n is the group size. Its look-alike
    is a routed scaling factor applied twice: that factor stands in the config, and does not change with TP.
    ## Fix
    Drop one of the two reduces. Run with another TP degree: n follows it.
    """

    code, name = "HS213", "double-reduce"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("double-reduce")
        if not group:
            return None
        headline = f"{whose(group)} {names(group)} {plural(group, 'counts', 'count')} a branch more than once"
        fix = {
            "any": "reduce each branch over the ranks once; run with another TP degree, the factor follows it"
        }
        return from_readings(evidence, self, group, headline, fix)


CAUSE = DoubleReduce()
