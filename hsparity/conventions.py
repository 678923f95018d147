"""What each engine calls a boundary in a draft model's config: a prior for printing, never used to decide anything.

Rules of vLLM 0.32, SGLang 0.5.23 and Transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Ids = tuple[int, ...]

MANY = 8  # a longer list is answered by the rule alone


@dataclass(frozen=True, slots=True)
class Family:
    """`write(boundaries, num_layers)`: the ids that feed the draft these boundaries, or why there are none."""

    engine: str
    label: str
    architectures: tuple[str, ...]  # parts of class names; empty: every other one
    rule: str  # how the engine reads an id
    write: Callable[[Ids, int], str]
    many: str  # the answer to a long list


def _list(ids: Ids) -> str:
    return ",".join(str(i) for i in ids)


def _vllm(boundaries: Ids, num_layers: int) -> str:
    ids = _list(boundaries)
    return f"{ids} (0 fails on DeepSeek)" if 0 in boundaries else ids


def _minus_one(boundaries: Ids, num_layers: int) -> str:
    if 0 in boundaries:
        return "none: boundary 0 is out of reach"
    ids = _list(tuple(b - 1 for b in boundaries))
    return f"{ids} (few families reach the last)" if num_layers in boundaries else ids


def _sglang_deepseek(boundaries: Ids, num_layers: int) -> str:
    if num_layers in boundaries:
        return f"none: boundary {num_layers} is out of reach"
    if 0 in boundaries:
        return "not tried with boundary 0"
    if boundaries[:1] == (1,):
        # A list that starts with 1 is read as ids that lack one; behind another id, 1 is taken as it stands.
        if len(boundaries) == 1:
            return "none: 1 in front is read as 2"
        return f"{_list((*boundaries[1:], 1))} (1 in front is read as 2)"
    return _list(boundaries)


def _sglang_gpt_oss(boundaries: Ids, num_layers: int) -> str:
    return _list(boundaries) if num_layers in boundaries else _minus_one(boundaries, num_layers)


def _transformers(boundaries: Ids, num_layers: int) -> str:
    plain = tuple(b for b in boundaries if b < num_layers)
    words = [f"hidden_states at {_list(plain)}"] if plain else []
    if num_layers in boundaries:
        words.append(f"the input of the final norm for {num_layers}")
    return ", ".join(words)


FAMILIES = (
    Family("vllm", "vLLM", (), "id k is the stream entering layer k", _vllm, "N+1 for layer N"),
    Family("sglang", "SGLang, most families", (), "adds 1 to every id", _minus_one, "N for layer N"),
    Family(
        "sglang",
        "SGLang 0.5.13+, DeepSeek and Kimi-K2",
        ("Deepseek", "Kimi", "Glm4MoeLite"),
        "takes ids as they are unless the first is 1",
        _sglang_deepseek,
        "N+1 for layer N, unless the first id is 1",
    ),
    Family(
        "sglang",
        "SGLang 0.5.17+, gpt-oss",
        ("GptOss",),
        "adds 1 unless the last boundary is in the list",
        _sglang_gpt_oss,
        "N for layer N, unless the list holds the last boundary",
    ),
    Family(
        "hf",
        "Transformers",
        (),
        "hidden_states[r] is boundary r, but the last entry is normed",
        _transformers,
        "hidden_states[N+1]; the last entry is normed",
    ),
)


def families(architecture: str) -> tuple[Family, ...]:
    """One family of each engine: the one that names a part of this class name, else the engine's first."""
    chosen = []
    for engine in dict.fromkeys(f.engine for f in FAMILIES):
        mine = [f for f in FAMILIES if f.engine == engine]
        chosen.append(next((f for f in mine if any(a in architecture for a in f.architectures)), mine[0]))
    return tuple(chosen)


def draft_ids(boundaries: Ids, num_layers: int, architecture: str) -> tuple[tuple[str, str], ...]:
    """(engine, what to write) for canonical boundaries 0..L in the order asked, in a model of this class.

    An architecture that is not known ("") is answered by the rule of most families.
    """
    long = len(boundaries) > MANY
    return tuple(
        (
            family.label if architecture else family.label.split(",")[0],
            family.many if long else family.write(boundaries, num_layers),
        )
        for family in families(architecture)
    )


def draft_config(
    boundaries: Ids, num_layers: int, engines: tuple[str, ...], architecture: str
) -> dict[str, str]:
    """Per engine what to write for these boundaries in the draft config of a model of this architecture.

    Engines that are not known here say nothing; when none is, all of them are answered.
    """
    every = families(architecture)
    return {
        family.label: f"{family.write(tuple(sorted(boundaries)), num_layers)}  ({family.rule})"
        for family in [f for f in every if f.engine in engines] or every
    }
