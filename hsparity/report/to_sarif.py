"""SARIF 2.1.0 for code scanning: a rule per finding, a result per finding that holds.

GitHub's code scanning shows a result only at a place in a file, and knows it again by its fingerprint. The place is the
candidate's capture as typed; the fingerprint holds what stays from run to run: the code, the engines, the model, the
paths and what was asked for.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..explain import texts
from ..explain.pages import first_sentence
from ..model import Comparison, Finding, SiteDelta, Verdict
from ..registry import findings as known_findings
from . import findings, view
from . import spelling as sp
from .base import Options

if TYPE_CHECKING:
    from ..gate import GateResult

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
# Exit codes are explained too; a verdict that no cause accounts for is a result of its own.
_EXITS = {Verdict.DIVERGED: "exit 1", Verdict.INCONCLUSIVE: "exit 3"}
_LEVELS = {Verdict.PARITY: "note", Verdict.DIVERGED: "error"}  # any other verdict: warning


class SarifReporter:
    suffix = ".sarif"

    def render(self, comparison: Comparison, options: Options) -> str:
        """One run. Ruled-out findings are no results; a comparison without parity always has a result, and so has a gate that
        fails. What a gate lets pass is no error."""
        held = [f for f in comparison.findings if not f.ruled_out]
        results = [_result(comparison, f) for f in held]
        rules = {_id(f.code): _rule(f.code, f.name, _level(comparison, f)) for f in held}
        exit_code = _EXITS.get(comparison.verdict)
        if exit_code and not any(r["level"] == _LEVELS.get(comparison.verdict, "warning") for r in results):
            name = texts()[exit_code].name
            verdict = Finding(name, name, view.verdict_line(comparison))
            results.insert(0, _result(comparison, verdict))
            rules = {name: _rule(exit_code, name, _level(comparison, verdict)), **rules}
        if options.gate is not None:
            results, rules = _gated(comparison, options.gate, results, rules)
        order = list(rules)
        for result in results:
            result["ruleIndex"] = order.index(result["ruleId"])
        run = {
            "tool": {
                "driver": {
                    "name": "hsparity",
                    "version": sp.clean(comparison.hsparity),
                    "rules": [{"id": key, **rule} for key, rule in rules.items()],
                }
            },
            "automationDetails": {"id": f"hsparity/{_pair(comparison)}/"},
            "invocations": [
                {"executionSuccessful": True, "commandLine": sp.clean(view.command_line(comparison))}
            ],
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": _facts(comparison) | _gate_facts(options.gate),
        }
        document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
        return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _gated(
    comparison: Comparison, gate: GateResult, results: list[dict[str, Any]], rules: dict[str, dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The results as warnings where the gate passes, else with one for the gate before them; the same of the rules."""
    if not gate.passed:
        failed = _result(comparison, Finding("gate", "gate", gate.reason))
        failed |= {"level": "error", "message": {"text": _lines(gate)}}
        return [failed, *results], {"gate": _rule("gate", "gate", "error"), **rules}
    quiet = {
        key: {**rule, "defaultConfiguration": {"level": _quieter(rule["defaultConfiguration"]["level"])}}
        for key, rule in rules.items()
    }
    return [{**r, "level": _quieter(r["level"])} for r in results], quiet


def _quieter(level: str) -> str:
    return "warning" if level == "error" else level


def _lines(gate: GateResult) -> str:
    return "\n".join(sp.clean(line) for line in gate.lines)


def _gate_facts(gate: GateResult | None) -> dict[str, Any]:
    return (
        {} if gate is None else {"gate": {"passed": gate.passed, "lines": [sp.clean(x) for x in gate.lines]}}
    )


def _pair(comparison: Comparison) -> str:
    """Which comparison this is, where one repository uploads several."""
    return quote(f"{comparison.ref.engine}-{comparison.cand.engine}", safe="", errors="replace")


def _level(comparison: Comparison, finding: Finding) -> str:
    of_verdict = _LEVELS.get(comparison.verdict, "warning")
    if finding.severity == "cause":
        return of_verdict
    return "warning" if finding.severity == "hypothesis" and of_verdict != "note" else "note"


def _rule(code: str, name: str, level: str) -> dict[str, Any]:
    """The text of `hsparity explain`; a code of a later hsparity has none, and is its name."""
    cause = known_findings().get(code)
    text = (inspect.getdoc(type(cause)) or "") if cause else texts()[code].text if code in texts() else ""
    rule: dict[str, Any] = {"name": sp.clean(name), "defaultConfiguration": {"level": level}}
    if not text:
        return {**rule, "shortDescription": {"text": sp.clean(name) or "finding"}}
    plain = "\n".join(line.lstrip("# ") if line.startswith("#") else line for line in text.splitlines())
    return {
        **rule,
        "shortDescription": {"text": first_sentence(text).replace("\\|", "|")},
        "fullDescription": {"text": plain},
        "help": {"text": plain, "markdown": f"# {code} {name}\n\n{text}"},
        "properties": {"tags": ["numerics", "hidden-states"], "problem.severity": _severity(level)},
    }


def _severity(level: str) -> str:
    return level if level != "note" else "recommendation"


def _result(comparison: Comparison, finding: Finding) -> dict[str, Any]:
    return {
        "ruleId": _id(finding.code),
        "level": _level(comparison, finding),
        "message": {"text": _message(comparison, finding)},
        "locations": [_location(comparison, finding)],
        "partialFingerprints": {"primaryLocationLineHash": f"{_fingerprint(comparison, finding)}:1"},
        "properties": _about(finding),
    }


def _id(code: str) -> str:
    return sp.clean(code) or "finding"


def _message(comparison: Comparison, finding: Finding) -> str:
    lines = [finding.headline, *finding.evidence]
    lines += [f"against: {line}" for line in finding.against]
    if finding.rival:
        lines.append(f"next best: {finding.rival}")
    for engine, words in findings.fixes(comparison, finding):
        lines.append(f"fix{f' ({engine})' if engine else ''}: {words}")
    lines += [f"confirm: {command}" for command in finding.confirm]
    return "\n".join(sp.clean(line) for line in lines)


def _location(comparison: Comparison, finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": uri(comparison.cand.path)},
            "region": {"startLine": 1},
        }
    }
    sites = [{"name": sp.clean(s), "fullyQualifiedName": f"cand/{sp.clean(s)}"} for s in finding.slots]
    return {**location, "logicalLocations": sites} if sites else location


def uri(path: str) -> str:
    """A path as a relative URI: an absolute one without its root, and no step upwards."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    kept = [quote(p, safe="", errors="replace") for p in parts if p.strip("/") and p != ".."]
    return "/".join(kept) or "capture"


def _fingerprint(comparison: Comparison, finding: Finding) -> str:
    c = comparison
    stays = [
        finding.code,
        c.ref.engine,
        c.cand.engine,
        c.ref.model,
        c.ref.path,
        c.cand.path,
        c.request.spelled,
    ]
    return hashlib.sha256(json.dumps(stays).encode()).hexdigest()[:32]


def _about(finding: Finding) -> dict[str, Any]:
    """Figures and places; what was not measured is left out."""
    said: dict[str, Any] = {
        "severity": finding.severity,
        "confidence": finding.confidence,
        "structural": finding.structural,
        "tokens": finding.tokens or None,
        "rows": [sp.clean(r) for r in finding.rows],
        "explained": finding.explained,
        "explainedLow": finding.explained_low,
        "explainedHigh": finding.explained_high,
    }
    measured = {k: v for k, v in said.items() if not isinstance(v, float) or math.isfinite(v)}
    return {k: v for k, v in measured.items() if v is not None and v not in ("", [])}


def _facts(comparison: Comparison) -> dict[str, Any]:
    c = comparison
    return {
        "verdict": c.verdict.value,
        "headline": sp.clean(view.verdict_line(c)),
        "floor": sp.clean(view.floor_line(c)),
        "compared": sp.clean(f"{view.requested_words(c)}; {view.compared_words(c)}"),
        "redacted": c.redacted,
        "sites": [_site(d) for d in view.requested(c) or c.deltas],
    }


def _site(delta: SiteDelta) -> dict[str, Any]:
    return {
        "ref": sp.clean(delta.ref),
        "cand": sp.clean(delta.cand),
        "verdict": delta.verdict.value,
        "reason": sp.clean(delta.reason),
        **_finite([("relL2", view.rel_l2(delta).p50), ("relL2Worst", view.rel_l2(delta).worst)]),
        **_finite((f"ratio.{r.of}", r.median) for r in view.main_ratios(delta)),
    }


def _finite(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {name: value for name, value in pairs if math.isfinite(value)}


REPORTER = SarifReporter()
