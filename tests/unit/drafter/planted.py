"""Mistakes planted into tiny heads, one or more for each static check, and the same head without the mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from hsparity.drafter.checking import DraftCheck, check
from hsparity.drafter.draft import open_draft

from .heads import make_head

NESTED, TOP = "eagle_config.eagle_aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"
LAYERS = 12  # of the target: the default triple is 2, 6, 9
Edit = Callable[[dict[str, torch.Tensor]], None]


@dataclass
class Plan:
    """A head, where it is served, and what is changed on the way."""

    head: dict[str, Any] = field(default_factory=dict)
    layout: str = "midlayer"
    engine: str = "vllm"
    more: dict[str, Any] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)  # config keys that are replaced
    weights: Edit | None = None
    model: bool = True


def drop(*names: str) -> Edit:
    return lambda tensors: [tensors.pop(n) for n in names] and None


def put(**made: torch.Tensor) -> Edit:
    return lambda tensors: tensors.update({n.replace("__", "."): t for n, t in made.items()})


def rows_less(tensors: dict[str, torch.Tensor]) -> None:
    tensors["d2t"] = tensors["d2t"][:-3]


def eagle1(tensors: dict[str, torch.Tensor]) -> None:
    for name in "qkv":
        key = f"midlayer.self_attn.{name}_proj.weight"
        tensors[key] = tensors[key][:, :64].contiguous()
    del tensors["midlayer.hidden_norm.weight"]
    tensors["fc.weight"] = tensors["fc.weight"][:, :128].contiguous()


def quantised(tensors: dict[str, torch.Tensor]) -> None:
    tensors["fc.weight"] = tensors["fc.weight"].to(torch.float8_e4m3fn)


SG, V1, V2 = {"engine": "sglang"}, {"more": {"runner": "v1"}}, {"more": {"runner": "v2"}}
TRIPLE = {"ids": (2, 6, 9)}
GPT = {"architectures": ["GptOssForCausalLM"]}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"]}
TURNED = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "transform_config": {"config_groups": {"R1": {}}},
    }
}
W4 = {"quantization_config": {"quant_method": "gptq"}}


def on(*boundaries: int, **more: Any) -> dict[str, Any]:
    return {"trained_on": boundaries, **more}


# code -> (severity, the mistake, the same without it)
PLANTED: dict[str, list[tuple[str, Plan, Plan]]] = {
    "HS601": [
        ("error", Plan(more={"algorithm": "EAGLE"}, **SG), Plan(more={"algorithm": "EAGLE3"}, **SG)),
        (
            "error",
            Plan(more={"algorithm": "eagle3"}, weights=eagle1),
            Plan(more={"algorithm": "eagle"}, weights=eagle1),
        ),
        ("note", Plan(), Plan(more={"algorithm": "eagle3"})),
    ],
    "HS602": [
        (
            "error",
            Plan(head={"slots": 4, "ids": (2, 4, 6, 8)}, layout="speculators"),
            Plan(layout="speculators"),
        ),
        ("error", Plan(head={"config": {"num_aux_hidden_states": 2}}, **SG), Plan(**SG)),
        ("error", Plan(target={"hidden_size": 96}), Plan()),
        ("error", Plan(head={"ids": (2, 6)}, more={"runner": "v1"}), Plan(more={"runner": "v1"})),
        # A list of four inside eagle_config: four to the V1 runner and to the class, the default three to V2.
        (
            "warning",
            Plan(head={"slots": 4, "ids": (2, 4, 6, 8)}),
            Plan(head={"slots": 4, "ids": (2, 4, 6, 8)}, more={"runner": "v1"}),
        ),
    ],
    "HS603": [
        (
            "error",
            Plan(layout="speculators", head={"ids": (4, 5, 8)}, **SG),
            Plan(head={"ids": (4, 5, 8)}, **SG),
        ),
        ("error", Plan(head={"ids": (4, 5, 8)}, **V2), Plan(head={"ids": (4, 5, 8)}, **V1)),
        ("warning", Plan(head={"ids": (4, 5, 8)}), Plan(head={"ids": (4, 5, 8)}, layout="speculators")),
        ("note", Plan(head={"ids": (1, 5, 8)}, **V2), Plan(head={"ids": (1, 5, 8)}, **V1)),
        (
            "error",
            Plan(head={"ids": (4, 5, 8)}, more={"version": "0.11.0"}),
            Plan(head={"config": {"eagle_config": None}}),
        ),
    ],
    "HS604": [
        (
            "note",
            Plan(head={"ids": (1, 4, 7)}, target=DEEPSEEK, **SG),
            Plan(head={"ids": (2, 5, 8)}, target=DEEPSEEK, **SG),
        ),
        (
            "note",
            Plan(head={"ids": (4, 8, 12)}, target=GPT, **SG),
            Plan(head={"ids": (4, 8, 11)}, target=GPT, **SG),
        ),
        (
            "note",
            Plan(head={"ids": (1, 4, 7)}, target=DEEPSEEK, **SG),
            Plan(head={"ids": (1, 4, 7)}, target=DEEPSEEK, engine="sglang", more=on(2, 5, 8)),
        ),
    ],
    "HS605": [
        ("error", Plan(head={"ids": (2, 6, 11)}, **SG), Plan(head={"ids": (2, 6, 10)}, **SG)),
        ("error", Plan(head={"ids": (2, 6, 40)}, **V1), Plan(head={"ids": (2, 6, 12)}, **V1)),
        (
            "error",
            Plan(target={"architectures": ["Gemma3ForCausalLM"]}, more={"runner": "v1"}),
            Plan(target={"architectures": ["Gemma4ForCausalLM"]}, more={"runner": "v1"}),
        ),
        ("error", Plan(head={"ids": (0, 6, 9)}, target=DEEPSEEK, **V1), Plan(head={"ids": (0, 6, 9)}, **V1)),
    ],
    "HS606": [
        ("warning", Plan(head={"ids": (9, 6, 2)}, **V1), Plan(head={"ids": (2, 6, 9)}, **V1)),
        ("error", Plan(head={"ids": (2, 6, 6)}, **SG), Plan(head={"ids": (2, 6, 7)}, **SG)),
    ],
    "HS607": [
        (
            "error",
            Plan(head=TRIPLE, more=on(2, 6, 9), **SG),
            Plan(head={"ids": (1, 5, 8)}, more=on(2, 6, 9), **SG),
        ),
        (
            "warning",
            Plan(head={"ids": (1, 5, 8)}, **V1),
            Plan(head=TRIPLE, more={"runner": "v1", "trained_on": (2, 6, 9)}),
        ),
        (
            "error",
            Plan(head=TRIPLE, layout="speculators", more={"trained_by": "speculators 0.4.0"}),
            Plan(head=TRIPLE, layout="speculators", more={"trained_by": "speculators 0.6.0"}),
        ),
        (
            "error",
            Plan(
                head={"config": {TOP: None}}, layout="speculators", more={"trained_by": "speculators 0.4.0"}
            ),
            Plan(head={"config": {TOP: None}}, layout="speculators", more={"trained_by": "eagle"}),
        ),
        (
            "warning",
            Plan(head={**TRIPLE, "config": {"speculators_version": "0.4.0"}}, layout="speculators"),
            Plan(head={**TRIPLE, "config": {"speculators_version": "0.1.0.dev42"}}, layout="speculators"),
        ),
    ],
    "HS608": [
        (
            "warning",
            Plan(head={**TRIPLE, "config": {TOP: [1, 5, 8]}}),
            Plan(head={**TRIPLE, "config": {TOP: [2, 6, 9]}}),
        )
    ],
    "HS611": [
        ("error", Plan(head={"d2t": "absolute"}), Plan()),
        ("error", Plan(head={"d2t": "absolute", "t2d": False}), Plan(head={"t2d": False})),
        ("error", Plan(head={"d2t": "none"}), Plan(head={"draft_vocab": 320, "d2t": "none"})),
        ("error", Plan(weights=rows_less), Plan()),
        ("error", Plan(weights=put(d2t=torch.full((96,), 500))), Plan()),
        ("error", Plan(weights=put(t2d=torch.zeros(320, dtype=torch.bool))), Plan()),
        ("error", Plan(weights=put(t2d=torch.zeros(300, dtype=torch.bool))), Plan()),
        ("warning", Plan(weights=put(d2t=torch.zeros(96))), Plan()),
        ("error", Plan(layout="eagle", head={"d2t": "absolute"}), Plan(layout="eagle")),
    ],
    "HS612": [
        (
            "error",
            Plan(head={"draft_vocab": 320}, weights=put(d2t=torch.zeros(320, dtype=torch.int64))),
            Plan(
                head={"draft_vocab": 320},
                weights=put(d2t=torch.zeros(320, dtype=torch.int64)),
                engine="sglang",
            ),
        ),
    ],
    "HS613": [
        ("error", Plan(head={"config": {"draft_vocab_size": 128}}), Plan()),
        (
            "error",
            Plan(head={"config": {"draft_vocab_size": None}}),
            Plan(head={"config": {"draft_vocab_size": 96}}),
        ),
        ("error", Plan(weights=rows_less, **SG), Plan(**SG)),
    ],
    "HS614": [("warning", Plan(target={"vocab_size": 384}), Plan())],
    "HS615": [
        ("warning", Plan(**SG), Plan(engine="sglang", head={"embedding": False})),
        ("error", Plan(head={"config": {"embed_requires_grad": True}}, **SG), Plan()),
        ("error", Plan(head={"target_hidden": 96, "embedding": False}, target={"hidden_size": 96}), Plan()),
    ],
    "HS616": [
        ("error", Plan(head={"lm_head": False}), Plan(head={"lm_head": False, "draft_vocab": 320})),
        ("error", Plan(head={"tied": True}, **SG), Plan(head={"tied": True})),
        ("error", Plan(head={"config": {"draft_vocab_size": None}, "draft_vocab": 320}, **SG), Plan(**SG)),
        ("error", Plan(head={"lm_head": False}, **SG), Plan(**SG)),
    ],
    "HS621": [
        (
            "error",
            Plan(head={"fc_norm": True}, weights=drop(*(f"fc_norm.{i}.weight" for i in range(3)))),
            Plan(head={"fc_norm": True}),
        ),
        (
            "error",
            Plan(head={"norm_before_fc": True, "config": {"norm_before_fc": False}}),
            Plan(head={"norm_before_fc": True}),
        ),
        (
            "error",
            Plan(head={"fc_norm": True, "config": {"fc_norm": None, "use_aux_norm": True}}),
            Plan(head={"fc_norm": True, "config": {"fc_norm": None, "use_aux_norm": True}}, engine="sglang"),
        ),
        ("error", Plan(head={"fc_norm": True}, weights=drop("fc_norm.2.weight")), Plan()),
    ],
    "HS622": [
        ("error", Plan(head={"norm_before_residual": True}, **SG), Plan(head={"norm_before_residual": True})),
        (
            "error",
            Plan(head={"norm_before_fc": True, "mla": True}),
            Plan(head={"fc_norm": True, "mla": True}),
        ),
        (
            "warning",
            Plan(layout="speculators", head={"config": {"norm_before_residual": None}}),
            Plan(layout="speculators", head={"config": {"norm_before_residual": False}}),
        ),
    ],
    "HS623": [
        (
            "error",
            Plan(head={"qk_norm": True}),
            Plan(head={"qk_norm": True, "config": {"architectures": ["Eagle3Qwen3ForCausalLM"]}}),
        ),
        ("error", Plan(head={"attention_bias": True}, **SG), Plan(head={"attention_bias": True})),
        ("error", Plan(weights=put(verifier_norm__weight=torch.ones(64))), Plan()),
    ],
    "HS624": [
        ("error", Plan(weights=drop("midlayer.mlp.up_proj.weight")), Plan()),
        (
            "error",
            Plan(head={"mla": True}, weights=drop("midlayer.self_attn.kv_b_proj.weight")),
            Plan(head={"mla": True}),
        ),
    ],
    "HS631": [("note", Plan(head={"rope_theta": 500000.0}), Plan())],
    "HS632": [
        (
            "warning",
            Plan(head={"config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}}),
            Plan(head={"config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}}),
        ),
        (
            "warning",
            Plan(
                head={"config": {"rope_theta": None, "rope_parameters": {"rope_theta": 1e6}}},
                more={"version": "0.12.0"},
            ),
            Plan(head={"config": {"rope_theta": None, "rope_parameters": {"rope_theta": 1e6}}}),
        ),
    ],
    "HS633": [
        (
            "note",
            Plan(target={"max_position_embeddings": 8192}, **SG),
            Plan(target={"max_position_embeddings": 8192}),
        )
    ],
    "HS641": [
        ("error", Plan(head={"head_dim": 32, "config": {"head_dim": None}}), Plan(head={"head_dim": 32})),
        ("error", Plan(head={"mla": True, "config": {"kv_lora_rank": 32}}), Plan(head={"mla": True})),
    ],
    "HS642": [("error", Plan(head={"config": {"num_hidden_layers": LAYERS}}), Plan(head={"layers": 2}))],
    "HS643": [
        (
            "note",
            Plan(head={"dtype": torch.float16}, target={"dtype": "bfloat16"}),
            Plan(head={"dtype": torch.bfloat16}, target={"dtype": "bfloat16"}),
        ),
        (
            "error",
            Plan(weights=quantised),
            Plan(weights=quantised, head={"config": {"quantization_config": {"quant_method": "fp8"}}}),
        ),
    ],
    "HS644": [
        ("warning", Plan(target=TURNED), Plan()),
        (
            "note",
            Plan(layout="speculators", head={"verifier": Path("org/other")}, target=W4),
            Plan(layout="speculators", head={"verifier": Path("org/t")}, target=W4),
        ),
    ],
    "HS645": [
        (
            "error",
            Plan(head={"use_aux_hidden_state": False}, **SG),
            Plan(head={"use_aux_hidden_state": True}, **SG),
        ),
        ("note", Plan(head={"config": {"use_aux_hidden_state": False}}), Plan()),
    ],
    "HS646": [
        ("error", Plan(layout="speculators", **SG), Plan(layout="speculators")),
        ("error", Plan(layout="layers.0", **SG), Plan(layout="layers.0")),
        (
            "error",
            Plan(head={"mla": True, "config": {"architectures": ["LlamaForCausalLMEagle3"]}}),
            Plan(head={"mla": True}),
        ),
    ],
    "HS647": [
        (
            "warning",
            Plan(layout="speculators", target={"architectures": ["MistralForCausalLM"]}),
            Plan(layout="speculators"),
        ),
    ],
}


def run(plan: Plan, folder: Path, target: Path) -> DraftCheck:
    head = make_head(folder / "head", plan.layout, **plan.head)
    if plan.weights is not None:
        file = head / "model.safetensors"
        tensors = load_file(file)
        plan.weights(tensors)
        save_file(tensors, file)
    if plan.target:
        changed = folder / "t"
        changed.mkdir()
        config = json.loads((target / "config.json").read_text())
        (changed / "config.json").write_text(json.dumps({**config, **plan.target}))
        (changed / "model.safetensors").symlink_to(target / "model.safetensors")
        target = changed
    return check(open_draft(str(head)), plan.engine, model=str(target) if plan.model else "", **plan.more)
