"""What a notebook shows of a result, and what it may call."""

from __future__ import annotations

import inspect
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser

import pytest

import hsparity
from hsparity.report import Options, cost_page, reporters
from tests.golden.cases import CASES
from tests.unit.drafter.records import COSTS


class Tags(HTMLParser):
    """Every tag with its attributes, and whatever text stands outside of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", ["parity", "offset", "hostile"])
def test_a_cell_holds_the_exact_page_in_a_sandbox(name: str) -> None:
    """One frame and nothing else, whatever the prompts hold; its document is the HTML report, byte for byte."""
    comparison = CASES[name]()
    html = comparison._repr_html_()
    found = Tags(html)
    assert [tag for tag, _ in found.tags] == ["iframe"]
    assert found.text == ""
    (_, frame), page = found.tags[0], reporters()["html"].render(comparison, Options())
    assert frame["srcdoc"] == page
    assert unescape(html.split('srcdoc="', 1)[1].rsplit('">', 1)[0]) == page
    # Scripts run, but without an origin: the page can reach neither the notebook nor its storage.
    assert frame["sandbox"] == "allow-scripts"
    assert "height:" in str(frame["style"])
    assert frame["title"] == f"hsparity: {comparison.verdict.value}"


def test_the_text_beside_it_is_short_and_inert() -> None:
    """A notebook keeps both; the fields of a comparison are megabytes, and a prompt may hold escapes."""
    found = CASES["hostile"]()
    assert len(repr(found)) < 300
    assert repr(found).isprintable()
    assert (
        repr(CASES["offset"]()) == "<Comparison diverged: '3 of 3 requested layers lie outside the floor.'>"
    )


@pytest.mark.parametrize("name", COSTS)
def test_a_cost_has_a_cell_too(name: str) -> None:
    """The page of hsparity drafter, whatever its texts hold."""
    cost = COSTS[name]()
    found = Tags(cost._repr_html_())
    assert [tag for tag, _ in found.tags] == ["iframe"]
    assert found.text == ""
    assert found.tags[0][1]["srcdoc"] == cost_page.render(cost)


def test_compare_is_the_function_however_often_it_is_asked() -> None:
    """compare.py, which is imported on the way, does not take its name."""
    code = (
        "import hsparity\nfirst = hsparity.compare\nimport hsparity.compare\n"
        "from hsparity.compare import Query\nfrom hsparity import compare\n"
        "assert callable(compare) and compare is first is hsparity.compare, compare"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(inspect.signature(hsparity.compare).parameters)[:3] == ["ref", "cand", "layers"]
