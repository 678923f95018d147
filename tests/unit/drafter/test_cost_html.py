"""The page of `hsparity drafter`: self-contained, deterministic, safe, and every figure of the record in it.

What a browser makes of it is in tests/integration/test_html_chromium.py.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from hsparity.cli.main import invoke
from hsparity.drafter.result import DraftCost, Estimate
from hsparity.model import Verdict
from hsparity.report.bar_figure import nice
from hsparity.report.cost_page import render
from hsparity.report.cost_values import best_undone, number, percent
from hsparity.report.embedded import unpack
from hsparity.report.palette import LIGHT
from hsparity.report.to_html import script, style_sheet
from tests.unit.test_report_html import Page

from .records import COSTS, full

ALL = pytest.mark.parametrize("name", COSTS)


@cache
def page(name: str) -> Page:
    return Page(render(COSTS[name]()))


def words(p: Page) -> str:
    """What the page says outside style and scripts."""
    return " ".join(t for tag, found in p.words.items() if tag not in ("style", "script") for t in found)


@ALL
def test_elements_close_in_order_and_ids_are_unique(name: str) -> None:
    p = page(name)
    assert p.open == []
    ids = [a["id"] for _, a in p.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    assert {a["aria-labelledby"] for _, a in p.elements if "aria-labelledby" in a} <= set(ids)
    assert {(a["href"] or "")[1:] for a in p.all("a")} <= set(ids)


@ALL
def test_nothing_is_fetched(name: str) -> None:
    """No address, no source, no handler; the policy makes a browser refuse anything else."""
    p = page(name)
    assert "http" not in p.markup.replace("http-equiv", "")
    assert "url(" not in p.markup
    policy = next(a["content"] for a in p.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert (
        policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    )
    for _, attributes in p.elements:
        assert "src" not in attributes
        assert not [a for a in attributes if a.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")


@ALL
def test_the_page_can_be_used_without_sight_or_mouse(name: str) -> None:
    """Language, landmarks, skip link, scoped headers, captions, labelled pictures."""
    p = page(name)
    assert p.all("html")[0]["lang"] == "en"
    assert p.all("main")
    assert p.all("header")
    assert (p.elements[[t for t, _ in p.elements].index("body") + 1])[1].get("href") == "#verdict"
    assert all(a.get("scope") in ("col", "row") for a in p.all("th"))
    assert all(a.get("role") == "img" and a.get("aria-label") for a in p.all("svg"))
    assert len(p.all("figure")) == len(p.all("figcaption"))
    assert len(p.all("table")) == len(p.all("caption"))
    assert len(p.all("h1")) == 1


def test_foreign_text_stays_text() -> None:
    """The hostile page has the elements of the plain one; its markup is shown as written, its controls are spelled out."""
    plain, infested = page("cost-full"), page("cost-hostile")
    assert [t for t, _ in infested.elements if t not in ("text", "tspan")] == [
        t for t, _ in plain.elements if t not in ("text", "tspan")
    ]
    assert "<script>alert(1)</script>" in " ".join(infested.words["h1"])
    assert "\x1b" not in infested.markup
    assert "\u202e" not in infested.markup
    assert "\\u202e" in words(infested)


@ALL
def test_the_record_is_in_the_page(name: str) -> None:
    """What the page carries renders the same page again."""
    copy = DraftCost.from_json(unpack(page(name).markup) or "")
    assert copy.to_json() == COSTS[name]().to_json()
    assert render(copy) == page(name).markup


def test_bytes_do_not_depend_on_the_process() -> None:
    """Another hash seed and time zone make the same page."""
    program = (
        "import hashlib; from tests.unit.drafter.records import hostile; from hsparity.report.cost_page import render; "
        "print(hashlib.sha256(render(hostile()).encode()).hexdigest())"
    )
    environment = {
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == hashlib.sha256(page("cost-hostile").markup.encode()).hexdigest()


def test_chrome_is_small() -> None:
    """Style, script and markup stay under 30 KB."""
    templates = files("hsparity.report") / "templates"
    markup = "".join((templates / f"{n}.html.j2").read_text() for n in ("cost", "tables"))
    assert len((style_sheet() + script() + markup).encode()) < 30_000


def test_style_uses_only_colors_that_every_theme_has() -> None:
    """Their contrast is tested with the palette."""
    used = {c for n in COSTS for c in re.findall(r"var\(--([a-z]+)\)", page(n).markup)}
    assert {"bad", "accent", "muted"} <= used <= set(LIGHT.colors)


def test_every_main_figure_stands_in_figure_and_table() -> None:
    """Each feeding's accepted tokens are text in the drawing, in its label, and in the table with the change's interval."""
    p = page("cost-full")
    label = p.all("svg")[0]["aria-label"] or ""
    cells, drawn = p.words["td"], p.words["tspan"]
    for feed in full().feeds[:6]:
        assert f"{feed.words} {feed.accepted.value:.2f} (" in label
        assert f"{feed.accepted.value:.2f}" in cells
        assert drawn.count(f"{feed.accepted.value:.2f}") >= 2  # wide and narrow
    assert "-1.00 (-1.05 to -0.95)" in cells
    assert not [t for t in drawn if "1.20" in t]  # slots have a table of their own
    for text in ("slot.000: not told apart", "boundaries 3, 16", "0-31", "Prompt 7: fewer than 2 rows"):
        assert text in words(p)


def test_the_fix_that_pays_most_is_named() -> None:
    """All undone where only that brings it back; the lone finding where it brings as much; nothing at parity; without a verdict
    it is not settled."""
    assert "Everything that was found. Undone, the head gets 1.49 draft tokens a step" in words(
        page("cost-full")
    )
    cost = full()
    lone = replace(cost, feeds=tuple(f for f in cost.feeds if f.key not in ("undone:all", "undone:HS201")))
    assert "HS101 layer-offset. Undone, the head gets 0.90" in words(Page(render(lone)))
    best = best_undone(
        replace(
            cost,
            feeds=tuple(
                replace(f, accepted=Estimate(1.0)) if f.key.startswith("undone:") else f for f in cost.feeds
            ),
        )
    )
    assert best is not None
    assert best.key == "undone:HS101"
    assert "Nothing, for this head." in words(Page(render(replace(cost, verdict=Verdict.PARITY))))
    unsure = replace(cost, verdict=Verdict.INCONCLUSIVE)
    assert "Not settled. What would pay most: Everything" in words(Page(render(unsure)))
    bare = replace(cost, feeds=cost.feeds[:2])
    assert "no fix has a price" in words(Page(render(bare)))


def test_numbers_over_stand_ins_say_so_wherever_they_stand() -> None:
    """Beside the verdict and in the figure's caption; every stand-in is named; without figures nothing is claimed."""
    p = page("cost-full")
    said = "sglang ran with 2 stand-ins of hsparity's for kernels that it lacks"
    assert any(said in t for t in p.words["p"])
    assert any(said in t for t in p.words["figcaption"])
    assert "sgl_kernel.tree, verify_greedy" in words(p)
    assert "sglang 0.5.23 got 0.50 (0.45 to 0.55) accepted on boundaries 3, 16" in words(p)
    assert "at most 2.0 points apart" in words(p)
    assert "-2.0 points (-7.0 to +3.0)" in p.words["td"]
    assert "Not laid beside the prediction: it ran on boundaries 2, 15" in words(p)
    assert "vllm ran with" not in words(p)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.356, "+0.36"), (-0.004, "0.00"), (float("nan"), "-"), (None, "-")]
)
def test_a_change_that_rounds_to_nothing_has_no_sign(value: float | None, shown: str) -> None:
    assert number(value, signed=True) == shown


def test_shares_are_spelled_in_per_cent() -> None:
    assert (percent(0.4583), percent(-0.0001, signed=True), percent(0.02, signed=True)) == (
        "45.8 %",
        "0.0 %",
        "+2.0 %",
    )


@pytest.mark.parametrize(("value", "top"), [(0.81, 1.0), (1.0, 1.0), (1.9, 2.0), (0.47, 0.6), (0.0, 1.0)])
def test_an_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice(value) == pytest.approx(top)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "cost.json"
    path.write_text(full().to_json(), encoding="utf-8")
    return path


def test_report_renders_the_record_again(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Terminal, page and JSON come from the file alone; there is no Markdown."""
    html, again = tmp_path / "r.html", tmp_path / "again.json"
    assert invoke(["report", str(saved), "--html", str(html), "--json", str(again)]) == 0
    assert "DIVERGED  the difference costs 1.00 of 1.50" in capsys.readouterr().out
    assert html.read_text(encoding="utf-8") == page("cost-full").markup
    assert DraftCost.from_json(again.read_text(encoding="utf-8")).to_json() == full().to_json()
    assert invoke(["report", str(saved), "--markdown", str(tmp_path / "r.md")]) == 2
    assert "error[E103]" in capsys.readouterr().err
    assert not (tmp_path / "r.md").exists()


def test_report_on_standard_output_is_the_document_alone(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["report", str(saved), "--json", "-"]) == 0
    assert DraftCost.from_json(capsys.readouterr().out).to_json() == full().to_json()
    assert invoke(["report", str(saved), "--html", "-"]) == 0
    assert capsys.readouterr().out == page("cost-full").markup


def test_damaged_records_are_refused_or_render(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With any one field replaced: E213, or a page; never a crash."""
    path, refused = tmp_path / "damaged.json", 0
    for document in _damaged(json.loads(full().to_json())):
        path.write_text(json.dumps(document), encoding="utf-8")
        code = invoke(["report", str(path), "--html", str(tmp_path / "r.html")])
        err = capsys.readouterr().err
        assert code in (0, 2), err
        assert code == 0 or "error[E213]" in err
        refused += code == 2
    assert refused > 50


def _damaged(document: Any) -> Iterator[Any]:
    odd = (None, "x", -1, [], {}, [[1]], 1e400)
    for i, (holder, key) in enumerate(list(_fields(document))):
        original = holder[key]
        holder[key] = odd[i % len(odd)]
        yield document
        holder[key] = original


def _fields(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every field; of a list, its first two elements."""
    keys = (
        list(node) if isinstance(node, dict) else range(min(len(node), 2)) if isinstance(node, list) else []
    )
    for key in keys:
        yield node, key
        yield from _fields(node[key])
