"""What an engine's own speculative decoding accepted of a draft: the record, to and from JSON. Needs numpy, no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparity.errors import HsparityError

SCHEMA = "hsparity.measurement/1"
VLLM, SGLANG = "vllm:spec_decode_", "spec_"
DRAWS = 2000

# Read in the engines' sources, vLLM 0.31 and 0.32 (v1/core/sched/scheduler.py) and SGLang 0.5.23
# (managers/scheduler_components/batch_result_processor.py), and found so in every run: `disagreements`.
COUNTED = (
    "a step is one pass of the target over k drafts. The first token comes from the pass over the prompt and is in no "
    "step. The last step counts every draft it accepted, also behind a stop token or the length asked for; drafts made "
    "after it are shown to nobody and counted nowhere"
)
# tokenizer_manager.py divides the tokens of the text by the steps.
SGLANG_LENGTH = (
    "SGLang's own spec_accept_length is another figure: the text's tokens, the first included and cut at its end, "
    "over the steps"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the target over drafted tokens; tokens are numbered from the prompt's first on.

    It saw `drafted` as tokens first, first + 1, …, took the first `accepted` of them, and wrote `bonus` behind those.
    """

    first: int
    drafted: tuple[int, ...]
    accepted: int
    bonus: int


@dataclass(frozen=True, slots=True)
class MeasuredPrompt:
    """One prompt. `generated` ends where the text was to end; the last step may reach behind it."""

    id: str
    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    steps: tuple[Step, ...]
    counters: Mapping[str, Any]  # the engine's own, by its names, of this prompt alone

    @property
    def text(self) -> tuple[int, ...]:
        """Prompt and all that the target wrote, behind the end of `generated` too: what steps are numbered in."""
        made = list(self.prompt + self.generated[:1])
        for step in self.steps:
            made[step.first :] = (*step.drafted[: step.accepted], step.bonus)
        return tuple(made)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of an engine with a draft: greedy, a prompt at a time, a chain of `k` drafts a step."""

    engine: str
    version: str
    model: str
    revision: str
    draft: str  # as it was typed
    draft_sha256: str  # of its weights
    k: int
    generate: int  # tokens asked for behind each prompt
    stop_ids: tuple[int, ...]  # a text ends behind one of these
    dtype: str
    ids: tuple[int, ...] | None  # in the config that the engine read; None where it held none
    ids_asked: str  # "config" (the draft's own), "default" (taken out) or "given" (--ids)
    aux_layers: tuple[int, ...]  # read from the running target, in the engine's own numbers
    draft_class: str
    runner: str  # the class that runs the steps
    attention_backend: str
    stand_ins: tuple[str, ...]  # our own Python where the engine lacks a kernel on this machine
    prompts: tuple[MeasuredPrompt, ...]
    settings: Mapping[str, Any] = field(
        default_factory=dict
    )  # the engine's, as a capture's manifest has them
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)  # set for the engine's processes with --env
    environment: Mapping[str, str] = field(default_factory=dict)  # versions, the machine
    warnings: tuple[str, ...] = ()
    temperature: float = 0.0
    batch: int = 1
    created: str = ""  # UTC, ISO 8601
    command: tuple[str, ...] = ()
    schema: str = SCHEMA

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(asdict(self), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        """Read a record, ignoring keys that it does not know. Raises HsparityError E293 where it is none."""
        try:
            raw = json.loads(text)
            if raw["schema"] != SCHEMA:
                raise ValueError(f"its schema is {raw['schema']!r}, not {SCHEMA!r}")
            if not _is_whole(raw["k"]) or raw["k"] < 1:
                raise ValueError(f"k is {raw['k']!r}")
            raw["prompts"] = tuple(_prompt(p) for p in raw["prompts"])
            raw["ids"] = None if raw["ids"] is None else tuple(raw["ids"])
            for name in ("stop_ids", "aux_layers", "stand_ins", "warnings", "command"):
                raw[name] = tuple(raw[name])
            return cls(**{k: v for k, v in raw.items() if k in cls.__dataclass_fields__})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise HsparityError(
                "E293",
                "this is no record of hsparity drafter measure",
                (why,),
                "hsparity drafter measure DRAFT --engine E --model M -o FILE writes one",
            ) from error


def _prompt(raw: Mapping[str, Any]) -> MeasuredPrompt:
    return MeasuredPrompt(
        str(raw["id"]),
        _tokens(raw["prompt"]),
        _tokens(raw["generated"]),
        tuple(
            Step(first, _tokens(s["drafted"]), accepted, bonus)
            for s in raw["steps"]
            for first, accepted, bonus in (_tokens([s["first"], s["accepted"], s["bonus"]]),)
        ),
        dict(raw["counters"]),
    )


def _tokens(values: Any) -> tuple[int, ...]:
    """Whole numbers, none below 0. Raises ValueError."""
    if not isinstance(values, list) or not all(_is_whole(v) and v >= 0 for v in values):
        raise ValueError(f"{str(values)[:60]} where whole numbers should stand")
    return tuple(values)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 2**31


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Steps and what they accepted, as engines count them. P prompts, K draft positions."""

    steps_p: NDArray[np.int64]
    accepted_pk: NDArray[np.int64]  # steps in which position k was accepted

    @property
    def drafts(self) -> int:
        """Steps that had drafts."""
        return int(self.steps_p.sum())

    @property
    def accepted_per_position(self) -> NDArray[np.int64]:
        """Steps in which each position was accepted. [K]"""
        total: NDArray[np.int64] = self.accepted_pk.sum(axis=0)
        return total

    @property
    def accepted(self) -> float:
        """Draft tokens accepted a step; 0 without a step."""
        return float(self.accepted_pk.sum() / max(self.drafts, 1))

    @property
    def by_position(self) -> tuple[float, ...]:
        """The share of steps that accept each position; 0 without a step."""
        return tuple((self.accepted_per_position / max(self.drafts, 1)).tolist())

    @property
    def conditional(self) -> tuple[float, ...]:
        """Share of those that come so far; NaN where none does."""
        return tuple(self.figures()[1 + self.accepted_pk.shape[1] :].tolist())

    @property
    def accept_length(self) -> float:
        """Tokens a step of the target, its own included: 1 to K + 1. NaN without a step."""
        return float(self.figures()[0])

    def figures(self, weights_dp: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """Accept length, acceptance [K] and conditional acceptance [K], one behind the other: [2K + 1].

        With `weights_dp`, how often each of D draws has each prompt, one row a draw: [D, 2K + 1]. NaN where nothing
        was tried.
        """
        weights = np.ones((1, len(self.steps_p)), np.int64) if weights_dp is None else weights_dp
        steps_d1 = (weights @ self.steps_p)[:, None].astype(np.float64)
        accepted_dk = (weights @ self.accepted_pk).astype(np.float64)
        tried_dk = np.concatenate((steps_d1, accepted_dk[:, :-1]), axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share_dk, conditional_dk = accepted_dk / steps_d1, accepted_dk / tried_dk
        length_d1 = 1.0 + share_dk.sum(axis=1, keepdims=True)
        made: NDArray[np.float64] = np.concatenate((length_d1, share_dk, conditional_dk), axis=1)
        return made[0] if weights_dp is None else made

    def intervals(self, draws: int = DRAWS, seed: int = 0) -> NDArray[np.float64]:
        """95 % bootstrap intervals of `figures` over prompts, [2K + 1, 2]; NaN with fewer than two prompts."""
        prompts = len(self.steps_p)
        if prompts < 2:
            return np.full((2 * self.accepted_pk.shape[1] + 1, 2), np.nan)
        drawn_df = self.figures(drawn(prompts, draws, seed))
        tried_f = np.isfinite(drawn_df).any(axis=0)
        bounds_f2 = np.full((drawn_df.shape[1], 2), np.nan)
        bounds_f2[tried_f] = np.nanquantile(drawn_df[:, tried_f], (0.025, 0.975), axis=0).T
        return bounds_f2


def drawn(prompts: int, draws: int = DRAWS, seed: int = 0) -> NDArray[np.int64]:
    """How often each of so many draws with replacement has each prompt, [draws, prompts]; the same for every figure."""
    return np.random.default_rng(seed).multinomial(prompts, np.full(prompts, 1 / prompts), draws)


def counted(taken: Sequence[Sequence[int] | NDArray[np.int64]], k: int) -> Counts:
    """Counts of steps by how many of their k drafts were accepted, prompt by prompt."""
    steps = [len(t) for t in taken]
    accepted = [_per_position(t, k) for t in taken]
    return Counts(np.array(steps, np.int64), np.array(accepted, np.int64).reshape(len(taken), k))


def counts(record: Measurement) -> Counts:
    """The steps of a record, prompt by prompt."""
    return counted([_taken(p) for p in record.prompts], record.k)


def _taken(prompt: MeasuredPrompt) -> list[int]:
    return [step.accepted for step in prompt.steps]


def _per_position(taken: Sequence[int] | NDArray[np.int64], k: int) -> list[int]:
    return [int(sum(accepted > j for accepted in taken)) for j in range(k)]


def disagreements(record: Measurement) -> tuple[str, ...]:
    """Where recorded steps are not what the engine counted, or not what the text says; a sentence each."""
    found = []
    for prompt in record.prompts:
        ours = (len(prompt.steps), _per_position(_taken(prompt), record.k))
        theirs = engine_counts(prompt.counters, record.k)
        if theirs is None:
            found.append(f"prompt {prompt.id}: {record.engine} counted nothing")
        elif ours != theirs:
            found.append(
                f"prompt {prompt.id}: {ours[0]} steps that accepted {_listed(ours[1])} by position, and "
                f"{record.engine} counted {theirs[0]} with {_listed(theirs[1])}"
            )
        if broken := _broken(prompt):
            found.append(f"prompt {prompt.id}: {broken}")
    return tuple(found)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(str(v) for v in values)


def engine_counts(counters: Mapping[str, Any], k: int) -> tuple[int, list[int]] | None:
    """An engine's own count: steps with drafts, and in how many of them each position was accepted. None without one.

    A prompt whose first token ends its text has no step, and SGLang then gives no counters at all.
    """
    if f"{VLLM}num_drafts" in counters:
        by_position = list(counters[f"{VLLM}num_accepted_tokens_per_pos"])
        return int(counters[f"{VLLM}num_drafts"]), (by_position + [0] * k)[:k]
    if "completion_tokens" in counters:
        # How many steps had 0, 1, … correct drafts.
        histogram = list(counters.get(f"{SGLANG}correct_drafts_histogram") or [])
        return int(counters.get(f"{SGLANG}verify_ct", 0)), [sum(histogram[j + 1 :]) for j in range(k)]
    return None


def _broken(prompt: MeasuredPrompt) -> str:
    """Why the steps do not make the text, or ""."""
    at = len(prompt.prompt) + 1
    for step in prompt.steps:
        if step.first != at:
            return f"a step begins at token {step.first}, and the one before it ends before {at}"
        at += step.accepted + 1
    written = prompt.text[len(prompt.prompt) :][: len(prompt.generated)]
    return (
        "" if written == prompt.generated else "the steps' tokens are not the text that the engine returned"
    )
