"""Runs in the interpreter that holds speculators: its own Eagle3DraftModel over texts and states in a file, into a file.

Nothing of hsparity is imported here: that interpreter does not have it.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch


def main(order: Path) -> None:
    """Carry out an order: {"draft", "model", "steps", "threads", "input", "output"}, in JSON."""
    from safetensors.torch import load_file, save_file

    wanted = json.loads(order.read_text())
    torch.set_num_threads(wanted["threads"])
    held = load_file(wanted["input"])
    lent = {n.removeprefix("lent."): held.pop(n) for n in list(held) if n.startswith("lent.")}
    model = load(wanted["draft"], wanted["model"], lent)
    made: dict[str, torch.Tensor] = {}
    for index in range(len(held) // 2):
        states, drafted = run(model, held[f"fed.{index}"], held[f"ids.{index}"], wanted["steps"])
        made |= {f"states.{index}": states, f"drafted.{index}": drafted}
    save_file(made, wanted["output"])


def load(draft: str, target: str, lent: dict[str, torch.Tensor]) -> Any:
    """The library's model in float32 with attention that runs on a CPU, and with what the target lends it."""
    eagle3: Any = importlib.import_module("speculators.models.eagle3")
    config = eagle3.Eagle3SpeculatorConfig.from_pretrained(draft)
    config.transformer_layer_config._attn_implementation = "eager"
    config.speculators_config.verifier.name_or_path = target
    model = eagle3.Eagle3DraftModel.from_pretrained(draft, config=config, torch_dtype=torch.float32)
    unknown = model.load_state_dict(lent, strict=False).unexpected_keys
    if unknown:
        raise SystemExit(f"the library has no place for {unknown}")
    return model.float().eval()


def run(
    model: Any, fed_tk: torch.Tensor, token_ids: torch.Tensor, steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(what its lm_head reads, float32 [steps, T - 1, H]; the draft ids that it drafts, int64 [steps, T - 1]).

    Its forward pass feeds the text's tokens from the second position on, as training does; rows whose token lies behind
    the text are padded there, and are left for the caller to drop.
    """
    seen: list[torch.Tensor] = []
    hook = model.lm_head.register_forward_pre_hook(lambda _module, given: seen.append(given[0].detach()[0]))
    rows = len(token_ids) - 1
    with torch.no_grad():
        drafted = model(
            hidden_states=fed_tk[None, :rows].float(),
            input_ids=token_ids[None, 1:],
            document_ids=torch.zeros(1, rows, dtype=torch.long),
            ttt_steps=steps,
        )
    hook.remove()
    return torch.stack(seen).float().contiguous(), torch.cat(drafted).contiguous()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
