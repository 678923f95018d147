"""HS515."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class PrefillDecode(Hypothesis):
    """
    ## What it is
    The same tokens differ by whether they were part of the prompt or decoded one by one.
    ## Why it happens
    Other kernels, another split of the keys, a cache in another dtype, a recurrent form instead of a scan.
    ## How it shows
    Prefill rows are at the floor or equal in every bit, decoded ones are not; or rows of one phase on both sides agree and
    those of two phases do not.
    ## Fix
    Capture decoded rows on both sides, as an engine serves them; train on the phase that is served.
    """

    code, name = "HS515", "prefill-decode"


CAUSE = PrefillDecode()
