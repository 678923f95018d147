"""The gate: which outcomes of a comparison fail a build. It is a statement of its own, and never changes a verdict.

Three things fail: an outcome or a finding that `fail_on` names, a limit that is exceeded, and a limit that cannot be
checked. A limit is an allowance too: where `fail_on` names "diverged", a comparison whose requested sites are beyond the
floor by their numbers alone passes when limits bound every one of them. No limit allows a cause of HS1xx, HS2xx or HS4xx,
a cause that was proved, a state that is missing or not finite, or an error as large as the state.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .config import EVERY_SITE, Config
from .config import GateConfig as Gate
from .errors import ExitCode, HsparityError
from .model import LOST, Comparison, Finding, SiteDelta, Verdict
from .registry import causes
from .report import spelling, view

__all__ = ["Gate", "GateResult", "judge", "open_gate"]

OUTCOMES = ("diverged", "inconclusive")
NEVER = "never"
LIMITED = ("max_ratio", "max_rel_l2")  # by site
FEW = 8  # reasons shown
KNOWN_WORDS = (
    "diverged, inconclusive, never, a code such as HS101 or HS1xx, or a finding's name: hsparity explain"
)
BEYOND_LIMITS = re.compile(r"HS[124]\d\d|HS303")


@dataclass(frozen=True, slots=True)
class GateResult:
    """Whether a comparison passes, why in lines, and the exit code: 0, 1 diverged or over a limit, 3 not to be known."""

    passed: bool
    lines: tuple[str, ...]
    exit_code: ExitCode
    # Sites beyond the floor that limits allow, whatever else fails: (ref, cand) -> "allowed by max_ratio: …".
    allowed: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """The first line that says how it stands: lines about what was not checked may come before it."""
        word = "gate: passed" if self.passed else "gate: failed"
        return next(line for line in self.lines if line.startswith(word))


@dataclass(frozen=True, slots=True)
class _Reason:
    text: str
    code: ExitCode = ExitCode.DIVERGED


def open_gate(
    fail_on: str | Iterable[str] | None, config: Config | None, name: str = "--fail-on"
) -> Gate | None:
    """The gate of hsparity.toml with `fail_on` (a comma list, or a list) in place of its own; None where neither is given.

    Raises E103 for `never` beside other words, E107 for no word and for one that names no outcome and no finding, E104
    where the file said it.
    """
    gate = config.gate if config else None
    if fail_on is None:
        if config is None or gate is None:
            return None
        return replace(gate, fail_on=_words(gate.fail_on, f"{config.path}: [gate] fail_on", "E104"))
    given = fail_on.split(",") if isinstance(fail_on, str) else fail_on
    if not isinstance(given, Iterable) or isinstance(given, (Mapping, bytes)):
        raise HsparityError(
            "E107", f"{name} is no list of words", (f"type: {type(given).__name__}",), KNOWN_WORDS
        )
    return replace(gate or Gate(), fail_on=_words(given, name, "E107"))


def _words(given: Iterable[str], where: str, code: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(_word(text, where, code) for text in given))
    if not words:
        raise HsparityError(code, f"{where} is empty", help=f"to let everything pass: {NEVER}")
    if NEVER in words and len(words) > 1:
        wrong = "E103" if code == "E107" else code
        raise HsparityError(wrong, f"{where}: never excludes {', '.join(w for w in words if w != NEVER)}")
    return words


def _word(text: str, where: str, code: str) -> str:
    """A word of `fail_on` as it is spelled here: an outcome, a code, HS1xx, or a finding's name."""
    if not isinstance(text, str):
        raise HsparityError(
            code, f"{where}: {spelling.clean(repr(text))} is no outcome and no finding", (), KNOWN_WORDS
        )
    text = text.strip()
    low, known = text.lower(), {cause.name: number for number, cause in causes().items()}
    if low in (*OUTCOMES, NEVER) or low in known:
        return low
    if text.upper() in known.values():
        return text.upper()
    family = re.fullmatch(r"hs(\d)xx", low)
    if family and any(number[2] == family[1] for number in known.values()):
        return f"HS{family[1]}xx"
    choices = [*OUTCOMES, NEVER, *known, *(n.lower() for n in known.values())]
    near = [
        n if n in (*OUTCOMES, NEVER, *known) else n.upper() for n in difflib.get_close_matches(low, choices)
    ]
    raise HsparityError(
        code,
        f"{where}: {spelling.clean(text)!r} is no outcome and no finding",
        (f"near: {', '.join(near)}",) if near else (),
        KNOWN_WORDS,
    )


def judge(comparison: Comparison, gate: Gate) -> GateResult:
    """Whether the comparison passes the gate."""
    lenient = gate.fail_on == (NEVER,)
    strict = replace(gate, fail_on=OUTCOMES) if lenient else gate
    limits = _limits(comparison, strict)
    by_verdict, passed = _by_verdict(comparison, strict, kept=not limits)
    failed = [*by_verdict, *_named(comparison, strict), *limits]
    aside = _aside(comparison, gate)
    allowed = _allowed(comparison, strict)
    if failed and not lenient:
        code = min(reason.code for reason in failed)
        return GateResult(False, _told("failed", [r.text for r in failed], aside), code, allowed)
    passed += [f"never fails, whatever was found: {r.text}" for r in failed]
    return GateResult(True, _told("passed", passed, aside), ExitCode.PARITY, allowed)


def _told(word: str, reasons: Sequence[str], aside: Sequence[str]) -> tuple[str, ...]:
    lines = [f"gate: {word}, {text}" for text in reasons[:FEW]] or [f"gate: {word}"]
    if len(reasons) > FEW:
        lines.append(f"gate: {word}, and {len(reasons) - FEW} more reasons")
    # The statement comes last.
    return (*(f"gate: {text}" for text in aside), *lines)


def _by_verdict(c: Comparison, gate: Gate, kept: bool) -> tuple[list[_Reason], list[str]]:
    """What fails for the verdict, else what is let pass in spite of it. `kept`: every limit is."""
    if c.verdict is Verdict.PARITY:
        return [], []
    said = f"verdict {c.verdict.value}: {spelling.clean(c.headline)}"
    if c.verdict.value not in gate.fail_on:
        return [], [f"verdict {c.verdict.value} is not in fail_on: {spelling.clean(c.headline)}"]
    if c.verdict is not Verdict.DIVERGED:
        return [_Reason(said, ExitCode.INCONCLUSIVE)], []
    if not gate.max_ratio and not gate.max_rel_l2 and gate.max_lost is None:
        return [_Reason(said)], []
    against, allowed = _allowance(c, gate)
    if against or not allowed:
        return [_Reason(said), *map(_Reason, against)], []
    undecided = [d for d in view.requested(c) if d.verdict is Verdict.INCONCLUSIVE]
    if undecided and "inconclusive" in gate.fail_on:
        reasons = [f"{_place(d)} cannot be decided: {spelling.clean(d.reason)}" for d in undecided]
        return [_Reason(text, ExitCode.INCONCLUSIVE) for text in reasons], []
    if not kept:
        return [], [said]
    return [], [f"{said} Allowed by {', '.join(_given(gate))}:", *allowed]


def _given(gate: Gate) -> list[str]:
    return [name for name in (*LIMITED, "max_lost") if getattr(gate, name) not in (None, {})]


def _allowance(c: Comparison, gate: Gate) -> tuple[list[str], list[str]]:
    """Why no limit lets a divergence pass, and what limits allow of it."""
    against = [f"{_title(f)} is there, and no limit allows it" for f in _beyond_limits(c)]
    allowed = []
    for d in view.requested(c):
        if d.verdict not in (Verdict.DIVERGED, Verdict.MISSING):
            continue
        why = _not_allowed(c, d, gate)
        if why:
            against.append(f"{_place(d)}: {why}")
        else:
            allowed.append(f"{_place(d)} at {_figures(d)}")
    if c.cost is not None and c.cost.verdict is Verdict.DIVERGED:
        if gate.max_lost is None:
            against.append(f"{spelling.clean(c.cost.headline)}, and no max_lost allows it")
        else:
            allowed.append(spelling.clean(c.cost.headline))
    return against, allowed


def _allowed(c: Comparison, gate: Gate) -> dict[tuple[str, str], str]:
    """What limits allow, site by site; nothing where a finding is there that no limit allows."""
    if c.verdict is not Verdict.DIVERGED or _beyond_limits(c):
        return {}
    found = {}
    for d in view.requested(c):
        limits = [n for n in LIMITED if _bound(getattr(gate, n), d) is not None]
        over = any(_over_limit(c, d, name, gate) for name in limits)
        if limits and not over and d.verdict is Verdict.DIVERGED and not _not_allowed(c, d, gate):
            found[d.ref, d.cand] = f"allowed by {' and '.join(limits)}: {_place(d)} at {_figures(d)}"
    return found


def _beyond_limits(c: Comparison) -> list[Finding]:
    """Causes that no limit allows."""
    causes_held = (f for f in c.findings if f.severity == "cause" and not f.ruled_out)
    return [f for f in causes_held if f.structural or BEYOND_LIMITS.match(f.code)]


def _not_allowed(c: Comparison, d: SiteDelta, gate: Gate) -> str:
    """Why no limit lets a site pass that is beyond the floor; empty where one does, or where it is over its limit, which is
    said by itself."""
    ratio, error = _bound(gate.max_ratio, d), _bound(gate.max_rel_l2, d)
    numbers = any(r.verdict is Verdict.DIVERGED for r in d.ratios) or c.floor.kind == "tolerance"
    if _unmeasured(c, d) or not numbers:
        return f"{spelling.clean(d.reason)}: no limit allows this"
    largest = f"largest error {spelling.error(_largest(d))}"
    if _largest(d) >= max(LOST, 0.0 if d.floor is None else c.floor.limit * d.floor.worst):
        return f"{largest}, as large as the state: no limit allows this"
    if ratio is not None and _ratio(d) > ratio:
        return ""
    if ratio is None and error is None:
        return "beyond the floor, and no limit is set for it"
    if error is None and ratio is not None and not _tails_within(d, ratio):
        return f"single tokens are beyond {ratio:g}x the floor ({largest}), which only max_rel_l2 can allow"
    return ""


def _tails_within(d: SiteDelta, times: float) -> bool:
    """Whether the tokens farthest off are no farther than `times` the floor's own farthest ones."""
    tails = {r.of for r in d.ratios if r.verdict is Verdict.DIVERGED and not r.low > r.limit}
    # A side's own tail is seen in the pair's, unless the other side has it too; what massive channels hide is in neither.
    hidden = {of for of in tails if of.endswith(" rest") and of.removesuffix(" rest") not in tails}
    if d.floor is None or hidden or {"ref", "cand"} <= tails:
        return False
    found = view.rel_l2(d)
    return found.p95 <= times * d.floor.p95 and found.worst <= times * d.floor.worst


def _unmeasured(c: Comparison, d: SiteDelta) -> bool:
    """Whether a site's figures leave tokens out."""
    return d.verdict is Verdict.MISSING or not d.tokens or d.tokens < c.alignment.tokens or any(d.nonfinite)


def _limits(c: Comparison, gate: Gate) -> list[_Reason]:
    """Every limit that is exceeded, or that cannot be checked."""
    wanted, found = view.requested(c), []
    tokens = min((d.tokens for d in wanted), default=0)
    if gate.min_tokens is not None and tokens < gate.min_tokens:
        words = f"{spelling.count(tokens, 'token')} compared, min_tokens is {gate.min_tokens:,}"
        found.append(_Reason(words, ExitCode.INCONCLUSIVE))
    for d in wanted:
        found += [reason for name in LIMITED if (reason := _over_limit(c, d, name, gate)) is not None]
    return found + _lost(c, gate)


def _over_limit(c: Comparison, d: SiteDelta, name: str, gate: Gate) -> _Reason | None:
    """Why a site fails the limit `name`, if it does."""
    limit = _bound(getattr(gate, name), d)
    if limit is None:
        return None
    value = _ratio(d) if name == "max_ratio" else _largest(d)
    if _unmeasured(c, d) or math.isnan(value):
        why = spelling.clean(d.reason) if _unmeasured(c, d) else "there is no floor"
        return _Reason(f"{name} cannot be checked at {_place(d)}: {why}", ExitCode.INCONCLUSIVE)
    if value <= limit:
        return None
    return _Reason(f"{_place(d)} at {_over(name, value, limit)}, {name} allows {limit:g}")


def _lost(c: Comparison, gate: Gate) -> list[_Reason]:
    limit, cost = gate.max_lost, c.cost
    if limit is None:
        return []
    if cost is None:
        words = "max_lost cannot be checked: no cost is known; name the head with --draft"
        return [_Reason(words, ExitCode.INCONCLUSIVE)]
    if cost.high is None or math.isnan(cost.high):
        words = "max_lost cannot be checked: the loss has no interval; more prompts give it one"
        return [_Reason(words, ExitCode.INCONCLUSIVE)]
    if cost.high <= limit:
        return []
    lost = f"the draft loses {cost.ref - cost.cand:.2f} accepted tokens a step (up to {cost.high:.2f})"
    # Beyond doubt above the limit, or not to be told from it.
    sure = cost.low is not None and cost.low > limit
    return [
        _Reason(f"{lost}, max_lost allows {limit:g}", ExitCode.DIVERGED if sure else ExitCode.INCONCLUSIVE)
    ]


def _named(c: Comparison, gate: Gate) -> list[_Reason]:
    """The findings that `fail_on` names and that are there."""
    return [
        _Reason(f"{_title(f)}: {spelling.clean(f.headline)}")
        for f in c.findings
        if _counts(f) and _is_named(f, gate)
    ]


def _aside(c: Comparison, gate: Gate) -> list[str]:
    """What the user may take for checked and that was not."""
    weak = [f for f in c.findings if _is_named(f, gate) and not f.ruled_out and not _counts(f)]
    lines = [
        f"{_title(f)} is {'a note about single sites' if f.severity == 'note' else f.confidence or 'possible'}: "
        "that fails nothing"
        for f in weak
    ]
    met = {key for d in view.requested(c) for key in _keys(d)} | {EVERY_SITE}
    for name in LIMITED:
        unmet = [key for key in getattr(gate, name) if key not in met]
        lines += [f"{name} of {', '.join(unmet)} meets no requested site"] if unmet else []
    return lines


def _counts(finding: Finding) -> bool:
    """Whether a finding is there: a cause, a hypothesis that is settled or likely, or a note about the whole run. One about
    single sites decides nothing."""
    if finding.ruled_out:
        return False
    if finding.severity == "hypothesis":
        return finding.confidence in ("settled", "likely")
    return finding.severity == "cause" or not finding.slots


def _is_named(finding: Finding, gate: Gate) -> bool:
    return bool({finding.code, finding.name, f"{finding.code[:3]}xx"} & set(gate.fail_on))


def _keys(d: SiteDelta) -> tuple[str, ...]:
    """What a limit may be keyed by for this site, the closest first."""
    return (view.place(d.ref)[0], d.ref, d.cand)


def _bound(limits: dict[str, float], d: SiteDelta) -> float | None:
    return next((limits[key] for key in (*_keys(d), EVERY_SITE) if key in limits), None)


def _ratio(d: SiteDelta) -> float:
    """The largest median error over the floor, of either side or the pair; NaN without a floor."""
    if 0 < d.tokens == d.bit_equal:
        return 0.0
    return math.inf if any(math.isinf(r.median) for r in d.ratios) else view.worst_ratio(d)


def _largest(d: SiteDelta) -> float:
    """The largest rel-L2 of any token, with massive channels and without them."""
    return max(view.rel_l2(d).worst, d.rest.get("rel_l2", view.NOTHING).worst)


def _over(name: str, value: float, limit: float) -> str:
    """A value above its limit, with as many figures as show that it is."""
    shown = spelling.ratio(value) if name == "max_ratio" else spelling.error(value)
    shown = shown if float(shown) > limit else f"{value:.6g}"
    return f"{shown}x the floor" if name == "max_ratio" else f"rel-L2 {shown}"


def _figures(d: SiteDelta) -> str:
    ratio = _ratio(d)
    times = "" if math.isnan(ratio) else f"{spelling.ratio(ratio)}x the floor, "
    return f"{times}largest error {spelling.error(_largest(d))}"


def _place(d: SiteDelta) -> str:
    layer = view.place(d.ref)[0]
    return f"layer {layer}" if layer.isdigit() else spelling.clean(view.place_words(d.ref))


def _title(finding: Finding) -> str:
    return spelling.clean(f"{finding.code} {finding.name}")
