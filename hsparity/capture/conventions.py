"""What each engine calls a boundary in a draft model's config: a prior for printing, never used to decide
anything.

Rules of vLLM 0.32 and SGLang 0.5.23. `None` as an answer: this engine and family cannot hand that list over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """`ids(boundaries, num_layers)` is what to write so that the draft is fed these boundaries
    (ascending)."""

    engine: str
    families: str
    architectures: tuple[str, ...]  # parts of class names; empty: every other one
    rule: str
    ids: Callable[[Ids, int], Ids | None]

    @property
    def key(self) -> str:
        return f"{self.engine} ({self.families})" if self.families else self.engine


def _as_is(boundaries: Ids, num_layers: int) -> Ids | None:
    return boundaries


def _one_less(boundaries: Ids, num_layers: int) -> Ids | None:
    return None if 0 in boundaries or num_layers in boundaries else tuple(b - 1 for b in boundaries)


def _deepseek(boundaries: Ids, num_layers: int) -> Ids | None:
    if boundaries[0] in (0, 1) or num_layers in boundaries:
        # A list that starts with 1 is read as one that lacks 1 everywhere.
        return None
    return boundaries


def _gpt_oss(boundaries: Ids, num_layers: int) -> Ids | None:
    return boundaries if num_layers in boundaries else _one_less(boundaries, num_layers)


FAMILIES = (
    Family("vllm", "", (), "id k is the stream entering layer k", _as_is),
    Family("sglang", "Llama, Qwen and most", (), "adds 1 to every id", _one_less),
    Family(
        "sglang",
        "DeepSeek, Kimi-K2 since 0.5.13",
        ("Deepseek", "Kimi", "Glm4MoeLite"),
        "takes ids as they are unless the first is 1",
        _deepseek,
    ),
    Family(
        "sglang",
        "gpt-oss since 0.5.17",
        ("GptOss",),
        "adds 1 unless the last boundary is in the list",
        _gpt_oss,
    ),
)


def draft_config(
    boundaries: Ids, num_layers: int, engines: tuple[str, ...], architecture: str
) -> dict[str, str]:
    """Per engine what to write for these boundaries in the draft config of a model of this architecture.

    Engines that are not known here say nothing; when none is, all of them are answered.
    """
    answers = {}
    known = [f for f in FAMILIES if f.engine in engines] or list(FAMILIES)
    for engine in dict.fromkeys(f.engine for f in known):
        mine = [f for f in known if f.engine == engine]
        family = next((f for f in mine if any(a in architecture for a in f.architectures)), mine[0])
        ids = family.ids(tuple(sorted(boundaries)), num_layers)
        text = ",".join(str(i) for i in ids) if ids else "out of reach"
        answers[family.key] = f"{text}  ({family.rule})"
    return answers
