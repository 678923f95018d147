"""What to type next: what makes two results comparable, and what settles why one got worse."""

from __future__ import annotations

import shlex
from dataclasses import replace

from hsparity.model import Comparison, Request, Verdict
from hsparity.report import spelling as sp
from hsparity.report import view

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
    """Most useful first, one at least; none where nothing got worse."""
    if change in (Change.SAME, Change.BETTER):
        return ()
    found = _comparable(old, new, terms, names)
    if change is Change.WORSE:
        found = [*_settling(old, new, settings), *found]
    found = found or [_in_itself(new, names[1])]
    return tuple({step.command: step for step in found}.values())


def _in_itself(new: Comparison, name: str) -> Step:
    """What the new result says by itself, where nothing that changed can be tried."""
    if name == "-" or new.verdict is Verdict.PARITY:
        command = compare_again(new, _every_layer(new.request), new_file(name))
        return Step(command, "the new sides on every layer: where the two part first")
    command = f"hsparity report {shlex.join([sp.clean(name)])} -v"
    return Step(command, "what the new result says by itself: its causes, and what settles them")


def _every_layer(request: Request) -> Request:
    return replace(request, spelled="--layers all")


def _comparable(old: Comparison, new: Comparison, terms: Terms, names: tuple[str, str]) -> list[Step]:
    """The commands that take the reasons away for which numbers were not held against one another."""
    file, out = new_file(names[1]), []
    if not terms.prompts:
        out += _same_tokens(old, new, file)
    elif not terms.yardstick:
        if terms.version:
            floors = floor_paths(old)
            if floors:
                command = compare_again(new, new.request, file, floors)
                out.append(Step(command, "the new sides over the old floor"))
        else:
            command = compare_again(old, old.request, new_file(names[0]))
            out.append(Step(command, f"the old sides by hsparity {sp.clean(new.hsparity)}"))
    if not terms.request and terms.prompts:
        command = compare_again(new, old.request, file)
        out.append(Step(command, "the new sides on the layers that were asked for then"))
    return out


def _same_tokens(old: Comparison, new: Comparison, file: str) -> list[Step]:
    """What holds the new sides against the old ones on one set of tokens."""
    sizes = [(c.ref.prompts, c.ref.tokens) for c in (old, new)]
    if sizes[0] == sizes[1] and old.request.tokens != new.request.tokens:
        # The captures hold what was asked for then: nothing has to be captured.
        command = compare_again(new, old.request, file)
        return [Step(command, "the new sides on the tokens that were asked for then")]
    why, out = "the new sides on the old tokens", []
    for then, now in ((old.ref, new.ref), (old.cand, new.cand)):
        prompts = then.path if then.path != now.path else "OLD-PROMPTS.jsonl"
        out.append(Step(capture_again(now, prompts, f"{now.path}-again"), why))
    again = (f"{new.ref.path}-again", f"{new.cand.path}-again")
    # The old floor is of the old tokens.
    out.append(Step(compare_again(new, old.request, file, floor_paths(old), again), why))
    return out


def _settling(old: Comparison, new: Comparison, settings: tuple[SettingChange, ...]) -> list[Step]:
    """The commands that try what changed."""
    out = []
    if old.request.offset != new.request.offset:
        command = compare_again(new, replace(new.request, offset=old.request.offset), "")
        out.append(Step(command, f"the new sides at offset {old.request.offset}, as they were compared then"))
    for then, now, other in ((old.cand, new.cand, new.ref), (old.ref, new.ref, new.cand)):
        kinds = {c.kind for c in settings if c.role == now.role}
        kept = then.path != now.path
        if not kinds and not (kept and then.engine != now.engine):
            continue
        if then.engine == now.engine and kinds & {"setting", "model"}:
            pair = (then.path, now.path) if kept else (new.ref.path, new.cand.path)
            command = f"hsparity bisect {shlex.join(map(sp.clean, pair))}"
            out.append(Step(command, "tries the settings that differ, one at a time"))
        if then.engine == now.engine and then.version != now.version:
            made = f"{now.path}-{then.version.partition('+')[0]}"
            pair = (other.path, made) if now.role == "cand" else (made, other.path)
            why = f"with {sp.clean(then.engine)} {sp.clean(then.version)}, all else as it is now"
            out.append(Step(capture_again(now, now.path, made, then.version.partition("+")[0]), why))
            out.append(Step(compare_again(new, new.request, "", sides=pair), why))
        if kept:
            asked = replace(_every_layer(new.request), offset=0)
            command = compare_again(new, asked, "", sides=(then.path, now.path))
            sides = [view.side_facts(s)[0] for s in (then, now)]
            who = "the two" if then.engine == now.engine else " and ".join(sides)
            out.append(Step(command, f"then against now: where {who} part first"))
    return out
