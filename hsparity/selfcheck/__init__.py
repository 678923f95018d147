"""One engine checked alone: its captured last state, read through the final norm and the lm_head, against its
own prompt log-probabilities."""

from __future__ import annotations

from hsparity.capture.checkpoint import find_checkpoint
from hsparity.selfcheck.checking import check
from hsparity.selfcheck.result import SCHEMA, Claim, Fit, SelfCheck, Verdict

__all__ = ["SCHEMA", "Claim", "Fit", "SelfCheck", "Verdict", "check", "find_checkpoint"]
