"""Every fault that hsparity names, as pure functions on recorded captures of real engines.

A state is damaged in float64 and rounded to the capture's dtype when it is written, as an engine would round it.
"""

from __future__ import annotations

from tests.causes.faults import inputs, rows, slots, states, storage
from tests.causes.faults.base import FAULTS, Fault, Variant

__all__ = ["FAULTS", "Fault", "Variant", "inputs", "rows", "slots", "states", "storage"]
