"""Runs every check of a draft head against an engine and a target, before anything is started."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hsparity.conventions import ALIASES, parse_version
from hsparity.drafter.checks.base import (
    ERROR,
    WARNING,
    Case,
    Change,
    Problem,
    TargetModel,
    Unchecked,
)
from hsparity.drafter.classes import resolved
from hsparity.drafter.contract import Contract, contract
from hsparity.drafter.verifier import trained as find_trained
from hsparity.drafter.verifier import verifier
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    from hsparity.drafter.draft import Draft

SCHEMA = "hsparity.draft-check/1"
OK, PROBLEMS, UNCLEAR = "ok", "problems", "unclear"
FIRST = ("HS646", "HS601")
ENGINES = ("vllm", "sglang", "hf")


@dataclass(frozen=True, slots=True)
class Fed:
    """What one engine and runner would make of the file."""

    engine: str  # "vLLM 0.32.0"
    runner: str
    key: str  # that is read; "" for none
    ids: tuple[int, ...] | None
    boundaries: tuple[int, ...] | None
    spelled: str
    rule: str


@dataclass(frozen=True, slots=True)
class DraftCheck:
    """The answer of `hsparity drafter check`. The first of `fed` is what this engine is taken to do."""

    schema: str
    hsparity: str
    verdict: str
    headline: str
    draft: str
    layout: str
    architecture: str
    model: str
    engine: str
    version: str
    version_given: bool
    algorithm: str
    builds: str  # the class that the engine looks for
    runner: str
    written: tuple[tuple[str, tuple[int, ...]], ...]
    trained: tuple[int, ...] | None
    trained_words: str
    doubts: tuple[str, ...]
    fed: tuple[Fed, ...]
    others: tuple[Fed, ...]
    problems: tuple[Problem, ...]
    fine: tuple[str, ...]
    unchecked: tuple[tuple[str, str], ...]

    def to_json(self, indent: int | None = None) -> str:
        """The record as JSON of schema hsparity.draft-check/1."""
        return json.dumps(asdict(self), indent=indent, ensure_ascii=False)


def from_json(text: str) -> DraftCheck:
    """The record that `to_json` wrote. Raises E283 for anything else."""
    try:
        raw: dict[str, Any] = json.loads(text)
        if raw["schema"] != SCHEMA:
            raise ValueError(f"schema is {raw['schema']!r}")
        raw["fed"], raw["others"] = (tuple(_fed(f) for f in raw[k]) for k in ("fed", "others"))
        raw["problems"] = tuple(_problem(p) for p in raw["problems"])
        raw["written"] = tuple((k, tuple(v)) for k, v in raw["written"])
        raw["unchecked"] = tuple((n, why) for n, why in raw["unchecked"])
        raw |= {k: tuple(raw[k]) for k in ("doubts", "fine")}
        raw["trained"] = None if raw["trained"] is None else tuple(raw["trained"])
        return DraftCheck(**raw)
    except (ValueError, KeyError, TypeError) as error:
        raise HsparityError("E283", "not a record of a draft's check", (str(error),)) from None


def check(
    draft: Draft,
    engine: str,
    *,
    version: str = "",
    model: str = "",
    algorithm: str = "",
    runner: str = "",
    trained_on: tuple[int, ...] | None = None,
    trained_by: str = "",
) -> DraftCheck:
    """The static contract between this head, this engine and the target. Raises E280 (no such engine or version), E281 (the
    target is not here) and E282 (the training cannot be told)."""
    from hsparity import __version__
    from hsparity.registry import checks

    name = ALIASES.get(engine.lower(), engine.lower())
    if name not in ENGINES:
        raise HsparityError("E280", f"no engine is called {engine!r}", help=f"one of {', '.join(ENGINES)}")
    if version and parse_version(version) is None:
        raise HsparityError("E280", f"{version!r} is no version of {engine}", help="write it as 0.32.0")
    target = open_target(model) if model else None
    family, layers = (
        architecture(draft, target),
        (target.number("num_hidden_layers") or None) if target else None,
    )
    if trained_on and draft.fc_shape[1] and len(trained_on) != draft.slots:
        raise HsparityError(
            "E282",
            "--trained-on names another number of states than the head takes",
            (
                f"--trained-on  {len(trained_on)}",
                f"fc.weight     {list(draft.fc_shape)}: {draft.slots} states",
            ),
            f"name {draft.slots} boundaries",
        )
    found = contract(draft, name, version, runner, family, layers)
    trained = find_trained(draft, family, layers, trained_on, trained_by)
    case = Case(draft, found, target, algorithm.lower().replace("-", ""), trained)
    problems: list[Problem] = []
    fine: list[str] = []
    unchecked: list[tuple[str, str]] = []
    essential = False
    for each in checks().values():
        seen = each.look(case)
        if isinstance(seen, Unchecked):
            unchecked.append((each.name, seen.reason))
            essential |= seen.essential
        elif seen:
            problems += seen
        else:
            fine.append(each.name)
    # A head that is not loaded, or loaded as another kind, comes before what would be wrong with it.
    problems.sort(key=lambda p: (p.severity != ERROR, p.severity != WARNING, p.code not in FIRST, p.code))
    verdict = _verdict(problems, essential)
    return DraftCheck(
        schema=SCHEMA,
        hsparity=__version__,
        verdict=verdict,
        headline=_headline(case, problems, unchecked, verdict),
        draft=draft.spelled,
        layout=draft.layout,
        architecture=draft.architecture,
        model=model,
        engine=name,
        version=found.version,
        version_given=found.given,
        algorithm=case.algorithm,
        builds=resolved(name, draft) if name != "hf" else "",
        runner=found.why,
        written=tuple(draft.ids_by_key.items()),
        trained=trained.boundaries if trained else None,
        trained_words=trained.words if trained else "",
        doubts=found.doubts,
        fed=_readings(found),
        others=_others(draft, name, family, layers),
        problems=tuple(problems),
        fine=tuple(fine),
        unchecked=tuple(unchecked),
    )


def open_target(spelled: str) -> TargetModel:
    """The target's config: a folder, a bundled model or a hub name in the hub's cache. Raises E281."""
    from hsparity import models
    from hsparity.capture import checkpoint

    wanted = models.resolve(spelled)
    file = checkpoint.config_file(wanted)
    if file is None:
        notes = (f"looked at the folder {wanted} and the hub's cache",)
        raise HsparityError("E281", f"no target at {spelled}", notes, "name the folder of its config.json")
    try:
        return TargetModel(file.parent, spelled, checkpoint.read_config(file.parent))
    except HsparityError as error:
        raise HsparityError(
            "E281", error.message, error.notes, "name the folder of its config.json"
        ) from None


def architecture(draft: Draft, target: TargetModel | None) -> str:
    """The target's class: its own config's, else what speculators wrote down; "" for neither."""
    if target is not None:
        return target.architecture
    named = verifier(draft).get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _verdict(problems: list[Problem], essential: bool) -> str:
    worst = {p.severity for p in problems}
    if ERROR in worst:
        return PROBLEMS
    return UNCLEAR if WARNING in worst or essential else OK


def _headline(case: Case, problems: list[Problem], unchecked: list[tuple[str, str]], verdict: str) -> str:
    told = [p for p in problems if p.severity == (ERROR if verdict == PROBLEMS else WARNING)]
    if not told:
        if verdict == UNCLEAR:
            return f"on {case.engine}: {unchecked[0][1]}"
        fed_words = (
            "" if case.contract.engine == "hf" else f", fed boundaries {case.contract.reading.spelled}"
        )
        return f"on {case.engine}{fed_words}"
    more = f" ({len(told) - 1} more problem{'s' * (len(told) > 2)})" if len(told) > 1 else ""
    place = "" if case.engine in told[0].headline else f"on {case.engine}: "
    return f"{place}{told[0].headline}{more}"


def _readings(found: Contract) -> tuple[Fed, ...]:
    return tuple(
        Fed(found.label, r.runner, r.key, r.ids, r.boundaries, r.spelled, found.rule.rule)
        for r in found.readings
    )


def _others(draft: Draft, engine: str, family: str, layers: int | None) -> tuple[Fed, ...]:
    """The same file on the other engines' newest versions, and the reference."""
    made: list[Fed] = []
    for other in ENGINES:
        if other != engine:
            made += _readings(contract(draft, other, "", "", family, layers))
    return tuple(made)


def _fed(raw: dict[str, Any]) -> Fed:
    return Fed(**{**raw, **{k: None if raw[k] is None else tuple(raw[k]) for k in ("ids", "boundaries")}})


def _problem(raw: dict[str, Any]) -> Problem:
    sides = tuple((who, what) for who, what in raw["sides"])
    return Problem(**{**raw, "sides": sides, "changes": tuple(Change(**c) for c in raw["changes"])})
