"""vLLM's ExampleHiddenStatesConnector: `<request id>.safetensors`, and `.lock` beside it, held while it is written.

`hidden_states` [T, n, H] in the model's dtype, `token_ids` int64 [T]. From vLLM 0.17 on; locked since 0.22.
"""

from __future__ import annotations

from collections.abc import Mapping

from hsparity.capture.readers import extracted, listing
from hsparity.capture.readers.base import Reader, Said
from hsparity.capture.readers.extracted import STATES, TOKENS
from hsparity.capture.readers.look import Look
from hsparity.capture.shards import Tensor

NAME = "vllm-connector"
# Folders of ours that hold tensors of the same names.
OURS = ("plain.json", "manifest.json")


class VllmConnector(extracted.Extracted):
    """See the module's docstring."""

    format = NAME

    def said(self) -> Said:
        return Said(
            producer="vllm",
            unknown=(
                *extracted.UNKNOWN,
                "which slot is the last state (only an id equal to the number of layers makes one)",
                "the version of vLLM",
                "the loss mask",
                "which prompt a request was (its id is all there is)",
            ),
            notes=(
                *self._passed(),
                "vLLM's id k is boundary k, ascending whatever order was asked for; id L is before the final norm.",
                "The rows are the prompt's; a request with include_output_tokens (vLLM 0.24 and later) has all"
                " tokens but the last.",
            ),
        )


def _fits(tensors: Mapping[str, Tensor]) -> str | None:
    layout = extracted.layout_of(tensors)
    return f"<request>.safetensors with {layout}" if layout and set(tensors) == {STATES, TOKENS} else None


def _recognise(look: Look) -> str | None:
    folder = look.path if look.path.is_dir() else look.path.parent
    if look.matching(extracted.NUMBERED) or any((folder / name).is_file() for name in OURS):
        return None
    return listing.first(look, extracted.ANY, look.tensors, _fits)


READER = Reader(NAME, "vLLM ExampleHiddenStatesConnector", _recognise, VllmConnector)
