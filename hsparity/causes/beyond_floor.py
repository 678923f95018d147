"""HS301."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding, SiteDelta

EXPLAINED = 0.9


class BeyondFloor:
    """
    ## What it is
    The states differ by more than bf16 arithmetic costs, in the right layer and the right row. It says what, not
    why: quantised weights or KV cache, another attention path, a wrong scale are hypotheses (HS501 to HS517), ranked
    behind it by what speaks for and against each.
    ## Why it happens
    Healthy engines stand at 0.9 to 1.4 times the floor. FP8 KV caches stand near 6, W8A8 near 3, FP8 near 10,
    4-bit weights at 20 to 30, all of them flat over depth.
    ## How it shows
    The ratio to the floor is above the limit with its whole interval, or more tokens lie in the tail than the
    floor has. Where the ratio first leaves the limit tells where to look.
    ## Fix
    Read the hypotheses below it, and run the command that the first one names. Without any, compare settings (HS403)
    and switch one off at a time: KV dtype, quantisation, attention backend, compile.
    """

    code, name = "HS301", "beyond-floor"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding, Verdict

        slots = evidence.slots
        out = [
            d
            for k, d in enumerate(slots.left)
            if d.requested
            and d.verdict is Verdict.DIVERGED
            and not any(d.nonfinite)
            and not explained(slots, k)
        ]
        if not out or any(share is not None and share > EXPLAINED for share in evidence.shares.values()):
            return None
        first = out[0]
        hints = [r.hint for r in slots.solution.readings if r.hint]
        lines = [f"{d.ref}: {d.reason}" for d in out[:4]]
        accused = _accused(out)
        words = f"the {accused} is" if accused else "the sides are"
        tol = evidence.judge.terms.tol
        against = f"--tol {tol:g}" if tol is not None else "what bf16 arithmetic costs"
        start = (
            "from the first requested site on" if first.ref == _first(evidence) else f"from {first.ref} on"
        )
        undone = evidence.peeled is not None or any(
            p is not q for p, q in zip(slots.pairs, slots.solution.pairs, strict=True)
        )
        after = ", also when the findings above are undone" if undone else ""
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"{words} beyond {against} {start}{after}",
            slots=tuple(d.ref for d in out),
            evidence=(*lines, *hints[:2]),
            confirm=_branches(evidence) if hints else (),
            tokens=evidence.rows.tokens,
        )


def _branches(evidence: Evidence) -> tuple[str, ...]:
    """The capture that tells the parts of a layer apart, where the reference lacks them."""
    if any(site.startswith("attn_out.") for site in evidence.ref.sites()):
        return ()
    model = evidence.ref.manifest.model
    return (
        f"hsparity capture hf --model {shlex.quote(model)} --sites attn_out,mlp_out -o captures/hf-branches",
    )


def explained(slots: Evidence, k: int) -> bool:
    """Whether the error is what the storage format of the site makes, or the floor's boundaries say that a slot
    is something else, which cannot be undone on captures that lack it."""
    for places in (slots.solution.places, slots.solution.ref_places):
        reading = places.get(k)
        if reading is not None and reading.at_floor and reading.slot.allowance > 0:
            return True
        if reading is not None and reading.note and not reading.undoable:
            return True
        if slots.solution.ref_places and reading is not None and reading.proved and not reading.as_claimed:
            return True
    return False


def _first(evidence: Evidence) -> str:
    return next(d.ref for d in evidence.deltas if d.requested)


def _accused(out: list[SiteDelta]) -> str:
    """The side whose own error to fp32 is beyond, when it is one of them only."""
    from hsparity.model import Verdict

    beyond = {r.of.split()[0] for d in out for r in d.ratios if r.verdict is Verdict.DIVERGED} - {"pair"}
    return {"ref": "reference", "cand": "candidate"}[beyond.pop()] if len(beyond) == 1 else ""


CAUSE = BeyondFloor()
