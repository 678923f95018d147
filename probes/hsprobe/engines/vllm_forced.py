"""Teacher forcing in vLLM: a logits processor that leaves one token possible, the next forced one.

vLLM imports it by name in the process that samples. Its base class is vLLM's, so it is made on first use.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

CLASS = "ForcedTokens"
NAME = f"{__name__}:{CLASS}"  # what vLLM's `logits_processors` takes
KEY = "hsprobe_forced"  # in SamplingParams.extra_args: the token ids


def force(ids: tuple[int, ...], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Logits [vocabulary] under which only ids[len(output_ids)] can be sampled; unchanged past the end."""
    if len(output_ids) >= len(ids):
        return logits
    forced = torch.full_like(logits, float("-inf"))
    forced[ids[len(output_ids)]] = 0.0
    return forced


def __getattr__(name: str) -> Any:
    if name != CLASS:
        raise AttributeError(name)
    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

    class ForcedTokens(AdapterLogitsProcessor):
        def is_argmax_invariant(self) -> bool:
            return False

        def new_req_logits_processor(self, params: Any) -> Any:
            ids = (params.extra_args or {}).get(KEY)
            return partial(force, tuple(ids)) if ids else None

    globals()[CLASS] = ForcedTokens
    return ForcedTokens
