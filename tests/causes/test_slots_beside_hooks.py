"""Sides that hold every boundary and what the engine hands over: the slots count, whatever the boundaries say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hsparity.model import Verdict
from tests.causes.judged import ALL, against, causes, finding
from tests.causes.streams import Capture, as_slots, capture, edited

IDS = {"native_ids": [2, 4, 6], "mechanism": "both"}


def handing(made: Capture, held: Sequence[int]) -> Capture:
    """The capture with slots of these boundaries beside its own, asked for by ids 2, 4 and 6."""
    return replace(edited(made, lambda _, s: {**s, **as_slots(s, held)}), settings=IDS)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    from hsparity.capture.read import open_source

    return open_source(handing(capture(1), (2, 4, 6)).write(tmp_path_factory.mktemp("both") / "ref"))


@pytest.mark.parametrize("with_floor", [True, False])
def test_slots_elsewhere_are_a_divergence(both, clean, floor, tmp_path, *, with_floor):
    """One id list on two sets of boundaries is DIVERGED beside boundaries that are at parity."""
    result = against(both, handing(clean, (3, 5, 7)), tmp_path, floor if with_floor else [])
    assert result.verdict is Verdict.DIVERGED
    assert causes(result)[0] == "HS103"
    assert "HS902" not in [f.code for f in result.findings]


def test_slots_alike_are_no_divergence(both, clean, floor, tmp_path):
    result = against(both, handing(clean, (2, 4, 6)), tmp_path, floor)
    assert result.verdict is Verdict.PARITY
    assert causes(result) == []


def test_a_slot_of_no_layer_is_a_divergence(both, clean, floor, tmp_path):
    """Numbers that are none of the side's own boundaries are said to be none of them."""

    def garbage(name: str, states):
        rng = np.random.default_rng(len(name))
        return {**states, "slot.002": rng.standard_normal(states["slot.002"].shape)}

    result = against(both, edited(handing(clean, (2, 4, 6)), garbage), tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    assert finding(result, "HS103").slots == ("slot.002",)


def test_what_was_not_asked_for_decides_nothing(ref, clean, floor, tmp_path):
    """A boundary that is another one, beside requested ones that are right, is a note."""
    made = edited(clean, lambda _, s: {**s, ALL[7]: s[ALL[6]]})
    result = against(ref, made, tmp_path, floor, boundaries="2,4")
    assert result.verdict is Verdict.PARITY
    assert causes(result) == []
    assert finding(result, "HS106").severity == "note"
