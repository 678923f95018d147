"""HS404."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding

# What to expect where a value differs.
_ROPE = "the first token of a prompt is exact, errors grow with position, from the first attention layer on"
_ATTENTION = "the first token of a prompt is exact, the others are off from the first attention layer on"
_NORM = "rows of small norm are off most, from the first layer on"
_WINDOW = "exact up to the window, a step behind it, in sliding layers only"
_SOFTCAP = "the few tokens with large attention scores are off, the others at the floor"
_EVERY = "every token and every layer is off, from the first layer on"
_BRANCH = "every branch is off by one factor, from the first layer on"
_EMBEDDING = "boundary 0 is off by one factor, the same for all tokens"
_EXPERTS = "dense layers are exact, off from the first layer with experts on"
_ROUTED = (
    "dense layers are exact, the routed branch is off by one factor from the first layer with experts on"
)
_LOGITS = "hidden states are equal, only logits differ"

# What is compared: (what it is called, the keys that spell it, what to expect). The first key that is there counts.
_VALUES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "norm eps",
        (
            "rms_norm_eps",
            "layer_norm_eps",
            "layernorm_epsilon",
            "layer_norm_epsilon",
            "norm_epsilon",
            "norm_eps",
        ),
        _NORM,
    ),
    ("activation", ("hidden_activation", "hidden_act", "activation_function"), _EVERY),
    ("attention scaling", ("attention_multiplier",), _ATTENTION),
    ("query scaling", ("query_pre_attn_scalar",), _ATTENTION),
    ("attention soft-cap", ("attn_logit_softcapping",), _SOFTCAP),
    ("attention bias", ("attention_bias",), _EVERY),
    ("query and key norm", ("use_qk_norm", "qk_norm"), _ATTENTION),
    ("attention heads", ("original_num_attention_heads", "num_attention_heads"), _ATTENTION),
    ("key-value heads", ("original_total_num_kv_heads", "num_key_value_heads"), _ATTENTION),
    ("query rank", ("q_lora_rank",), _ATTENTION),
    ("key-value rank", ("kv_lora_rank",), _ATTENTION),
    ("head size without rope", ("qk_nope_head_dim",), _ATTENTION),
    ("head size with rope", ("qk_rope_head_dim",), _ATTENTION),
    ("sliding window", ("sliding_window",), _WINDOW),
    ("layer types", ("layer_types",), _WINDOW),
    ("embedding multiplier", ("embedding_multiplier", "scale_emb", "embedding_scale"), _EMBEDDING),
    ("residual multiplier", ("residual_multiplier",), _BRANCH),
    ("routed scaling factor", ("routed_scaling_factor",), _ROUTED),
    ("experts per token", ("num_experts_per_tok", "num_experts_per_token"), _EXPERTS),
    ("normed expert weights", ("norm_topk_prob",), _ROUTED),
    ("expert scoring", ("scoring_func",), _EXPERTS),
    ("expert choice", ("topk_method",), _EXPERTS),
    ("expert groups", ("n_group",), _EXPERTS),
    ("expert groups per token", ("topk_group",), _EXPERTS),
    ("shared experts", ("n_shared_experts",), _EXPERTS),
    ("first layer with experts", ("first_k_dense_replace",), _EXPERTS),
    ("final soft-cap", ("final_logit_softcapping",), _LOGITS),
    ("logit scaling", ("logits_scaling", "logit_scale"), _LOGITS),
    ("tied embeddings", ("tie_word_embeddings",), _LOGITS),
)
_ROPE_KEYS = {
    "rope_theta": "rope theta",
    "partial_rotary_factor": "rotated share of a head",
    "factor": "rope factor",
    "original_max_position_embeddings": "rope original length",
    "beta_fast": "rope beta_fast",
    "beta_slow": "rope beta_slow",
    "mscale": "rope mscale",
    "mscale_all_dim": "rope mscale_all_dim",
    "attention_factor": "rope attention factor",
    "low_freq_factor": "rope low_freq_factor",
    "high_freq_factor": "rope high_freq_factor",
    "short_factor": "rope short_factor",
    "long_factor": "rope long_factor",
}
# Engines rename a type to choose their own class for it: the rotation is the same.
_ROPE_TYPES = {"deepseek_yarn": "yarn", "mrope": "default", "su": "longrope", "none": "default"}
_ACTIVATIONS = {
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_SLIDING = "sliding_attention"
# Keys of what is compared beside the two lists above.
_OTHER_KEYS = {
    "rope type": "rope_type",
    "interleaved rope": "rope_interleave",
    "head size": "head_dim",
    "value head size": "v_head_dim",
}
_SLIDING_WORDS = " of sliding layers"
SHOWN = 2  # values in the headline and in the fix


class ConfigDiffers:
    """
    ## What it is
    The sides computed with other model configs: a value that changes the arithmetic (rope, norm eps, scaling,
    sliding window, soft-cap, head sizes, expert routing, activation) is stated by both and is not the same.
    ## Why it happens
    Another revision of config.json, an override on one engine's command line, a converted checkpoint, a
    default that an engine fills in for a key it does not find.
    ## How it shows
    It depends on the value, and the report says what to expect: other rope leaves the first token exact, another
    window is exact up to its length, expert settings leave dense layers exact. A value that only one side
    states is not held against the other, and two spellings of one value are one value. Values that change
    logits alone are a note.
    ## Fix
    Write the value that the checkpoint was trained with into both config.json, load them without overrides, and
    capture again.
    """

    code, name = "HS404", "config-differs"

    def find(self, evidence: Evidence) -> Finding | None:
        ref, cand = evidence.ref.manifest, evidence.cand.manifest
        found = difference(ref.model_config, cand.model_config)
        if found is None:
            return None
        return replace(found, fix={"any": _fix(ref.model, ref.model_config, cand.model, cand.model_config)})


def difference(ref_config: Mapping[str, Any], cand_config: Mapping[str, Any]) -> Finding | None:
    """The finding that two Hugging Face configs make; None when no value that both state differs."""
    from hsparity.model import Finding

    ref, cand = stated(ref_config), stated(cand_config)
    apart = _apart(ref, cand)
    if not apart:
        return None
    values = {key: f"{key}: ref {_shown(ref[key])}, cand {_shown(cand[key])}" for key in apart}
    hidden = bool(_hidden(apart))
    named = _hidden(apart) or apart
    more = f"; and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return Finding(
        code=ConfigDiffers.code,
        name=ConfigDiffers.name,
        headline=f"the model configs differ in {'; '.join(values[key] for key in named[:SHOWN])}{more}",
        evidence=tuple(
            f"{values[key]}; expect: {_profile(key)}"
            for key in (*named, *(k for k in apart if k not in named))
        ),
        severity="cause" if hidden else "note",
        structural=hidden,
    )


def _apart(ref: Mapping[str, Any], cand: Mapping[str, Any]) -> list[str]:
    """What both state and state differently."""
    return [name for name in ref if name in cand and not _same(ref[name], cand[name])]


def _hidden(names: Sequence[str]) -> list[str]:
    """Those that change hidden states: what changes logits alone cannot explain one."""
    return [name for name in names if _profile(name) != _LOGITS]


def _fix(
    ref_model: str, ref_config: Mapping[str, Any], cand_model: str, cand_config: Mapping[str, Any]
) -> str:
    """What to write where. Nobody knows here which side is right: both ways are given."""
    ref, cand = stated(ref_config), stated(cand_config)
    apart = _apart(ref, cand)
    names = (_hidden(apart) or apart)[:SHOWN]
    of_ref = " and ".join(f"{_key(name, cand_config)} {_shown(ref[name])}" for name in names)
    of_cand = " and ".join(f"{_key(name, ref_config)} {_shown(cand[name])}" for name in names)
    if ref_model == cand_model:
        return (
            f"both sides loaded {ref_model}: take off the override that made it {of_ref} in the reference or {of_cand} "
            "in the candidate, whichever the checkpoint was not trained with, and capture again"
        )
    return (
        f"write {of_ref} in the candidate's config.json (of {cand_model}), or {of_cand} in the reference's (of "
        f"{ref_model}), whichever the checkpoint was trained with, and capture again without overrides"
    )


def _key(name: str, config: Mapping[str, Any]) -> str:
    """The key that spells a value in a config."""
    keys = next((keys for known, keys, _ in _VALUES if known == name), ())
    if keys:
        merged = _merged(config)
        return next((k for k in keys if merged.get(k) is not None), keys[0])
    plain = name.removesuffix(_SLIDING_WORDS)
    key = _OTHER_KEYS.get(plain) or next(k for k, known in _ROPE_KEYS.items() if known == plain)
    return key if plain == name else f"{key} ({name.removeprefix(plain).strip()})"


def stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a Hugging Face config that change the arithmetic, under one spelling each.

    Of a multimodal config the text part counts. A key that is absent or null is left out.
    """
    merged = _merged(config)
    found = {}
    for name, keys, _ in _VALUES:
        value = next((merged[k] for k in keys if merged.get(k) is not None), None)
        if value is not None:
            found[name] = value
    if "activation" in found:
        found["activation"] = _ACTIVATIONS.get(
            str(found["activation"]).lower(), str(found["activation"]).lower()
        )
    if merged.get("use_sliding_window") is False:
        found.pop("sliding window", None)
    # With MLA the key holds one part of a head or their sum, as the engine likes.
    if "key-value rank" not in found and merged.get("head_dim") is not None:
        found["head size"] = merged["head_dim"]
    if "key-value rank" in found and merged.get("v_head_dim") is not None:
        found["value head size"] = merged["v_head_dim"]
    return {**found, **_rope(merged)}


def _merged(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with its text part's values over its own."""
    text: Mapping[str, Any] = next(
        (config[k] for k in ("text_config", "llm_config") if isinstance(config.get(k), Mapping)), {}
    )
    return {**config, **text}


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """rope_theta beside rope_scaling, or both inside rope_parameters, per kind of layer or for all."""
    found: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        given = config.get(key)
        if not isinstance(given, Mapping):
            continue
        kinds = {k: v for k, v in given.items() if isinstance(v, Mapping)}
        for kind, values in (kinds or {"": given}).items():
            found |= _rotation(values, _SLIDING_WORDS if kind == _SLIDING else "")
    flat = {k: config[k] for k in ("rope_theta", "partial_rotary_factor") if config.get(k) is not None}
    found = {**_rotation(flat, ""), **found}
    local = config.get("rope_local_base_freq")
    if local is not None:
        found.setdefault(f"rope theta{_SLIDING_WORDS}", local)
    if isinstance(config.get("rope_interleave"), bool):
        found["interleaved rope"] = config["rope_interleave"]
    # A theta, and a null where the scaling would be.
    if "rope theta" in found and "rope_scaling" in config and config["rope_scaling"] is None:
        found.setdefault("rope type", "default")
    return found


def _rotation(values: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    found = {
        f"{name}{suffix}": values[key] for key, name in _ROPE_KEYS.items() if values.get(key) is not None
    }
    kind = values.get("rope_type") or values.get("type")
    if kind is None:
        return found
    kind = _ROPE_TYPES.get(str(kind).lower(), str(kind).lower())
    if kind == "linear" and _same(values.get("factor"), 1.0):
        kind = "default"
    if kind == "default":  # it reads nothing but these two
        found = {k: v for k, v in found.items() if k.startswith(("rope theta", "rotated"))}
    return {**found, f"rope type{suffix}": kind}


def _profile(key: str) -> str:
    return next(
        (expect for name, _, expect in _VALUES if name == key), _ATTENTION if "size" in key else _ROPE
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def _shown(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 48 else f"{text[:45]}..."


CAUSE = ConfigDiffers()
