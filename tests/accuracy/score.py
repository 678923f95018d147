"""The scoreboard: how often the first cause that `compare` names is the true one, and how often each word is right.

    python -m tests.accuracy.score CASES.json [--replay] [--only TEXT] [--markdown FILE]

A case is {"name", "truth", "also", "ref", "cand", "floors", "how", "passive"}; "truth" is a cause's name, or within-noise.
With --replay, the replay that a case names in "replay" (a JSON file) is given to the comparison.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.errors import HsparityError
from hsparity.model import Comparison, Verdict

NOISE = "within-noise"
WORDS = ("settled", "likely", "possible", "inconclusive")
# What a structural finding says of the inputs; the cause stands behind it.
INPUTS = {"beyond-floor", "few-tokens-beyond", "weights-differ", "config-differs"}


@dataclass(frozen=True, slots=True)
class Score:
    """One case as it came out."""

    name: str
    truth: tuple[str, ...]  # every name that is right
    named: tuple[tuple[str, str], ...]  # (cause, confidence word) by rank; a structural cause is "settled"
    verdict: str
    passive: bool = True
    planted: bool = False

    @property
    def outcome(self) -> str:
        """ "right", "second", "inconclusive", "wrong", "false alarm", "missed" or "error"."""
        if self.verdict.startswith("E"):
            return "error"
        names = [n for n, _ in self.named]
        quiet = not names and self.verdict != Verdict.DIVERGED.value
        if NOISE in self.truth and (self.verdict == Verdict.PARITY.value or quiet):
            return "right"
        if self.truth == (NOISE,):
            return "false alarm"
        if not names or names == ["unknown"]:
            return "missed" if self.verdict == Verdict.PARITY.value else "inconclusive"
        if self.named[0][1] == "inconclusive":
            return "inconclusive"
        if names[0] in self.truth:
            return "right"
        return "second" if set(names[:2]) & set(self.truth) else "wrong"

    @property
    def top_two(self) -> bool:
        return self.outcome in ("right", "second") or bool({n for n, _ in self.named[:2]} & set(self.truth))


def named(result: Comparison) -> tuple[tuple[str, str], ...]:
    """The causes that a comparison names, best first."""
    kept = [f for f in result.findings if not f.ruled_out]
    structural = [(f.name, "settled") for f in kept if f.severity == "cause" and f.name not in INPUTS]
    return (*structural, *((f.name, f.confidence) for f in kept if f.severity == "hypothesis"))


def score(case: Mapping[str, Any], replay: bool = False) -> Score:
    """Compare one case. A comparison that is refused is an outcome too."""
    truth = (case["truth"], *case.get("also", ()))
    about = {"passive": bool(case.get("passive", True)), "planted": bool(case.get("planted", False))}
    opened = []
    try:
        opened += [open_source(path) for path in (case["ref"], case["cand"], *case["floors"])]
        known = _replay(case["replay"]) if replay and case.get("replay") else None
        result = compare(opened[0], opened[1], opened[2:], Query(), replay=known)
    except HsparityError as error:
        return Score(case["name"], truth, (), error.code, **about)
    finally:
        for source in opened:
            source.close()
    return Score(case["name"], truth, named(result), result.verdict.value, **about)


def _replay(path: str) -> Any:
    from hsparity.replay.result import Replay, from_json

    found: Replay = from_json(Path(path).read_text())
    return found


def board(scores: Sequence[Score]) -> str:
    """The scoreboard and the calibration table, as Markdown."""
    counts = Counter(s.outcome for s in scores)
    kinds = ("right", "second", "inconclusive", "wrong", "false alarm", "missed", "error")
    lines = [
        "| cases | right at rank 1 | right in the top 2 | INCONCLUSIVE | wrong | false alarms | missed | refused |"
    ]
    lines.append("|" + "--:|" * 8)
    row = (
        len(scores),
        counts["right"],
        sum(s.top_two for s in scores),
        counts["inconclusive"],
        counts["wrong"] + counts["second"],
        counts["false alarm"],
        counts["missed"],
        counts["error"],
    )
    lines += [f"| {' | '.join(map(str, row))} |", "", "| word | first causes | right |", "|---|--:|--:|"]
    for word in WORDS:
        first = [s for s in scores if s.named and s.named[0][1] == word]
        right = sum(s.named[0][0] in s.truth for s in first)
        lines.append(f"| {word} | {len(first)} | {right} |")
    lines += ["", "| case | truth | named | |", "|---|---|---|---|"]
    for s in sorted(scores, key=lambda s: (kinds.index(s.outcome), s.name)):
        said = ", ".join(f"{n} ({word})" for n, word in s.named) or s.verdict
        lines.append(f"| {s.name} | {', '.join(s.truth)} | {said} | {s.outcome} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases")
    parser.add_argument("--replay", action="store_true", help="give each case its replay")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--markdown", help="file to write instead of stdout")
    chosen = parser.parse_args()
    cases = [c for c in json.loads(Path(chosen.cases).read_text()) if chosen.only in c["name"]]
    found = []
    for case in cases:
        found.append(score(case, chosen.replay))
        said = ", ".join(f"{n} ({word})" for n, word in found[-1].named) or found[-1].verdict
        sys.stderr.write(f"{found[-1].outcome:<12} {case['name']}: {said}\n")
    text = board(found)
    if chosen.markdown:
        Path(chosen.markdown).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
