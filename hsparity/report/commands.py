"""The commands that a report hands out: what makes a floor, captures what lacks, confirms a finding."""

from __future__ import annotations

import shlex

from ..model import Comparison, Verdict
from . import spelling as sp
from . import view


def floor_commands(comparison: Comparison) -> tuple[str, ...]:
    """The command that makes a floor beside the reference, and the comparison that finds it there."""
    ref = sp.clean(comparison.ref.path)
    pair = shlex.join((ref, sp.clean(comparison.cand.path)))
    return (
        f"hsparity floor {shlex.quote(ref)} --only fp32,bf16",
        f"hsparity compare {pair} {comparison.request.spelled}".rstrip(),
    )


def capture_commands(comparison: Comparison) -> tuple[str, ...]:
    """Per side that lacks requested boundaries, the command that captures them."""
    out = []
    for side in (comparison.ref, comparison.cand):
        lacking = [b for b in comparison.request.boundaries if f"boundary.{b:03d}" not in side.sites]
        if lacking and any(d.verdict is Verdict.MISSING for d in view.requested(comparison)):
            model = shlex.quote(sp.clean(side.model) or "MODEL")
            folder = shlex.quote(sp.clean(side.path) + "-more")
            out.append(
                f"hsparity capture {side.engine} --model {model} {comparison.request.spelled} --prompts "
                f"FILE -o {folder}"
            )
    return tuple(out)


def more_commands(comparison: Comparison) -> tuple[str, ...]:
    """The commands that capture every side again with more prompts, and compare those."""
    sides = {s.path: s for s in (comparison.ref, comparison.cand, *comparison.others) if s.role != "repeat"}
    captures = [
        f"hsparity capture {s.engine} --model {shlex.quote(sp.clean(s.model) or 'MODEL')} --dtype "
        f"{sp.clean(s.dtype)} "
        f"--prompts MORE.jsonl -o {shlex.quote(sp.clean(path) + '-more')}"
        for path, s in sides.items()
    ]
    pair = shlex.join(sp.clean(s.path) + "-more" for s in (comparison.ref, comparison.cand))
    floors = dict.fromkeys(s.path for s in comparison.others if s.role != "repeat")
    floor = "".join(f" --floor {shlex.quote(sp.clean(path) + '-more')}" for path in floors)
    return (*captures, f"hsparity compare {pair} {comparison.request.spelled}{floor}")


def next_commands(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """(command, what it settles), most useful first."""
    out: list[tuple[str, str]] = []
    lead = view.leading(comparison)
    if comparison.floor.kind in ("none", "repeat") and comparison.verdict is Verdict.INCONCLUSIVE:
        purpose = ("a floor: Transformers in fp32 and bf16 on the same tokens", "finds the floor beside it")
        out += list(zip(floor_commands(comparison), purpose, strict=True))
    out += [(command, "captures what was asked for") for command in capture_commands(comparison)]
    confirmed: dict[str, list[str]] = {}
    for finding in comparison.findings:
        if not finding.ruled_out:
            for command in finding.confirm:
                confirmed.setdefault(sp.clean(command), []).append(sp.clean(finding.code))
    for command, codes in confirmed.items():
        # With -v it is the same comparison: it proves no more, but shows all that was measured.
        does = "all the evidence for" if command.endswith(" -v") else "confirms"
        if any(f.severity == "hypothesis" for f in comparison.findings if f.code in codes):
            does = "tests"
        out.append((command, f"{does} {' and '.join(codes)}"))
    if comparison.verdict is Verdict.INCONCLUSIVE and not out:
        out += [
            (command, "more tokens decide: each side and the floor again")
            for command in more_commands(comparison)
        ]
    why = next((f for f in comparison.findings if f.severity == "hypothesis" and not f.ruled_out), None)
    if why is not None:
        out.append((f"hsparity explain {sp.clean(why.code)}", "what it is and how it shows"))
    elif lead is not None:
        out.append((f"hsparity explain {sp.clean(lead.code)}", "what it is and where it comes from"))
    known = dict(reversed(out))
    return tuple((c, known[c]) for c in dict.fromkeys(c for c, _ in out))
