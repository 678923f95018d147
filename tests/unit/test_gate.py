"""The gate: what fails a build, what a limit allows, and that neither is ever silent or changes a verdict."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsparity.cli.main import invoke
from hsparity.config import Config, read_gate
from hsparity.errors import HsparityError
from hsparity.gate import Gate, judge, open_gate
from hsparity.model import Comparison, Cost, Finding, Verdict, to_json
from hsparity.report.spelling import clean
from tests.golden.cases import CASES
from tests.golden.fixtures import NONE, comparison, delta, q

# What no divergence by numbers exceeds; an error as large as its state is another matter.
WIDE = {"max_ratio": 1e9, "max_rel_l2": 1e9, "max_lost": 1e9}


def gate(**keys: Any) -> Gate:
    return read_gate(keys, "test")


def beyond(*ratios: float, **changes: Any) -> Comparison:
    """DIVERGED: layers 0, 1, ... stand at these ratios to the floor."""
    deltas = [delta(b, ratio, True) for b, ratio in enumerate(ratios, 1)]
    cause = Finding("HS301", "beyond-floor", "the candidate is beyond what bf16 arithmetic costs")
    return comparison(Verdict.DIVERGED, "Beyond the noise floor.", deltas, findings=(cause,), **changes)


def cost(low: float, high: float, verdict: Verdict = Verdict.DIVERGED) -> Cost:
    return Cost("heads/mine", verdict, "the difference costs 0.20 of 2.00", 2.0, 1.8, low, high, {})


@pytest.mark.parametrize(
    ("case", "fail_on", "code"),
    [
        ("parity", ("diverged", "inconclusive"), 0),
        ("offset", ("diverged",), 1),
        ("offset", ("inconclusive",), 0),
        ("offset", ("never",), 0),
        ("offset", ("HS101",), 1),
        ("offset", ("HS1xx",), 1),
        ("offset", ("layer-offset",), 1),
        ("offset", ("HS301", "HS2xx"), 0),
        ("inconclusive", ("diverged",), 0),
        ("inconclusive", ("diverged", "inconclusive"), 3),
        ("inconclusive", ("never",), 0),
    ],
)
def test_what_fails(case: str, fail_on: tuple[str, ...], code: int) -> None:
    """An outcome or a finding fails when it is named; what passes in spite of the verdict is said."""
    found = CASES[case]()
    judged = judge(found, Gate(fail_on=fail_on))
    assert judged.exit_code == code
    assert judged.passed == (code == 0)
    assert judged.lines[0].startswith(f"gate: {'passed' if judged.passed else 'failed'}")
    if judged.passed and found.verdict is not Verdict.PARITY:
        assert f"verdict {found.verdict.value}" in judged.lines[0]


def test_a_ruled_out_finding_fails_nothing() -> None:
    """`offset` rules out HS201 and HS401."""
    assert judge(CASES["offset"](), Gate(fail_on=("HS201", "tokens-differ"))).passed


@pytest.mark.parametrize(
    ("finding", "fails"),
    [
        (Finding("HS503", "quantised-kv", "w", severity="hypothesis", confidence="settled"), True),
        (Finding("HS503", "quantised-kv", "w", severity="hypothesis", confidence="likely"), True),
        (Finding("HS503", "quantised-kv", "w", severity="hypothesis", confidence="possible"), False),
        (Finding("HS503", "quantised-kv", "w", severity="hypothesis", confidence="inconclusive"), False),
        (Finding("HS403", "settings-differ", "w", severity="note"), True),
        (Finding("HS201", "final-norm-applied", "w", severity="note", slots=("boundary.009",)), False),
    ],
)
def test_which_findings_are_there(finding: Finding, fails: bool) -> None:
    """A hypothesis counts from likely on, a note when it is about the run; one that does not count is mentioned."""
    found = replace(CASES["parity"](), findings=(finding,))
    judged = judge(found, Gate(fail_on=(finding.code,)))
    assert judged.passed is not fails
    assert any(finding.name in line for line in judged.lines)


def test_limits_by_layer_allow_a_divergence_by_numbers() -> None:
    """Layer 1 at 3.4 times the floor passes at 3.5, whatever the others are held to; the verdict stays in the line."""
    found = beyond(1.0, 3.4, 1.2)
    judged = judge(found, gate(max_ratio={"all": 1.5, "1": 3.5}))
    assert (judged.passed, judged.exit_code) == (True, 0)
    assert judged.lines == (
        "gate: passed, verdict diverged: Beyond the noise floor. Allowed by max_ratio:",
        "gate: passed, layer 1 at 3.4x the floor, largest error 1.6e-02",
    )
    assert found.verdict is Verdict.DIVERGED


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"max_ratio": {"all": 9.0, "1": 3.0}}, "layer 1 at 3.4x the floor, max_ratio allows 3"),
        ({"max_ratio": 3.399}, "layer 1 at 3.4x the floor, max_ratio allows 3.399"),
        ({"max_ratio": {"0": 9.0}}, "layer 1: beyond the floor, and no limit is set for it"),
        ({"max_rel_l2": 1e-3}, "layer 1 at rel-L2 1.6e-02, max_rel_l2 allows 0.001"),
        ({"max_ratio": {"1": 9.0, "7": 2.0}, "min_tokens": 97}, "96 tokens compared, min_tokens is 97"),
        ({"max_ratio": {"1": 9.0, "7": 2.0}}, "max_ratio of 7 meets no requested site"),
    ],
)
def test_a_limit_that_is_not_kept_is_said(keys: dict[str, Any], line: str) -> None:
    judged = judge(beyond(1.0, 3.4), gate(**keys))
    assert any(text.endswith(line) for text in judged.lines), judged.lines
    assert judged.passed == ("meets no" in line)


def test_a_limit_holds_at_parity_too() -> None:
    """A limit under the floor's own makes a PARITY fail."""
    found = CASES["parity"]()
    assert judge(found, gate(max_ratio=1.5)).passed
    judged = judge(found, gate(max_ratio={"58": 0.5}))
    assert (judged.passed, judged.exit_code, len(judged.lines)) == (False, 1, 1)


@pytest.mark.parametrize(
    "case",
    [name for name, make in CASES.items() if make().verdict is Verdict.DIVERGED],
)
def test_no_limit_allows_more_than_numbers(case: str) -> None:
    """Of all the cases only those that hold nothing but HS3xx by numbers pass the widest limits."""
    found = replace(CASES[case](), cost=cost(0.1, 0.3))
    by_numbers = {"few-tokens", "one-token", "pooled", "hostile", "why", "level"}
    assert judge(found, gate(**WIDE)).passed == (case in by_numbers), judge(found, gate(**WIDE)).lines


def worst(found: Comparison, value: float) -> Comparison:
    """The same with one token of layer 0 that far off."""
    d = found.deltas[0]
    one = replace(d.metrics["rel_l2"], worst=value)
    return replace(found, deltas=(replace(d, metrics={**d.metrics, "rel_l2": one}), *found.deltas[1:]))


def test_an_allowance_for_medians_is_none_for_single_tokens() -> None:
    """One token at 0.3 among those at 3 times the floor: max_ratio does not cover it, max_rel_l2 does; an error as large as
    the state is covered by neither."""
    found = worst(beyond(3.0), 0.3)
    assert judge(beyond(3.0), gate(max_ratio=4.0)).passed
    judged = judge(found, gate(max_ratio=4.0))
    assert not judged.passed
    assert "single tokens are beyond 4x the floor (largest error 3.0e-01)" in judged.lines[1]
    assert judge(found, gate(max_ratio=4.0, max_rel_l2=0.3)).passed
    assert not judge(worst(found, 1.0), gate(**WIDE)).passed


def test_a_tail_that_both_sides_have_is_not_allowed_by_the_pair() -> None:
    """Where both sides err on single tokens, the pair's figures say nothing of them."""
    found = beyond(1.1)
    tails = tuple(
        replace(r, verdict=Verdict.DIVERGED) if r.of != "pair" else r for r in found.deltas[0].ratios
    )
    both = replace(found, deltas=(replace(found.deltas[0], ratios=tails, verdict=Verdict.DIVERGED),))
    assert not judge(both, gate(max_ratio=4.0)).passed
    one = replace(both, deltas=(replace(both.deltas[0], ratios=(found.deltas[0].ratios[0], *tails[1:])),))
    assert judge(one, gate(max_ratio=4.0)).passed


def test_what_a_divergence_hides_is_still_undecided() -> None:
    """With layer 0 allowed, the verdict would have been INCONCLUSIVE for layer 1: the gate is too."""
    found = beyond(3.0, 1.0)
    second = replace(found.deltas[1], verdict=Verdict.INCONCLUSIVE, reason="the interval crosses the limit")
    found = replace(found, deltas=(found.deltas[0], second))
    judged = judge(found, gate(max_ratio=4.0))
    assert (judged.passed, judged.exit_code) == (False, 3)
    assert "layer 1 cannot be decided" in judged.lines[0]
    assert judge(found, gate(max_ratio=4.0, fail_on=["diverged"])).passed


@pytest.mark.parametrize(
    ("changes", "keys", "words"),
    [
        ({"ratios": (), "floor": None}, {"max_ratio": 2.0}, "there is no floor"),
        ({"tokens": 95, "reason": "1 token has no state"}, {"max_ratio": 2.0}, "1 token has no state"),
        ({"nonfinite": (1, 1), "reason": "NaN on both sides"}, {"max_rel_l2": 2.0}, "NaN on both sides"),
        ({"metrics": {"rel_l2": q(math.nan)}}, {"max_rel_l2": 2.0}, "max_rel_l2 cannot be checked"),
        ({}, {"max_lost": 0.1}, "max_lost cannot be checked"),
        ({}, {"min_tokens": 97}, "min_tokens is 97"),
    ],
)
def test_a_limit_that_cannot_be_checked_fails(
    changes: dict[str, Any], keys: dict[str, Any], words: str
) -> None:
    """It exits 3, even where the verdict is parity."""
    d = replace(delta(3, 1.0, True), **changes)
    found = comparison(Verdict.PARITY, "Within the noise floor.", [d], floor=NONE)
    judged = judge(found, gate(**keys))
    assert (judged.passed, judged.exit_code) == (False, 3)
    assert words in judged.lines[0]


@pytest.mark.parametrize(
    ("low", "high", "limit", "code"),
    [(0.1, 0.3, 0.3, 0), (0.1, 0.3, 0.2, 3), (0.1, 0.3, 0.05, 1), (None, None, 9.0, 3)],
)
def test_what_a_draft_may_lose(low: float, high: float, limit: float, code: int) -> None:
    """The loss is held to its interval's upper end: within it passes, across it is undecided."""
    found = replace(CASES["parity"](), verdict=Verdict.DIVERGED, findings=(), cost=cost(low, high))
    assert judge(found, gate(max_lost=limit)).exit_code == code
    assert judge(found, gate(max_ratio=9.0)).exit_code == 1


def test_never_lists_broken_limits_too() -> None:
    judged = judge(beyond(3.4), gate(fail_on=["never"], max_ratio=2.0))
    assert judged.passed
    assert judged.lines == (
        "gate: passed, verdict diverged: Beyond the noise floor.",
        "gate: passed, never fails, whatever was found: layer 0 at 3.4x the floor, max_ratio allows 2",
    )


@pytest.mark.parametrize("fail_on", [("diverged",), ("never",), ("HS1xx", "HS2xx", "HS3xx")])
def test_hostile_text_is_inert(fail_on: tuple[str, ...]) -> None:
    """No line steers a terminal."""
    for name in ("hostile", "missing-sites"):
        for line in judge(CASES[name](), gate(fail_on=list(fail_on), **WIDE)).lines:
            assert line == clean(line)


@pytest.mark.parametrize(
    ("fail_on", "code", "words"),
    [
        ("divergd", "E107", "near: diverged"),
        ("HS999", "E107", "no outcome and no finding"),
        ("HS7xx", "E107", "no outcome and no finding"),
        ("", "E107", "no outcome"),
        ("never,diverged", "E103", "never excludes diverged"),
    ],
)
def test_a_word_that_means_nothing_is_refused(fail_on: str, code: str, words: str) -> None:
    """A mistyped word would be a gate that lets everything pass."""
    with pytest.raises(HsparityError) as caught:
        open_gate(fail_on, None)
    assert caught.value.code == code
    assert words in caught.value.render()
    config = Config(gate=Gate(fail_on=tuple(fail_on.split(","))), path=Path("hsparity.toml"))
    with pytest.raises(HsparityError, match=r"hsparity.toml: \[gate\] fail_on") as caught:
        open_gate(None, config)
    assert caught.value.code == "E104"


def test_the_option_takes_the_place_of_the_file() -> None:
    """Words, not limits: those stand in the file alone."""
    config = Config(gate=gate(max_ratio=2.0, fail_on=["inconclusive"]))
    assert open_gate("HS101, Layer-Offset,hs2XX", config) == gate(
        max_ratio=2.0, fail_on=["HS101", "layer-offset", "HS2xx"]
    )
    assert open_gate(None, Config()) is None
    assert open_gate(None, None) is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"max_ration": 2}, "did you mean max_ratio"),
        ({"fail_on": "diverged"}, "fail_on is not a list of strings"),
        ({"fail_on": []}, "fail_on is empty"),
        ({"max_ratio": "2"}, "max_ratio is not a number of 0 or more"),
        ({"max_ratio": {"58": math.nan}}, "max_ratio is not a number of 0 or more"),
        ({"max_ratio": {"layer58": 2.0}}, "'layer58' is no layer"),
        ({"max_rel_l2": True}, "max_rel_l2 is not a number"),
        ({"max_lost": -1}, "max_lost is not a number of 0 or more"),
        ({"min_tokens": 2.5}, "min_tokens is not a number"),
        (3, "gate is not a table"),
    ],
)
def test_a_bad_table_is_refused(said: Any, words: str) -> None:
    with pytest.raises(HsparityError) as caught:
        read_gate(said, "hsparity.toml")
    assert caught.value.code == "E104"
    assert words in caught.value.render()


def test_report_takes_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --fail-on it exits 0 and is silent; with it the lines are the last on stderr, and stdout stays the result."""
    monkeypatch.chdir(tmp_path)
    Path("hsparity.toml").write_text("[gate]\nmin_tokens = 500\n")
    Path("r.json").write_text(to_json(CASES["offset"]()), encoding="utf-8")
    assert invoke(["report", "r.json", "-q"]) == 0
    plain = capsys.readouterr()
    assert plain.err == ""
    assert invoke(["report", "r.json", "-q", "--fail-on", "inconclusive", "--markdown", "r.md"]) == 3
    shown = capsys.readouterr()
    assert shown.out == plain.out
    assert shown.err.splitlines()[-1] == "gate: failed, 96 tokens compared, min_tokens is 500"


def test_the_gate_needs_no_torch(tmp_path: Path) -> None:
    """A saved result is judged on a machine without torch."""
    path = tmp_path / "r.json"
    path.write_text(to_json(CASES["offset"]()), encoding="utf-8")
    code = (
        "import sys; sys.modules['torch'] = None; from hsparity.cli.main import invoke; "
        "sys.exit(invoke(sys.argv[1:]))"
    )
    words = ["report", str(path), "-q", "--fail-on", "never"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr.count("gate: passed, never fails")) == (0, 1), done.stderr
