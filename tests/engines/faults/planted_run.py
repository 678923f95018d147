"""Starting the engine that faults are planted in, and Transformers' floors of the same tokens."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hsparity import engines, models
from hsparity.capture import launch
from hsparity.engines.child import clean_environment, tied
from hsprobe.schema import CaptureSpec, PromptSpec

from . import planted_checkpoints, planted_sglang
from .planted_cases import FORCED, LENGTHS, MOE_SITES, SITES, Planted

ROOT = Path(__file__).parents[3]
ENGINE_ARGS: dict[str, dict[str, Any]] = {"mistral-fp8": {"kv_cache_dtype": "fp8"}}
LIMIT_S = 1200.0


def prompts() -> tuple[PromptSpec, ...]:
    """The random prompts every fault is run on."""
    from tests.engines.conftest import random_prompts

    return random_prompts(LENGTHS, 512, FORCED)


def checkpoint(model: str, home: Path) -> Path:
    """The checkpoint of `model` under `home`, made when it is not there."""
    family = model.partition("-")[0]
    folder = home / family
    if not folder.exists():
        make, plain = {
            "deepseek": (planted_checkpoints.deepseek, "tiny:deepseek-v3"),
            "mistral": (planted_checkpoints.mistral, "tiny:llama"),
        }[family]
        make(models.path(plain), folder)
    return folder


def sites(model: str) -> tuple[str, ...]:
    return MOE_SITES if model == "deepseek" else SITES


def plant(model: str, weights: Path, steps: Iterable[dict[str, object]], out: Path) -> Path:
    """`out`, with a capture `healthy` and one per step. Raises RuntimeError with the end of the engine's log."""
    out.mkdir(parents=True)
    asked = prompts()
    options = {"forced": {p.id: p.forced for p in asked}, "sites": sites(model), "steps": list(steps)}
    options["engine_args"] = ENGINE_ARGS.get(model, {})
    ids = {p.id: p.token_ids for p in asked}
    job = out / "job.json"
    job.write_text(json.dumps({"model": str(weights), "prompts": ids, "out": str(out), "options": options}))
    interpreter = engines.resolve("vllm")
    env = clean_environment(interpreter.env)
    env |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "probes"))), "HF_HUB_OFFLINE": "1"}
    env["PATH"] = os.pathsep.join((str(interpreter.python.parent), env["PATH"]))
    command = [str(interpreter.python), "-m", "tests.engines.faults.planted", str(job)]
    with (out / "engine.log").open("wb") as log:
        done = subprocess.run(tied(command), env=env, stdout=log, stderr=log, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError((out / "engine.log").read_text()[-4000:])
    return out


@cache
def floors(model: str, weights: Path, home: Path) -> tuple[Path, Path]:
    """Transformers' captures of the same tokens in float32 and bfloat16."""
    made = []
    for dtype in ("float32", "bfloat16"):
        spec = CaptureSpec("hf", str(weights), prompts(), sites(model), generate=FORCED, dtype=dtype)
        out = home / f"hf-{model.partition('-')[0]}-{dtype}"
        made.append(launch.run_capture(spec, out, engines.resolve("hf")))
    return made[0], made[1]


def plant_sglang(planted: Planted | None, severity: float, weights: Path, home: Path) -> Path:
    """SGLang's capture under a fault, or healthy: an engine start each."""
    args = planted_sglang.arguments(planted, severity) if planted else {}
    name = planted.folder(severity) if planted else "sglang-healthy"
    spec = CaptureSpec("sglang", str(weights), prompts(), MOE_SITES, generate=FORCED, engine_args=args)
    if planted:
        spec = replace(spec, env={"PYTHONPATH": str(ROOT)})
    return launch.run_capture(spec, home / name, engines.resolve("sglang"))
