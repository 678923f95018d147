"""What to write in a draft model's config, engine by engine, for boundaries 0..L."""

from __future__ import annotations

from .numbering import Ids
from .rule import Rule
from .table import RULES, Answer, answers

MANY = 8  # a longer list is answered by the rule alone
SERVING = ("vllm", "sglang", "hf")

# The rows that a report answers with: what a capture's native ids are in the engines that serve.
FAMILIES: tuple[Rule, ...] = tuple(r for r in RULES if r.native and r.engine in SERVING)


def families(architecture: str) -> tuple[Rule, ...]:
    """One row of each serving engine's newest version: the one for this class, else that of most families."""
    return tuple(_newest(engine, architecture) for engine in SERVING)


def draft_ids(boundaries: Ids, num_layers: int, architecture: str) -> tuple[tuple[str, str], ...]:
    """(engine, what to write) for canonical boundaries 0..L in the order asked, in a model of this class.

    An architecture that is not known ("") is answered by the rule of most families.
    """
    long = len(boundaries) > MANY
    return tuple(
        (
            rule.label if architecture else rule.label.split(",")[0],
            rule.many if long else rule.numbering.write(boundaries, num_layers).text,
        )
        for rule in families(architecture)
    )


def draft_config(
    boundaries: Ids, num_layers: int, engines: tuple[str, ...], architecture: str, trainer: str = ""
) -> dict[str, str]:
    """Per engine what to write for these boundaries in the draft config of a model of this architecture, in its
    own terms; with `trainer` ("speculators 0.4.0") also what that one is told.

    Engines that are not known here say nothing; when none is, all of them are answered.
    """
    wanted = tuple(sorted(boundaries))
    every = families(architecture)
    found = {
        rule.label: _own_terms(rule, wanted, num_layers)
        for rule in [r for r in every if r.engine in engines] or every
    }
    if trainer:
        engine, _, version = trainer.partition(" ")
        found[trainer] = sentence(answers(engine, version)[0], wanted, num_layers)
    return found


def _own_terms(rule: Rule, boundaries: Ids, num_layers: int) -> str:
    text = sentence(Answer(rule), boundaries, num_layers)
    return text if rule.rule in text else f"{text}  ({rule.rule})"


def sentence(answer: Answer, boundaries: Ids, num_layers: int | None) -> str:
    """What to write in this row's own terms, "eagle_aux_hidden_state_layer_ids [2,30,58]", and how the engine reads exactly
    this list."""
    written = answer.rule.numbering.write(boundaries, num_layers)
    if not written.ids or written.said:
        return f"{answer.rule.setting}: {written.text}"
    shown = f"{answer.rule.setting} [{','.join(str(i) for i in written.ids)}]"
    return ", ".join(part for part in (shown, written.why, written.remark) if part)


def _newest(engine: str, architecture: str) -> Rule:
    rows = [a.rule for a in answers(engine, _last_version(engine), architecture) if a.rule.native]
    return next((r for r in rows if architecture or r.most or not r.families), rows[0])


def _last_version(engine: str) -> str:
    """The newest version that was checked: the end of the engine's general row."""
    return next(r.until for r in FAMILIES if r.engine == engine and (r.most or not r.families))
