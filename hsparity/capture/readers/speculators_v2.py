"""speculators v2: `hidden_states/hs_<i>.safetensors` beside an Arrow dataset, as speculators 0.5 and later write them.

`hidden_states` [T, n, H] in the model's dtype, the last slot the verifier's last state; `token_ids` int64 [T]. Row i of
the dataset holds the sample's `input_ids`, `loss_mask` and `seq_len`.
"""

from __future__ import annotations

from collections.abc import Mapping

from hsparity.capture.readers import extracted, listing
from hsparity.capture.readers.base import Reader, Said
from hsparity.capture.readers.look import Look
from hsparity.capture.shards import Tensor

NAME = "speculators-v2"


class SpeculatorsV2(extracted.WithRows):
    """See the module's docstring."""

    format = NAME
    last_normed = False  # training applies the verifier's norm itself

    def said(self) -> Said:
        return Said(
            producer="speculators",
            version="0.5 or later",
            unknown=(*extracted.UNKNOWN, *self._missing()),
            notes=(
                *self._passed(),
                "speculators 0.5 and later hand their layer ids to vLLM as they are: id k is boundary k, ascending.",
                "The last slot is the last state unless vLLM was launched with --no-include-last-layer; it is stored"
                " before the final norm, which training applies.",
            ),
        )


def _fits(tensors: Mapping[str, Tensor]) -> str | None:
    layout = extracted.layout_of(tensors)
    return f"hs_<i>.safetensors with {layout}" if layout and extracted.SCALES not in tensors else None


def _recognise(look: Look) -> str | None:
    return listing.first(look, extracted.NUMBERED, look.tensors, _fits)


READER = Reader(NAME, "speculators v2 (0.5 and later)", _recognise, SpeculatorsV2)
