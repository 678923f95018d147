"""Rows are put in place by position and token id, whatever order the engine computed them in."""

from __future__ import annotations

import pytest
import torch

from hsprobe.assemble import Assembled, Dropped, assemble, fed_tokens, spans
from hsprobe.protocol import Completion, ProbeError
from hsprobe.schema import PromptSpec, token_ids_sha256
from hsprobe.spool import Piece

PROMPT = PromptSpec("p", (10, 11, 12, 13, 14, 15), text="six tokens")
GENERATED = (20, 21, 22)  # 22 is never fed back
FED = (10, 11, 12, 13, 14, 15, 20, 21)


def piece(
    step: int, positions: list[int], tokens: list[int] | None = None, sites: str = "boundary.000"
) -> Piece:
    """Rows whose state says where it belongs: position, then the step that computed it."""
    if tokens is None:
        tokens = [FED[p] for p in positions]
    state_th = torch.tensor([[float(p), float(step)] for p in positions]).reshape(-1, 2)
    states = dict.fromkeys(sites.split(), state_th)
    return Piece(step, torch.tensor(tokens).int(), torch.tensor(positions).int(), states)


def put(pieces: list[Piece], cached: int = 0, expected: tuple[str, ...] = ("boundary.000",)) -> Assembled:
    return assemble(PROMPT, Completion("p", "request", GENERATED, cached), pieces, expected)


def test_chunks_in_any_order_come_out_in_order_of_position() -> None:
    """Chunked prefill and decode passes, collected out of order, decode rows behind the prompt's."""
    found = put([piece(3, [6]), piece(1, [3, 4]), piece(4, [7]), piece(2, [5]), piece(0, [0, 1, 2])])
    assert found.positions.tolist() == list(range(8))
    assert found.token_ids.tolist() == list(FED)
    assert found.steps.tolist() == [0, 0, 0, 1, 1, 2, 3, 4]
    assert found.sites["boundary.000"][:, 0].tolist() == list(range(8))
    assert (found.prompt.tokens, found.prompt.prefill, found.prompt.rows) == (8, 6, 8)
    assert found.prompt.generated == GENERATED
    assert found.prompt.token_ids_sha256 == token_ids_sha256(FED)
    assert found.dropped == Dropped()


def test_rows_within_a_pass_may_be_in_any_order() -> None:
    """Even inside one pass the order means nothing."""
    found = put([piece(0, [5, 0, 3, 1, 4, 2]), piece(1, [6]), piece(2, [7])])
    assert found.sites["boundary.000"][:, 0].tolist() == list(range(8))


def test_rows_a_prefix_cache_kept_are_missing_not_invented() -> None:
    """R is smaller than T, and the gap is written down."""
    found = put([piece(0, [4, 5]), piece(1, [6]), piece(2, [7])], cached=4)
    assert found.prompt.missing == ((0, 4),)
    assert found.positions.tolist() == [4, 5, 6, 7]
    assert found.sites["boundary.000"].shape == (4, 2)
    assert len(found.token_ids) == 8


def test_overrun_and_padding_are_dropped_and_counted() -> None:
    """A pass run ahead past the last token and rows at negative positions belong to nobody."""
    rest = [piece(1, [6]), piece(2, [7])]
    found = put([piece(0, list(range(6))), *rest, piece(3, [8], [22]), piece(4, [-1], [0])])
    assert found.dropped == Dropped(overrun=2)
    assert found.prompt.dropped_rows == 2
    assert found.prompt.rows == 8


def test_a_recomputed_row_is_dropped_in_favour_of_the_first() -> None:
    """Preemption computes a prompt twice; the tokens came from the first pass."""
    found = put([piece(0, list(range(6))), piece(1, [6]), piece(2, list(range(7))), piece(3, [7])])
    assert found.dropped == Dropped(recomputed=7)
    assert found.sites["boundary.000"][:, 1].tolist() == [0, 0, 0, 0, 0, 0, 1, 3]


def test_a_rejected_draft_beside_the_real_token_is_dropped() -> None:
    """Two tokens at one position: the one that was fed counts, the other is counted as mismatched."""
    found = put([piece(0, list(range(6))), piece(1, [6, 7], [20, 99]), piece(2, [7])])
    assert found.dropped == Dropped(mismatched=1)
    assert found.sites["boundary.000"][7, 1] == 2


def test_only_another_token_at_a_position_is_an_error() -> None:
    """No row is better than a row of something else, and a capture that guesses is worse than none."""
    with pytest.raises(ProbeError) as error:
        put([piece(0, list(range(6)), [10, 11, 12, 99, 14, 15]), piece(1, [6]), piece(2, [7])])
    assert error.value.code == "E305"
    assert "position 3" in error.value.message
    assert "99" in error.value.message


def test_rows_shifted_by_one_position_are_an_error() -> None:
    """The classic off-by-one in scheduling data cannot pass, since the ids disagree."""
    with pytest.raises(ProbeError, match="position"):
        put([piece(0, [1, 2, 3, 4, 5, 6], list(FED[:6]))])


def test_a_site_nobody_recorded_is_e304() -> None:
    """Silent hooks are named, not written as an empty tensor."""
    with pytest.raises(ProbeError) as error:
        put([piece(0, list(range(8)))], expected=("boundary.000", "boundary.001"))
    assert error.value.code == "E304"
    assert "boundary.001" in error.value.message


def test_no_rows_at_all_is_e304() -> None:
    """A capture without a single pass is silence too."""
    with pytest.raises(ProbeError) as error:
        put([])
    assert error.value.code == "E304"


def test_sites_from_separate_passes_meet_by_position() -> None:
    """A native path that reports apart from the hooks is joined; where one lacks a row, none is kept."""
    hooks = [piece(0, [2, 3, 4, 5]), piece(1, [6]), piece(2, [7])]
    native = piece(9, list(range(7)), sites="slot.000")
    found = put([native, *hooks], cached=2, expected=("boundary.000", "slot.000"))
    assert found.positions.tolist() == [2, 3, 4, 5, 6]
    assert found.sites["slot.000"][:, 0].tolist() == found.sites["boundary.000"][:, 0].tolist()
    assert found.dropped == Dropped(partial=3)
    assert found.prompt.missing == ((0, 2), (7, 8))


def test_without_generation_the_prompt_is_all_that_was_fed() -> None:
    """T = P + max(N - 1, 0)."""
    assert fed_tokens(PROMPT, ()) == PROMPT.token_ids
    assert fed_tokens(PROMPT, (20,)) == PROMPT.token_ids
    assert fed_tokens(PROMPT, GENERATED) == FED


def test_spans_are_half_open() -> None:
    """Adjacent positions join, gaps part."""
    assert spans([]) == ()
    assert spans([0, 1, 2, 5, 7, 8]) == ((0, 3), (5, 6), (7, 9))
