"""HS105."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import compare_command
from hsparity.causes.moved import lines, places, proved, rival

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class SlotsPermuted:
    """
    ## What it is
    The right layers in the wrong order: each slot holds the boundary that another slot is said to hold.
    ## Why it happens
    Engines sort and de-duplicate an id list, or keep it as written; a concatenation is cut in another order
    than it was made. vLLM sorts: an unsorted list loses its order there.
    ## How it shows
    At their own places the slots look drifted; the boundaries found are those claimed, each once.
    ## Fix
    Write ids in ascending order everywhere, and cut the concatenation in that order.
    """

    code, name = "HS105", "slots-permuted"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        known = places(evidence)
        moved = known.exchanged if known else ()
        if not known or not moved:
            return None
        explained = known.explain(self.code, moved)
        evidence.shares[self.code] = explained
        held = ", ".join(f"{m.site} holds boundary {m.match.best}" for m in moved[:4])
        words = (
            f"{moved[0].site} and {moved[1].site} are swapped" if len(moved) == 2 else f"{held}: exchanged"
        )
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"{known.side} {words}",
            explained=explained,
            slots=tuple(sorted(m.site for m in moved)),
            evidence=tuple(lines(moved)),
            fix={
                "any": "write the ids in ascending order, and cut what is handed over in that order",
                "vllm": "vLLM sorts the ids: slot i is the i-th smallest",
            },
            rival=rival(moved),
            confirm=(compare_command(evidence, f"{evidence.query.spelled} -v"),),
            structural=proved(moved),
        )


CAUSE = SlotsPermuted()
