"""Every finding about tokens, numbers and runs fires on its own fault, leads there, and stays silent on healthy
pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.model import Verdict
from tests.causes.judged import ALL, against, causes, finding
from tests.causes.streams import (
    MASSIVE,
    capture,
    edited,
    floors,
)


def test_healthy_engines_are_at_parity_and_accused_of_nothing(ref, clean, floor, tmp_path):
    """Two engines that round differently are at parity at every boundary."""
    result = against(ref, clean, tmp_path, floor)
    assert result.verdict is Verdict.PARITY
    assert causes(result) == []
    assert [f.code for f in result.findings] == ["HS901", "HS902"]
    assert all(0.7 < r.median < 1.3 for d in result.deltas[1:] for r in d.ratios if "rest" not in r.of)


def test_no_floor_is_inconclusive(ref, clean, tmp_path):
    """Without a floor a difference between engines is neither parity nor drift."""
    result = against(ref, clean, tmp_path, [])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert causes(result) == []
    assert result.floor.kind == "none"


def test_missing_rows_are_diverged_and_the_rest_is_compared(ref, clean, floor, tmp_path):
    """A prefix served from a cache leaves rows out; nothing is invented for them."""
    made = replace(clean, positions={"p0": range(16, 24)})
    result = against(ref, made, tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS110"]
    assert finding(result, "HS110").rows == ("p0 0-15",)
    assert "p0: cand has no rows for positions 0 to 15" in result.alignment.gaps[0]
    assert result.alignment.tokens == 8 * 24 - 16
    assert all(d.verdict is Verdict.PARITY for d in result.deltas)


@pytest.mark.parametrize("side", ["ref", "cand"])
def test_a_prompt_of_one_side_is_a_gap_and_no_fault(clean, floor, tmp_path, side):
    """A prompt that only one side ran is noted, accuses nobody, and decides nothing."""
    left, right = capture(1), clean
    fewer = {n: s for n, s in left.states.items() if n != "p3"}
    if side == "cand":
        left = replace(left, states=fewer)
    else:
        right = replace(right, states={n: right.states[n] for n in fewer})
    result = against(open_source(left.write(tmp_path / "ref")), right, tmp_path, floor)
    assert result.verdict is Verdict.PARITY
    assert [f.code for f in result.findings] == ["HS901", "HS902"]
    holder = {"ref": "reference", "cand": "candidate"}[side]
    assert result.alignment.gaps == (f"prompt p3 is only in the {holder}: not compared",)
    assert result.alignment.tokens == 7 * 24


def test_missing_rows_are_counted_without_the_prompts_of_one_side(ref, clean, floor, tmp_path):
    """Rows missing in a prompt that both ran are found beside a prompt that only one ran."""
    states = {n: s for n, s in clean.states.items() if n != "p3"}
    made = replace(clean, states=states, positions={"p0": range(1, 24)})
    result = against(ref, made, tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    assert causes(result) == ["HS104"]
    assert finding(result, "HS104").headline == "cand lacks 1 row in 1 prompt"
    assert len(result.alignment.gaps) == 2


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
    named = finding(result, "HS302")
    assert named.severity == ("cause" if size == 1.0 else "note")
    assert f"prompt p2 position {place}" in named.evidence[0]
    assert named.headline.endswith(", in the candidate's own error")
    assert "more prompts" in named.fix["any"]


def test_tokens_of_the_reference_are_called_its_own(clean, floor, tmp_path):
    """One token of the reference is beyond: it says whose, and that another reference tells, not more prompts."""

    def garbage(name: str, states):
        if name == "p2":
            for key in ALL[1:]:
                states[key][5] = 1.1 * states[key][5][::-1]
        return states

    ref = open_source(edited(capture(1), garbage).write(tmp_path / "ref"))
    named = finding(against(ref, clean, tmp_path, floor, layers="1-7"), "HS302")
    assert named.headline.endswith(", in the reference's own error")
    assert all(line.endswith(", the reference's own error") for line in named.evidence)
    bf16 = next(s.path for s in floor if s.manifest.dtype == "bfloat16")
    assert named.fix["any"].endswith(f"compare the candidate with {bf16} as the reference")


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
    """What is NaN on both sides was not compared, equal in every bit or not."""

    def poisoned(name: str, states):
        states[ALL[3]][4, 0] = np.nan
        return states

    source = open_source(edited(capture(1), poisoned).write(tmp_path / "ref"))
    result = against(source, edited(clean, poisoned), tmp_path, floor)
    assert result.verdict is Verdict.INCONCLUSIVE
    same = against(source, edited(capture(1), poisoned), tmp_path / "same", [])
    assert same.verdict is Verdict.INCONCLUSIVE


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
