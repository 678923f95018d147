"""Faults made inside running engines; each module runs in an engine's own interpreter, one JSON job a run."""
