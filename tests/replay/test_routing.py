"""A router's choice and its margin, on scores written by hand."""

from __future__ import annotations

import torch

from hsparity.replay.routing import Router, differ, margins


def test_the_margin_is_between_the_last_chosen_and_the_next() -> None:
    """Two of four: 3.0 and 2.0 are chosen, 1.5 is next."""
    chosen, margin = Router(None).choose(torch.tensor([[1.5, 3.0, 2.0, -1.0]]), 2)
    assert chosen.tolist() == [[1, 2]]
    assert margin.tolist() == [0.5]


def test_the_bias_decides_after_the_sigmoid() -> None:
    """DeepSeek-V3 ranks sigmoid(logit) + bias: equal logits are ranked by the bias alone."""
    router = Router(torch.tensor([0.0, 0.3, 0.1, 0.2]))
    scores = router.scores(torch.zeros(1, 4))
    assert torch.allclose(scores, torch.tensor([[0.5, 0.8, 0.6, 0.7]]))
    assert router.choose(scores, 2)[0].tolist() == [[1, 3]]


def test_a_group_that_loses_takes_its_experts_along() -> None:
    """Groups (0 1) (2 3) (4 5), one wins by the sum of its two: expert 4, the best of all, is not chosen. The margin is
    that of the groups when it is the smaller one."""
    scores = torch.tensor([[2.0, 1.9, 0.0, 0.1, 3.0, 0.7]])
    chosen, margin = Router(None, groups=3, top_groups=1).choose(scores, 1)
    assert chosen.tolist() == [[0]]
    assert torch.allclose(
        margin, torch.tensor([0.1])
    )  # 3.9 against 3.7, halved; inside the group 2.0 against 1.9
    near = torch.tensor([[2.0, 1.0, 0.0, 0.1, 2.98, 0.0]])
    assert torch.allclose(
        Router(None, groups=3, top_groups=1).choose(near, 1)[1], torch.tensor([0.01]), atol=1e-6
    )


def test_margins_are_in_units_of_the_noise() -> None:
    """Noise of 0.01 in bfloat16: a gap of 0.02 may turn, one of 1 may not."""
    logits = torch.tensor([[1.0, 0.98, 0.0], [1.0, 0.0, -1.0]])
    found = margins(Router(None), logits, logits + 0.01, torch.tensor([[0], [0]]), torch.float32)
    assert found is not None
    assert torch.allclose(found.units_n, torch.tensor([2.0, 100.0]), rtol=1e-2)
    assert found.fragile_n.tolist() == [True, False]


def test_a_choice_by_another_rule_has_no_margin() -> None:
    """Where the family's own module chose otherwise, its margins are not known."""
    logits = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    worst = logits.topk(2, largest=False).indices
    assert margins(Router(None), logits, logits + 0.01, worst, torch.float32) is None


def test_the_order_of_the_experts_says_nothing() -> None:
    """Sets are compared."""
    assert differ(torch.tensor([[3, 1], [2, 0]]), torch.tensor([[1, 3], [2, 1]])).tolist() == [False, True]
