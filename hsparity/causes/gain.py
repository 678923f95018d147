"""HS207."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


ONE = 1.02  # gains of several slots that differ by less are one constant


class Gain:
    """
    ## What it is
    A state is the right one times a constant.
    ## Why it happens
    A mean in place of a sum over ranks (1/TP), a sum of what every rank holds whole (TP), a routed scaling factor
    applied twice or never, an embedding multiplier moved between modules. vLLM scales DeepSeek's stream down in
    float16 to keep it in range.
    ## How it shows
    Cosine is 1 and sees nothing; the norm ratio is one number for all tokens. The finding names the constants of
    the model's config that it equals. A branch that is scaled leaves other branches as they are.
    ## Fix
    Undo the factor where the state is stored, or leave it out where it is applied.
    """

    code, name = "HS207", "gain"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.solve.gains import name_gain

        solution = evidence.slots.solution
        group = {
            k: r for k, r in solution.places.items() if (r.gain != 1.0 and r.at_floor) or r.kind == "gain"
        }
        if not group:
            return None
        values = sorted(r.gain for r in group.values() if r.gain != 1.0)
        one = bool(values) and values[-1] <= ONE * values[0]
        what = f"{values[len(values) // 2]:.3g} times" if one else "a constant times"
        if not values:
            what = "a branch off by a constant in"
        headline = (
            f"{whose(group)} {names(group)} {plural(group, 'is', 'are')} {what} what the other side holds"
        )
        manifest = evidence.cand.manifest
        known = (
            name_gain(values[len(values) // 2], manifest.hidden_size, manifest.model_config) if values else []
        )
        more = (f"the factor is {' or '.join(known[:2])}",) if known else ()
        undo = f"multiply these states by {1 / values[len(values) // 2]:.4g}" if one else "undo the factor"
        fix = {"any": f"{undo}{f': the factor is {known[0]}' if known else ''}"}
        if evidence.cand.manifest.engine == "vllm" and evidence.cand.manifest.dtype == "float16":
            fix["vllm"] = "vLLM scales DeepSeek's stream down in float16 on purpose: capture in bfloat16"
        return from_readings(evidence, self, group, headline, fix, more)


CAUSE = Gain()
