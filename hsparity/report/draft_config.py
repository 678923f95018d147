"""What to write in a draft model's config so that each engine hands over the requested boundaries.

The rules are those of vLLM 0.32 and SGLang 0.5.23; `docs/findings` tells where they come from.
"""

from __future__ import annotations

MANY = 8  # a longer list is answered by the rule alone


def draft_ids(boundaries: tuple[int, ...], num_layers: int) -> tuple[tuple[str, str], ...]:
    """(engine and family, ids or why there are none) for canonical boundaries 0..L, in the order asked."""
    if len(boundaries) > MANY:
        return (
            ("vLLM", "N+1 for layer N"),
            ("SGLang, most families", "N for layer N"),
            ("SGLang 0.5.13+, DeepSeek and Kimi-K2", "N+1 for layer N, unless the first id is 1"),
            ("SGLang 0.5.17+, gpt-oss", "N for layer N, unless the list holds the last boundary"),
            ("Transformers", "hidden_states[N+1]; the last entry is normed"),
        )
    return (
        ("vLLM", _vllm(boundaries)),
        ("SGLang, most families", _minus_one(boundaries, num_layers)),
        ("SGLang 0.5.13+, DeepSeek and Kimi-K2", _sglang_deepseek(boundaries, num_layers)),
        ("SGLang 0.5.17+, gpt-oss", _sglang_gpt_oss(boundaries, num_layers)),
        ("Transformers", _transformers(boundaries, num_layers)),
    )


def _list(ids: tuple[int, ...]) -> str:
    return ",".join(str(i) for i in ids)


def _vllm(boundaries: tuple[int, ...]) -> str:
    ids = _list(boundaries)
    return f"{ids} (0 fails on DeepSeek)" if 0 in boundaries else ids


def _minus_one(boundaries: tuple[int, ...], num_layers: int) -> str:
    if 0 in boundaries:
        return "none: boundary 0 is out of reach"
    ids = _list(tuple(b - 1 for b in boundaries))
    return f"{ids} (few families reach the last)" if num_layers in boundaries else ids


def _sglang_deepseek(boundaries: tuple[int, ...], num_layers: int) -> str:
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


def _sglang_gpt_oss(boundaries: tuple[int, ...], num_layers: int) -> str:
    if num_layers in boundaries:
        return _list(boundaries)
    return _minus_one(boundaries, num_layers)


def _transformers(boundaries: tuple[int, ...], num_layers: int) -> str:
    plain = tuple(b for b in boundaries if b < num_layers)
    words = [f"hidden_states at {_list(plain)}"] if plain else []
    if num_layers in boundaries:
        words.append(f"the input of the final norm for {num_layers}")
    return ", ".join(words)
