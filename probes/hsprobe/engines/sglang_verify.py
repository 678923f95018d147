"""Inside SGLang's model process, with a draft: what the target was shown of it and what it took.

The worker's verify pass is wrapped: before it, the batch holds the drafts; what it returns says how many were accepted.
The scheduler counts from the same result later, in another module.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import measure_steps
from ..protocol import ProbeError
from ..stack import save_facts
from . import sglang_eagle_shims
from .sglang_runner import REQUEST_PREFIX, rank_of

VERIFY = "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.verify"


def install(out: Path) -> None:
    """Hook the EAGLE worker; it acts in the process that holds the target and the draft."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    saved = False

    def verify(original: Callable[..., Any], worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal saved
        if batch.forward_mode.is_idle() or rank_of(worker.target_worker.model_runner)[0]:
            return original(worker, batch, *args, **kwargs)
        if not saved:
            saved = True
            save_facts(out, draft=draft_facts(worker))
        shown = Shown(batch)
        result = original(worker, batch, *args, **kwargs)
        measure_steps.append(out, shown.steps(result))
        return result

    HookRegistry.register(VERIFY, verify, HookType.AROUND)


def draft_facts(worker: Any) -> dict[str, Any]:
    """What the record says of the draft as it is served."""
    target = worker.target_worker.model_runner
    inner = getattr(target.model, "model", target.model)
    draft = worker.draft_worker.draft_runner
    return {
        "aux_layers": [int(i) for i in getattr(inner, "layers_to_capture", None) or ()],
        "class": type(draft.model).__name__,
        "proposer": type(worker).__name__,
        "steps": int(worker.speculative_num_steps),
        "attention_backend": str(getattr(draft, "decode_attention_backend_str", "")),
        "stand_ins": list(sglang_eagle_shims.placed),
    }


class Shown:
    """The drafts of a batch as the target is about to see them; read now, because the pass writes over the batch.

    Raises ProbeError E306 for a tree of drafts, which has no single chain.
    """

    def __init__(self, batch: Any) -> None:
        asked = batch.spec_info
        if asked.topk != 1:
            raise ProbeError(
                "E306", "SGLang drafts a tree here, not a chain", "leave speculative_eagle_topk at 1"
            )
        self.width = int(asked.draft_token_num)  # the last settled token and the drafts
        self.requests = [request.rid for request in batch.reqs]
        self.tokens = asked.draft_token.view(-1, self.width).tolist()
        # The cache holds all settled tokens but the last, which is the first that the target is shown.
        self.first = [int(length) + 1 for length in batch.seq_lens.tolist()]

    def steps(self, result: Any) -> list[measure_steps.Step]:
        """The steps of our own requests, from what the verify pass returned."""
        lengths = result.accept_lens.tolist()  # with the target's own token
        written = result.next_token_ids.view(-1, self.width).tolist()
        return [
            measure_steps.Step(request, first, tuple(tokens[1:]), length - 1, int(run[length - 1]))
            for request, first, tokens, length, run in zip(
                self.requests, self.first, self.tokens, lengths, written, strict=True
            )
            if request.startswith(REQUEST_PREFIX)
        ]
