"""HS302."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import counted

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding

SHOWN = 6
WHOSE = {
    "ref": "the reference's own error",
    "cand": "the candidate's own error",
    "pair": "what sets the sides apart",
}


class FewTokensBeyond:
    """
    ## What it is
    Nearly all tokens lie within the floor, and a few lie beyond 1.5 times the largest error that bf16
    arithmetic showed on any token.
    ## Why it happens
    A row that belongs to another token, a token whose experts were chosen otherwise, a masked or overwritten
    row; or chance, when the floor was measured on few tokens.
    ## How it shows
    Median and quantiles are healthy; the listed tokens are not. If both sets of errors came from one
    distribution, k such tokens would have a probability below 2^-k, so one or two prove nothing, and they
    cannot be excused either.
    ## Fix
    Capture more prompts on both sides and for the floor. If the same kind of token stays beyond, look at what
    is special about it: first of a block, padded, served from a cache. Where they are the reference's own, more
    prompts show more of them: compare the candidate with another reference, the floor's bf16 capture for one.
    """

    code, name = "HS302", "few-tokens-beyond"

    def find(self, evidence: Evidence) -> Finding | None:
        import numpy as np

        from hsparity.floor import beyond
        from hsparity.model import Finding, Verdict

        evidence = evidence.slots
        places = []
        # At a site that is read as something else the tokens are compared with the wrong thing.
        changed = {k for k, p in enumerate(evidence.solution.pairs) if p is not evidence.pairs[k]}
        for k, delta in enumerate(evidence.deltas):
            few = {r.of for r in delta.ratios if r.beyond and r.median <= r.limit}
            if (
                not delta.requested
                or not few
                or k in changed
                or delta.verdict is Verdict.PARITY
                or any(delta.nonfinite)
            ):
                continue
            hit: dict[tuple[int, str], float] = {}
            for errors, top in evidence.judge.errors(k):
                if errors.of in few:
                    of = errors.of.removesuffix(" rest")
                    for place in np.flatnonzero(beyond(errors, top, evidence.judge.terms.limit)):
                        hit[int(place), of] = max(hit.get((int(place), of), 0.0), float(errors.error[place]))
            # The pair's error is a side's own, where that is beyond.
            own = {n for n, of in hit if of != "pair"}
            places += [(v, n, delta.ref, of) for (n, of), v in hit.items() if of != "pair" or n not in own]
        if not places:
            return None
        tokens = sorted({n for _, n, _, _ in places})
        sites = tuple(dict.fromkeys(site for _, _, site, _ in places))
        whose = [of for of in WHOSE if of in {of for _, _, _, of in places}]
        lines = []
        for value, n, site, of in sorted(places, reverse=True)[:SHOWN]:
            t = evidence.judge.token(n, value)
            where = f"prompt {t.prompt} position {t.position} (id {t.token_id})"
            lines.append(f"{where}: {value:.2g} at {site}, {WHOSE[of]}")
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"{counted(len(tokens), 'token')} of {evidence.rows.tokens} beyond the largest error of the floor, "
            f"at {counted(len(sites), 'site')}, in {' and '.join(WHOSE[of] for of in whose)}",
            slots=sites,
            evidence=tuple(lines),
            # Where nothing diverged the tokens are what keeps the question open, and accuse nobody.
            severity="cause" if evidence.diverged() else "note",
            fix={"any": _fix(evidence, whose)},
        )


def _fix(evidence: Evidence, whose: list[str]) -> str:
    """More prompts tell chance from a fault, but not of whose reference the tail is."""
    if whose != ["ref"]:
        return "capture more prompts on both sides and for the floor"
    bf16 = evidence.judge.terms.roles.bf16
    other = "another reference" if bf16 is None else f"{evidence.sources[bf16].path} as the reference"
    return f"the tokens accuse the reference alone: compare the candidate with {other}"


CAUSE = FewTokensBeyond()
