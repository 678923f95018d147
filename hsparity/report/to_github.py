"""Annotations for a GitHub Actions run: workflow commands, which a runner reads from a step's output."""

from __future__ import annotations

from ..model import Comparison, Finding, Verdict
from . import findings, view
from . import spelling as sp
from .base import Options

MOST = 10  # GitHub shows so many of one level for a step
_LEVELS = {Verdict.PARITY: "notice", Verdict.DIVERGED: "error"}  # any other verdict is a warning


class GithubReporter:
    suffix = ".github"

    def render(self, comparison: Comparison, options: Options) -> str:
        """One command a line: a gate that fails, the verdict, then causes, hypotheses and notes, at most `MOST` of a level.
        What a gate lets pass is a notice."""
        gate = options.gate
        level = "notice" if gate is not None and gate.passed else _LEVELS.get(comparison.verdict, "warning")
        made = [(level, f"hsparity: {comparison.verdict.value}", [view.verdict_line(comparison)])]
        made += [_finding(comparison, level, f) for f in comparison.findings if not f.ruled_out]
        if gate is not None and not gate.passed:
            made.insert(0, ("error", "hsparity: gate failed", list(gate.lines)))
        elif gate is not None and comparison.verdict is not Verdict.PARITY:
            made.insert(1, ("notice", "hsparity: gate passed", list(gate.lines)))
        left = {"error": MOST, "warning": MOST, "notice": MOST}
        lines = []
        for kind, title, text in made:
            if left[kind]:
                left[kind] -= 1
                lines.append(f"::{kind} title={_property(title)}::{_data(text)}\n")
        return "".join(lines)


def _finding(comparison: Comparison, level: str, finding: Finding) -> tuple[str, str, list[str]]:
    """(level, title, lines): a cause as loud as the verdict, a hypothesis a warning, a note a notice."""
    kind = {"cause": level, "hypothesis": min(level, "warning", key=_loudness)}.get(
        finding.severity, "notice"
    )
    text = [
        finding.headline,
        *(
            f"fix{f' ({engine})' if engine else ''}: {words}"
            for engine, words in findings.fixes(comparison, finding)
        ),
        *(f"confirm: {command}" for command in finding.confirm),
    ]
    return kind, findings.title(finding), text


def _loudness(level: str) -> int:
    return ("notice", "warning", "error").index(level)


def _data(lines: list[str]) -> str:
    """Lines as one message. What a line break could start is gone with it: `clean` spells those inside a text."""
    shown = "\n".join(sp.clean(line) for line in lines)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data([text]).replace(":", "%3A").replace(",", "%2C")


REPORTER = GithubReporter()
