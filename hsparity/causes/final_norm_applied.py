"""HS201."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.locate import Located
    from hsparity.model import Finding


class FinalNormApplied:
    """
    ## What it is
    One side's last hidden state was taken after the model's final norm, the other's before it.
    ## Why it happens
    Transformers overwrites the last entry of `hidden_states` with the normed state; vLLM's auxiliary id L and
    SGLang's captures are not normed; SGLang's ordinary `return_hidden_states` is.
    ## How it shows
    Only the last boundary differs, with a norm ratio far from 1 and cosine around 0.9. Applying the norm to
    the raw side makes the two equal.
    ## Fix
    Take the input of `model.norm` on the side that has the output, or compare it as `final_norm`.
    """

    code, name = "HS201", "final-norm-applied"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        cross = [f for f in evidence.located if f.ruler in ("ref", "cand") and f.ruler != f.side]
        if not cross or not _testable(cross[0], evidence.num_layers):
            return None
        side, key, error, margin, proved = _normed_side(evidence, cross[0])
        if not side:
            return Finding(
                self.code,
                self.name,
                "the last boundary is in the same state on both sides",
                0.0,
                ruled_out=True,
            )
        raw = "cand" if side == "ref" else "ref"
        words = {"ref": "reference", "cand": "candidate"}
        explained = _explained(evidence, self.code, raw)
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"the {words[side]}'s last hidden state was taken after the final norm, "
            f"the {words[raw]}'s before it",
            explained=explained,
            slots=(key,),
            evidence=(
                f"with the final norm applied to the {words[raw]} the error is {error:.2g}, "
                f"{10**margin:.2g}× less than as any raw boundary",
            ),
            fix={
                "any": f"take the input of the final norm on the {words[side]}'s side",
                "hf": "hidden_states[-1] is normed: hook the input of model.norm",
            },
            structural=proved,
        )


def _testable(main: Located, layers: int) -> bool:
    """Both kinds of last state must be at hand, and a site that is said to be the last boundary."""
    ends = any(p.number == layers + 1 for p in main.matrix.ruler) or any(
        p.normed for p in main.matrix.located
    )
    return ends and any(p.number == layers for p in main.matrix.located)


def _normed_side(evidence: Evidence, main: Located) -> tuple[str, str, float, float, bool]:
    """Which side holds the normed state, the site, its error and margin against the raw reading, and whether
    that proves it."""
    import numpy as np

    from hsparity.locate import CLOSE, PLAIN_MARGIN

    last, m = evidence.num_layers, main.matrix
    noise = evidence.judge.terms.limit * evidence.judge.noise(last, "_rest") if evidence.has_floor else CLOSE
    resolution = evidence.judge.terms.resolution
    other = "cand" if main.ruler == "ref" else "ref"
    for k, place in enumerate(m.located):
        if place.number != last:
            continue
        column = m.error_kk[:, k]
        normed_rows = [i for i, p in enumerate(m.ruler) if p.number == last + 1]
        raw_rows = [i for i, p in enumerate(m.ruler) if p.number is not None and p.number <= last]
        inside, outside = (
            (normed_rows, raw_rows)
            if not place.normed
            else (
                [i for i in raw_rows if m.ruler[i].number == last],
                [i for i in raw_rows if m.ruler[i].number != last],
            )
        )
        known = [[float(column[i]) for i in rows if column[i] == column[i]] for rows in (inside, outside)]
        if not known[0] or not known[1]:  # no such state, or none of its errors is finite
            continue
        error, rival = min(known[0]), min(known[1])
        if place.normed:
            raw = [j for j, p in enumerate(m.located) if p.key == place.key and not p.normed]
            rival = min(rival, *(float(m.error_kk[i, j]) for j in raw for i in inside))
        margin = float(np.log10(max(rival, resolution) / max(error, resolution)))
        if margin >= PLAIN_MARGIN / 2 and margin > 0:
            side = other if not place.normed else main.ruler
            return side, place.key, error, margin, margin >= PLAIN_MARGIN and error <= noise
    return "", "", 0.0, 0.0, False


def _explained(evidence: Evidence, code: str, raw: str) -> float | None:
    from hsparity.pairing import renormed

    which = 0 if raw == "ref" else 1
    return evidence.explain(
        code, [renormed(p, which) if p.boundary == evidence.num_layers else p for p in evidence.pairs]
    )


CAUSE = FinalNormApplied()
