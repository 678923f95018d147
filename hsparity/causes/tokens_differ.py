"""HS401."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import counted

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class TokensDiffer:
    """
    ## What it is
    The sides were fed different token ids. A state depends on the whole prefix, so only the tokens before the
    first difference are compared; the verdict is diverged.
    ## Why it happens
    Text was tokenised twice: another chat template, a BOS added once or twice, another tokenizer file. Or
    decoding parted after a near tie.
    ## How it shows
    The ids are lined up in the report. One extra id at the start of one side is almost always a BOS.
    ## Fix
    Tokenise once and give both engines ids; for decoded tokens, force the same ones (`forced`) on both.
    """

    code, name = "HS401", "tokens-differ"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        parted = [m for m in evidence.rows.mismatches if m.kind == "tokens"]
        if not parted:
            return Finding(self.code, self.name, "token ids are equal on both sides", 0.0, ruled_out=True)
        count = sum(m.count for m in parted)
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"token ids differ in {counted(len(parted), 'prompt')}: "
            f"{counted(count, 'token')} could not be compared",
            evidence=tuple(m.text for m in parted[:6]),
            fix={"any": "capture both sides from the same token ids"},
            structural=True,
        )


CAUSE = TokensDiffer()
