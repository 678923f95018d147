"""HS201."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class FinalNormApplied:
    """
    ## What it is
    A state that was said to be before the model's final norm was taken after it. Most often it is the last
    hidden state of one side.
    ## Why it happens
    Transformers overwrites the last entry of `hidden_states` with the normed state; vLLM's auxiliary id L and
    SGLang's captures are not normed; SGLang's ordinary `return_hidden_states` is.
    ## How it shows
    Only the last boundary differs, with a norm ratio far from 1 and cosine around 0.9: it looks like a broken
    last layer. Applying the norm to the raw side makes the two equal.
    ## Fix
    Take the input of `model.norm` on the side that has the output, or compare it as `final_norm`.
    """

    code, name = "HS201", "final-norm-applied"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        slots = evidence.slots
        found = slots.solution.of("final-norm-applied")
        group = {k: r for k, r in found.items() if not r.as_claimed and r.slot.claimed is not None}
        if group:
            side = whose(group)
            what = names(group)
            if [r.slot.claimed for r in group.values()] == [evidence.num_layers]:
                what = "last hidden state"
            headline = f"{side} {what} {plural(group, 'was', 'were')} taken after the final norm, the other side's before it"
            fix = {
                "any": f"take the input of the final norm on {side} side",
                "hf": "hidden_states[-1] is normed: hook the input of model.norm",
                "vllm": "auxiliary id L is before the norm; a hook on model.norm's output is not",
                "sglang": "return_hidden_states is normed: use the captured layers, or compare it as final_norm",
            }
            return from_readings(evidence, self, group, headline, fix)
        landed = [p for p in slots.pairs if p.landed and p.floor_site == "final_norm"]
        if landed:
            keys = tuple(p.cand if p.cand.startswith("slot.") else p.ref for p in landed)
            words = f"{', '.join(keys)}, of which nothing was said, is after the final norm"
            return Finding(self.code, self.name, words, slots=keys, severity="note")
        tested = any(p.boundary == evidence.num_layers for p in slots.pairs)
        known = evidence.ref.norm() or evidence.cand.norm()
        if tested and known and slots.solution.places:
            words = "a norm on one side brings the last boundary no closer"
            return Finding(self.code, self.name, words, 0.0, ruled_out=True)
        return None


CAUSE = FinalNormApplied()
