"""HS210."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class ChannelsPermuted:
    """
    ## What it is
    Every channel is there, at another place.
    ## Why it happens
    A layout change (interleaved halves, blocks per rank gathered in another order), or weights permuted for a
    kernel.
    ## How it shows
    Each channel, as a vector over tokens, equals another channel of the reference within noise, each once.
    ## Fix
    Put the channels back before storing: the finding says whether the order is a roll, blocks or an interleaving.
    """

    code, name = "HS210", "channels-permuted"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("channels-permuted")
        if not group:
            return None
        headline = f"the channels of {whose(group)} {names(group)} are in another order"
        fix = {
            "any": "restore the order of channels before storing; look at how ranks or halves are gathered"
        }
        return from_readings(evidence, self, group, headline, fix)


CAUSE = ChannelsPermuted()
