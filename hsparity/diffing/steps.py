"""What to type next: what makes two results comparable, and what settles why one got worse."""

from __future__ import annotations

import shlex

from hsparity.model import Comparison
from hsparity.report import spelling as sp

from .commands import capture_again, compare_again, floor_paths, new_file
from .result import Change, SettingChange, Step
from .terms import Terms


def steps(
    old: Comparison,
    new: Comparison,
    terms: Terms,
    change: Change,
    settings: tuple[SettingChange, ...],
    names: tuple[str, str],
) -> tuple[Step, ...]:
    """Most useful first; none where nothing got worse."""
    if change in (Change.SAME, Change.BETTER):
        return ()
    found = _comparable(old, new, terms, names)
    if change is Change.WORSE:
        found = [*_settling(old, new, settings), *found]
    return tuple({step.command: step for step in found}.values())


def _comparable(old: Comparison, new: Comparison, terms: Terms, names: tuple[str, str]) -> list[Step]:
    """The commands that take the reasons away for which numbers were not held against one another."""
    file, out = new_file(names[1]), []
    if not terms.prompts:
        why = "the new sides on the old tokens"
        for then, now in ((old.ref, new.ref), (old.cand, new.cand)):
            prompts = then.path if then.path != now.path else "OLD-PROMPTS.jsonl"
            out.append(Step(capture_again(now, prompts, f"{now.path}-again"), why))
        again = shlex.join(sp.clean(f"{s.path}-again") for s in (new.ref, new.cand))
        out.append(
            Step(f"hsparity compare {again} {sp.clean(old.request.spelled)} --json {shlex.quote(file)}", why)
        )
    elif not terms.yardstick:
        if terms.version:
            floors = floor_paths(old)
            if floors:
                command = compare_again(new, new.request.spelled, file, floors)
                out.append(Step(command, "the new sides over the old floor"))
        else:
            older = names[0] if names[0] != "-" else "old.json"
            command = compare_again(old, old.request.spelled, sp.clean(older))
            out.append(Step(command, f"the old sides by hsparity {sp.clean(new.hsparity)}"))
    if not terms.request and terms.prompts:
        command = compare_again(new, old.request.spelled, file)
        out.append(Step(command, "the new sides on the layers that were asked for then"))
    return out


def _settling(old: Comparison, new: Comparison, settings: tuple[SettingChange, ...]) -> list[Step]:
    """The commands that try what changed."""
    out = []
    for then, now, other in ((old.cand, new.cand, new.ref), (old.ref, new.ref, new.cand)):
        kinds = {c.kind for c in settings if c.role == now.role}
        if not kinds or then.engine != now.engine:
            continue
        kept = then.path != now.path
        if kinds & {"setting", "model"}:
            pair = (then.path, now.path) if kept else (new.ref.path, new.cand.path)
            command = f"hsparity bisect {shlex.join(map(sp.clean, pair))}"
            out.append(Step(command, "tries the settings that differ, one at a time"))
        if then.version != now.version:
            made = f"{now.path}-{then.version.partition('+')[0]}"
            pair = (other.path, made) if now.role == "cand" else (made, other.path)
            why = f"with {sp.clean(then.engine)} {sp.clean(then.version)}, all else as it is now"
            out.append(Step(capture_again(now, now.path, made, then.version.partition("+")[0]), why))
            compared = f"hsparity compare {shlex.join(map(sp.clean, pair))} {sp.clean(new.request.spelled)}"
            out.append(Step(compared.rstrip(), why))
        if kept:
            command = f"hsparity compare {shlex.join(sp.clean(s.path) for s in (then, now))} --layers all"
            out.append(Step(command, "then against now: where the two part first"))
    return out
