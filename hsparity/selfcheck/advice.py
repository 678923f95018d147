"""The self-check in words: its headline, and what to change."""

from __future__ import annotations

from hsparity.selfcheck.readings import ENGINE_TWICE, NORMED, NORMED_TWICE, OTHER_FORM, RAW, meaning
from hsparity.selfcheck.result import Claim, Verdict

WHERE_RAW = {
    "hf": "hidden_states[-1] is normed: take the input of model.norm with a hook",
    "vllm": "auxiliary id L is not normed; the model's own output is: take hidden + residual before model.norm",
    "sglang": "return_hidden_states is normed: take hidden + residual before model.norm, or aux capture id L",
}
TWICE = "the norm runs twice: hand on the state before model.norm, or drop the second norm"


def place(site: str) -> str:
    """boundary.030 as "boundary 30"."""
    kind, _, index = site.partition(".")
    return f"{kind} {int(index)}" if index else kind


def headline(
    verdict: Verdict, claims: tuple[Claim, ...], also: tuple[tuple[str, str], ...], plus_one: bool
) -> str:
    """One sentence."""
    if not claims:
        seen = f"; {also[0][0]} holds {also[0][1]}" if also else ""
        return f"the capture has neither the last boundary nor final_norm, so it claims no last state{seen}"
    if verdict is Verdict.PASSED:
        return (
            " and ".join(
                f"{place(c.site)}{', read through the norm,' if c.reading == RAW else ''}" for c in claims
            )
            + f" give{'s' * (len(claims) == 1)} the engine's own log-probabilities"
        )
    claim = next(c for c in claims if c.verdict is verdict)
    if verdict is Verdict.INCONCLUSIVE:
        return f"{place(claim.site)}: {claim.reason}"
    if claim.holds:
        return f"{place(claim.site)} holds {meaning(claim.holds, plus_one)}, not {meaning(claim.reading, plus_one)}"
    if claim.lies_in:
        return f"{place(claim.site)} is not the last state; {place(claim.lies_in)} is"
    if claim.repeats:
        return (
            f"{place(claim.site)} is not the last state: it repeats {place(claim.repeats)}, one layer early"
        )
    return f"{place(claim.site)} does not give the engine's own log-probabilities in any reading"


def advise(claims: tuple[Claim, ...], engine: str, layers: int) -> tuple[str, ...]:
    """What to change, a line per claim that failed."""
    return tuple(_advice(c, engine, layers) for c in claims if c.verdict is Verdict.FAILED)


def _advice(claim: Claim, engine: str, layers: int) -> str:
    site = place(claim.site)
    if claim.holds == NORMED_TWICE:
        return f"{site}: {TWICE}"
    if claim.holds == NORMED:
        return f"{site}: {WHERE_RAW.get(engine, 'take the input of the final norm, not its output')}"
    if claim.holds == RAW:
        return f"{site}: take the output of the final norm, not its input"
    if claim.holds == ENGINE_TWICE:
        return f"{site}: the engine norms the last state twice before its lm_head; keep one of the two norms"
    if claim.holds == OTHER_FORM:
        return f"{site}: the norm's weight is read in the wrong form (w against 1 + w); correct it in norm.safetensors"
    if claim.lies_in:
        return f"{place(claim.lies_in)} is the last state: number the boundaries one higher"
    if claim.repeats:
        return (
            f"{site}: take the output of decoder layer {layers - 1} (hidden + residual), not its input; "
            f"ids one too low do this"
        )
    return (
        f"{site}: the rows are of another layer, of other tokens, or overwritten; "
        f"compare with a capture of every boundary by another engine"
    )
