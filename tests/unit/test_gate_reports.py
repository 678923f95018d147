"""What a gate says reaches the reports that a CI server reads: green where the command exits 0, red where it does not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from hsparity.cli.main import invoke
from hsparity.config import read_gate
from hsparity.gate import judge
from hsparity.model import Comparison, Verdict, to_json
from hsparity.report import Options, reporters
from tests.golden.cases import CASES
from tests.unit.test_gate import beyond
from tests.unit.test_report_junit import SCHEMAS, schema, tag

NEVER = {"fail_on": ["never"]}
# (comparison, keys of [gate], whether it passes)
GATED: dict[str, tuple[Comparison, dict[str, Any], bool]] = {
    "allowed": (beyond(1.0, 3.4, 1.2), {"max_ratio": {"all": 1.5, "1": 3.5}}, True),
    "over": (beyond(1.0, 3.4, 2.2), {"max_ratio": {"all": 3.5, "2": 2.0}}, False),
    "parity-over": (CASES["parity"](), {"max_ratio": {"58": 0.5}}, False),
    "parity": (CASES["parity"](), {}, True),
    "unchecked": (CASES["parity"](), {"max_lost": 0.1}, False),
    "unnamed": (CASES["inconclusive"](), {"fail_on": ["diverged"]}, True),
    "offset": (CASES["offset"](), {"max_ratio": 1e9}, False),
    "never": (CASES["offset"](), NEVER, True),
    "hostile": (CASES["hostile"](), NEVER, True),
}


def rendered(kind: str, name: str) -> str:
    comparison, keys, _ = GATED[name]
    return reporters()[kind].render(comparison, Options(gate=judge(comparison, read_gate(keys, "test"))))


@pytest.mark.parametrize("name", GATED)
def test_every_report_is_as_the_gate_is(name: str) -> None:
    """A gate that passes leaves no failure, no error and no error annotation; one that fails leaves one in each."""
    comparison, keys, passes = GATED[name]
    judged = judge(comparison, read_gate(keys, "test"))
    assert judged.passed is passes
    root = etree.fromstring(rendered("junit", name).encode())
    bad = [case.get("name") for case in root.iter("testcase") if tag(case) in ("failure", "error")]
    assert ("gate" in bad) is not passes
    assert bool(bad) is not passes
    assert int(root.get("failures")) + int(root.get("errors")) == len(bad)
    run = json.loads(rendered("sarif", name))["runs"][0]
    levels = {r["ruleId"]: r["level"] for r in run["results"]}
    assert ("error" in levels.values()) is not passes
    assert (levels.get("gate") == "error") is not passes
    assert {r["id"]: r["defaultConfiguration"]["level"] for r in run["tool"]["driver"]["rules"]} == levels
    assert run["properties"]["gate"]["passed"] is passes
    lines = rendered("github", name).splitlines()
    assert bool([line for line in lines if line.startswith("::error")]) is not passes
    assert len([line for line in lines if line.startswith("::error title=hsparity%3A gate failed::")]) == (
        not passes
    )


@pytest.mark.parametrize("xsd", SCHEMAS)
def test_the_cases_validate(xsd: str) -> None:
    for name in GATED:
        root = etree.fromstring(rendered("junit", name).encode()).find(SCHEMAS[xsd])
        schema(xsd).assertValid(etree.ElementTree(root))


def test_a_site_that_a_limit_allows_says_so() -> None:
    """It has passed, whether the gate does or not; the one over its limit has not."""
    for name, site, out in (("allowed", 1, "3.4x"), ("over", 1, "3.4x"), ("over", 2, None)):
        root = etree.fromstring(rendered("junit", name).encode())
        case = next(
            c for c in root.iter("testcase") if c.get("name", "").startswith(f"boundary.00{site + 1}")
        )
        said = case.findtext("system-out")
        if out is None:
            assert (tag(case), said) == ("failure", None)
        else:
            assert tag(case) == "system-out"
            assert said is not None
            assert said.startswith(f"allowed by max_ratio: layer {site} at {out} the floor")


def test_no_site_is_allowed_where_a_cause_is_that_no_limit_allows() -> None:
    """HS101 beside limits as wide as can be: every site stays a failure."""
    comparison, keys, _ = GATED["offset"]
    assert judge(comparison, read_gate(keys, "test")).allowed == {}


def test_without_a_gate_the_verdict_speaks() -> None:
    for kind in ("junit", "sarif", "github"):
        assert "gate" not in reporters()[kind].render(CASES["offset"](), Options())


def test_the_command_hands_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """hsparity report --fail-on, with the limits of hsparity.toml; without it the saved verdict alone."""
    monkeypatch.chdir(tmp_path)
    comparison = GATED["allowed"][0]
    Path("r.json").write_text(to_json(comparison), encoding="utf-8")
    Path("hsparity.toml").write_text("[gate]\nmax_ratio = { all = 1.5, 1 = 3.5 }\n")
    assert invoke(["report", "r.json", "--fail-on", "diverged", "--junit", "a.xml", "--github", "a.txt"]) == 0
    assert 'failures="0"' in Path("a.xml").read_text()
    assert not re.search("^::error", Path("a.txt").read_text(), re.M)
    assert invoke(["report", "r.json", "--junit", "b.xml"]) == 0
    assert "<failure" in Path("b.xml").read_text()
    assert invoke(["report", "r.json", "--fail-on", "HS301", "--sarif", "c.sarif"]) == 1
    assert '"ruleId": "gate"' in Path("c.sarif").read_text()
    capsys.readouterr()


def test_a_missing_site_is_never_allowed() -> None:
    """A site that one side lacks stays an error under any limit."""
    found = beyond(1.0, 3.4)
    gone = replace(found.deltas[0], verdict=Verdict.MISSING, tokens=0, reason="not in the candidate")
    found = replace(found, deltas=(gone, *found.deltas[1:]))
    judged = judge(found, read_gate({"max_ratio": 9.0}, "test"))
    assert not judged.passed
    assert (gone.ref, gone.cand) not in judged.allowed
