"""The page of a cost at every width, and the record behind it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from hsparity.capture.read import open_source
from hsparity.cli.drafter_page import render
from hsparity.drafter.result import SCHEMA, Beside, Bin, DraftCost, Estimate
from hsparity.report.base import Options
from tests.causes.streams import edited

from .costed import World, captured, slots

HOSTILE = "\x1b[31mred\x1b[0m\r[bold]<script>alert(1)</script>\u202e"
FIGURE = re.compile(r"[+-]?\d+\.\d\d")


@pytest.fixture(scope="module")
def found(world: World, tmp_path_factory: pytest.TempPathFactory) -> DraftCost:
    """Two findings, with everything that a page can show; its paths as a user types them."""
    scaled = edited(captured(2, "sglang"), lambda _, s: {k: x * 1.5 for k, x in s.items()})
    made = slots(scaled, ["boundary.003", "boundary.005", "boundary.006"], and_boundaries=True)
    cost = world.price(open_source(made.write(tmp_path_factory.mktemp("page") / "cand"))).cost
    shares = (Estimate(0.51, 0.44, 0.58), Estimate(0.22, 0.17, 0.28), Estimate(0.1, 0.06, 0.15))
    apart = (Estimate(-0.016, -0.041, 0.02),) * 3
    beside = Beside(
        "measured.json", "sglang", "0.5.23", (3, 5, 6), ("sgl_kernel.verify_tree_greedy_cpu",), "cand", 7, 42, 44,
        shares, shares, apart, Estimate(0.83, 0.7, 0.9), Estimate(0.85, 0.7, 0.9), Estimate(-0.02, -0.1, 0.1),
    )  # fmt: skip
    blank = Beside("other.json", "vllm", "0.32.0", (1, 2, 3), ()).because("it ran on boundaries 1, 2, 3")
    return replace(
        cost,
        draft="heads/mine",
        ref=replace(cost.ref, path="captures/vllm"),
        cand=replace(cost.cand, path="captures/sglang"),
        beside=(beside, blank),
        next=("hsparity compare captures/vllm captures/sglang",),
    )


def page(cost: DraftCost, width: int, **given: Any) -> str:
    options = {"width": width, "color": False, "unicode": True, "verbose": False, "quiet": False}
    return render(cost, Options(**{**options, **given}))


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("verbose", [True, False])
def test_no_line_is_wider_than_the_page(width: int, verbose: bool, found: DraftCost) -> None:
    """At every width each line fits; only what is to be typed next is never broken."""
    for line in page(found, width, verbose=verbose).splitlines():
        assert len(line) <= width or line.startswith("next"), line


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_figure_is_cut(width: int, found: DraftCost) -> None:
    """Accepted tokens of every feeding stand whole on its line, however narrow the page."""
    text = page(found, width)
    lines = text.splitlines()
    rule = next(i for i, li in enumerate(lines) if li.startswith("───"))
    for feeding in found.feeds:
        line = next(li for li in lines[rule:] if li.startswith(feeding.words + "  "))
        figures = FIGURE.findall(line.removeprefix(feeding.words))
        assert figures[0] == f"{feeding.accepted.value:.2f}"
        if feeding.change is not None:
            assert float(figures[1]) == pytest.approx(feeding.change.value, abs=0.0051)
    for share in ("51.0 %", "22.0 %", "10.0 %"):
        assert text.count(share) == 2


def test_the_widest_page_shows_intervals(found: DraftCost) -> None:
    """At 120 columns a change has its interval and every position its share."""
    change = found.feed("cand").change
    assert change is not None
    assert change.low is not None
    line = next(li for li in page(found, 120).splitlines() if li.startswith("cand, as it is"))
    assert f"({change.low:.2f} to" in line
    assert line.count("%") == 3


def test_quiet_is_one_line(found: DraftCost) -> None:
    """Verdict and headline alone, and that whole, at any width."""
    for width in (60, 120):
        assert page(found, width, quiet=True) == f"DIVERGED  {found.headline}"


def test_stand_ins_stand_beside_the_figures(found: DraftCost) -> None:
    """Wherever a measurement over stand-ins is shown, it is said; what could not be laid beside is said too."""
    text = " ".join(page(found, 80).split())
    assert "over 1 stand-ins" in text
    assert "other.json: not laid beside the prediction: it ran on boundaries 1, 2, 3" in text


def test_every_prompt_where_asked(found: DraftCost) -> None:
    """The page shows the prompts that lose most, and with -v all of them."""
    brief, whole = page(found, 80), page(found, 80, verbose=True)
    labels = [b.label for b in found.by_prompt]
    assert sum(f"\n{label} " in brief for label in labels) == 3
    assert sum(f"\n{label} " in whole for label in labels) == len(labels)


def test_foreign_names_are_inert(found: DraftCost) -> None:
    """Escapes and markup in names of heads, captures, prompts and notes reach a terminal spelled out."""
    spoiled = replace(
        found,
        draft=HOSTILE,
        ref=replace(found.ref, path=HOSTILE, why=HOSTILE, target=HOSTILE, version=HOSTILE),
        cand=replace(found.cand, path=HOSTILE, engine=HOSTILE, places=(HOSTILE,) * 3),
        headline=found.headline + HOSTILE,
        states=HOSTILE,
        notes=(HOSTILE,),
        dropped=(HOSTILE,),
        by_prompt=(*found.by_prompt, Bin(HOSTILE, 3, 2.0, 0.0)),
        feeds=(*found.feeds, replace(found.feeds[-1], key="only:9", words=HOSTILE, note=HOSTILE, stands_in=(HOSTILE,))),
        beside=tuple(
            replace(b, path=HOSTILE, engine=HOSTILE, stand_ins=(HOSTILE,), why_not=b.why_not and HOSTILE) for b in found.beside
        ),
        next=(f"hsparity compare {HOSTILE} b",),
    )  # fmt: skip
    for given in ({}, {"verbose": True}, {"quiet": True}):
        text = page(spoiled, 100, **given)
        assert not set("\x1b\r\u202e") & set(text)
        assert "\\x1b[31mred" in text
    assert all(ord(c) < 128 for c in page(spoiled, 100, unicode=False))


def test_colour_is_the_verdicts_alone(found: DraftCost) -> None:
    """With colour the text is the same but for the verdict's word."""
    colored = page(found, 80, color=True)
    assert colored.count("\x1b[") == 2
    assert re.sub(r"\x1b\[\d+m", "", colored) == page(found, 80)


def test_the_record_comes_back(found: DraftCost) -> None:
    """Written and read again it is the same record, and what it writes is strict JSON."""
    text = found.to_json(indent=1)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(text, parse_constant=refuse)["schema"] == SCHEMA
    again = DraftCost.from_json(text)
    assert again.to_json(indent=1) == text
    assert again.verdict is found.verdict
    assert again.feeds[0] == found.feeds[0]
    assert again.beside == found.beside
    assert page(again, 100) == page(found, 100)


def test_what_is_not_a_number_is_null(found: DraftCost) -> None:
    """NaN and infinity become null, and come back as not a number; the page shows a dash."""
    odd = replace(
        found.feed("cand"),
        conditional=(float("nan"), float("inf"), 0.5),
        by_position=(float("nan"), 0.1, 0.0),
    )
    cost = replace(found, feeds=(found.feeds[0], odd), by_prompt=(Bin("p", 0, float("nan"), float("nan")),))
    raw = json.loads(cost.to_json())
    assert raw["feeds"][1]["conditional"] == [None, None, 0.5]
    again = DraftCost.from_json(cost.to_json()).feed("cand")
    assert again.conditional[0] != again.conditional[0]
    assert again.conditional[2] == 0.5
    line = next(li for li in page(cost, 120).splitlines() if li.startswith("cand, as it is"))
    assert " -  " in line
    assert "nan" not in page(cost, 120, verbose=True)


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema": "hsparity.draft-cost/9"}', "null", "3"])
def test_another_record_is_refused(text: str) -> None:
    """What is no cost of this schema is a ValueError."""
    with pytest.raises(ValueError, match="result"):
        DraftCost.from_json(text)
