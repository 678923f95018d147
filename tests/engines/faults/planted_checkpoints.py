"""The two checkpoints that faults are planted in: a DeepSeek-V3 with V3's own routing scale and a bias that decides,
and a Mistral with a window."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from .checkpoints import scaling_deepseek
from .planted_cases import WINDOW

FACTOR, BIAS_GAIN = 2.5, 5.0


def deepseek(plain: Path, folder: Path) -> Path:
    """tiny DeepSeek-V3 with routed_scaling_factor 2.5 and a correction bias of about 0.1 instead of 0.02."""
    scaling_deepseek(plain, folder, FACTOR)
    path = folder / "model.safetensors"
    weights = load_file(path)
    biases = {k: v * BIAS_GAIN for k, v in weights.items() if k.endswith("e_score_correction_bias")}
    save_file({**weights, **biases}, path, {"format": "pt"})
    return folder


def mistral(plain: Path, folder: Path) -> Path:
    """tiny Llama's weights under Mistral's name: the same layer, each token seeing its last 16."""
    shutil.copytree(plain, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": WINDOW}
    path.write_text(json.dumps({k: v for k, v in config.items() if not k.endswith("_bias")}))
    return folder
