"""JUnit XML: what a CI server counts, and text that cannot break the document."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from lxml import etree

from hsparity.model import Comparison, Verdict
from hsparity.report import Options, reporters
from tests.golden.cases import CASES
from tests.unit.outside import carried

# There is no one standard. The package carries what it found in use; these three are the strictest that apply: Ant's, whose
# root is one suite, pytest's, and what any reader takes.
SCHEMAS = {"Any-JUnit.xsd": ".", "PyTest-JUnit.xsd": ".", "Ant-JUnit4.xsd": "testsuite"}
TAGS = {"parity": None, "diverged": "failure", "inconclusive": "error", "missing": "error"}


@cache
def schema(name: str) -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(str(carried("pyEDAA.Reports", f"Resources/{name}"))))


def text_of(comparison: Comparison) -> str:
    return reporters()["junit"].render(comparison, Options())


def document(comparison: Comparison) -> etree._Element:
    return etree.fromstring(text_of(comparison).encode())


def tag(case: etree._Element) -> str | None:
    """What became of a case: None when it passed."""
    return next((child.tag for child in case if child.tag != "properties"), None)


@pytest.mark.parametrize("xsd", SCHEMAS)
def test_every_case_validates(xsd: str) -> None:
    """All golden comparisons, the hostile one too; a document of another shape does not."""
    for make in CASES.values():
        root = document(make()).find(SCHEMAS[xsd])
        assert root is not None
        schema(xsd).assertValid(etree.ElementTree(root))
    broken = document(CASES["offset"]())
    for case in broken.iter("testcase"):
        del case.attrib["name"]
    assert not schema(xsd).validate(etree.ElementTree(broken.find(SCHEMAS[xsd])))


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_the_cases(name: str) -> None:
    """The verdict and each site that decides; nothing that was not shown equal passes or is skipped."""
    comparison = CASES[name]()
    root = document(comparison)
    cases = list(root.iter("testcase"))
    deciding = [d for d in comparison.deltas if d.requested] or comparison.deltas
    assert [tag(c) for c in cases] == [
        TAGS[v.value] for v in (comparison.verdict, *(d.verdict for d in deciding))
    ]
    assert len({c.get("name") for c in cases}) == len(cases)
    for counted in (root, root[0]):
        assert int(counted.get("tests")) == len(cases)
        assert int(counted.get("failures")) == sum(tag(c) == "failure" for c in cases)
        assert int(counted.get("errors")) == sum(tag(c) == "error" for c in cases)
        assert counted.get("skipped") == "0"


def test_a_failure_says_why_what_to_change_and_what_to_type() -> None:
    """The reason is the message; the fix and the command stand below it."""
    comparison = CASES["offset"]()
    verdict, site = list(document(comparison).iter("testcase"))[:2]
    (failure,) = site.findall("failure")
    assert site.get("name") == "boundary.003 (layer 2, boundary 3)"
    assert failure.get("message") == comparison.delta(3).reason  # type: ignore[union-attr]
    assert "fix (HS101, SGLang): write 2,30,58, not 3,31,59" in failure.text
    assert (
        "next: hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers 2,30,58 --offset 1"
        in failure.text
    )
    assert verdict.find("failure").get("type") == "HS101 layer-offset"


def test_numbers_are_properties_at_full_precision() -> None:
    """What was not measured is left out; NaN is no number to a CI server."""
    comparison = CASES["offset"]()
    site = document(comparison).find(".//testcase[2]")
    known = {p.get("name"): p.get("value") for p in site.iter("property")}
    delta = comparison.delta(3)
    assert delta is not None
    assert float(known["rel_l2.p50"]) == delta.metrics["rel_l2"].p50
    assert float(known["ratio.cand"]) == delta.ratios[1].median
    assert float(known["ratio.cand.limit"]) == 1.5
    assert not re.search(r'value="(nan|inf)"', text_of(CASES["one-token"]()))


def test_hostile_text_is_shown_and_steers_nothing() -> None:
    """Characters that XML forbids, terminal escapes and reordering marks are spelled out."""
    evil = "\x00\x1b[31m\ud800\ufffe\u202e\x0b]]></failure><testcase name='x'/>&#0;\"'"
    case = CASES["hostile"]()
    changed = replace(case, headline=evil, cand=replace(case.cand, path=evil, created=evil))
    text = text_of(changed)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e]", text)
    root = etree.fromstring(text.encode())
    assert len(list(root.iter("testcase"))) == 3
    assert (
        root.find(".//testcase/failure").get("message") == r"\x00\x1b[31m\ud800\ufffe\u202e\x0b" + evil[10:]
    )


def test_the_time_is_the_captures_own() -> None:
    """The same result is the same bytes at any hour; a capture without a time leaves it out."""
    case = CASES["parity"]()
    assert document(case)[0].get("timestamp") == "2026-01-31T10:00:00"
    assert document(replace(case, cand=replace(case.cand, created="")))[0].get("timestamp") is None
    assert text_of(case) == text_of(case)


def test_a_parity_whose_site_is_open_is_not_all_green() -> None:
    """Each site speaks for itself."""
    case = CASES["parity"]()
    deltas = [replace(d, verdict=Verdict.INCONCLUSIVE) if d.requested else d for d in case.deltas]
    assert document(replace(case, deltas=tuple(deltas))).get("errors") == "3"
