"""What the causes of HS5xx share: each is asked of the diagnosis, which weighs them all against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class Hypothesis:
    """A cause of numbers that are off in the right tensor: ranked by evidence, never proved by a setting alone."""

    code: ClassVar[str]
    name: ClassVar[str]

    def find(self, evidence: Evidence) -> Finding | None:
        """The hypothesis with its evidence; ruled out with the reason; None where it does not arise."""
        from hsparity.diagnose.diagnosis import finding

        return finding(evidence, self.code)
