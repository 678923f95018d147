"""HS106."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import compare_command
from hsparity.causes.moved import lines, places, proved, rival

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class SlotDuplicated:
    """
    ## What it is
    Two slots hold one boundary: one of them is in place, the other should hold another layer.
    ## Why it happens
    One buffer is stored under two names and the second layer's state overwrites the first; an id list names
    a layer twice after clipping; the last slot is filled with the one before it.
    ## How it shows
    Both slots fit the same boundary at the floor; often they are equal in every bit.
    ## Fix
    Clone each state when it is stored, and give distinct ids.
    """

    code, name = "HS106", "slot-duplicated"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        known = places(evidence)
        pairs = known.repeated if known else ()
        if not known or not pairs:
            return None
        moved = [m for m, _ in pairs]
        explained = known.explain(self.code, moved)
        evidence.shares[self.code] = explained
        best = {m.match.best for m in moved}
        words = ", ".join(
            f"{m.site} repeats boundary {m.match.best} that {twin} holds, not {m.claimed}"
            for m, twin in pairs[:4]
        )
        if len(moved) > 2 and len(best) == 1:
            words = f"{len(moved) + 1} slots all hold boundary {best.pop()}: one buffer under many names"
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"{known.side} {words}",
            explained=explained,
            slots=tuple(sorted(m.site for m in moved)),
            evidence=tuple(lines(moved)),
            fix={"any": "clone each state when it is stored, and give each slot an id of its own"},
            rival=rival(moved),
            confirm=(compare_command(evidence, f"{evidence.query.spelled} -v"),),
            structural=proved(moved),
        )


CAUSE = SlotDuplicated()
