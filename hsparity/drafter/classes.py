"""Which class an engine builds for a head, and what that class reads. Read in vLLM 0.31.0 and 0.32.0 and SGLang 0.5.23."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .draft import Draft

LLAMA, QWEN, DEEPSEEK = "llama", "qwen3", "deepseek"

# vllm/model_executor/models/registry.py
VLLM = {
    **dict.fromkeys(
        (
            *("Eagle3LlamaForCausalLM", "LlamaForCausalLMEagle3", "Eagle3MiniMaxM2ForCausalLM"),
            *("Eagle3Qwen2_5vlForCausalLM", "Eagle3Qwen3vlForCausalLM"),
            *("PEagleDraftModel", "PeagleLlamaForCausalLM"),
        ),
        LLAMA,
    ),
    **dict.fromkeys(("Eagle3Qwen3ForCausalLM", "PeagleQwen3ForCausalLM"), QWEN),
    **dict.fromkeys(("Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"), DEEPSEEK),
}
# sglang/srt/models/llama_eagle3.py, kimi_k25_eagle3.py
SGLANG = {"LlamaForCausalLMEagle3": LLAMA, "Eagle3DeepseekV2ForCausalLM": DEEPSEEK}
# vllm/transformers_utils/configs/speculators/algos.py, by the inner model_type
SPECULATORS = {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"}

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_LAYER = r"layers\.\d+\.(?:input_layernorm|hidden_norm|post_attention_layernorm|mlp\.(?:gate|up|down)_proj)\.weight"
_HEADS = r"layers\.\d+\.self_attn\.[qkvo]_proj\.weight"
_BIAS = r"layers\.\d+\.self_attn\.[qkvo]_proj\.bias"
_QK = r"layers\.\d+\.self_attn\.[qk]_norm\.weight"
_MLA = (
    r"layers\.\d+\.self_attn\.(?:q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj|q_a_layernorm|kv_a_layernorm)"
    r"\.weight"
)
_TOP = r"(?:fc|norm|lm_head|embed_tokens)\.weight|d2t|t2d|mask_hidden|fc_norm\.\d+\.weight"
_INPUT = r"input_norm\.weight"
# What a quantised checkpoint holds beside a weight, and what every loader leaves out.
_BESIDE = re.compile(
    r"(?:_scale(?:_inv)?|_zero_point|_g_idx|_packed|_shape|\.qweight|\.qzeros|\.scales)$|rotary_emb\."
)


@dataclass(frozen=True, slots=True)
class HeadClass:
    """What one class of one engine does with a head."""

    engine: str
    family: str
    honours: frozenset[str]  # of FLAGS
    tensors: tuple[str, ...]  # patterns of canonical names that it has a place for
    strict: bool  # whether a tensor without a place is an error at load
    norm_flags: tuple[str, ...] = ("fc_norm",)  # any of these turns fc_norm on

    def holds(self, name: str) -> bool:
        """Whether a tensor of this canonical name has a place."""
        return bool(_BESIDE.search(name)) or any(re.fullmatch(p, name) for p in self.tensors)


# Where the class finds the number of its slots, the first that is there: counts, then lists.
NESTED, TOP = "eagle_config.eagle_aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"
COUNTED: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("vllm", LLAMA): (("num_aux_hidden_states",), (NESTED,)),
    ("vllm", QWEN): (("num_aux_layers", "num_aux_hidden_states"), (TOP, NESTED)),
    ("vllm", DEEPSEEK): (("num_aux_hidden_states",), (NESTED,)),
    ("sglang", LLAMA): (("num_aux_hidden_states",), (NESTED,)),
    ("sglang", DEEPSEEK): ((), (NESTED, TOP)),
}
_ALL = frozenset(FLAGS)
_SGLANG_FC = ("fc_norm", "use_aux_norm")
_MLP_BIAS = r"layers\.\d+\.mlp\.(?:gate|up|down)_proj\.bias"
CLASSES = {
    (c.engine, c.family): c
    for c in (
        HeadClass("vllm", LLAMA, _ALL, (_LAYER, _HEADS, _BIAS, _MLP_BIAS, _TOP, _INPUT), True),
        HeadClass("vllm", QWEN, _ALL, (_LAYER, _HEADS, _BIAS, _QK, _TOP, _INPUT), True),
        HeadClass("vllm", DEEPSEEK, _ALL - {"norm_before_fc"}, (_LAYER, _MLA, _TOP), True),
        HeadClass(
            "sglang",
            LLAMA,
            _ALL - {"norm_before_residual"},
            (_LAYER, _HEADS, _TOP, _INPUT, r"fc\.bias"),
            False,
            _SGLANG_FC,
        ),
        HeadClass(
            "sglang",
            DEEPSEEK,
            frozenset({"fc_norm", "norm_output"}),
            (_LAYER, _MLA, _TOP, r"fc\.bias"),
            False,
            _SGLANG_FC,
        ),
    )
}


def resolved(engine: str, draft: Draft) -> str:
    """The class name that the engine looks for; "" where it does not get that far."""
    if is_speculators(draft):
        kind = str(draft.layer.get("model_type", "llama"))
        known = draft.config.get("speculators_model_type") in ("eagle3", "peagle")
        return SPECULATORS.get(kind, "") if engine == "vllm" and known else ""
    name = draft.architecture
    if engine == "vllm" and name and not (name.startswith("Eagle3") or name.endswith("Eagle3")):
        return f"Eagle3{name}"
    return name


def head_class(engine: str, draft: Draft) -> HeadClass | None:
    """The class that the engine builds for the head; None where it has none."""
    known = {"vllm": VLLM, "sglang": SGLANG}.get(engine, {})
    return CLASSES.get((engine, known.get(resolved(engine, draft), "")))


def slots_built(found: HeadClass, draft: Draft) -> tuple[int, str]:
    """How many states the class makes its fc for, and what says so."""
    config = draft.layer if is_speculators(draft) else draft.config
    counts, lists = COUNTED[found.engine, found.family]
    for key in counts:
        if isinstance(value := config.get(key), int):
            return value, key
    for key in lists:
        held = draft.ids_by_key.get(key)
        if held and not (key == NESTED and is_speculators(draft)):
            return len(held), key
    return 3, "its default"


def is_speculators(draft: Draft) -> bool:
    """Whether the config nests the layer's under transformer_layer_config."""
    return draft.layout == "speculators"
