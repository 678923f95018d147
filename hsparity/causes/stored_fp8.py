"""HS305."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class StoredFp8:
    """
    ## What it is
    States were stored in 8 bits and widened again: the error is the file's, not the computation's.
    ## Why it happens
    An extractor that stores fp8 with a scale per token or per tensor to save space (hs_connectors, an fp8 KV
    cache used as a carrier).
    ## How it shows
    The same 2 to 6 % error at every depth, which does not grow as computed errors do, and every value on the
    lattice of an 8-bit format times one scale: healthy rows pass that test with a chance below 1e-12.
    ## Fix
    Store bf16. The draft sees this error in training only; what is served is exact.
    """

    code, name = "HS305", "stored-fp8"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        found = evidence.slots.solution.precision.stored
        if not found:
            return None
        sides = sorted({side for side, _ in found})
        # A scale per tensor is one per token that happens to be equal: the finest one said of any site holds.
        scales = {s.scale for s in found.values()}
        scale = "per token" if "per token" in scales else ", ".join(sorted(scales))
        kinds = f"{', '.join(sorted({s.kind for s in found.values()}))}, scale: {scale}"
        words = {"ref": "the reference's", "cand": "the candidate's"}
        lines = [
            f"{key} ({name}): {s.levels} distinct magnitudes a row, every value on {s.kind}'s lattice; "
            f"chance of a healthy row 1e{s.log10_chance:.0f}"
            for (name, key), s in list(found.items())[:4]
        ]
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"{' and '.join(words[s] for s in sides)} states were stored in 8 bits ({kinds})",
            slots=tuple(dict.fromkeys(key for _, key in found)),
            tokens=evidence.rows.tokens,
            evidence=tuple(lines),
            fix={"any": "store bf16: the error was made when the file was written"},
            confirm=tuple(f"hsparity inspect {evidence.side(s).path}" for s in sides),
            rival="quantised computation: its error grows with depth and lies on no lattice",
            structural=True,
        )


CAUSE = StoredFp8()
