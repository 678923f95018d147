"""Every finding fires on its own fault, leads there, and stays silent on healthy pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import Query, compare
from hsparity.model import Comparison, Verdict
from tests.causes.streams import (
    LAYERS,
    MASSIVE,
    TOY,
    as_slots,
    capture,
    edited,
    floors,
    keep,
    rms_norm,
    shifted,
)

ALL = [f"boundary.{k:03d}" for k in range(LAYERS + 1)]


@pytest.fixture(scope="session")
def floor(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    return floors(tmp_path_factory.mktemp("floor"))


@pytest.fixture(scope="session")
def ref(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return open_source(capture(1).write(tmp_path_factory.mktemp("sides") / "ref"))


@pytest.fixture(scope="session")
def clean():
    return capture(2, engine="sglang", version="0.5.23")


def against(ref: Source, made, folder: Path, floor: Sequence[Source], **query: object) -> Comparison:
    return compare(ref, open_source(made.write(folder / "cand")), floor, Query(**query))


def causes(result: Comparison) -> list[str]:
    return [f.code for f in result.findings if f.severity == "cause" and not f.ruled_out]


def finding(result: Comparison, code: str):
    return next(f for f in result.findings if f.code == code)


def test_healthy_engines_are_at_parity_and_accused_of_nothing(ref, clean, floor, tmp_path):
    """Two engines that round differently are at parity at every boundary."""
    result = against(ref, clean, tmp_path, floor)
    assert result.verdict is Verdict.PARITY
    assert causes(result) == []
    assert [f.code for f in result.findings] == ["HS901"]
    assert all(0.7 < r.median < 1.3 for d in result.deltas[1:] for r in d.ratios if "rest" not in r.of)


def test_no_floor_is_inconclusive(ref, clean, tmp_path):
    """Without a floor a difference between engines is neither parity nor drift."""
    result = against(ref, clean, tmp_path, [])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert causes(result) == []
    assert result.floor.kind == "none"


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
    assert lead.sites == ("slot.002",)
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
    out."""
    sites = [ALL[2], ALL[4], ALL[6]]
    few = open_source(edited(capture(1), lambda _, s: keep(s, sites)).write(tmp_path / "ref"))
    made = edited(clean, lambda _, s: keep(shifted(s, 1), sites))
    result = against(few, made, tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    assert not result.alignment.offset_testable
    assert "HS101" not in [f.code for f in result.findings]


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


@pytest.mark.parametrize("side", ["ref", "cand"])
@pytest.mark.parametrize("with_floor", [True, False])
def test_a_normed_last_boundary_is_named(clean, floor, tmp_path, side, with_floor):
    """The last state taken after the final norm is a finding about that state, not drift of the last
    layer."""
    weight = TOY.weights()[2]

    def normed(_: str, states):
        return {
            **states,
            ALL[-1]: torch.from_numpy(rms_norm(states[ALL[-1]], weight)).bfloat16().double().numpy(),
        }

    left, right = capture(1), clean
    left, right = (edited(left, normed), right) if side == "ref" else (left, edited(right, normed))
    result = against(open_source(left.write(tmp_path / "ref")), right, tmp_path, floor if with_floor else [])
    assert result.verdict is Verdict.DIVERGED
    assert causes(result)[0] == "HS201"
    lead = finding(result, "HS201")
    assert lead.structural
    assert lead.explained is not None
    assert lead.explained > 0.9
    assert lead.headline.startswith("the reference's" if side == "ref" else "the candidate's")
    assert "HS101" not in causes(result)


def test_missing_rows_are_diverged_and_the_rest_is_compared(ref, clean, floor, tmp_path):
    """A prefix served from a cache leaves rows out; nothing is invented for them."""
    made = replace(clean, positions={"p0": range(16, 24)})
    result = against(ref, made, tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS104"]
    assert "positions 0 to 15" in finding(result, "HS104").evidence[0]
    assert result.alignment.tokens == 8 * 24 - 16
    assert all(d.verdict is Verdict.PARITY for d in result.deltas)


def test_a_missing_prompt_is_rows_missing(ref, clean, floor, tmp_path):
    made = replace(clean, states={n: s for n, s in clean.states.items() if n != "p3"})
    assert causes(against(ref, made, tmp_path, floor)) == ["HS104"]


def test_rows_are_known_by_position_not_by_order(ref, clean, floor, tmp_path):
    """A capture whose rows lie in another order is at parity, and equal to the ordered one in every
    figure."""
    order = np.random.default_rng(0).permutation(24).tolist()
    moved = against(ref, replace(clean, positions=dict.fromkeys(clean.ids, order)), tmp_path / "a", floor)
    plain = against(ref, clean, tmp_path / "b", floor)
    assert moved.verdict is Verdict.PARITY
    assert [d.metrics for d in moved.deltas] == [d.metrics for d in plain.deltas]


def test_rows_of_another_token_are_diverged(ref, clean, floor, tmp_path):
    """Rows swapped between positions are found, however alike the norms are."""

    def swapped(name: str, states):
        return {k: np.roll(v, 1, axis=0) for k, v in states.items()} if name in ("p0", "p1") else states

    result = against(ref, edited(clean, swapped), tmp_path, floor, layers="3")
    assert result.verdict is Verdict.DIVERGED


def test_random_tokens_behind_one_sink_are_diverged(ref, floor, tmp_path):
    """63 of 64 random tokens are found although the sink token carries nearly all of the norm."""
    long = capture(1, count=1, length=64)
    rng = np.random.default_rng(5)

    def garbage(_: str, states):
        v = states[ALL[4]]
        v[1:] = rng.permuted(v[1:], axis=0)
        return states

    broken = edited(capture(2, count=1, length=64, engine="sglang"), garbage)
    whole = np.linalg.norm(broken.states["p0"][ALL[4]] - long.states["p0"][ALL[4]])
    assert whole / np.linalg.norm(long.states["p0"][ALL[4]]) < 0.15
    result = against(
        open_source(long.write(tmp_path / "ref")),
        broken,
        tmp_path,
        floors(tmp_path, count=1, length=64),
        layers="3",
    )
    assert result.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [0.1, 1.0])
def test_one_garbage_token_is_never_parity(ref, clean, floor, tmp_path, *, seed, size):
    """One token of 192 that holds something else is named; alone it may be inconclusive, never parity."""
    rng = np.random.default_rng(seed)
    place = int(rng.integers(1, 24))

    def garbage(name: str, states):
        if name == "p2":
            for key in ALL[1:]:
                row = states[key][place]
                noise = rng.standard_normal(len(row))
                states[key][place] = row + size * noise / np.linalg.norm(noise) * np.linalg.norm(row)
        return states

    result = against(ref, edited(clean, garbage), tmp_path, floor, layers="1-7")
    assert result.verdict is (Verdict.DIVERGED if size == 1.0 else Verdict.INCONCLUSIVE)
    assert causes(result)[0] in ("HS301", "HS302")
    assert f"prompt p2 position {place}" in finding(result, "HS302").evidence[0]


def test_drift_of_one_side_accuses_that_side(ref, clean, floor, tmp_path):
    """Errors of several times the floor are diverged, and the side that is off is named."""
    rng = np.random.default_rng(1)

    def drift(_: str, states):
        noise = {
            k: 0.02 * np.linalg.norm(v, axis=1, keepdims=True) / np.sqrt(v.shape[1])
            for k, v in states.items()
        }
        return {
            k: v + noise[k] * rng.standard_normal(v.shape) if k in ALL[3:] else v for k, v in states.items()
        }

    result = against(ref, edited(clean, drift), tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS301"]
    assert "the candidate is beyond" in finding(result, "HS301").headline
    assert "boundary.003" in finding(result, "HS301").headline


def test_massive_channels_cannot_hide_the_rest(ref, clean, floor, tmp_path):
    """A difference of 5x the floor in the ordinary channels is found although one channel holds most of the
    norm."""

    def quiet(_: str, states):
        v = states[ALL[5]]
        rest = np.delete(np.arange(v.shape[1]), MASSIVE)
        size = np.linalg.norm(v[:, rest], axis=1, keepdims=True) / np.sqrt(len(rest))
        v[:, rest] += 0.03 * size * np.random.default_rng(2).standard_normal((len(v), len(rest)))
        v[:, MASSIVE] *= 100.0
        return states

    def loud(_: str, states):
        states[ALL[5]][:, MASSIVE] *= 100.0
        return states

    sources = []
    for made, name in (
        (capture(None, engine="hf", version="5", dtype=torch.float32), "x"),
        (capture(0, engine="hf", version="5"), "y"),
    ):
        sources.append(open_source(edited(made, loud).write(tmp_path / name)))
    result = against(
        open_source(edited(capture(1), loud).write(tmp_path / "ref")),
        edited(clean, quiet),
        tmp_path,
        sources,
        layers="4",
    )
    delta = next(d for d in result.deltas if d.requested)
    verdicts = {r.of: r.verdict for r in delta.ratios}
    assert verdicts["cand"] is Verdict.PARITY
    assert verdicts["cand rest"] is Verdict.DIVERGED
    assert result.verdict is Verdict.DIVERGED
    assert delta.massive_channels == (MASSIVE,)


def test_flips_of_experts_are_noise_when_the_floor_has_them(floor, tmp_path):
    """Sparse jumps at other tokens in every engine are at parity against a floor that jumps too."""
    flips = {"flips": 0.02, "count": 16, "length": 32}
    source = open_source(capture(11, **flips).write(tmp_path / "ref"))
    result = against(source, capture(12, engine="sglang", **flips), tmp_path, floors(tmp_path, **flips))
    assert result.verdict is Verdict.PARITY, result.headline


@pytest.mark.parametrize("side", ["ref", "cand"])
def test_nan_rows_are_counted_and_diverged(clean, floor, tmp_path, side):
    """NaN on one side is a divergence; the other tokens keep their figures."""

    def poisoned(name: str, states):
        if name == "p1":
            states[ALL[3]][4, :7] = np.nan
            states[ALL[3]][9, 0] = np.inf
        return states

    left, right = capture(1), clean
    left, right = (edited(left, poisoned), right) if side == "ref" else (left, edited(right, poisoned))
    result = against(open_source(left.write(tmp_path / "ref")), right, tmp_path, floor)
    delta = result.delta(3)
    assert result.verdict is Verdict.DIVERGED
    assert "HS303" in causes(result)
    assert delta.nonfinite == ((8, 0) if side == "ref" else (0, 8))
    assert np.isfinite(delta.metrics["rel_l2"].worst)
    assert delta.metrics["rel_l2"].worst < 0.05


def test_nan_on_both_sides_is_not_parity(clean, floor, tmp_path):
    """What is NaN on both sides was not compared, unless it is equal in every bit."""

    def poisoned(name: str, states):
        states[ALL[3]][4, 0] = np.nan
        return states

    source = open_source(edited(capture(1), poisoned).write(tmp_path / "ref"))
    result = against(source, edited(clean, poisoned), tmp_path, floor)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert against(source, edited(capture(1), poisoned), tmp_path / "same", []).verdict is Verdict.PARITY


def test_differing_ids_compare_the_common_prefix(ref, clean, floor, tmp_path):
    """Ids that part at position 10 leave ten comparable tokens of that prompt; the verdict is diverged."""
    ids = {**clean.ids, "p0": [*clean.ids["p0"][:10], 49, *clean.ids["p0"][11:]]}
    made = replace(clean, ids=ids)
    result = against(ref, made, tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS401"]
    assert result.alignment.tokens == 7 * 24 + 10
    assert "from position 10" in finding(result, "HS401").evidence[0]


def test_other_weights_are_diverged(clean, floor, tmp_path):
    """Different weight digests are a finding even when the states are equal."""
    source = open_source(replace(capture(1), weights_sha256="a" * 64).write(tmp_path / "ref"))
    result = against(source, replace(clean, weights_sha256="b" * 64), tmp_path / "b", floor)
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS402"]
    assert (
        against(source, replace(clean, weights_sha256="a" * 64), tmp_path / "c", floor).verdict
        is Verdict.PARITY
    )


def test_settings_are_a_note(ref, clean, floor, tmp_path):
    """Differing settings are listed and decide nothing."""
    source = open_source(capture(1, settings={"kv_cache_dtype": "auto"}).write(tmp_path / "ref"))
    result = against(
        source, replace(clean, settings={"kv_cache_dtype": "fp8", "attention_backend": "x"}), tmp_path, floor
    )
    assert result.verdict is Verdict.PARITY
    note = finding(result, "HS403")
    assert note.severity == "note"
    assert note.evidence == ("kv dtype: ref bfloat16, cand fp8",)


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
