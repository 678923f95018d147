"""Sites that hold another state than claimed are named, and undone; those in their place are not accused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.model import Verdict
from tests.causes.judged import ALL, against, causes, finding
from tests.causes.streams import (
    LAYERS,
    TOY,
    Capture,
    States,
    as_slots,
    capture,
    edited,
    keep,
    rms_norm,
    shifted,
)


@pytest.mark.parametrize("with_floor", [True, False])
@pytest.mark.parametrize("by", [1, -1])
def test_an_offset_of_every_boundary_is_named(ref, clean, floor, tmp_path, *, by, with_floor):
    """A capture whose labels are all one off is diverged with or without a floor, and undoing it explains the
    excess."""
    made = edited(clean, lambda _, s: shifted(s, by))
    result = against(ref, made, tmp_path, floor if with_floor else [], layers="2,4")
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS101"]
    lead = finding(result, "HS101")
    assert lead.structural
    assert lead.explained is not None
    assert lead.explained > 0.9
    assert f"N{by:+d}" in lead.headline
    assert result.alignment.offset == by
    assert result.map is not None
    assert result.map.undone_kc is not None


def test_offset_option_moves_the_pairing_and_only_it(ref, clean, floor, tmp_path):
    """--offset N compares what lies N apart: a shifted capture is at parity under it, an unshifted one is
    not."""
    made = edited(clean, lambda _, s: shifted(s, 1))
    assert against(ref, made, tmp_path / "a", floor, layers="2,4", offset=1).verdict is Verdict.PARITY
    result = against(ref, clean, tmp_path / "b", floor, layers="2,4", offset=1)
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS101"]


@pytest.mark.parametrize("with_floor", [True, False])
def test_slots_off_by_one_are_named_slot_by_slot(ref, clean, floor, tmp_path, with_floor):
    """Slots said to be boundaries 2, 4, 6 that hold 3, 5, 7 are an offset; each slot says where it lies."""
    made = edited(clean, lambda _, s: as_slots(s, (3, 5, 7)), settings={"native_ids": [2, 4, 6]})
    result = against(ref, made, tmp_path, floor if with_floor else [], boundaries="2,4,6")
    assert result.verdict is Verdict.DIVERGED
    assert causes(result)[0] == "HS101"
    assert [(m.claimed, m.best, m.proved) for m in result.alignment.slots] == [
        (2, 3, True),
        (4, 5, True),
        (6, 7, True),
    ]
    assert "2, 4, 6 landed on boundaries 3, 5, 7" in finding(result, "HS103").headline


def test_one_slot_off_is_named_alone(ref, clean, floor, tmp_path):
    """One wrong slot of three is a per-slot finding, never one global offset."""
    made = edited(clean, lambda _, s: as_slots(s, (2, 4, 5)))
    result = against(ref, made, tmp_path, floor, boundaries="2,4,6")
    lead = finding(result, "HS101")
    assert lead.slots == ("slot.002",)
    assert lead.structural
    assert result.verdict is Verdict.DIVERGED
    assert [d.verdict for d in result.deltas if d.requested] == [
        Verdict.PARITY,
        Verdict.PARITY,
        Verdict.DIVERGED,
    ]


def test_slots_where_they_were_said_to_be_are_at_parity(ref, clean, floor, tmp_path):
    made = edited(clean, lambda _, s: as_slots(s, (2, 4, 6)))
    assert against(ref, made, tmp_path / "a", floor, boundaries="2,4,6").verdict is Verdict.PARITY
    # Nothing is claimed of them: they are compared where the data put them.
    result = against(ref, made, tmp_path / "b", floor)
    assert result.verdict is Verdict.PARITY
    assert [d.ref for d in result.deltas if d.requested] == ["boundary.002", "boundary.004", "boundary.006"]


def test_one_list_with_two_meanings(ref, clean, floor, tmp_path):
    """The same ids that land on other boundaries in the two engines are a divergence, proved on the floor's
    boundaries."""
    ids = {"native_ids": [2, 4, 6]}
    left = edited(capture(1, settings=ids), lambda _, s: as_slots(s, (2, 4, 6)))
    right = edited(clean, lambda _, s: as_slots(s, (3, 5, 7)), settings=ids)
    source = open_source(left.write(tmp_path / "left"))
    result = against(source, right, tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    lead = finding(result, "HS103")
    assert lead.structural
    assert "one draft config, two meanings" in lead.headline
    same = edited(clean, lambda _, s: as_slots(s, (2, 4, 6)), settings=ids)
    again = against(source, same, tmp_path / "same", floor)
    assert finding(again, "HS103").severity == "note"
    assert again.verdict is Verdict.PARITY


def test_slots_beside_hooks_on_one_side(ref, clean, floor, tmp_path):
    """A capture with both mechanisms tells from itself where its ids landed."""
    made = edited(clean, lambda _, s: {**s, **as_slots(s, (3, 5, 7))}, settings={"native_ids": [2, 4, 6]})
    result = against(ref, made, tmp_path, floor, boundaries="2,4,6")
    assert result.verdict is Verdict.PARITY
    note = finding(result, "HS103")
    assert note.severity == "note"
    assert "landed on boundaries 3, 5, 7" in note.headline
    assert {m.side for m in result.alignment.slots} == {"cand", "cand self"}


def test_offset_is_not_testable_without_neighbours(ref, clean, floor, tmp_path):
    """With the same three boundaries on both sides an offset cannot be told from drift, and is not ruled
    out: without a floor nothing is decided. A floor that holds every boundary says whose sites moved."""
    sites = [ALL[2], ALL[4], ALL[6]]
    few = open_source(edited(capture(1), lambda _, s: keep(s, sites)).write(tmp_path / "ref"))
    made = edited(clean, lambda _, s: keep(shifted(s, 1), sites))
    result = against(few, made, tmp_path, [])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.alignment.offset_testable
    assert "HS101" not in [f.code for f in result.findings]
    result = against(few, made, tmp_path / "floor", floor)
    assert result.verdict is Verdict.DIVERGED
    lead = finding(result, "HS101")
    assert lead.structural
    assert lead.headline.startswith("the candidate's boundary.002 holds boundary 3, not 2")
    assert causes(result) == ["HS101"]


def test_three_boundaries_against_all_is_testable_either_way(ref, clean, floor, tmp_path):
    """Neighbours on either side suffice."""
    sites = [ALL[2], ALL[4], ALL[6]]
    few = edited(capture(1), lambda _, s: keep(s, sites))
    source = open_source(few.write(tmp_path / "few"))
    moved = edited(clean, lambda _, s: shifted(s, 1))
    result = against(source, moved, tmp_path / "a", floor, boundaries="2,4,6")
    assert causes(result) == ["HS101"]
    assert result.alignment.offset == 1
    result = against(source, clean, tmp_path / "b", floor, boundaries="2,4,6")
    assert result.verdict is Verdict.PARITY
    assert result.alignment.offset == 0


def last_normed(made: Capture) -> Capture:
    """The last state taken after the final norm."""
    weight = TOY.weights()[2]

    def change(_: str, states: States) -> States:
        last = torch.from_numpy(rms_norm(states[ALL[-1]], weight)).bfloat16().double().numpy()
        return {**states, ALL[-1]: last}

    return edited(made, change)


@pytest.mark.parametrize("side", ["ref", "cand"])
@pytest.mark.parametrize("with_floor", [True, False])
def test_a_normed_last_boundary_is_named(clean, floor, tmp_path, side, with_floor):
    """The last state taken after the final norm is a finding about that state, not drift of the last
    layer."""
    left, right = capture(1), clean
    left, right = (last_normed(left), right) if side == "ref" else (left, last_normed(right))
    result = against(open_source(left.write(tmp_path / "ref")), right, tmp_path, floor if with_floor else [])
    assert result.verdict is Verdict.DIVERGED
    assert causes(result)[0] == "HS201"
    lead = finding(result, "HS201")
    assert lead.structural
    assert lead.explained is not None
    assert lead.explained > 0.9
    assert lead.headline.startswith("the reference's" if side == "ref" else "the candidate's")


@pytest.mark.parametrize("side", ["ref", "cand"])
def test_a_normed_boundary_among_few_is_its_own_side_s(clean, floor, tmp_path, side):
    """The normed side holds three boundaries and the other all, under one spelling: the normed one is named."""
    few = last_normed(edited(capture(1) if side == "ref" else clean, lambda _, s: keep(s, ALL[2::3])))
    left, right = (few, clean) if side == "ref" else (capture(1), few)
    result = against(open_source(left.write(tmp_path / "ref")), right, tmp_path, floor, boundaries="2,5,8")
    lead = finding(result, "HS201")
    assert lead.headline.startswith("the reference's" if side == "ref" else "the candidate's")
    assert {r.of for r in result.deltas[-1].ratios if r.verdict is Verdict.DIVERGED} >= {side}
    assert "HS101" not in causes(result)


def test_fewer_slots_than_asked_are_diverged(ref, clean, floor, tmp_path):
    """A last boundary dropped without a word is a finding; the slots that are there are compared."""
    made = edited(clean, lambda _, s: as_slots(s, (2, 4)), settings={"native_ids": [2, 4, 8]})
    result = against(ref, made, tmp_path, floor, boundaries="2,4,8")
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS102"]
    assert [d.verdict for d in result.deltas if d.requested] == [
        Verdict.PARITY,
        Verdict.PARITY,
        Verdict.MISSING,
    ]


SINGLE = {
    "later": (
        (4,),
        (5,),
        "HS106",
        "the candidate's boundary.004 repeats boundary 5 that boundary.005 holds, not 4",
    ),
    "earlier": (
        (4,),
        (3,),
        "HS106",
        "the candidate's boundary.004 repeats boundary 3 that boundary.003 holds, not 4",
    ),
    "swapped": ((3, 6), (6, 3), "HS105", "the candidate's boundary.003 and boundary.006 are swapped"),
    "two": (
        (2, 6),
        (3, 4),
        "HS106",
        "the candidate's boundary.002 repeats boundary 3 that boundary.003 holds, not 2, ",
    ),
}


@pytest.mark.parametrize("with_floor", [True, False])
@pytest.mark.parametrize("case", SINGLE)
def test_single_boundaries_are_named_and_no_offset_is_advised(
    ref, clean, floor, tmp_path, *, case, with_floor
):
    """Boundaries that hold others' states are named one by one; undoing them alone explains the excess."""
    places, held, code, words = SINGLE[case]

    def change(_: str, states):
        return {**states, **{ALL[k]: states[ALL[h]] for k, h in zip(places, held, strict=True)}}

    result = against(ref, edited(clean, change), tmp_path, floor if with_floor else [])
    assert result.verdict is Verdict.DIVERGED
    lead = finding(result, code)
    assert not lead.ruled_out
    assert lead.headline.startswith(words)
    assert lead.slots == tuple(ALL[k] for k in places)
    assert not any("--offset" in line for line in lead.confirm)
    assert not any("--offset" in text for text in lead.fix.values())
    assert result.alignment.offset == 0
    assert lead.explained is not None
    # Without a floor what the healthy engines differ by counts as excess too.
    assert lead.explained > (0.9 if with_floor else 0.3)


def test_a_shift_of_all_but_one_boundary_is_still_one_offset(ref, clean, floor, tmp_path):
    """A boundary at the end that has nowhere to move does not hide the offset of the others."""
    made = edited(clean, lambda _, s: {**shifted(s, 1), ALL[-1]: s[ALL[-1]]})
    result = against(ref, made, tmp_path, floor)
    lead = finding(result, "HS101")
    assert "N+1" in lead.headline
    assert lead.explained is not None
    assert lead.explained > 0.9
    assert lead.confirm[0].endswith("--offset 1")


def test_a_shift_from_some_layer_on_is_no_common_offset(ref, clean, floor, tmp_path):
    """Five of nine boundaries one off are named; --offset would break the other four."""
    made = edited(clean, lambda _, s: {**s, **{ALL[k]: s[ALL[k - 1]] for k in range(4, LAYERS + 1)}})
    lead = finding(against(ref, made, tmp_path, floor), "HS101")
    assert lead.headline.startswith(
        "the candidate's boundary.004 holds boundary 3, not 4, boundary.005 holds"
    )
    assert lead.headline.endswith(", and 1 more site")
    assert not any("--offset" in line for line in lead.confirm)
    assert lead.explained is not None
    assert lead.explained > 0.9


@pytest.mark.parametrize(
    ("held", "code", "words"),
    [
        ((2, 5, 6), "HS101", "the candidate's slot.001 holds boundary 5, not 4"),
        ((4, 2, 6), "HS105", "the candidate's slot.000 and slot.001 are swapped"),
        ((2, 4, 4), "HS106", "the candidate's slot.002 repeats boundary 4 that slot.001 holds, not 6"),
        (
            (3, 5, 6),
            "HS101",
            "the candidate's slot.000 holds boundary 3, not 2, slot.001 holds boundary 5, not 4",
        ),
    ],
)
def test_wrong_slots_are_named(ref, clean, floor, tmp_path, held, code, words):
    """A slot in the wrong place, two swapped ones and a repeated one are told apart, and explain the
    excess."""
    made = edited(clean, lambda _, s: as_slots(s, held))
    result = against(ref, made, tmp_path, floor, boundaries="2,4,6")
    assert result.verdict is Verdict.DIVERGED
    lead = finding(result, code)
    assert lead.headline == words
    assert not any("--offset" in line for line in lead.confirm)
    assert lead.explained is not None
    assert lead.explained > 0.9


def test_a_moved_boundary_of_the_reference_is_the_references(clean, floor, tmp_path):
    """With few boundaries on the reference's side its site is named, in the candidate's count."""
    few = edited(capture(1), lambda _, s: {ALL[2]: s[ALL[2]], ALL[4]: s[ALL[5]], ALL[6]: s[ALL[6]]})
    source = open_source(few.write(tmp_path / "few"))
    result = against(source, clean, tmp_path, floor, boundaries="2,4,6")
    lead = finding(result, "HS101")
    assert lead.headline == "the reference's boundary.004 holds boundary 5, not 4"
    assert not any("--offset" in line for line in lead.confirm)
    assert lead.explained is not None
    assert lead.explained > 0.9


@pytest.mark.filterwarnings("error")
def test_a_last_boundary_without_a_finite_number_is_no_norm(ref, clean, floor, tmp_path):
    """NaN throughout is named as NaN: neither a norm nor an offset, and nothing is warned of."""
    made = edited(clean, lambda _, s: {**s, ALL[-1]: np.full_like(s[ALL[-1]], np.nan)})
    result = against(ref, made, tmp_path, floor)
    assert result.verdict is not Verdict.PARITY
    assert "HS303" in causes(result)
    assert not {"HS101", "HS201"} & set(causes(result))
