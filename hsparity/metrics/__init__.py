"""Measures of one token's error. Each file defines `METRIC`; all are computed from the same per-token
sums."""
