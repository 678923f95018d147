"""HS221."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding
    from hsparity.selfcheck.result import SelfCheck

TOKENS = 64  # a comparison has other work to do; `hsparity selfcheck` takes more
SIDES = {"ref": "reference", "cand": "candidate"}


class SelfCheckFailed:
    """
    ## What it is
    One side's last state does not give that engine's own log-probabilities. It was put through the
    checkpoint's final norm and lm_head and the result held against the `prompt_logprobs` in the capture. No
    second engine is needed: the side is wrong by its own word.
    ## Why it happens
    The state was taken after the final norm and is called boundary L, or before it and is called final_norm; it
    was taken one layer early, or from another tensor; the norm was applied twice; the buffer was overwritten
    before it was copied.
    ## How it shows
    The right state gives an error of about what rounding to bf16 costs, 0.015 nats on SmolLM2. One boundary
    early gave 0.95 there, one norm too many 10, the norm left out several hundred. Where no other reading fits,
    a temperature or a logit scale is looked for before anything is called wrong.
    ## Fix
    The report names the reading that does fit: take the input of `model.norm` for boundary L and its output for
    final_norm. `hsparity selfcheck CAPTURE` prints every site and reading. It needs a capture with
    `--sites prompt_logprobs` and the checkpoint on this machine; a comparison never downloads it.
    """

    code, name = "HS221", "self-check-failed"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        checked = {s: found for s in SIDES if (found := _checked(evidence, s)) is not None}
        failed = {s: found for s, found in checked.items() if found.verdict.value == "failed"}
        if not failed:
            passed = [s for s, found in checked.items() if found.verdict.value == "passed"]
            if not passed:
                return None
            words = " and ".join(f"the {SIDES[s]}" for s in passed)
            headline = f"{words}: the last state gives the engine's own log-probabilities"
            return Finding(self.code, self.name, headline, 0.0, ruled_out=True)
        side, found = next(iter(failed.items()))
        claims = [c for c in found.claims if c.verdict.value == "failed"]
        rival = None if claims[0].repeats else claims[0].runner_up  # what is repeated is no rival
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"the {SIDES[side]}'s last state is not what its own engine computed with: {found.headline}",
            slots=tuple(c.site for c in claims),
            tokens=found.tokens,
            evidence=tuple(f"{SIDES[s]}: {line}" for s, each in failed.items() for line in _lines(each)),
            fix={
                evidence.side(s).manifest.engine or "any": each.fix[0]
                for s, each in failed.items()
                if each.fix
            },
            rival=f"{rival.site} as {rival.reading}, {rival.error:.2g} nats" if rival else "",
            confirm=tuple(f"hsparity selfcheck {shlex.quote(each.capture)}" for each in failed.values()),
            structural=True,
        )


def _checked(evidence: Evidence, side: str) -> SelfCheck | None:
    """The self-check of a side; None where it holds no log-probabilities or its checkpoint is not here."""
    from hsparity.errors import HsparityError
    from hsparity.selfcheck.checking import check

    source = evidence.side(side)
    if "prompt_logprobs" not in source.sites():
        return None
    try:
        return check(source, tokens=TOKENS)
    except HsparityError:
        return None  # the comparison did not ask for it, and `hsparity selfcheck` says what is lacking


def _lines(found: SelfCheck) -> list[str]:
    return [
        f"{c.site} as {c.reading}: {c.claimed.error:.2g} nats, floor {c.claimed.floor:.2g}; {c.reason}"
        for c in found.claims
        if c.verdict.value == "failed"
    ]


CAUSE = SelfCheckFailed()
