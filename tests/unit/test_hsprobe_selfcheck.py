"""Each self-check fires on its own fault, and none fires on a healthy capture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from hsprobe.assemble import Assembled, Dropped
from hsprobe.schema import Check, Prompt
from hsprobe.selfcheck import Reference, judge, measure, warnings
from hsprobe.stack import rms_norm

LAYERS, TOKENS, HIDDEN, EPS = 4, 24, 512, 1e-6
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def reference(dtype: torch.dtype) -> Reference:
    torch.manual_seed(1)
    return Reference(
        num_layers=LAYERS,
        norm_h=(torch.rand(HIDDEN) + 0.5).to(dtype).float(),
        norm_eps=EPS,
        embedding_ids=torch.arange(0, 2 * TOKENS, dtype=torch.int32),
        embedding_nh=torch.randn(2 * TOKENS, HIDDEN).to(dtype),
        native_labels={"slot.000": "layer=2"},
    )


def clean(dtype: torch.dtype = torch.bfloat16) -> tuple[Assembled, Reference]:
    """A residual stream like an engine's: fused adds in float32, stored rounded, one massive channel."""
    known = reference(dtype)
    assert known.embedding_nh is not None
    assert known.norm_h is not None
    ids_t = torch.arange(TOKENS, dtype=torch.int32) * 2
    torch.manual_seed(2)
    stream_th = known.embedding_nh[ids_t.long()]
    sites = {"boundary.000": stream_th}
    exact_th = stream_th.float()
    for layer in range(LAYERS):
        branch_th = torch.randn(TOKENS, HIDDEN).mul(0.6)
        branch_th[:, 7] *= 200
        branch_th = branch_th.to(dtype)
        sites[f"hidden.{layer + 1:03d}"], sites[f"residual.{layer + 1:03d}"] = branch_th, stream_th
        exact_th = branch_th.float() + stream_th.float()
        stream_th = exact_th.to(dtype)
        sites[f"boundary.{layer + 1:03d}"] = stream_th
    # The fused kernel norms the unrounded sum, rounds, and multiplies by the weight in the stream's dtype.
    unit_th = rms_norm(exact_th, torch.ones(HIDDEN), EPS, False).to(dtype)
    sites["final_norm"] = unit_th * known.norm_h.to(dtype)
    sites["slot.000"] = sites["boundary.002"].clone()
    return rows_of(sites, ids_t), known


def rows_of(sites: dict[str, torch.Tensor], ids_t: torch.Tensor) -> Assembled:
    count = len(ids_t)
    return Assembled(
        Prompt("p", count, count, count, (), ""), ids_t, torch.arange(count).int(), torch.zeros(count).int(),
        sites, Dropped(),
    )  # fmt: skip


def check(rows: Assembled, known: Reference, cached: int = 0) -> dict[str, Check]:
    figures = [measure(rows, cached, known)]
    return {check.name: check for check in judge(figures, known, HIDDEN)}


def failed(rows: Assembled, known: Reference, cached: int = 0) -> set[str]:
    return {name for name, found in check(rows, known, cached).items() if not found.passed}


def with_sites(rows: Assembled, **sites: torch.Tensor) -> Assembled:
    return replace(rows, sites={**rows.sites, **{key.replace("_0", ".0"): t for key, t in sites.items()}})


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_healthy_capture_passes_every_check(dtype: torch.dtype) -> None:
    """Fused float32 sums, two roundings in the norm and a massive channel stay within the limits."""
    rows, known = clean(dtype)
    found = check(rows, known)
    assert set(found) == {"rows", "zero-rows", "final-norm", "embedding", "parts", "native-matches-hooks"}
    assert all(one.passed for one in found.values()), found
    assert warnings([measure(rows, 0, known)]) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_of_another_boundary_fails(dtype: torch.dtype) -> None:
    """Off by one layer at the end of the stack."""
    rows, known = clean(dtype)
    assert "final-norm" in failed(with_sites(rows, boundary_004=rows.sites["boundary.003"]), known)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("change", ["weight", "plus-one", "normed-twice", "one-channel"])
def test_a_wrong_norm_fails(dtype: torch.dtype, change: str) -> None:
    """Another weight, Gemma's form, a boundary that was normed already, a slightly different weight."""
    rows, known = clean(dtype)
    assert known.norm_h is not None
    if change == "weight":
        known = replace(known, norm_h=known.norm_h.flip(0))
    elif change == "plus-one":
        known = replace(known, norm_plus_one=True)
    elif change == "one-channel":
        known = replace(known, norm_h=known.norm_h.index_fill(0, torch.tensor([7]), 0.25))
    else:
        rows = with_sites(rows, boundary_004=rows.sites["final_norm"])
    assert "final-norm" in failed(rows, known)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", ["off-by-one", "shifted-rows", "scaled"])
def test_a_wrong_boundary_zero_fails(dtype: torch.dtype, fault: str) -> None:
    """The next boundary, the neighbour's row, and a factor the model does not have."""
    rows, known = clean(dtype)
    embedding_th = rows.sites["boundary.000"]
    wrong = {
        "off-by-one": rows.sites["boundary.001"],
        "shifted-rows": embedding_th.roll(1, 0),
        "scaled": embedding_th * 1.02,
    }
    assert "embedding" in failed(with_sites(rows, boundary_000=wrong[fault]), known)


def test_an_embedding_multiplier_of_the_model_passes_and_is_said() -> None:
    """Gemma's sqrt(H) is no fault where the model has it."""
    rows, known = clean()
    scaled = with_sites(rows, boundary_000=(rows.sites["boundary.000"].float() * 22.627417).bfloat16())
    found = check(scaled, replace(known, multipliers=(1.0, 22.627417)))["embedding"]
    assert found.passed
    assert "times 22.6274" in found.detail


def test_tokens_outside_the_saved_embedding_rows_are_not_judged() -> None:
    """Generated tokens are unknown when the rows are saved; the rest still counts."""
    rows, known = clean()
    ids_t = rows.token_ids.clone()
    ids_t[5] = 10_000
    assert not failed(replace(rows, token_ids=ids_t), known)
    ids_t[6] = 0
    assert failed(replace(rows, token_ids=ids_t), known) == {"embedding"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_that_do_not_add_up_fail(dtype: torch.dtype) -> None:
    """A residual taken one branch too late is found by the sum."""
    rows, known = clean(dtype)
    assert failed(with_sites(rows, residual_003=rows.sites["residual.004"]), known) == {"parts"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_native_states_one_rounding_away_still_match(dtype: torch.dtype) -> None:
    """A native path that rounds once where the hook rounded elsewhere differs by an ulp here and there."""
    rows, known = clean(dtype)
    slot_th = rows.sites["boundary.002"].clone()
    up_th = slot_th * (1 + torch.finfo(dtype).eps)
    slot_th[:, ::2] = up_th[:, ::2]
    found = check(with_sites(rows, slot_000=slot_th), known)["native-matches-hooks"]
    assert found.passed
    assert "slot.000 (layer=2) is boundary.002, runner-up boundary" in found.detail
    assert found.value > 0


def test_a_slot_is_named_by_the_data_not_its_label() -> None:
    """The label says 2, the data say 3, and the normed last state is recognised."""
    rows, known = clean()
    found = check(with_sites(rows, slot_000=rows.sites["boundary.003"]), known)["native-matches-hooks"]
    assert "is boundary.003" in found.detail
    found = check(with_sites(rows, slot_000=rows.sites["final_norm"]), known)["native-matches-hooks"]
    assert "is final_norm" in found.detail


def test_a_slot_that_is_no_boundary_fails_only_when_all_were_there_to_match() -> None:
    """A branch output is accused; with boundaries missing it might be one of those."""
    rows, known = clean()
    rows = with_sites(rows, slot_000=rows.sites["hidden.003"])
    assert failed(rows, known) == {"native-matches-hooks"}
    fewer = {key: t for key, t in rows.sites.items() if key != "boundary.003"}
    assert not failed(replace(rows, sites=fewer), known)


def test_fewer_rows_than_the_engine_computed_fail() -> None:
    """Rows the engine served from its cache are excused, others are not."""
    rows, known = clean()
    short = replace(rows, prompt=replace(rows.prompt, tokens=TOKENS + 4))
    assert failed(short, known) == {"rows"}
    assert not failed(short, known, cached=4)


@pytest.mark.parametrize("site", ["boundary.002", "final_norm", "residual.002"])
def test_a_single_zero_row_of_the_stream_fails(site: str) -> None:
    """A hook that wrote nothing for one decode row is seen."""
    rows, known = clean()
    zeroed = rows.sites[site].clone()
    zeroed[-1] = 0
    assert "zero-rows" in failed(replace(rows, sites={**rows.sites, site: zeroed}), known)


def test_zero_rows_of_an_untrained_pad_token_are_no_fault() -> None:
    """A token whose embedding is zero may stay zero all the way up."""
    rows, known = clean()
    assert known.embedding_nh is not None
    embedding_nh = known.embedding_nh.clone()
    embedding_nh[0] = 0
    sites = {key: t.index_fill(0, torch.tensor([0]), 0.0) for key, t in rows.sites.items()}
    assert not failed(replace(rows, sites=sites), replace(known, embedding_nh=embedding_nh))


def test_a_decoded_token_without_a_saved_embedding_may_enter_as_zero() -> None:
    """The greedy continuation may hold an untrained pad token; what comes after boundary 0 is still seen."""
    rows, known = clean()
    assert known.embedding_ids is not None
    assert known.embedding_nh is not None
    last = rows.token_ids[-1]
    kept = known.embedding_ids != last
    known = replace(known, embedding_ids=known.embedding_ids[kept], embedding_nh=known.embedding_nh[kept])
    zeroed = rows.sites["boundary.000"].masked_fill((rows.token_ids == last)[:, None], 0.0)
    assert not failed(with_sites(rows, boundary_000=zeroed), known)
    empty = rows.sites["boundary.001"].clone()
    empty[-1] = 0
    assert "zero-rows" in failed(with_sites(rows, boundary_001=empty), known)


def test_a_branch_may_be_zero_in_some_rows_but_not_in_most() -> None:
    """Branch outputs can vanish; a hook that wrote nothing leaves them all zero."""
    rows, known = clean()
    some = rows.sites["boundary.001"].clone()
    some[:5] = 0
    assert not failed(replace(rows, sites={**rows.sites, "mlp_out.001": some}), known)
    assert "zero-rows" in failed(replace(rows, sites={**rows.sites, "mlp_out.001": some * 0}), known)


def test_nonfinite_rows_are_counted_and_do_not_hide_other_faults() -> None:
    """NaN is a warning with its count; the finite rows are judged as before."""
    rows, known = clean()
    broken = {key: t.clone() for key, t in rows.sites.items()}
    for key in ("boundary.002", "boundary.004", "final_norm"):
        broken[key][3] = float("nan")
    broken["boundary.002"][4, :2] = float("inf")
    rows = replace(rows, sites=broken)
    assert not failed(rows, known)
    (warning,) = warnings([measure(rows, 0, known)])
    assert warning.startswith(f"{3 * HIDDEN + 2} NaN or Inf elements in 3 sites, most in boundary.002")
    assert "final-norm" in failed(with_sites(rows, boundary_004=rows.sites["boundary.003"]), known)


def test_all_nonfinite_is_still_plain_json() -> None:
    """The journal never holds NaN."""
    rows, known = clean()
    dead = {key: torch.full_like(t, float("nan")) for key, t in rows.sites.items()}
    figures: dict[str, Any] = measure(replace(rows, sites=dead), 0, known)
    assert "final-norm" not in figures
    assert "NaN" not in repr(figures)
    assert "nan" not in repr(figures)


def test_aliased_boundaries_are_warned_of() -> None:
    """Neighbours with the same bytes are what a capture without copies looks like."""
    rows, known = clean()
    rows = with_sites(rows, boundary_002=rows.sites["boundary.001"], slot_000=rows.sites["boundary.001"])
    found = warnings([measure(rows, 0, known)])
    assert any("boundary.001 and boundary.002" in warning for warning in found)


def test_the_worst_prompt_is_the_one_named() -> None:
    """One bad prompt among good ones decides and is named."""
    rows, known = clean()
    bad = with_sites(rows, boundary_004=rows.sites["boundary.003"])
    bad = replace(bad, prompt=replace(bad.prompt, id="bad"))
    checks = judge([measure(r, 0, known) for r in (rows, bad, rows)], known, HIDDEN)
    (final,) = [c for c in checks if c.name == "final-norm"]
    assert not final.passed
    assert "'bad'" in final.detail
