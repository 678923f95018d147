"""HS202."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class FinalNormMissing:
    """
    ## What it is
    A state that was said to be the final norm's output is its input: the raw stream after the last layer.
    ## Why it happens
    vLLM's last auxiliary id and a hook on the last decoder layer are before the norm. A trainer that feeds such
    a state to the lm_head builds targets from un-normed states.
    ## How it shows
    The norm ratio is far from 1 and differs by channel. The state fits boundary L at the floor, and applying
    the final norm makes it fit what was claimed.
    ## Fix
    Apply the model's final norm to the state, or hook the norm's output. `hsparity selfcheck` settles it with
    one engine: norm and lm_head must reproduce the engine's own log-probabilities.
    """

    code, name = "HS202", "final-norm-missing"

    def find(self, evidence: Evidence) -> Finding | None:
        solution = evidence.slots.solution
        last = evidence.num_layers
        group = {k: r for k, r in solution.of("").items() if r.slot.normed and r.number == last}
        if not group:
            return None
        headline = f"{whose(group)} {names(group)} is the stream before the final norm, not after it"
        fix = {
            "any": "apply the final norm, or take the output of model.norm",
            "vllm": "auxiliary id L is not normed: apply model.norm to it",
            "speculators": "0.3 and 0.4 store the last state un-normed: norm it before the lm_head",
        }
        return from_readings(evidence, self, group, headline, fix)


CAUSE = FinalNormMissing()
