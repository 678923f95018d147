"""One page of a comparison and of what else was found of the same two captures."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hsparity.cli.main import invoke
from hsparity.experiments.result import Bisect, Blame, Experiment, SideFacts, Span, State
from hsparity.experiments.result import from_json as bisect_from_json
from hsparity.model import Quantiles, Side, Verdict, to_json
from hsparity.replay.result import Added, Replay, Replayed
from hsparity.report.joined import joined
from tests.golden.cases import CASES
from tests.hostile.records import filled
from tests.unit.drafter.records import COSTS

CASE = CASES["why"]()
REF, CAND = CASE.ref.path, CASE.cand.path


def taken(record: Any, side: Side, **changes: Any) -> Any:
    """The record with the facts of a side of the comparison, as far as it has them."""
    names = {f.name for f in fields(record)} & {f.name for f in fields(side)} - {"role", "dtype"}
    return replace(record, **{name: getattr(side, name) for name in names} | changes)


def bisect(ref: str = REF) -> Bisect:
    """Two experiments that were measured and one that failed."""
    made: Bisect = filled(Bisect, "words")
    side = filled(SideFacts, "words")
    blank = Experiment((), (), "cand", "toggle", State.FAILED)
    return replace(
        made,
        schema="hsparity.bisect/1",
        ref=taken(side, CASE.ref, path=ref),
        cand=taken(side, CASE.cand),
        experiments=(
            replace(
                blank,
                turned=("cand kv-dtype: fp8 -> auto",),
                state=State.MEASURED,
                share=Span(0.97, 0.95, 0.99),
            ),
            replace(
                blank, turned=("cand attention: a -> b",), state=State.MEASURED, share=Span(0.02, 0.01, 0.04)
            ),
            replace(blank, turned=("cand graphs: on -> off",)),
        ),
    )


def replay() -> Replay:
    """One layer of the candidate adds error, by its attention."""
    figures = Quantiles(0.1, 0.2, 0.3, 0.4, 0.5)

    def added(layer: int, part: str, ratio: float, verdict: Verdict) -> Added:
        return Added(
            "cand",
            "own",
            layer,
            "dense",
            part,
            96,
            figures,
            0.1,
            figures,
            ratio,
            ratio,
            ratio,
            1.0,
            verdict,
            "",
        )

    entries = (
        added(0, "layer", 1.0, Verdict.PARITY),
        added(17, "layer", 5.0, Verdict.DIVERGED),
        added(17, "attention", 6.0, Verdict.DIVERGED),
    )
    blank = Replayed("", "", "", "", "", 0, 0)
    sides = (taken(blank, CASE.ref), taken(blank, CASE.cand))
    return Replay("hsparity.replay/1", "said", REF, CAND, "m", "m", entries, sides=sides)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plain = replace(CASE, added=(), cost=None)
    (tmp_path / "result.json").write_text(to_json(plain), encoding="utf-8")
    (tmp_path / "bisect.json").write_text(bisect().to_json(), encoding="utf-8")
    (tmp_path / "replay.json").write_text(replay().to_json(), encoding="utf-8")
    cost = COSTS["cost-real"]()
    cost = replace(cost, ref=taken(cost.ref, CASE.ref), cand=taken(cost.cand, CASE.cand))
    (tmp_path / "cost.json").write_text(cost.to_json(), encoding="utf-8")
    return tmp_path


def run(folder: Path, *names: str) -> tuple[int, str]:
    """Exit code and page."""
    page = folder / "page.html"
    code = invoke(["report", *(str(folder / name) for name in names), "--html", str(page), "-q"])
    return code, page.read_text(encoding="utf-8") if page.exists() else ""


def test_everything_stands_on_one_page(folder: Path) -> None:
    """Experiments by share, layers by what they add, and the cost; the verdict is the comparison's own."""
    code, page = run(folder, "result.json", "bisect.json", "replay.json", "cost.json")
    assert code == 0
    assert "The most, 97.0%: cand kv-dtype: fp8 -&gt; auto. 1 more could not be measured." in page
    assert "Beyond it: layer 17 of the candidate, layer 17 (attention) of the candidate." in page
    assert "What it costs the draft" in page
    assert "Diverged.</span>" in page
    again = folder / "again"
    again.mkdir()
    (again / "page.json").write_text(page, encoding="utf-8")
    assert run(again, "page.json") == (0, page)


def test_a_comparison_alone_has_none_of_them(folder: Path) -> None:
    code, page = run(folder, "result.json")
    assert code == 0
    for heading in ("Experiments on the engines", "What it costs the draft", "from the checkpoint on the"):
        assert heading not in page


def test_results_of_other_captures_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both pairs are lined up, and nothing is written."""
    (folder / "bisect.json").write_text(bisect("captures/other").to_json(), encoding="utf-8")
    code, page = run(folder, "result.json", "bisect.json")
    said = capsys.readouterr().err
    assert (code, page) == (2, "")
    engines = [f"{side.engine} {side.version}" for side in (CASE.ref, CASE.cand)]
    assert f"hsparity.comparison/1  ref   {REF}, {engines[0]}\n" in said
    assert f"hsparity.bisect/1      ref   captures/other, {engines[0]}\n" in said
    assert said.count(f"cand  {CAND}, {engines[1]}\n") == 2


OTHER = {
    "engine": "trtllm",
    "version": "9.9.9",
    "model": "HuggingFaceTB/SmolLM2-135M",
    "weights_sha256": "f" * 64,
    "prompts": 77,
    "tokens": 7777,
}


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("of", ["bisect", "replay", "cost"])
def test_equal_paths_are_not_enough(
    of: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Captures of other engines, models, weights or prompts under the same names: refused, and both facts are shown."""
    comparison = replace(CASE, cand=replace(CASE.cand, weights_sha256="a" * 64))
    (folder / "result.json").write_text(to_json(comparison), encoding="utf-8")
    path = folder / f"{of}.json"
    said = json.loads(path.read_text(encoding="utf-8"))
    side = said["sides"][1] if of == "replay" else said["cand"]
    side["weights_sha256"] = "a" * 64
    path.write_text(json.dumps(said), encoding="utf-8")
    assert run(folder, "result.json", path.name)[0] == 0
    side[name] = OTHER[name]
    path.write_text(json.dumps(said), encoding="utf-8")
    capsys.readouterr()
    assert run(folder, "result.json", path.name)[0] == 2
    err = capsys.readouterr().err
    assert err.startswith("error[E223]")
    for value in (getattr(comparison.cand, name), OTHER[name]):
        assert (f"{value:,}" if isinstance(value, int) else str(value)[:12]) in err


def test_an_older_result_is_held_against_what_it_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the sides' models the draft's cost has one model, whose last part is compared; a folder of a cache has none."""
    said = json.loads((folder / "cost.json").read_text(encoding="utf-8"))
    for side in ("ref", "cand"):
        for name in ("model", "weights_sha256", "prompts", "tokens"):
            del said[side][name]
    last = CASE.ref.model.rpartition("/")[2]
    for model, code in (
        (f"/data/{last}/", 0),
        (f"hub/snapshots/{'0123456789ab' * 3}", 0),
        (f"tiny-{last.upper()}-647f940d3f2b", 0),
        ("HuggingFaceTB/SmolLM2-135M", 2),
    ):
        (folder / "cost.json").write_text(json.dumps({**said, "model": model}), encoding="utf-8")
        assert run(folder, "result.json", "cost.json")[0] == code, model
    assert "SmolLM2-135M" in capsys.readouterr().err
    old = json.loads(replay().to_json())
    del old["sides"]
    (folder / "replay.json").write_text(json.dumps(old), encoding="utf-8")
    assert run(folder, "result.json", "replay.json")[0] == 0


def test_only_what_fits_beside_it_is_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second comparison is none, and a draft's cost does not come first."""
    assert run(folder, "result.json", "result.json")[0] == 2
    assert "is not a bisection, a replay or a draft's cost" in capsys.readouterr().err
    assert run(folder, "cost.json", "bisect.json")[0] == 2
    assert "name the comparison first" in capsys.readouterr().err


def test_a_bisection_is_read_back() -> None:
    assert bisect_from_json(bisect().to_json()).to_json() == bisect().to_json()
    with pytest.raises(ValueError, match="not a hsparity"):
        bisect_from_json("{}")


def test_what_a_bisection_settles_is_settled_on_the_page() -> None:
    """The hypothesis of a settled cause goes first, with its share and without the bisection that was made; nothing else
    moves, and what is only likely, or a small part, settles nothing."""
    open_ones = [f for f in CASE.findings if f.severity == "hypothesis" and not f.ruled_out]
    last = replace(
        open_ones[-1],
        confirm=(
            "hsparity bisect a b --knobs kv-dtype",
            "hsparity bisect a b --knobs graph",
            "hsparity replay a b",
        ),
    )
    case = replace(CASE, findings=tuple(last if f is open_ones[-1] else f for f in CASE.findings))
    blame = replace(
        filled(Blame, "words"), code=last.code, share=Span(0.97, 0.95, 0.99), confidence="settled"
    )
    made = bisect()
    turned = (replace(made.experiments[0], knobs=("kv-dtype",)), *made.experiments[1:])
    made = replace(made, experiments=turned, causes=(blame,))
    found = joined(case, [made])
    first = next(f for f in found.findings if f.severity == "hypothesis" and not f.ruled_out)
    assert (first.code, first.confidence, first.evidence[-1]) == (
        last.code,
        "settled",
        "bisect: 97 % of the excess",
    )
    assert first.confirm == last.confirm[1:]
    assert [f.code for f in found.findings if f.severity != "hypothesis"] == [
        f.code for f in case.findings if f.severity != "hypothesis"
    ]
    assert sorted(f.code for f in found.findings) == sorted(f.code for f in case.findings)
    for less in (replace(blame, confidence="likely"), replace(blame, share=Span(0.1, 0.09, 0.11))):
        unsure = joined(case, [replace(made, causes=(less,))])
        assert [f.confidence for f in unsure.findings] == [f.confidence for f in case.findings]


def test_a_joined_replay_counts_the_choices_of_routers() -> None:
    """What a router chose otherwise, and how much of it rounding does not explain, goes into the page's layers."""
    plain = replay()
    router = replace(plain.added[1], part="router", experts_differ=40, experts_wide=30)
    added = joined(CASE, [replace(plain, added=(*plain.added, router))]).added
    assert [(a.part, a.experts_differ, a.experts_wide) for a in added if a.layer == 17] == [
        ("layer", -1, -1),
        ("attention", -1, -1),
        ("router", 40, 30),
    ]
