"""JUnit XML for a CI server: one suite per comparison, one case per site that decides, and one for the verdict.

A diverged site is a failure. An inconclusive or missing one is an error, not "skipped": CI servers show a skipped case
as green or grey and let the job pass, and nothing that was not shown equal may look passed. An error says what it is,
that the check could not be made. With a gate its result is a case too, and what it lets pass is a case that passed and
says by what.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from ..errors import ExitCode
from ..model import Comparison, SiteDelta, Verdict
from . import commands, findings, view
from . import spelling as sp
from .base import Options

if TYPE_CHECKING:
    from ..gate import GateResult

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_TAGS = {Verdict.PARITY: "", Verdict.DIVERGED: "failure"}  # any other verdict is an error


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    tag: str  # "failure" | "error" | "" when it passed
    kind: str
    message: str
    lines: tuple[str, ...]
    properties: Mapping[str, str]
    out: str = ""  # said by a case that passed


class JunitReporter:
    suffix = ".xml"

    def render(self, comparison: Comparison, options: Options) -> str:
        """The document. It holds no time of its own: `timestamp` is when the candidate was captured."""
        cases = [_verdict(comparison), *(_site(comparison, d) for d in _deciding(comparison))]
        if options.gate is not None:
            cases = [_gate(options.gate), *_let_pass(comparison, options.gate, cases)]
        counts = _counts(cases)
        suite = {"name": _suite(comparison), **counts}
        made = _TIME.match(comparison.cand.created)
        if made:
            suite["timestamp"] = made[0]
        body = "".join(_case(case) for case in cases)
        return (
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f"<testsuites{_attributes({'name': 'hsparity', **counts})}>\n"
            f" <testsuite{_attributes(suite)}>\n{_properties(_facts(comparison), '  ')}{body} </testsuite>\n"
            "</testsuites>\n"
        )


def _deciding(comparison: Comparison) -> Sequence[SiteDelta]:
    """The sites asked for; all of them where none was."""
    return view.requested(comparison) or comparison.deltas


def _suite(comparison: Comparison) -> str:
    return f"{comparison.ref.path} against {comparison.cand.path}"


def _verdict(comparison: Comparison) -> _Case:
    lead = view.leading(comparison)
    kind = comparison.verdict.value if lead is None else f"{lead.code} {lead.name}"
    lines = (*findings.summary(comparison), *_advice(comparison), *view.warnings(comparison))
    tag = _TAGS.get(comparison.verdict, "error")
    return _Case("verdict", tag, kind, view.verdict_line(comparison), lines, {})


def _gate(gate: GateResult) -> _Case:
    """A limit that cannot be checked, or an outcome that is not known, is an error as a site's is."""
    if gate.passed:
        return _Case("gate", "", "", "", (), {}, "\n".join(gate.lines))
    tag = "failure" if gate.exit_code is ExitCode.DIVERGED else "error"
    return _Case("gate", tag, "gate", gate.reason, gate.lines, {})


def _let_pass(comparison: Comparison, gate: GateResult, cases: Sequence[_Case]) -> list[_Case]:
    """The verdict's case and the sites', passed where the gate passes or a limit allows them."""
    said = "\n".join(gate.lines) if gate.passed and comparison.verdict is not Verdict.PARITY else ""
    words = [said, *(gate.allowed.get((d.ref, d.cand), said) for d in _deciding(comparison))]
    return [
        replace(case, tag="", out=out) if case.tag and out else case
        for case, out in zip(cases, words, strict=True)
    ]


def _site(comparison: Comparison, delta: SiteDelta) -> _Case:
    against = "" if delta.cand in ("", delta.ref) else f" against {delta.cand}"
    lines = [r.reason for r in delta.ratios if r.verdict is not Verdict.PARITY and r.reason != delta.reason]
    if delta.worst is not None:
        lines.append(view.worst_token_words(delta))
    return _Case(
        f"{delta.ref}{against} ({view.place_words(delta.ref)})",
        _TAGS.get(delta.verdict, "error"),
        delta.verdict.value,
        delta.reason,
        (*lines, *_advice(comparison)),
        _numbers(delta),
    )


def _advice(comparison: Comparison) -> list[str]:
    """What to change, and the commands that show more."""
    out = []
    for finding in findings.found(comparison):
        for engine, words in findings.fixes(comparison, finding):
            out.append(f"fix ({finding.code}{f', {engine}' if engine else ''}): {words}")
    return [*out, *(f"next: {command}  # {why}" for command, why in commands.next_commands(comparison))]


def _facts(comparison: Comparison) -> dict[str, str]:
    c = comparison
    facts = {
        "hsparity": c.hsparity,
        "verdict": c.verdict.value,
        "ref": ", ".join(f for f in view.side_facts(c.ref) if f),
        "cand": ", ".join(f for f in view.side_facts(c.cand) if f),
        "model": c.ref.model,
        "compared": f"{view.requested_words(c)}; {view.compared_words(c)}",
        "floor": view.floor_line(c),
        "command": view.command_line(c),
    }
    return facts | ({"redacted": "true"} if c.redacted else {})


def _numbers(delta: SiteDelta) -> dict[str, str]:
    """Figures at full precision; what was not measured is left out."""
    known: dict[str, float] = {
        "tokens": delta.tokens,
        "rel_l2.p50": view.rel_l2(delta).p50,
        "rel_l2.worst": view.rel_l2(delta).worst,
        "cosine.p50": delta.metrics.get("cosine", view.NOTHING).p50,
        "floor.p50": delta.floor.p50 if delta.floor else math.nan,
    }
    for ratio in view.main_ratios(delta):
        known |= {
            f"ratio.{ratio.of}": ratio.median,
            f"ratio.{ratio.of}.low": ratio.low,
            f"ratio.{ratio.of}.high": ratio.high,
            f"ratio.{ratio.of}.limit": ratio.limit,
            f"ratio.{ratio.of}.beyond": ratio.beyond,
        }
    return {name: repr(value) for name, value in known.items() if math.isfinite(value)}


def _counts(cases: Sequence[_Case]) -> dict[str, str]:
    tags = [case.tag for case in cases]
    failures, errors = tags.count("failure"), tags.count("error")
    return {"tests": str(len(cases)), "failures": str(failures), "errors": str(errors), "skipped": "0"}


def _case(case: _Case) -> str:
    head = _attributes({"classname": "hsparity.compare", "name": case.name})
    inner = _properties(case.properties, "   ")
    if case.tag:
        message = case.message or case.kind
        text = "\n".join(sp.clean(line) for line in (message, *case.lines))
        inner += f"   <{case.tag}{_attributes({'type': case.kind, 'message': message})}>{escape(text)}</{case.tag}>\n"
    if case.out:
        inner += f"   <system-out>{escape(_lines(case.out))}</system-out>\n"
    return f"  <testcase{head}>\n{inner}  </testcase>\n" if inner else f"  <testcase{head}/>\n"


def _lines(text: str) -> str:
    return "\n".join(sp.clean(line) for line in text.split("\n"))


def _properties(known: Mapping[str, str], indent: str) -> str:
    if not known:
        return ""
    lines = [f"{indent} <property{_attributes({'name': n, 'value': v})}/>\n" for n, v in known.items()]
    return f"{indent}<properties>\n{''.join(lines)}{indent}</properties>\n"


def _attributes(pairs: Mapping[str, str]) -> str:
    """XML holds few control characters and no lone surrogate: `clean` spells them, and what else could steer a terminal."""
    return "".join(f" {name}={quoteattr(sp.clean(value))}" for name, value in pairs.items())


REPORTER = JunitReporter()
