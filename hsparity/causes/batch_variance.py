"""HS514."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class BatchVariance(Hypothesis):
    """
    ## What it is
    Sums were added in another order because batches, or ranks, were of another size.
    ## Why it happens
    Kernels choose tiles and splits by the number of rows; tensor parallelism adds partial sums over ranks.
    ## How it shows
    Rows that were computed in batches of one size are equal in every bit, others differ by little more than the floor.
    ## Fix
    None is needed within the floor. Batch-invariant kernels (`VLLM_BATCH_INVARIANT=1`) make them equal.
    """

    code, name = "HS514", "batch-variance"


CAUSE = BatchVariance()
