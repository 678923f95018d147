"""What each side ran with then and now: candidates for what changed, never proofs."""

from __future__ import annotations

import json
from typing import Any

from hsparity.model import Comparison, Side
from hsparity.report import spelling as sp

from .result import SettingChange

# Says which files of ours ran inside the engine, not what the engine did.
OURS = ("hsprobe_sha256",)
KINDS = ("engine", "model", "setting", "environment")


def setting_changes(old: Comparison, new: Comparison) -> tuple[SettingChange, ...]:
    """Everything recorded that is another now: engines and releases first, environments last."""
    found = [
        SettingChange(now.role, kind, name, before, after)
        for then, now in ((old.ref, new.ref), (old.cand, new.cand))
        for kind, a, b in zip(KINDS, _facts(then), _facts(now), strict=True)
        for name in dict.fromkeys([*a, *b])
        if (before := a.get(name, "-")) != (after := b.get(name, "-"))
    ]
    return tuple(sorted(found, key=lambda c: (KINDS.index(c.kind), c.role != "cand")))


def _facts(side: Side) -> tuple[dict[str, str], dict[str, str], dict[str, str], dict[str, str]]:
    """By kind, in the order of KINDS."""
    settings = {"dtype": side.dtype, **dict(sorted(flat(side.settings).items()))}
    environment = {k: sp.clean(str(v)) for k, v in sorted(side.environment.items()) if k not in OURS}
    # The engine's own release stands among the packages of its environment too.
    environment = {k: v for k, v in environment.items() if k != side.engine}
    model = {"weights": side.digest[:12]} if side.digest else {}
    return {side.role: sp.clean(f"{side.engine} {side.version}".strip())}, model, settings, environment


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings by dotted name, as text."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        name = sp.clean(f"{prefix}{key}")
        if isinstance(value, dict):
            found |= flat(value, f"{name}.")
        else:
            found[name] = sp.clean(_text(value))
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "none"
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def explained(changes: tuple[SettingChange, ...], worse: bool, warned: bool) -> str:
    """What the changes are worth: one sentence. `warned`: something beside the sides was not the same."""
    ran = [c for c in changes if c.kind != "environment"]
    if not changes and warned:
        return (
            "No engine, release, setting or package of the two sides changed. What was asked of them, or what they were held "
            "against, did: see the warnings."
        )
    if not changes:
        return (
            "Nothing that was recorded changed: no engine, release, setting or package. What is left is what one engine "
            "differs by from run to run, the machine, or something that is not recorded."
        )
    if not worse:
        return f"{sp.count(len(changes), 'recorded thing')} changed, and nothing is known to have got worse by it."
    if len(changes) == 1:
        return "One recorded thing changed, so it is the first to try. That it is the cause is not proved."
    few = (
        f"{sp.count(len(ran), 'setting')} and {sp.count(len(changes) - len(ran), 'package')} of the environment changed"
        if ran and len(ran) < len(changes)
        else f"{sp.count(len(changes), 'recorded thing')} changed"
    )
    return f"{few}. Each is a candidate, none is proved."
