"""HS304."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class TruncatedRounding:
    """
    ## What it is
    Values are cut to bf16, not rounded: every one of them lies nearer to zero than it should.
    ## Why it happens
    A kernel or a cast that drops the low 16 bits of a float32. Each cut loses half a unit in the last place on
    average, always toward zero; over a deep model the stream shrinks (by 9 % after 72 fused calls in a published
    case).
    ## How it shows
    Cosine sees nothing. The difference follows the unit in the last place, which doubles at every power of two;
    a real difference is smooth in the value. Measured as a step in such units: healthy pairs within 0.05, cut
    values -0.5.
    ## Fix
    Round to nearest even where float32 is narrowed.
    """

    code, name = "HS304", "truncated-rounding"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        precision = evidence.slots.solution.precision
        if not precision.cut:
            return None
        side, cut = next(iter(precision.cut.items()))
        words = {"ref": "the reference", "cand": "the candidate"}
        each = "at every addition: the loss grows with depth" if cut.compounding else "when they were stored"
        most = min(one.log_norm for one in cut.cuts)
        lines = [f"the norm is smaller by up to {100 * (1 - 2.718281828**most):.2f} %"]
        if cut.found:
            step = (
                f"against {precision.against}: a step of {cut.step:+.2f} units in the last place toward zero, "
                f"{abs(cut.z):.0f} standard errors (healthy pairs stay within 4)"
            )
            lines.insert(0, step)
        if cut.compounding:
            rate = 100 * -cut.cuts[0].log_norm / max(cut.depths[0], 1)
            line = f"it grows with depth, {rate:.2f} % a layer at first, as cutting each addition makes it"
            lines.append(f"{line}; healthy pairs stay within 0.3 % at any depth")
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"values of {words[side]} are cut to bf16, not rounded, {each}",
            slots=precision.cut_sites,
            tokens=evidence.rows.tokens,
            evidence=tuple(lines),
            fix={"any": "round to nearest even where float32 is narrowed to bf16"},
            rival="a gain a little below 1: it does not follow the unit in the last place",
            structural=cut.found,
        )


CAUSE = TruncatedRounding()
