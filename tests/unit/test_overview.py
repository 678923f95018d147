"""hsparity overview: many results on one page, by what varies, worst first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from hsparity.cli.main import invoke
from hsparity.cli.saved import read
from hsparity.model import Comparison, Verdict, to_json
from hsparity.overview.axes import differing, matrix, natural, shared
from hsparity.overview.gathering import gather
from hsparity.overview.page import render as page
from hsparity.overview.result import SCHEMA, Overview
from hsparity.overview.terminal import render as terminal
from hsparity.report import Options
from tests.golden.cases import CASES
from tests.unit.drafter.records import COSTS
from tests.unit.test_report_html import Page

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from hsparity.cli.main import invoke; sys.exit(invoke(sys.argv[1:]))"


def result(
    case: str, version: str = "0.32.0", model: str = "m/kimi-k2", weights: str = "", **settings: object
) -> Comparison:
    """A small result: the requested sites, no map."""
    c = CASES[case]()
    sides = [replace(s, model=model, weights_sha256=weights) for s in (c.ref, c.cand)]
    cand = replace(sides[1], engine="vllm", version=version, settings={**c.ref.settings, **settings})
    few = tuple(d for d in c.deltas if d.requested)
    return replace(c, ref=sides[0], cand=cand, deltas=few, map=None, request=CASES["parity"]().request)


def write(folder: Path, **results: Comparison) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in results.items():
        (folder / f"{name}.json").write_text(to_json(each), encoding="utf-8")


def found(folder: Path) -> Overview:
    return gather(folder, read)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two releases, two settings, one model; a page beside one of them; files that are none."""
    write(tmp_path / "old", a=result("parity", "0.9.0"), b=result("offset", "0.9.0", kv="fp8"))
    write(tmp_path / "new", a=result("final-norm", "0.10.0"), b=result("inconclusive", "0.10.0", kv="fp8"))
    (tmp_path / "old" / "a.html").write_text("page", encoding="utf-8")
    (tmp_path / "manifest.json").write_text('{"schema": "capture"}', encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no JSON", encoding="utf-8")
    return tmp_path


def test_rows_and_columns_are_what_varies(folder: Path) -> None:
    """Releases in their order make the columns, settings the rows; what never varies is said once."""
    entries = found(folder).entries
    m = matrix(entries)
    assert (m.heads, m.column_axis) == (("cand settings",), "candidate")
    assert m.columns == ("vllm 0.9.0", "vllm 0.10.0")
    assert [labels for labels, _ in m.rows] == [("-",), ("kv fp8",)]
    assert [[[e.file for e in cell] for cell in cells] for _, cells in m.rows] == [
        [["old/a.json"], ["new/a.json"]],
        [["old/b.json"], ["new/b.json"]],
    ]
    same = shared(entries)
    assert same.axes == (("model", "kimi-k2"), ("reference", "hf 5.19.0"))
    assert ("cand tp", "1") in same.facts
    assert "cand kv" not in dict(same.facts)


def test_the_list_is_by_verdict_and_then_by_excess_of_one_unit(folder: Path) -> None:
    """10 half ulps under no floor stand behind what diverged, however large the number; a tolerance behind a floor."""
    tight = result("offset", "0.11.0")
    within = [
        replace(d, ratios=(), floor=None, verdict=Verdict.DIVERGED, reason="1 of 96 tokens beyond --tol 9")
        for d in tight.deltas
    ]
    floor = replace(tight.floor, kind="tolerance", limit=9.0)
    write(folder, tol=replace(tight, deltas=tuple(within), floor=floor, findings=()))
    entries = found(folder).entries
    assert [(e.file, e.verdict.value, e.over) for e in entries] == [
        ("new/a.json", "diverged", "floor"),
        ("old/b.json", "diverged", "floor"),
        ("tol.json", "diverged", "tolerance"),
        ("new/b.json", "inconclusive", "half-ulp"),
        ("old/a.json", "parity", "floor"),
    ]
    assert entries[0].excess > entries[1].excess
    # A number within its limit says why it diverged all the same.
    assert entries[2].excess < 1
    assert entries[2].why == "layer 2, boundary 3: 1 of 96 tokens beyond --tol 9"
    assert "diverged because layer 2" in page(found(folder), str(folder / "o.html"))
    assert [e.why for e in entries if e is not entries[2]] == [""] * 4
    assert (entries[0].file, entries[0].code) == ("new/a.json", "HS201")
    assert entries[0].layer == "layer 60, boundary 61"


def test_what_a_release_always_runs_with_makes_no_rows(tmp_path: Path) -> None:
    """A default that changed with the release stands in the list, and would leave half of the cells empty."""
    write(tmp_path, a=result("parity", "1", runner="v1"), b=result("parity", "2", runner="v2"))
    entries = found(tmp_path).entries
    m = matrix(entries)
    assert (m.heads, [labels for labels, _ in m.rows]) == (("candidate",), [("vllm 1",), ("vllm 2",)])
    assert differing(entries)["a.json"] == ((("cand runner", "v1"),), ())


def test_two_results_of_one_cell_are_both_shown(tmp_path: Path) -> None:
    write(tmp_path, a=result("parity"), b=result("offset"), c=result("parity", "0.33.0"))
    m = matrix(found(tmp_path).entries)
    assert sorted(len(cell) for _, cells in m.rows for cell in cells) == [1, 2]
    html = page(found(tmp_path), str(tmp_path / "o.html"))
    # In the matrix, and by verdict and by name in the list; each is named where they share a cell.
    assert html.count('href="a.json"') == html.count('href="b.json"') == html.count('href="c.json"') == 3
    assert [f'<span class="run">{f}.json</span>' in html for f in "abc"] == [True, True, False]


def test_models_of_one_name_are_told_apart_by_their_weights(tmp_path: Path) -> None:
    write(
        tmp_path,
        a=result("parity", weights="ab" * 32),
        b=result("parity", weights="cd" * 32, model="other/kimi-k2"),
    )
    m = matrix(found(tmp_path).entries)
    assert [labels for labels, _ in m.rows] == [("kimi-k2 (abababab)",), ("kimi-k2 (cdcdcdcd)",)]


def test_releases_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["0.10.1", "0.9.0", "0.9.0rc1", "0.9"], key=natural) == [
        "0.9",
        "0.9.0",
        "0.9.0rc1",
        "0.10.1",
    ]
    assert sorted(["9" * 5000, "10"], key=natural)[0] == "10"


def test_files_that_are_no_results_are_counted_and_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the text, on the page, in the JSON; a linked folder, a pipe and a huge file neither hang nor vanish."""
    os.mkfifo(folder / "pipe.json")
    os.symlink(folder, folder / "loop")
    with (folder / "huge.json").open("wb") as file:
        file.truncate(1 << 29)
    assert (
        invoke(
            [
                "overview",
                str(folder),
                "-v",
                "--html",
                str(folder / "o.html"),
                "--json",
                str(folder / "o.json"),
            ]
        )
        == 0
    )
    names = ["broken.json", "huge.json", "manifest.json", "pipe.json"]
    shown, html = capsys.readouterr().out, (folder / "o.html").read_text(encoding="utf-8")
    assert "4 JSON files hold no result and are not shown" in shown
    for name in names:
        assert f"  {name}: " in shown
        assert f"<code>{name}</code>" in html
    record = json.loads((folder / "o.json").read_text(encoding="utf-8"))
    assert (record["schema"], [s["file"] for s in record["skipped"]]) == (SCHEMA, names)
    # Written once more, it does not count itself.
    assert len(gather(folder, read, frozenset([os.path.realpath(folder / "o.json")])).skipped) == 4


def test_links_are_relative_and_lead_to_the_page_beside_the_result(folder: Path) -> None:
    for at in (folder / "o.html", folder / "old" / "deep" / "o.html", folder.parent / "o.html"):
        links = {a["href"] or "" for a in Page(page(found(folder), str(at))).all("a")} - {"#list"}
        targets = {Path(os.path.normpath(at.parent / unquote(link))) for link in links}
        assert targets == {
            folder / "old" / "a.html",
            *(folder / f for f in ("old/b.json", "new/a.json", "new/b.json")),
        }


def test_hostile_names_are_inert(tmp_path: Path) -> None:
    """A file called javascript:..., markup in settings: links are percent-encoded, text is text."""
    odd = CASES["hostile"]()
    path = tmp_path / 'javascript:alert(1)&"<img src=x>?#.json'
    path.write_text(to_json(odd), encoding="utf-8")
    write(tmp_path / "a\u202eb", x=replace(odd, cand=replace(odd.cand, settings={"<b>|`": "@all\n"})))
    parsed = Page(page(found(tmp_path), str(tmp_path / "o.html")))
    links = {a["href"] or "" for a in parsed.all("a")}
    assert "javascript%3Aalert%281%29%26%22%3Cimg%20src%3Dx%3E%3F%23.json" in links
    assert not [link for link in links if ":" in link or link.startswith("//")]
    assert parsed.all("img") == []
    assert parsed.open == []
    for text in (parsed.markup, terminal(found(tmp_path), Options(verbose=True))):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_the_page_needs_no_script_and_no_network(folder: Path) -> None:
    parsed = Page(page(found(folder), str(folder / "o.html")))
    assert len(parsed.all("script")) == 1
    assert len(parsed.all("table")) == len(parsed.all("caption"))
    assert "http" not in parsed.markup.replace("http-equiv", "")
    assert len(parsed.all("h1")) == 1
    assert page(found(folder), str(folder / "o.html")) == parsed.markup


def test_a_draft_head_has_its_own_verdict_and_stands_beside_its_comparison(tmp_path: Path) -> None:
    """It stands beside a comparison of the same captures of the same model; with relative paths only in its own folder."""
    cost = COSTS["cost-real"]()
    base = result("parity", model="tiny/" + cost.model)
    sides = [
        replace(s, path=f.path, engine=f.engine, version=f.version)
        for s, f in ((base.ref, cost.ref), (base.cand, cost.cand))
    ]
    (tmp_path / "cost.json").write_text(cost.to_json(), encoding="utf-8")
    assert [d.file for d in found(tmp_path).drafts] == ["cost.json"]
    same = replace(base, ref=sides[0], cand=sides[1])
    other = replace(same, ref=replace(sides[0], model="m/llama"), cand=replace(sides[1], model="m/llama"))
    write(tmp_path, a=same, b=other, c=replace(same, redacted=True))
    write(tmp_path / "elsewhere", d=same)
    one = found(tmp_path)
    assert {e.file: e.accepted_file for e in one.entries} == {
        "a.json": "cost.json",
        "b.json": "",
        "c.json": "",
        "elsewhere/d.json": "",
    }
    assert [d.file for d in one.drafts] == ["cost.json"]
    assert one.entries[0].accepted in page(one, str(tmp_path / "o.html"))
    assert terminal(one, Options(quiet=True, width=200)) == (
        "4 results: 4 at parity; 1 result of a draft head: 1 diverged."
    )


def test_a_few_settings_tell_results_apart_and_the_rest_is_folded(tmp_path: Path) -> None:
    """Thirty that go together count once; what was asked is always told."""
    many = [{f"knob{i}": str(v) for i in range(30)} for v in range(2)]
    a, b = (result("parity", **m, batch=str(i)) for i, m in enumerate(many))
    c = result("parity", **many[0], batch="7", tp=2)
    asked = replace(c.request, spelled="--layers 2", offset=1, tokens="0:5")
    write(tmp_path, a=a, b=b, c=replace(c, request=asked))
    few, rest = differing(found(tmp_path).entries)["c.json"]
    assert [f"{k} {v}" for k, v in few] == ["asked layers 2", "tokens 0:5", "offset +1", "cand batch 7"]
    assert len(rest) == 31
    html = page(found(tmp_path), str(tmp_path / "o.html"))
    assert "<summary>31 more</summary>" in html
    assert "31 more: -v" in " ".join(terminal(found(tmp_path), Options()).split())
    assert "knob29" in terminal(found(tmp_path), Options(verbose=True))


def test_a_bundled_model_and_its_folder_are_one(tmp_path: Path) -> None:
    folder = "cache/tiny-llama-5c21a5665983"
    write(tmp_path, a=result("parity", model="tiny:llama"), b=result("parity", model=folder))
    assert shared(found(tmp_path).entries).axes[0] == ("model", "tiny:llama")
    write(tmp_path, c=result("parity", model="cache/tiny-llama-000000000000"))
    assert len({e.model for e in found(tmp_path).entries}) == 3


def test_other_saved_results_are_called_that(folder: Path) -> None:
    """What this command, diff and others wrote holds a result, of a kind that stands in no cell."""
    assert invoke(["overview", str(folder), "--json", str(folder / "o.json"), "-q"]) == 0
    old, new = (str(folder / "old" / f"{name}.json") for name in "ab")
    assert invoke(["diff", old, new, "--json", str(folder / "d.json"), "-q"]) in (1, 3)
    one = found(folder)
    assert {s.file: s.kind for s in one.skipped} == {
        "broken.json": "",
        "d.json": "hsparity.diff/1",
        "manifest.json": "",
        "o.json": SCHEMA,
    }
    shown = " ".join(terminal(one, Options()).split())
    assert "2 other saved results (1 diff, 1 overview) are not shown" in shown
    assert "2 JSON files hold no result and are not shown" in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_text_fits(width: int, folder: Path) -> None:
    shown = terminal(found(folder), Options(width=width))
    assert all(len(line) <= width for line in shown.splitlines())
    assert "DIVERGED  240×  layer 60, boundary 61  HS201" in shown


def test_a_folder_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text("[]", encoding="utf-8")
    assert invoke(["overview", str(tmp_path)]) == 2
    assert invoke(["overview", str(tmp_path / "nowhere")]) == 2
    shown = capsys.readouterr().err
    assert shown.count("error[E256]") == 2
    assert "other.json  its schema is 'list'" in shown


def test_it_works_without_torch(folder: Path) -> None:
    outputs = ["--html", str(folder / "o.html"), "--markdown", str(folder / "o.md")]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "overview", str(folder), *outputs],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 results: 2 diverged, 1 inconclusive, 1 at parity.")
    assert "[diverged](new/a.json) | 240× | kimi-k2" in (folder / "o.md").read_text(encoding="utf-8")
