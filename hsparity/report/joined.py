"""A comparison and what else was found of the same two captures, as one result that one page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from ..drafter.result import DraftCost, FedSide, summary
from ..errors import HsparityError
from ..experiments.result import Bisect, SideFacts, Span, State
from ..model import Comparison, Finding, Side
from ..replay.result import Replay, Replayed
from . import spelling

More = Bisect | DraftCost | Replay
MOST = 0.5  # of the excess
_DIGEST = re.compile(r"[0-9a-f]{12,}")
_ADDED = re.compile(r"(^|-)[0-9a-f]{12,}$")
_SHOWN = 12  # digits of a digest


@dataclass(frozen=True, slots=True)
class _Facts:
    """What tells one capture from another; empty or 0 where a record does not hold it."""

    path: str
    engine: str = ""
    version: str = ""
    model: str = ""
    weights: str = ""
    prompts: int = 0
    tokens: int = 0
    checkpoint: str = ""  # in place of the model, in results that do not say what a capture calls it


def joined(comparison: Comparison, others: Sequence[More]) -> Comparison:
    """The comparison with a bisection's experiments, a replay's layers and a draft's cost in it; the verdict stays.

    Raises E223 for a result of other captures.
    """
    for other in others:
        _check(comparison, other)
        if isinstance(other, Bisect):
            findings = _settled(comparison.findings, other)
            comparison = replace(comparison, trials=other.trials(), findings=findings)
        elif isinstance(other, Replay):
            comparison = replace(comparison, added=other.layer_errors())
        else:
            comparison = replace(comparison, cost=summary(other))
    return comparison


def _settled(findings: Sequence[Finding], bisect: Bisect) -> tuple[Finding, ...]:
    """The findings with the hypothesis that the bisection settles as most of the excess ahead of the others, and without
    the bisections that it has made."""
    shares = {b.code: b.share for b in bisect.causes if b.confidence == "settled" and b.share is not None}
    made = [_answered(f, shares.get(f.code), bisect) if _open(f) else f for f in findings]
    ahead = iter(sorted((f for f in made if _open(f)), key=lambda f: f.confidence != "settled"))
    return tuple(next(ahead) if _open(f) else f for f in made)


def _open(finding: Finding) -> bool:
    return finding.severity == "hypothesis" and not finding.ruled_out


def _answered(finding: Finding, share: Span | None, bisect: Bisect) -> Finding:
    left = tuple(command for command in finding.confirm if not _run(command, bisect))
    if share is None or share.low <= MOST:  # a cause of a small part is no answer to why the sides differ
        return replace(finding, confirm=left)
    line = f"bisect: {100 * min(1.0, share.value):.0f} % of the excess"
    return replace(finding, confirm=left, confidence="settled", evidence=(*finding.evidence, line))


def _run(command: str, bisect: Bisect) -> bool:
    """Whether a command is a bisection whose knobs this one has turned, all of them where it names none."""
    words = shlex.split(command)
    if words[:2] != ["hsparity", "bisect"]:
        return False
    if "--knobs" not in words:
        return "--knobs" not in bisect.command
    wanted = words[words.index("--knobs") + 1].split(",")
    done = (State.MEASURED, State.NO_EFFECT)
    return set(wanted) <= {knob for e in bisect.experiments if e.state in done for knob in e.knobs}


def _check(comparison: Comparison, other: More) -> None:
    mine = (_facts(comparison.ref), _facts(comparison.cand))
    theirs = _sides(other)
    unlike = {
        f.name
        for f in fields(_Facts)
        for ours, its in zip(mine, theirs, strict=True)
        if not _alike(f.name, ours, its)
    }
    if not unlike:
        return
    shown = [f.name for f in fields(_Facts) if f.name in unlike | {"path", "engine", "version"}]
    width = max(len(other.schema), len(comparison.schema))
    paths = shlex.join([facts.path for facts in theirs])
    raise HsparityError(
        "E223",
        "the results are of other captures",
        tuple(
            f"{schema:<{width}}  {role:<4}  {_words(facts, shown)}"
            for role, i in (("ref", 0), ("cand", 1))
            for schema, facts in ((comparison.schema, mine[i]), (other.schema, theirs[i]))
        ),
        f"make it of the same two, for instance: hsparity compare {paths} --json result.json",
    )


def _sides(other: More) -> tuple[_Facts, _Facts]:
    if isinstance(other, Replay):
        if len(other.sides) == 2:
            return _facts(other.sides[0]), _facts(other.sides[1])
        return _Facts(other.ref), _Facts(other.cand)
    ref, cand = _facts(other.ref), _facts(other.cand)
    if isinstance(other, DraftCost) and not (ref.model or cand.model):
        # The model that both sides ran, in results that do not say which each was captured from.
        return replace(ref, checkpoint=other.model), replace(cand, checkpoint=other.model)
    return ref, cand


def _facts(side: Side | FedSide | Replayed | SideFacts) -> _Facts:
    return _Facts(
        side.path, side.engine, side.version, side.model, side.weights_sha256, side.prompts, side.tokens
    )


def _alike(name: str, ours: _Facts, its: _Facts) -> bool:
    """Whether one fact speaks against the same capture: what either record does not hold speaks against nothing."""
    left, right = getattr(ours, name), getattr(its, name)
    if name == "path":
        return bool(left == right)
    if name == "weights" and not (_DIGEST.fullmatch(left) and _DIGEST.fullmatch(right)):
        return True
    if name == "model":
        left, right = _basename(left), _basename(right)
    if name == "checkpoint":
        # The folder of a bundled model is called smollm2-647f940d3f2b, its capture SmolLM2-135M; tiny-llama-… and tiny:llama.
        left, right = _basename(ours.model), _basename(right)
        return left in right or right in left
    return not left or not right or left == right


def _basename(model: str) -> str:
    """The last part of a path or of a name on the hub, without the digest that a cache adds; empty for one that is called by a
    commit."""
    last = re.split(r"[/\\:]", model.rstrip("/\\").lower())[-1]
    return _ADDED.sub("", last)


def _words(facts: _Facts, names: Sequence[str]) -> str:
    """The facts of these names, as far as they are known."""
    said = [facts.path]
    engine = " ".join(part for part in (facts.engine, facts.version) if part)
    said += [engine] if engine else []
    model = facts.model or facts.checkpoint
    said += [model] if model and {"model", "checkpoint"} & set(names) else []
    said += [f"weights {facts.weights[:_SHOWN]}"] if "weights" in names and facts.weights else []
    for name in ("prompts", "tokens"):
        number = getattr(facts, name)
        said += [spelling.count(number, name.removesuffix("s"))] if name in names and number else []
    return ", ".join(said)
