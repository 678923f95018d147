"""The Python that stands in for SGLang's missing kernels does what the kernels are documented to do, for chains."""

from __future__ import annotations

import pytest
import torch

from hsprobe.engines import sglang_eagle_shims as shims

TABLE = torch.arange(40, dtype=torch.int32).reshape(2, 20) + 100  # cache slot of each request's token


def test_drafts_are_compared_from_the_first_on() -> None:
    """A chain is accepted up to the first draft that is not the target's greedy token; its own token comes after."""
    # Column 0 is settled text; row j of `greedy` is what the target writes after candidate j.
    candidates = torch.tensor([[5, 6, 7, 8], [5, 6, 0, 8], [5, 0, 7, 8]])
    greedy = torch.tensor([[6, 7, 8, 9]] * 3)
    predicted = torch.zeros(12, dtype=torch.int32)
    at = torch.full((3, 4), -1, dtype=torch.int32)
    accepted = torch.zeros(3, dtype=torch.int32)
    unused = torch.zeros(3, 4, dtype=torch.int64)
    shims.verify_tree_greedy(predicted, at, accepted, candidates, unused, unused, unused, greedy)
    assert accepted.tolist() == [3, 1, 0]
    assert at.tolist() == [[0, 1, 2, 3], [4, 5, -1, -1], [8, -1, -1, -1]]
    assert predicted.tolist() == [6, 7, 8, 9, 6, 7, 0, 0, 6, 0, 0, 0]
    bonus = torch.zeros(3, dtype=torch.int32)
    shims.fill_bonus_tokens(predicted[at.long()], accepted + 1, bonus, 4)
    assert bonus.tolist() == [9, 7, 6]


def test_cache_slots_are_those_behind_the_text() -> None:
    """Drafts are written behind each request's text; a verify pass writes start to end; the table takes new slots."""
    requests, lengths = torch.tensor([1, 0]), torch.tensor([3, 5])
    slots = torch.zeros(6, dtype=torch.int64)
    shims.assign_draft_cache_locs_contiguous(requests, TABLE, lengths, slots, 20, 1, 3)
    assert slots.tolist() == [123, 124, 125, 105, 106, 107]
    out = torch.zeros(5, dtype=torch.int64)
    shims.assign_extend_cache_locs(requests, TABLE, lengths, lengths + torch.tensor([2, 3]), out, 20)
    assert out.tolist() == [123, 124, 105, 106, 107]
    table = TABLE.clone()
    shims.assign_req_to_token_pool(
        requests, table, lengths, lengths + torch.tensor([2, 3]), torch.tensor([1, 2, 3, 4, 5]), 20
    )
    assert table[1, 2:6].tolist() == [122, 1, 2, 125]
    assert table[0, 4:9].tolist() == [104, 3, 4, 5, 108]


def test_the_tree_is_a_chain() -> None:
    """Each draft follows the one before it, at the next position; a tree is refused."""
    positions = torch.zeros(6, dtype=torch.int64)
    own, following, sibling = (torch.zeros(2, 3, dtype=torch.int64) for _ in range(3))
    mask, none = torch.zeros(18, dtype=torch.bool), torch.zeros(0)
    arguments = (none, none, torch.tensor([4, 9]), mask, positions, own, following, sibling)
    shims.build_tree_kernel_efficient(*arguments, 1, 2, 3, 0)
    assert positions.tolist() == [4, 5, 6, 9, 10, 11]
    assert own.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert following.tolist() == [[1, 2, -1]] * 2
    assert sibling.tolist() == [[-1] * 3] * 2
    with pytest.raises(NotImplementedError, match="topk=1"):
        shims.build_tree_kernel_efficient(*arguments, 2, 2, 3, 0)


def test_cache_rows_are_copied_in_every_layer() -> None:
    """Rows that overlap are read before any is written."""
    layers = [torch.arange(12, dtype=torch.float32).reshape(4, 3) + 100 * i for i in range(2)]
    before = [layer.clone() for layer in layers]
    pointers = torch.tensor([layer.data_ptr() for layer in layers])
    shims.copy_all_layer_kv_cache(
        pointers, torch.tensor([12, 12]), torch.tensor([1, 2]), torch.tensor([0, 1])
    )
    for layer, old in zip(layers, before, strict=True):
        assert layer.tolist() == [old[0].tolist(), old[0].tolist(), old[1].tolist(), old[3].tolist()]
