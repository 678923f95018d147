"""HS220."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class UnknownStream:
    """
    ## What it is
    A slot is no boundary of a single residual stream: it is a fixed mix of several, or the model keeps several
    streams.
    ## Why it happens
    Models with hyper-connections or attention residuals (DeepSeek-V4, Kimi-K3, GLM-5.3-Flash) have no
    hidden + residual: what one layer hands on is mixed from several banks.
    ## How it shows
    No boundary fits, in any form; a sum of boundaries with coefficients that are the same for every token does.
    ## Fix
    Capture what the next layer reads, as that model defines it; for a single-stream model, look at what blends
    the states.
    """

    code, name = "HS220", "unknown-stream"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("unknown-stream")
        if not group:
            return None
        headline = (
            f"{whose(group)} {names(group)} {plural(group, 'is', 'are')} no boundary but a mix of several"
        )
        fix = {
            "any": "capture the tensor that the next layer reads; a model of several streams has no hidden + residual"
        }
        return from_readings(evidence, self, group, headline, fix)


CAUSE = UnknownStream()
