"""hs-connectors FP8: `hidden_states` float8_e4m3fn [T, n, H] with `hidden_states_scales` float32 [T, 1, 1], `token_ids` [T].

Named `<request id>.safetensors` by the engine, `hs_<i>.safetensors` once speculators has collected them. Written by
FP8HiddenStatesConnector of hs-connectors 0.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hsparity.capture.readers import extracted, listing, parts
from hsparity.capture.readers.base import Reader, Record, Said, wrong
from hsparity.capture.readers.extracted import SCALES, STATES
from hsparity.capture.readers.look import Look
from hsparity.capture.shards import Tensor

if TYPE_CHECKING:
    import torch

NAME = "hs-connectors-fp8"


class HsConnectorsFp8(extracted.WithRows):
    """See the module's docstring. The states come back as hs-connectors' own reader gives them, in bfloat16."""

    format = NAME
    last_normed = False  # training applies the verifier's norm itself

    def said(self) -> Said:
        return Said(
            producer="speculators",
            version="0.5 or later",
            unknown=(*extracted.UNKNOWN, *self._missing()),
            notes=(
                *self._passed(),
                "The states were rounded to float8_e4m3fn with one scale for each token, shared by all its layers: a"
                " large last state leaves the early layers few bits.",
                "A value is float8 times scale, both taken to bfloat16 first, as hs-connectors reads it.",
                "Ids are handed to vLLM as they are: id k is boundary k, ascending.",
            ),
            settings={"stored_dtype": "float8_e4m3fn", "stored_scales": "one per token, for all layers"},
        )

    def _values(self, record: Record, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """fp8 * scale in bfloat16 (hs_connectors.fp8_utils.dequantize_fp8_tensor)."""
        import torch

        held, scales = tensors[STATES], parts.table(record, tensors, (SCALES,))[SCALES]
        if held.dtype != torch.float8_e4m3fn:
            raise wrong(record, STATES, "float8_e4m3fn", parts.shape_of(held))
        expected = (held.shape[0], 1, 1)
        if scales.dtype != torch.float32 or tuple(scales.shape) != expected:
            raise wrong(record, SCALES, f"float32 {list(expected)}", parts.shape_of(scales))
        return held.to(torch.bfloat16) * scales.to(torch.bfloat16)


def _fits(tensors: Mapping[str, Tensor]) -> str | None:
    layout = extracted.layout_of(tensors)
    return f"{layout} with {SCALES}" if layout and SCALES in tensors else None


def _recognise(look: Look) -> str | None:
    return listing.first(look, extracted.ANY, look.tensors, _fits)


READER = Reader(NAME, "hs-connectors FP8 (0.9)", _recognise, HsConnectorsFp8)
