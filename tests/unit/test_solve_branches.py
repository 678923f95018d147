"""Wrong amounts of a branch: what coefficients stand for, what ranks share, and what is never named."""

from __future__ import annotations

import numpy as np
import pytest

from hsparity.solve.branches import (
    Between,
    Branches,
    Fit,
    RankShare,
    amounts,
    branches,
    lies_between,
    round_number,
)
from hsparity.solve.forms import Form, site

BOTH = Branches(3, "boundary.003", "boundary.004", site("attn_out.003"), site("mlp_out.003"))
WHOLE = Branches(3, "boundary.003", "boundary.004", None, None)


def held(*numbers: int) -> dict[int, str]:
    return {k: f"boundary.{k:03d}" for k in numbers}


def test_layers_need_both_of_their_boundaries() -> None:
    """A layer whose input or output is not held has no branches."""
    assert list(branches(held(0, 1, 3, 4, 5), ())) == [0, 3, 4]
    assert branches(held(2), ("attn_out.002",)) == {}


def test_one_branch_gives_the_other() -> None:
    """The update less the captured branch is the other; without either, neither is known."""
    none = branches(held(3, 4), ())[3]
    assert (none.attn, none.mlp) == (None, None)
    attn = branches(held(3, 4), ("attn_out.003",))[3]
    assert attn.mlp is not None
    assert dict(attn.mlp.parts) == {"boundary.004": 1.0, "boundary.003": -1.0, "attn_out.003": -1.0}
    mlp = branches(held(3, 4), ("mlp_out.003",))[3]
    assert mlp.attn is not None
    assert dict(mlp.attn.parts) == {"boundary.004": 1.0, "boundary.003": -1.0, "mlp_out.003": -1.0}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0.05, 0.0), (-0.1, 0.0), (1.05, 1.0), (0.9, 1.0), (2.2, 2.0), (0.26, 0.25), (4.3, 4.0), (15.0, 16.0),
        (1.5, None), (-1.0, None), (30.0, None), (float("nan"), None),
    ],
)  # fmt: skip
def test_coefficients_snap_to_round_numbers(value: float, number: float | None) -> None:
    """0, 1, n and 1/n within a fifth; anything else is no amount."""
    assert round_number(value) == number


def test_the_routed_scale_is_a_round_number_of_its_model() -> None:
    """2.5 and 0.4 are amounts where the config says so; elsewhere the nearest number of ranks is tried."""
    assert round_number(2.48) == 3.0
    assert round_number(2.48, 2.5) == 2.5
    assert round_number(0.41, 2.5) == 0.4


@pytest.mark.parametrize(
    ("amount", "kind"), [(2.0, "double-reduce"), (4.0, "double-reduce"), (0.5, "partial-sum")]
)
def test_the_whole_update_in_another_amount(amount: float, kind: str) -> None:
    """Counted n times it is reduced twice, counted 1/n times it is one rank's."""
    entry = amounts(WHOLE, Fit(amount, amount), None)
    assert entry is not None
    assert (entry.kind, entry.number) == (kind, 4)
    assert dict(entry.form.parts) == {"boundary.004": amount, "boundary.003": 1.0 - amount}
    assert "its update" in entry.words


def test_one_branch_in_another_amount() -> None:
    """The MLP output twice beside the attention once, and the other way round."""
    mlp = amounts(BOTH, Fit(1.02, 1.97), None)
    assert mlp is not None
    assert dict(mlp.form.parts) == {"boundary.003": 1.0, "attn_out.003": 1.0, "mlp_out.003": 2.0}
    assert (mlp.kind, "its MLP output" in mlp.words) == ("double-reduce", True)
    attn = amounts(BOTH, Fit(0.26, 1.0), None)
    assert attn is not None
    assert (attn.kind, "its attention output" in attn.words) == ("partial-sum", True)


def test_the_routed_scale_missing_is_a_gain() -> None:
    """An MLP output at 1 / routed_scaling_factor is no rank's share."""
    entry = amounts(BOTH, Fit(1.0, 0.4), 2.5)
    assert entry is not None
    assert entry.kind == "gain"


@pytest.mark.parametrize(
    "fit", [(1.0, 1.0), (0.98, 1.1), (0.0, 0.05), (1.0, 0.0), (0.0, 1.0), (1.0, 1.5), (-1.0, 1.0)]
)
def test_ordinary_and_odd_amounts_are_not_named(fit: tuple[float, float]) -> None:
    """A whole layer, none of it, a branch missing (the dictionary's own entries) and odd numbers."""
    assert amounts(BOTH, Fit(*fit), None) is None


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_holds_a_part_of_the_projection_and_of_the_square(ranks: int) -> None:
    """Unlike parts of a sum of n: projection 1/n of it, length 1/sqrt(n) of it."""
    rng = np.random.default_rng(3)
    parts = rng.standard_normal((ranks, 400, 256))
    whole = parts.sum(0)
    size = (whole**2).sum(1)
    share = RankShare(
        float(np.median((parts[0] * whole).sum(1) / size)), float(np.median((parts[0] ** 2).sum(1) / size))
    )
    assert share.ranks == ranks
    assert np.sqrt(share.square) == pytest.approx(1 / np.sqrt(ranks), rel=0.1)


@pytest.mark.parametrize(
    ("projection", "square"),
    [(0.5, 0.25), (0.25, 1 / 16), (1.0, 1.0), (0.0, 0.5), (0.5, 0.9), (-0.5, 0.5), (float("nan"), 0.5)],
)
def test_two_figures_that_disagree_are_no_rank(projection: float, square: float) -> None:
    """Half of everything is a scale; the whole, another tensor of that length and a reversed one are no rank."""
    assert RankShare(projection, square).ranks == 0


@pytest.mark.parametrize(
    ("amount", "cosine", "other", "between"),
    [
        (0.5, 0.7, 0.05, True), (0.5, 0.31, 0.1, True),
        (0.5, 0.2, 0.0, False), (0.5, 0.7, 0.4, False), (0.99, 0.9, 0.0, False), (0.01, 0.9, 0.0, False),
        (-0.5, 0.9, 0.0, False), (float("nan"), 0.9, 0.0, False),
    ],
)  # fmt: skip
def test_what_lies_inside_a_layer(amount: float, cosine: float, other: float, between: bool) -> None:
    """A part of the next update and of no other; a whole one is the next boundary, none is this one."""
    assert lies_between(Between(3, amount, cosine, other)) is between


def test_forms_of_amounts_sum_to_what_they_say() -> None:
    """Evaluated on numbers: boundary 3 + attention + 2 MLP."""
    entry = amounts(Branches(3, "x", "y", Form((("a", 1.0),)), Form((("m", 1.0),))), Fit(1.0, 2.0), None)
    assert entry is not None
    values = {"x": 10.0, "y": 17.0, "a": 3.0, "m": 4.0}
    assert sum(values[k] * c for k, c in entry.form.parts) == 10 + 3 + 2 * 4
