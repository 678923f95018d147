"""What a head's files say of the target that it was trained for and of the states that it was trained on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hsparity.conventions import ALIASES, answers, concrete
from hsparity.drafter.checks.base import Trained
from hsparity.drafter.contract import default_boundaries, fed
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    from .draft import Draft


def verifier(draft: Draft) -> dict[str, Any]:
    """What a speculators config says of the target it was trained for; empty without one."""
    outer = draft.config.get("speculators_config")
    inner = outer.get("verifier") if isinstance(outer, dict) else None
    return inner if isinstance(inner, dict) else {}


def trained(
    draft: Draft, family: str, layers: int | None, given: tuple[int, ...] | None, by: str
) -> Trained | None:
    """The boundaries a head was trained on: as given, by its trainer's rule, or inferred; None where nothing says.

    `family` is the target's class and `layers` its number of layers. Raises E282 where a trainer's rule gives none.
    """
    slots = draft.slots
    if given is not None:
        # The last of four may be the state that the labels are made from.
        kept = given[:-1] if len(given) == slots + 1 else given
        return Trained(kept, "as --trained-on says", True)
    if by:
        boundaries, doubt = _by_trainer(draft, by, family, layers)
        if boundaries is None:
            note = doubt or "name the target with --model: its number of layers is needed"
            raise HsparityError(
                "E282", f"what {by} trained it on cannot be told", (note,), "--trained-on LIST"
            )
        words = f"by the rule of {by}" + (f" ({doubt})" if doubt else "")
        return Trained(boundaries[:slots], words, not doubt)
    return _inferred(draft, family, layers)


def _inferred(draft: Draft, family: str, layers: int | None) -> Trained | None:
    """By the speculators release that wrote the config, or by a list that trainers write by default."""
    wrote = str(draft.config.get("speculators_version", ""))
    if wrote:
        boundaries, doubt = _by_trainer(draft, f"speculators {wrote}", family, layers)
        if boundaries is not None and not doubt:
            words = f"by the rule of speculators {wrote}, which wrote the config"
            return Trained(boundaries[: draft.slots], words, False)
    if layers and draft.ids and tuple(sorted(draft.ids)) == (1, layers // 2 - 1, layers - 4):
        words = "its ids are the list that SpecForge, ModelOpt, TorchSpec and TensorRT-LLM write for these"
        return Trained(default_boundaries(layers) or (), words, False)
    return None


def _by_trainer(draft: Draft, by: str, family: str, layers: int | None) -> tuple[tuple[int, ...] | None, str]:
    """(boundaries of the draft's ids by a trainer's rule, or of its default list; why this is in doubt)."""
    name, _, version = by.strip().partition(" ")
    name = ALIASES.get(name.lower(), name.lower())
    rows = [a for a in answers(name, version, family) if a.rule.native or name == "eagle"]
    if not rows:
        return None, f"no engine or trainer is called {name!r}"
    rule, doubt = rows[0].rule, "; ".join(rows[0].doubts)
    if draft.ids and name != "eagle":
        return fed(rule, draft.ids, layers), doubt
    match = re.search(r"\(boundaries ([^)]*)\)", rule.default)
    if match is None or layers is None:
        return None, doubt
    return tuple(int(part) for part in concrete(match[1], layers).split(",")), doubt
