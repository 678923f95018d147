"""hsparity diff: what changed between two comparisons, and what may not be held against what."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hsparity.cli.main import invoke
from hsparity.diffing.diff import diff
from hsparity.diffing.extremes import SAID_LOST as LOST_REASON
from hsparity.diffing.issue import render as markdown
from hsparity.diffing.judging import counted, moved_by
from hsparity.diffing.page import render as page
from hsparity.diffing.result import SCHEMA, Change, Diff, Span
from hsparity.diffing.terminal import render as terminal
from hsparity.errors import HsparityError
from hsparity.floor import Bootstrap, Errors, ceiling, judge
from hsparity.model import Comparison, Cost, Finding, Verdict, from_json, to_json
from hsparity.report import Options, reporters
from hsparity.report.redact import redact
from tests.golden.cases import CASES
from tests.golden.fixtures import ASKED, comparison, delta, q
from tests.unit.test_report_html import Page

ROOT = Path(__file__).parents[2]
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from hsparity.cli.main import invoke; sys.exit(invoke(sys.argv[1:]))"


def healthy(ratio: float = 0.95, **changes: object) -> Comparison:
    return comparison(
        Verdict.PARITY, "All lie within.", [delta(b, ratio, b in ASKED) for b in range(62)], **changes
    )


def diverged(**changes: object) -> Comparison:
    return replace(CASES["offset"](), **changes)  # type: ignore[arg-type]


def words(d: Diff) -> set[str]:
    return {s.change.value for s in d.sites if s.requested}


@pytest.mark.parametrize("name", CASES)
def test_a_result_held_against_itself_is_never_worse(name: str) -> None:
    found = diff(CASES[name](), CASES[name]())
    assert found.change in (Change.SAME, Change.UNKNOWN)
    assert not found.settings
    # A site that was asked for, and never was there, is missing both times.
    assert found.exit_code == 0 or name == "missing-sites"


def test_a_regression_is_worse_and_its_candidates_are_named() -> None:
    """Verdict, sites, the new cause, where it starts, what changed in the settings, and what to type."""
    then = healthy()
    now = diverged(
        cand=replace(then.cand, path="captures/new", version="0.33.0", settings={"tp": 2, "mode": "eager"})
    )
    found = diff(then, now)
    assert (found.exit_code, found.verdict) == (1, Change.WORSE)
    assert words(found) == {"worse"}
    assert "3 of 3 requested sites got worse" in found.headline
    assert [f.code for f in found.findings if f.status == "new" and f.change is Change.WORSE] == [
        "HS101",
        "HS302",
    ]
    assert found.start.startswith("First at boundary 0")
    assert (found.settings[0].then, found.settings[0].now) == ("vllm 0.32.0", "vllm 0.33.0")
    assert {"tp", "mechanism", "attention"} == {s.name for s in found.settings if s.kind == "setting"}
    assert found.explained.endswith("Each is a candidate, none is proved.")
    assert found.next[0].command == "hsparity bisect captures/vllm-bf16 captures/new"
    assert found.next[1].command.startswith("hsparity capture vllm@0.32.0 --model models/deepseek-v3-tiny")


def test_the_way_back_is_better() -> None:
    found = diff(diverged(), healthy())
    assert (found.exit_code, found.change, found.verdict) == (0, Change.BETTER, Change.BETTER)
    assert [f.status for f in found.findings if f.code == "HS101"] == ["gone"]
    assert found.next == ()


def test_healthy_engines_are_no_regression_of_one_another() -> None:
    """Intervals that do not touch are common between healthy kernels: 9 % apart is not worse (a real comparison)."""
    real = from_json((ROOT / "reports/parity/report.json").read_text(encoding="utf-8"))

    def only(of: str) -> Comparison:
        ratios = [tuple(replace(r, of="cand") for r in d.ratios if r.of == of) for d in real.deltas]
        return replace(
            real, deltas=tuple(replace(d, ratios=r) for d, r in zip(real.deltas, ratios, strict=True))
        )

    apart = [
        (a, b)
        for a, b in zip(only("ref").deltas, only("cand").deltas, strict=True)
        if a.ratios[0].low > b.ratios[0].high
    ]
    assert len(apart) >= 2
    assert diff(only("ref"), only("cand")).change is Change.SAME
    assert diff(only("cand"), only("ref")).change is Change.SAME


@pytest.mark.parametrize(
    ("then", "now", "word"),
    [
        ((1.0, 0.9, 1.1), (1.2, 1.05, 1.3), Change.SAME),  # intervals touch
        ((1.0, 0.99, 1.01), (1.2, 1.19, 1.21), Change.SAME),  # apart, but less than a quarter
        ((1.0, 0.8, 1.2), (1.6, 1.25, 2.0), Change.SAME),  # apart at one site, not over all
        ((1.0, 0.9, 1.1), (3.0, 2.8, 3.2), Change.WORSE),
        ((3.0, 2.8, 3.2), (1.0, 0.9, 1.1), Change.BETTER),
        ((0.0, 0.0, 0.0), (1.0, 0.9, 1.1), Change.WORSE),
        ((1.0, 0.5, 1.1), (5.0, 1.2, 5.1), Change.SAME),  # an interval that reaches far down
        ((1.0, math.nan, math.nan), (9.0, 8.0, 10.0), Change.UNKNOWN),
    ],
)
def test_a_median_moves_only_beyond_its_intervals(
    then: tuple[float, float, float], now: tuple[float, float, float], word: Change
) -> None:
    assert moved_by(Span(*then), Span(*now), 3.2) is word


def test_counts_of_tokens_move_as_paired_counts() -> None:
    assert counted(0, 10, 3.2) is Change.SAME
    assert counted(0, 11, 3.2) is Change.WORSE
    assert counted(46, 4, 3.2) is Change.BETTER
    assert counted(100, 140, 3.2) is Change.SAME


def test_more_tokens_beyond_are_worse_although_the_median_stays() -> None:
    def with_beyond(n: int) -> Comparison:
        made = healthy()
        tail = [tuple(replace(r, beyond=n) for r in d.ratios) for d in made.deltas]
        return replace(
            made, deltas=tuple(replace(d, ratios=r) for d, r in zip(made.deltas, tail, strict=True))
        )

    found = diff(with_beyond(4), with_beyond(46))
    assert words(found) == {"worse"}
    assert "46 tokens beyond 1.5× the largest floor error now, 4 then" in found.sites[3].reason


def extreme(
    worst: float, *, p99: float = 0.2, beyond: int = 0, reason: str = "far", verdict: str = "diverged"
) -> Comparison:
    """Diverged at every site by its median; the tokens farthest off are as given."""
    made = healthy(4.0)
    rows = [
        replace(
            d,
            metrics={**d.metrics, "rel_l2": replace(d.metrics["rel_l2"], p99=p99, worst=worst)},
            ratios=tuple(replace(r, beyond=beyond, reason=reason) for r in d.ratios),
            verdict=Verdict(verdict),
        )
        for d in made.deltas
    ]
    return replace(made, verdict=Verdict(verdict), deltas=tuple(rows))


LOST = "candidate: {} tokens off by as much as the state itself"


@pytest.mark.parametrize(
    ("then", "now", "word"),
    [
        (extreme(0.3), extreme(1.1), Change.WORSE),  # one token of all
        (extreme(0.9), extreme(1.05), Change.UNKNOWN),  # over the line, by less than a quarter
        (extreme(0.3), extreme(1.1, verdict="inconclusive"), Change.UNKNOWN),
        (extreme(0.3, verdict="parity"), extreme(1.1, verdict="parity"), Change.SAME),  # the floor's own
        (extreme(1.1), extreme(1.1), Change.SAME),
        (extreme(1.1), extreme(9.0), Change.SAME),  # the same tokens
        (extreme(1.1, beyond=4), extreme(1.1, beyond=5), Change.UNKNOWN),
        (extreme(1.1, beyond=5), extreme(1.1, beyond=4), Change.SAME),
        (extreme(1.1), extreme(1.1, p99=1.1), Change.WORSE),
        (extreme(1.1, reason=LOST.format(2)), extreme(1.1, reason=LOST.format(3)), Change.WORSE),
        (extreme(0.1), extreme(0.4), Change.SAME),
        (extreme(0.1), extreme(0.6), Change.UNKNOWN),
        (extreme(1.1), extreme(0.1), Change.SAME),
    ],
)
def test_single_tokens_that_are_newly_destroyed_are_seen(
    then: Comparison, now: Comparison, word: Change
) -> None:
    """The median and the counts of a site that was diverged already stay as they were."""
    found = diff(then, now)
    assert (words(found), found.change) == ({word.value}, word)


def test_the_reason_that_counts_destroyed_tokens_is_the_one_that_compare_writes() -> None:
    rng = np.random.default_rng(0)
    yard = rng.uniform(0.01, 0.02, 64)
    error = yard.copy()
    error[:3] = 1.2
    ratio = judge(Errors("cand", error, yard), Bootstrap.over([64]), ceiling([yard], routed=False), 1)
    found = LOST_REASON.match(ratio.reason)
    assert found
    assert found[1] == "3"


def test_figures_that_no_comparison_writes_are_no_crash() -> None:
    """A file may say anything: shares beyond 1, counts below 0."""
    made = healthy()
    for share, beyond in ((1e308, -7), (-1e308, 10**400)):
        odd = [
            replace(d, ratios=tuple(replace(r, share=share, beyond=beyond) for r in d.ratios))
            for d in made.deltas
        ]
        assert diff(made, replace(made, deltas=tuple(odd))).exit_code in (0, 1, 3)
    cause = Finding("HS307", "layer-adds-error", "Layer 4 adds error.", 0.5, tokens=-9)
    assert diff(diverged(findings=(replace(cause, tokens=3),)), diverged(findings=(cause,))).exit_code == 0


def test_under_another_floor_errors_are_held_not_ratios() -> None:
    """Half the floor doubles every ratio and fells the verdict; the states did not move, so nothing is said to be worse."""
    then = healthy()
    halved = [
        replace(
            d,
            floor=q(d.floor.p50 / 2) if d.floor else None,
            ratios=tuple(replace(r, median=r.median * 2, low=r.low * 2, high=r.high * 2) for r in d.ratios),
            verdict=Verdict.DIVERGED,
        )
        for d in then.deltas
    ]
    now = replace(then, verdict=Verdict.DIVERGED, deltas=tuple(halved))
    found = diff(then, now)
    assert words(found) == {"same"}
    assert (found.verdict, found.exit_code) == (Change.UNKNOWN, 3)
    assert any(w.startswith("other floor: ") and "measured anew" in w for w in found.warnings)
    assert found.next[0].command == (
        "hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers 2,30,58 --floor captures/hf-fp32 "
        "--floor captures/hf-bf16 --json new-again.json"
    )
    # What did move is seen in rel-L2.
    far = [replace(d, metrics={**d.metrics, "rel_l2": q(d.metrics["rel_l2"].p50 * 9)}) for d in halved]
    assert words(diff(then, replace(now, deltas=tuple(far)))) == {"worse"}


def test_without_any_floor_only_what_is_plainly_apart_is_worse() -> None:
    def bare(scale: float) -> Comparison:
        rows = [
            replace(d, metrics={"rel_l2": q(d.metrics["rel_l2"].p50 * scale)})
            for d in CASES["inconclusive"]().deltas
        ]
        return replace(CASES["inconclusive"](), deltas=tuple(rows))

    assert [diff(bare(1), bare(s)).exit_code for s in (1.1, 2.0, 3.0)] == [0, 3, 1]


def test_other_tokens_are_not_held_against_one_another() -> None:
    """A fallen verdict on other prompts may have stood there all along: it cannot be told."""
    then, now = healthy(), diverged()
    fewer = replace(
        now,
        ref=replace(now.ref, prompts=2, tokens=64),
        alignment=replace(now.alignment, tokens=64, prompts=2),
    )
    found = diff(then, fewer)
    assert words(found) == {"not comparable"}
    assert (found.exit_code, found.verdict) == (3, Change.UNKNOWN)
    assert "the reference holds 3 prompts, 96 tokens then, 2 prompts, 64 tokens now" in found.warnings[0]
    assert all(f.change is not Change.WORSE for f in found.findings)
    assert now.map is not None
    maps = [replace(now.map, ids_c=np.arange(k, k + 96, dtype=np.int32)) for k in (0, 1)]
    assert (
        diff(replace(now, map=maps[0]), replace(now, map=maps[1])).warnings[0].startswith("token ids differ")
    )


def test_a_candidate_that_lost_tokens_of_the_same_prompts_is_worse() -> None:
    found = diff(healthy(), CASES["tokens-differ"]())
    assert words(found) == {"not comparable"}
    assert (found.exit_code, found.verdict) == (1, Change.WORSE)
    assert {"HS401", "HS104"} <= {f.code for f in found.findings if f.change is Change.WORSE}


def test_a_layer_that_is_no_longer_compared_cannot_be_told() -> None:
    """Dropping what used to be asked for never passes; asking for more that is at parity does."""
    less = replace(healthy(), deltas=tuple(d for d in healthy().deltas if d.ref != "boundary.059"))
    assert diff(healthy(), less).exit_code == 3
    assert diff(less, healthy()).exit_code == 0


def test_another_hsparity_may_see_causes_that_were_there_before() -> None:
    found = diff(diverged(findings=()), diverged(hsparity="0.2.0"))
    assert {f.change for f in found.findings if f.status == "new" and f.code == "HS101"} == {Change.UNKNOWN}
    assert found.exit_code == 3


def test_a_new_name_for_the_same_figures_is_not_worse_and_a_new_proof_is() -> None:
    named = Finding("HS307", "layer-adds-error", "Layer 4 adds error.", 0.5)
    assert diff(diverged(findings=()), diverged(findings=(named,))).exit_code == 0
    proof = diverged(findings=(replace(named, structural=True),))
    assert diff(diverged(findings=()), proof).exit_code == 1
    back = diff(proof, diverged(findings=()))
    assert back.headline == (
        "DIVERGED then and now; HS307 layer-adds-error is gone; no requested site got worse."
    )
    guess = replace(named, severity="hypothesis", structural=True)
    assert diff(diverged(findings=()), diverged(findings=(guess,))).exit_code == 0


def test_sites_that_nobody_asked_for_decide_nothing_but_say_where_it_starts() -> None:
    rows = [delta(b, 40.0 if b >= 10 and b not in ASKED else 0.95, b in ASKED) for b in range(62)]
    found = diff(healthy(), replace(healthy(), deltas=tuple(rows)))
    assert found.exit_code == 0
    assert found.start.startswith("First at layer 9, boundary 10: ")
    assert found.start.endswith("Layer 8, boundary 9 did not get worse.")


def test_new_values_that_are_not_finite_are_worse() -> None:
    assert "NaN or Inf" in next(
        s.reason for s in diff(healthy(), CASES["nan-rows"]()).sites if s.change is Change.WORSE
    )


@pytest.mark.parametrize(
    ("cost", "change"),
    [((2.1, 1.2, 0.8, 1.0), Change.WORSE), ((2.1, 2.05, 0.0, 0.09), Change.SAME), (None, Change.UNKNOWN)],
)
def test_the_cost_to_a_draft_head_is_held_by_its_interval(
    cost: tuple[float, float, float, float] | None, change: Change
) -> None:
    def priced(figures: tuple[float, float, float, float]) -> Cost:
        return Cost("drafts/eagle3", Verdict.PARITY, "it costs", *figures, {})

    found = diff(healthy(cost=priced((2.1, 2.08, 0.0, 0.05))), healthy(cost=priced(cost) if cost else None))
    assert found.cost is not None
    assert found.cost.change is change
    assert found.exit_code == {Change.WORSE: 1, Change.SAME: 0, Change.UNKNOWN: 3}[change]


def test_other_models_and_results_without_a_shared_site_are_refused() -> None:
    """E255 shows both sides and what to type; the same architecture with other weights is another model too."""
    other = replace(healthy(), ref=replace(healthy().ref, weights_sha256="ab" * 32))
    for now in (CASES["native-ids"](), other):
        with pytest.raises(HsparityError) as caught:
            diff(healthy(), now, ("a.json", "b.json"))
        assert (caught.value.code, [n[:11] for n in caught.value.notes]) == (
            "E255",
            ["old  a.json", "new  b.json"],
        )
    embeddings = replace(healthy(), deltas=healthy().deltas[:1])
    with pytest.raises(HsparityError) as caught:
        diff(embeddings, CASES["several"]())
    assert "slot.000 on boundary.003" in caught.value.notes[1]
    assert "hsparity compare " in caught.value.help
    unknown = [
        replace(c, ref=replace(c.ref, weights_sha256="", model=m))
        for c, m in ((healthy(), "m/x"), (healthy(), "m/y"))
    ]
    assert diff(*unknown).exit_code == 3


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_fits_and_cuts_no_number(width: int) -> None:
    shown = terminal(diff(healthy(), diverged()), Options(width=width))
    assert all(len(line) <= width for line in shown.splitlines())
    assert not [line for line in shown.splitlines() if "…" in line]
    for figure in ("3.0e-03", "1.4e-01", "63"):
        assert figure in shown
    plain = terminal(diff(healthy(), diverged()), Options(width=width, unicode=False))
    assert plain.isascii()


def test_hostile_text_is_inert_everywhere() -> None:
    """Markup, escapes and fences in names and settings are shown as written."""
    then = CASES["hostile"]()
    odd = "</script><img src=x onerror=alert(1)>\x1b[2J\u202e```\n| @all"
    now = replace(
        then, findings=(), cand=replace(then.cand, version=odd, settings={odd: {odd: [odd]}}, path=odd)
    )
    found = diff(then, now, (odd, odd), ("hsparity", odd))
    html = page(found)
    assert [tag for tag, _ in Page(html).elements if tag in ("img", "iframe")] == []
    assert len(Page(html).all("script")) == 2
    for text in (html, markdown(found), terminal(found, Options())):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<img" not in markdown(found).replace("    hsparity", "")
    assert page(found) == html


def test_the_html_page_is_whole() -> None:
    """Well-formed, no request, one h1, captions and scopes; the record is in it."""
    found = diff(healthy(), diverged())
    parsed = Page(page(found))
    assert parsed.open == []
    assert len(parsed.all("h1")) == 1
    assert len(parsed.all("table")) == len(parsed.all("caption"))
    assert all(a.get("scope") in ("col", "row", "colgroup") for a in parsed.all("th"))
    assert "http" not in parsed.markup.replace("http-equiv", "")
    data = next(w for w in parsed.words["script"] if w.startswith("{"))
    assert json.loads(data) == json.loads(found.to_json())


def test_another_offset_is_held_by_the_reference_and_its_verdict_counts() -> None:
    """The candidate's sites are others by what was asked: the sites still answer one question, and the next step is the
    old offset."""
    base = healthy()
    moved = [replace(delta(b, 60.0, b in ASKED), cand=f"boundary.{b - 1:03d}") for b in range(1, 62)]
    asked = replace(base.request, offset=1)
    now = replace(base, deltas=tuple(moved), request=asked, verdict=Verdict.DIVERGED)
    found = diff(base, now)
    assert (found.exit_code, found.verdict, words(found)) == (1, Change.WORSE, {"worse"})
    assert found.warnings[0].startswith("--offset 0 then, 1 now: ")
    assert "see the warnings" in found.explained
    assert found.next[0].command.startswith(
        "hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers 2,30,58 --floor"
    )
    assert diff(now, base).exit_code == 0


def test_slots_are_held_against_boundaries_by_the_reference() -> None:
    found = diff(healthy(), CASES["several"]())
    site = next(s for s in found.sites if s.cand == "slot.000")
    assert (found.exit_code, site.ref, site.change) == (1, "boundary.003", Change.WORSE)
    assert site.then is not None
    assert any(
        w.startswith("boundary.003 is held by the candidate's boundary.003 then, slot.000 now")
        for w in found.warnings
    )


def test_another_choice_of_tokens_is_one_compare_away() -> None:
    """The captures hold them already, and their floor is not called another one for being of fewer tokens."""
    base = healthy()
    rows = [replace(d, tokens=20, floor=q(d.floor.p50 * 1.1) if d.floor else None) for d in base.deltas]
    now = replace(
        base,
        request=replace(base.request, tokens="0:5"),
        alignment=replace(base.alignment, tokens=20),
        deltas=tuple(rows),
    )
    found = diff(base, now, ("base.json", "runs/tok.json"))
    assert [step.command for step in found.next] == [
        "hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers 2,30,58 --tokens all --floor captures/hf-fp32 "
        "--floor captures/hf-bf16 --json runs/tok-again.json"
    ]
    assert not [w for w in found.warnings if w.startswith("other floor")]
    assert "Nothing that was recorded changed" not in found.explained
    assert " tokens, limit" not in found.now.floor


def test_worse_always_says_what_to_type() -> None:
    """Also where nothing that is recorded changed, and where the engines are others."""
    again = diff(healthy(), diverged(), ("a.json", "b.json"))
    assert [s.command for s in again.next] == ["hsparity report b.json -v"]
    other = replace(diverged(), cand=replace(healthy().cand, engine="sglang", path="captures/sglang"))
    found = diff(healthy(), other)
    assert found.exit_code == 1
    assert "hsparity compare captures/vllm-bf16 captures/sglang --layers all --floor captures/hf-fp32" in (
        found.next[0].command
    )


def test_only_boundaries_that_got_worse_are_marked() -> None:
    rows = [delta(b, 40.0 if b == 31 else 0.95, b in ASKED) for b in range(62)]
    marks = {
        name: page(diff(healthy(), replace(healthy(), deltas=r))).count('r="4.5"')
        for name, r in (("one", tuple(rows)), ("none", healthy().deltas))
    }
    assert marks == {"one": 2, "none": 0}  # drawn for wide pages and for narrow ones


def test_what_was_asked_for_now_is_counted() -> None:
    less = [replace(d, requested=d.ref == "boundary.003") for d in healthy().deltas]
    asked = replace(healthy().request, boundaries=(3,), layers=(2,), spelled="--layers 2")
    now = replace(healthy(), deltas=tuple(less), request=asked)
    assert "1 of 1 requested site moved" in diff(healthy(), now).headline


def test_a_bundled_model_and_its_folder_are_one_model() -> None:
    def called(name: str) -> Comparison:
        return replace(healthy(), ref=replace(healthy().ref, model=name, weights_sha256=""))

    names = ("tiny:llama", "/cache/models/tiny-llama-5c21a5665983", "/cache/models/tiny-llama-000000000000")
    codes = [diff(called(names[i]), called(names[j])).exit_code for i, j in ((0, 1), (1, 0), (1, 2))]
    assert codes == [0, 0, 3]


def test_what_was_redacted_is_not_held_as_one_model() -> None:
    """MODEL is what every redacted model is called, and the token ids are gone with the names."""
    found = diff(redact(healthy()), redact(diverged()))
    assert (found.exit_code, words(found)) == (3, {"not comparable"})
    assert "taken out of both results" in found.warnings[0]


def saved(folder: Path, **results: Comparison) -> list[str]:
    for name, result in results.items():
        (folder / f"{name}.json").write_text(to_json(result), encoding="utf-8")
    return [str(folder / f"{name}.json") for name in results]


def test_json_on_standard_output_is_the_document_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = saved(tmp_path, old=healthy(), new=diverged())
    assert invoke(["diff", *paths, "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["schema"] == SCHEMA
    assert invoke(["diff", *paths, "-q"]) == 1
    assert capsys.readouterr().out.startswith("WORSE  PARITY then, DIVERGED now; 3 of 3")


def test_a_baseline_is_replaced_only_where_nothing_got_worse(tmp_path: Path) -> None:
    old, new, bad = saved(tmp_path, old=healthy(0.95), new=healthy(0.96), bad=diverged())
    before = Path(old).read_bytes()
    assert invoke(["diff", old, bad, "--update", "-q"]) == 1
    assert Path(old).read_bytes() == before
    assert invoke(["diff", old, new, "--update", "-q"]) == 0
    assert Path(old).read_bytes() == Path(new).read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.json", "new.json", "old.json"]


def test_a_baseline_that_is_a_link_is_replaced_where_it_points(tmp_path: Path) -> None:
    """No file beside it is touched, whatever its name, and the mode stays."""
    real, new = saved(tmp_path, real=healthy(0.95), new=healthy(0.96))
    Path(real).chmod(0o640)
    link = tmp_path / "links" / "old.json"
    link.parent.mkdir()
    link.symlink_to(real)
    mine = {tmp_path / name: name for name in ("real.json.part", "real.json.tmp", f".hsparity-{os.getpid()}")}
    for path, text in mine.items():
        path.write_text(text)
    assert invoke(["diff", str(link), new, "--update", "-q"]) == 0
    assert link.is_symlink()
    assert Path(real).read_bytes() == Path(new).read_bytes()
    assert Path(real).stat().st_mode & 0o777 == 0o640
    assert {path: path.read_text() for path in mine} == mine
    assert len(list(tmp_path.iterdir())) == 3 + len(mine)


def test_a_page_becomes_a_baseline_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both inputs may be pages; a baseline that is called as a page is refused before anything is read."""
    (old,) = saved(tmp_path, old=healthy(0.95))
    page_of = tmp_path / "new.html"
    page_of.write_text(reporters()["html"].render(healthy(0.96), Options()), encoding="utf-8")
    assert invoke(["diff", old, str(page_of), "--update", "-q"]) == 0
    assert to_json(from_json(Path(old).read_text(encoding="utf-8"))) == to_json(healthy(0.96))
    before = page_of.read_bytes()
    assert invoke(["diff", str(page_of), old, "--update"]) == 2
    assert "error[E103]" in capsys.readouterr().err
    assert page_of.read_bytes() == before
    assert invoke(["diff", str(page_of), old, "-q"]) == 0


def test_a_baseline_is_not_replaced_by_a_result_that_asks_for_less(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    less = [replace(d, requested=d.ref == "boundary.003") for d in healthy().deltas]
    asked = replace(healthy().request, boundaries=(3,), layers=(2,), spelled="--layers 2")
    old, new = saved(tmp_path, old=healthy(), new=replace(healthy(), deltas=tuple(less), request=asked))
    before = Path(old).read_bytes()
    assert invoke(["diff", old, new, "-q"]) == 0
    assert invoke(["diff", old, new, "--update", "-q"]) == 3
    shown = capsys.readouterr()
    assert "was not asked for layer 30, boundary 31, layer 58, boundary 59" in shown.err
    assert Path(old).read_bytes() == before
    assert invoke(["diff", new, old, "--update", "-q"]) == 0


def test_what_is_read_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (old,) = saved(tmp_path, old=healthy())
    assert invoke(["diff", old, old, "--json", old]) == 2
    assert invoke(["diff", "-", "-"]) == 2
    assert invoke(["diff", old, str(tmp_path / "nothing.json")]) == 2
    assert capsys.readouterr().err.count("error[E") == 3
    assert from_json(Path(old).read_text(encoding="utf-8")).verdict is Verdict.PARITY


def test_it_works_without_torch(tmp_path: Path) -> None:
    paths = saved(tmp_path, old=healthy(), new=diverged())
    outputs = ["--html", str(tmp_path / "d.html"), "--markdown", str(tmp_path / "d.md")]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "diff", *paths, *outputs],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "d.md").read_text(encoding="utf-8").startswith("**WORSE**")
    assert (tmp_path / "d.html").read_text(encoding="utf-8").startswith("<!doctype html>")
