"""HS402."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class WeightsDiffer:
    """
    ## What it is
    The digests of the weight files differ: the sides ran different checkpoints of one shape.
    ## Why it happens
    A stale copy, another revision, a quantised checkpoint beside the original, weights not yet synchronised.
    ## How it shows
    Both manifests carry a digest and the two are not equal. What the states say is measured all the same.
    ## Fix
    Load the same files on both sides. When the difference is wanted (quantised against original), read the
    ratios.
    """

    code, name = "HS402", "weights-differ"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        ref, cand = evidence.ref.manifest, evidence.cand.manifest
        if not ref.weights_sha256 or not cand.weights_sha256:
            return None
        if ref.weights_sha256 == cand.weights_sha256:
            return Finding(self.code, self.name, "the weight files are equal", 0.0, ruled_out=True)
        return Finding(
            code=self.code,
            name=self.name,
            headline="the sides ran different weights",
            evidence=(
                f"ref  {ref.model} {ref.revision} sha256 {ref.weights_sha256[:16]}…",
                f"cand {cand.model} {cand.revision} sha256 {cand.weights_sha256[:16]}…",
            ),
            fix={"any": "load the same files on both sides"},
            structural=True,
        )


CAUSE = WeightsDiffer()
