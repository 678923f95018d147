"""compare() as a whole: refusals, floors, tolerance, and the record it returns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hsparity import stream
from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import Query, compare
from hsparity.errors import HsparityError
from hsparity.model import Verdict, from_json, to_json
from hsparity.table import TokenTable
from tests.causes.streams import LAYERS, Toy, capture, edited, floors, keep


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    return floors(tmp_path_factory.mktemp("floor"))


@pytest.fixture(scope="module")
def ref(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return open_source(capture(1).write(tmp_path_factory.mktemp("ref") / "ref"))


@pytest.fixture(scope="module")
def cand(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return open_source(capture(2, engine="sglang").write(tmp_path_factory.mktemp("cand") / "cand"))


def refused(*args: object) -> HsparityError:
    with pytest.raises(HsparityError) as caught:
        compare(*args)  # type: ignore[arg-type]
    return caught.value


def test_a_result_survives_json(ref: Source, cand: Source, floor: list[Source]) -> None:
    """Same result, same bytes: writing, reading and writing again changes nothing."""
    result = compare(ref, cand, floor, Query(layers="2,4"))
    text = to_json(result)
    again = from_json(text)
    assert to_json(again) == text
    assert again.verdict is result.verdict
    assert to_json(compare(ref, cand, floor, Query(layers="2,4"))) == text


def test_only_requested_layers_decide(ref: Source, floor: list[Source], tmp_path: Path) -> None:
    """A layer that was not asked for is measured and shown, and does not decide."""

    def broken(_: str, states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**states, "boundary.006": states["boundary.006"] * 1.2}

    other = open_source(edited(capture(2, engine="sglang"), broken).write(tmp_path / "c"))
    assert compare(ref, other, floor, Query(layers="1,2")).verdict is Verdict.PARITY
    result = compare(ref, other, floor, Query(boundaries="2,6"))
    assert result.verdict is Verdict.DIVERGED
    assert [d.verdict for d in result.deltas if d.requested] == [Verdict.PARITY, Verdict.DIVERGED]
    assert len(result.deltas) == LAYERS + 2


def test_layers_are_boundaries_less_one(ref: Source, cand: Source, floor: list[Source]) -> None:
    request = compare(ref, cand, floor, Query(layers="2,4-6:2")).request
    assert (request.layers, request.boundaries) == ((2, 4, 6), (3, 5, 7))
    assert compare(ref, cand, floor, Query(layers="eagle3")).request.boundaries == (2, 4, 5)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (Query(layers="8"), "E102"),
        (Query(boundaries="9"), "E102"),
        (Query(layers="2-1"), "E102"),
        (Query(layers="two"), "E102"),
        (Query(layers="2", boundaries="3"), "E103"),
        (Query(tokens="x"), "E102"),
    ],
)
def test_bad_queries_are_refused(ref: Source, cand: Source, query: Query, code: str) -> None:
    assert refused(ref, cand, [], query).code == code


def test_another_model_is_refused(ref: Source, tmp_path: Path) -> None:
    """Layer count or hidden size decide; names do not."""
    fewer = open_source(capture(1, toy=Toy(layers=6)).write(tmp_path / "a"))
    wider = open_source(capture(1, toy=Toy(width=64)).write(tmp_path / "b"))
    assert refused(ref, fewer, [], Query()).code == "E208"
    error = refused(ref, wider, [], Query())
    assert error.code == "E208"
    assert "hidden size 64" in error.notes[1]


def test_what_was_not_captured_is_refused_with_what_is_there(ref: Source, tmp_path: Path) -> None:
    few = edited(capture(2), lambda _, s: keep(s, ["boundary.002", "boundary.004"]))
    error = refused(ref, open_source(few.write(tmp_path / "few")), [], Query(layers="1,4"))
    assert error.code == "E210"
    assert "layers 4 (boundaries 5)" in error.message
    assert "boundaries 2,4" in error.notes[1]


def test_no_site_in_common_is_refused(tmp_path: Path) -> None:
    sides = [
        open_source(edited(capture(i), lambda _, s, k=k: keep(s, [k])).write(tmp_path / str(i)))
        for i, k in ((1, "boundary.002"), (2, "boundary.005"))
    ]
    assert refused(*sides, [], Query()).code == "E212"


def test_a_floor_of_no_use_is_refused(ref: Source, cand: Source, floor: list[Source], tmp_path: Path) -> None:
    """Another model, other weights, other tokens, or fp32 without bf16: E211."""
    other = floors(tmp_path / "a", toy=Toy(layers=6))
    assert refused(ref, cand, other, Query()).code == "E211"
    assert refused(ref, cand, floor[:1], Query()).code == "E211"
    hf = {"engine": "hf", "version": "5"}
    strange = [
        open_source(capture(r, length=9 + 30, dtype=d, **hf).write(tmp_path / str(d)))
        for r, d in ((None, torch.float32), (0, torch.bfloat16))
    ]
    assert refused(ref, cand, strange, Query()).code == "E211"
    a, b = (
        open_source(replace(capture(i, engine=e), weights_sha256="a" * 64).write(tmp_path / e))
        for i, e in ((1, "vllm"), (2, "sglang"))
    )
    heavier = open_source(replace(capture(0, **hf), weights_sha256="b" * 64).write(tmp_path / "w"))
    error = refused(a, b, [heavier, floor[0]], Query())
    assert (error.code, error.message) == ("E211", "the floor is a capture of other weights")


def test_a_floor_may_be_one_of_the_sides(cand: Source, floor: list[Source]) -> None:
    """Transformers in bf16 as the reference stands at exactly 1; in fp32, named as the floor, at 0."""
    fp32, bf16 = floor
    result = compare(bf16, cand, [fp32], Query())
    assert result.verdict is Verdict.PARITY
    assert {round(r.median, 6) for d in result.deltas[1:] for r in d.ratios if r.of == "ref"} == {1.0}
    result = compare(fp32, cand, floor, Query())
    assert result.verdict is Verdict.PARITY
    assert {r.median for d in result.deltas for r in d.ratios if r.of == "ref"} == {0.0}
    with pytest.raises(HsparityError, match="no floor can be made"):
        compare(fp32, cand, [bf16], Query())


def test_bit_equal_captures_need_no_floor(ref: Source, tmp_path: Path) -> None:
    result = compare(ref, open_source(capture(1).write(tmp_path / "again")), [], Query())
    assert result.verdict is Verdict.PARITY
    assert result.floor.kind == "bit-equal"
    assert all(d.bit_equal == d.tokens == 192 for d in result.deltas)


def test_one_engine_against_itself_is_measured_by_its_repeats(
    ref: Source, cand: Source, tmp_path: Path
) -> None:
    """Repeats accuse the same run of one engine, and never another engine."""
    repeat = open_source(capture(3).write(tmp_path / "repeat"))
    again = open_source(capture(4).write(tmp_path / "again"))
    assert compare(ref, again, [repeat], Query()).verdict is Verdict.PARITY

    def drift(_: str, states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(0)
        return {k: v * (1 + 0.05 * rng.standard_normal(v.shape)) for k, v in states.items()}

    own = open_source(edited(capture(5), drift).write(tmp_path / "own"))
    assert compare(ref, own, [repeat], Query()).verdict is Verdict.DIVERGED
    foreign = open_source(edited(capture(5, engine="sglang"), drift).write(tmp_path / "foreign"))
    result = compare(ref, foreign, [repeat], Query())
    assert (result.verdict, result.floor.kind) == (Verdict.INCONCLUSIVE, "repeat")
    assert compare(ref, cand, [repeat], Query()).verdict is Verdict.PARITY


@pytest.mark.parametrize(("tol", "verdict"), [(0.05, Verdict.PARITY), (0.004, Verdict.DIVERGED)])
def test_a_tolerance_holds_every_token(ref: Source, cand: Source, tol: float, verdict: Verdict) -> None:
    result = compare(ref, cand, [], Query(tol=tol))
    assert result.verdict is verdict
    assert (result.floor.kind, result.floor.limit) == ("tolerance", tol)


def test_figures_do_not_depend_on_how_the_work_is_split(
    ref: Source, cand: Source, floor: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans of three rows, tables on disk, and one thread give the same bytes."""
    whole = to_json(compare(ref, cand, floor, Query()))
    monkeypatch.setattr(stream, "READ_BYTES", 3 * 2 * 128)
    monkeypatch.setattr(stream.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(TokenTable.__init__, "__defaults__", (0,))
    assert to_json(compare(ref, cand, floor, Query())) == whole


def test_prompts_compared_apart_merge_into_the_whole(ref: Source, cand: Source) -> None:
    """Passes over parts of the prompts, merged, are the pass over all of them."""
    from hsparity.align.tokens import align_rows
    from hsparity.pairing import pair_sites

    rows = align_rows(ref, cand, [], Query())
    pairs = tuple(pair_sites(ref, cand, Query()).pairs)
    massive = stream.massive_channels(ref, rows.prompts, [p.ref for p in pairs])
    whole = stream.run(stream.Plan((ref, cand), tuple(rows.prompts), pairs, massive))
    merged = TokenTable(len(pairs), stream.columns(), rows.tokens)
    for part in (rows.prompts[:3], rows.prompts[3:]):
        moved = tuple(replace(p, start=p.start - part[0].start) for p in part)
        merged.merge(stream.run(stream.Plan((ref, cand), moved, pairs, massive)), part[0].start)
    for site in range(len(pairs)):
        for name in stream.columns():
            np.testing.assert_array_equal(merged.read(site, name), whole.read(site, name))


def test_the_map_names_its_columns(
    ref: Source, cand: Source, floor: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the column limit tokens are pooled by maximum, prompt by prompt."""
    from hsparity import pictures

    result = compare(ref, cand, floor, Query())
    assert result.map is not None
    assert result.map.excess_kc.shape == (LAYERS + 1, 192)
    assert result.map.prompts[1] == ("p1", 24, 48)
    monkeypatch.setattr(pictures, "MAP_COLUMNS", 40)
    pooled = compare(ref, cand, floor, Query()).map
    assert pooled is not None
    assert (pooled.column_tokens, pooled.excess_kc.shape[1]) == (5, 40)
    np.testing.assert_array_equal(pooled.excess_kc[:, 0], result.map.excess_kc[:, :5].max(1))


def test_progress_reaches_the_end(ref: Source, cand: Source) -> None:
    seen: list[tuple[float, float]] = []
    compare(ref, cand, [], Query(), lambda done, of, note: seen.append((done, of)))
    assert seen[-1] == (192, 192)
