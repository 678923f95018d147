"""The JSON that other tools read: what a finding carries, and in which order findings come."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hsparity.model import LayerError, Verdict, from_json
from hsparity.registry import causes
from hsparity.report import Options, reporters
from hsparity.report.validate import validate
from tests.golden.cases import CASES

FIELDS = {
    "code": str,
    "name": str,
    "severity": str,
    "slots": list,
    "rows": list,
    "tokens": int,
    "explained": float | None,
    "explained_low": float | None,
    "explained_high": float | None,
    "against": list,
    "confidence": str,
    "evidence": list,
    "rival": str,
    "fix": dict,
    "confirm": list,
    "ruled_out": bool,
    "headline": str,
    "structural": bool,
}


def document(name: str) -> Any:
    return json.loads(reporters()["json"].render(CASES[name](), Options()))


@pytest.mark.parametrize("name", CASES)
def test_a_finding_carries_these_fields_and_no_other(name: str) -> None:
    """Tools match on `code` and `name`; a field that appears or goes is a change for them."""
    made = document(name)
    assert made["verdict"] in ("parity", "diverged", "inconclusive")
    for finding in made["findings"]:
        assert set(finding) == set(FIELDS)
        for field, kind in FIELDS.items():
            assert isinstance(finding[field], kind), field
        assert finding["severity"] in ("cause", "hypothesis", "note")
        assert all(isinstance(text, str) for text in finding["fix"].values())
        for field in ("slots", "rows", "evidence", "confirm"):
            assert all(isinstance(text, str) for text in finding[field])


@pytest.mark.parametrize("name", CASES)
def test_codes_and_names_are_those_of_the_causes(name: str) -> None:
    """The golden cases speak of findings that exist."""
    known = {code: cause.name for code, cause in causes().items()}
    for finding in document(name)["findings"]:
        assert known[finding["code"]] == finding["name"]


def test_several_findings_are_whole() -> None:
    """Slots, rows and tokens, the rival, a fix per engine and the command are all there."""
    offset, order, normed, out = document("several")["findings"]
    assert offset["slots"] == ["slot.000", "slot.001"]
    assert order["rows"] == ["1 0-31", "2 0-31"]
    assert order["tokens"] == 64
    assert set(normed["fix"]) == {"any", "hf", "sglang"}
    assert normed["confirm"] == ["hsparity compare captures/hf-bf16 captures/vllm-slots --boundaries 61 -v"]
    assert [f["ruled_out"] for f in (offset, order, normed, out)] == [False, False, False, True]


@pytest.mark.parametrize("name", ["rows", "several", "target-clean"])
def test_a_result_reads_back_as_it_was(name: str) -> None:
    """`hsparity report` sees every finding that `compare` wrote."""
    text = reporters()["json"].render(CASES[name](), Options())
    assert from_json(text).findings == CASES[name]().findings


FORGED = {
    "positions too short": lambda c: replace(c, map=replace(c.map, positions_c=c.map.positions_c[:-1])),
    "positions in two axes": lambda c: replace(c, map=replace(c.map, positions_c=c.map.positions_c[None])),
    "positions that are no integers": lambda c: replace(
        c, map=replace(c.map, positions_c=c.map.positions_c.astype(np.float32))
    ),
    "too few texts": lambda c: replace(c, map=replace(c.map, texts=c.map.texts[:-1])),
    "prompts that overlap": lambda c: replace(c, map=replace(c.map, prompts=(("a", 0, 50), ("b", 40, 96)))),
    "prompts with a gap": lambda c: replace(c, map=replace(c.map, prompts=(("a", 0, 50), ("b", 60, 96)))),
    "no prompts": lambda c: replace(c, map=replace(c.map, prompts=())),
    "owners in two axes": lambda c: replace(c, rows=replace(c.rows, owner_m=c.rows.owner_m[None])),
    "owners beyond the rows": lambda c: replace(c, rows=replace(c.rows, owner_m=c.rows.owner_m + 96)),
    "owners of other rows": lambda c: replace(c, rows=replace(c.rows, owner_m=c.rows.owner_m[:-1])),
    "a boundary of no model": lambda c: replace(
        c, deltas=(replace(c.deltas[0], ref="boundary.999999999999999999999"), *c.deltas[1:])
    ),
    "a layer of no model": lambda c: replace(
        c, added=(LayerError("cand", 2**63, "layer", 1.0, 1.0, 1.0, Verdict.PARITY),)
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_does_not_fit_its_axes_is_refused(forged: str) -> None:
    """A renderer never meets it: it is no result."""
    case = CASES["rows"]()
    validate(case)
    with pytest.raises(ValueError, match=r"map|rows|boundary|layer"):
        validate(FORGED[forged](case))
