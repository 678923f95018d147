"""Captures by Transformers, a real engine that runs in our own interpreter, each made once per session."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hsparity import engines, models
from hsparity.capture import launch
from hsprobe.schema import CaptureSpec, canonical_sha256
from tests.engines.conftest import random_prompts

Take = Callable[..., Path]
PROMPTS = random_prompts((24, 20, 17, 14), 512, forced=4)
SITES = ("boundary.*", "final_norm")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "experiments"
    root.mkdir(exist_ok=True)
    return root


@pytest.fixture(scope="session")
def take(home: Path) -> Take:
    """take(**spec fields) -> a capture of tiny:llama by Transformers; equal settings give the same folder."""
    model = str(models.path("tiny:llama"))

    def make(**fields: Any) -> Path:
        spec = CaptureSpec("hf", model, **{"prompts": PROMPTS, "sites": SITES, "generate": 4, **fields})
        out = home / f"hf-{canonical_sha256(spec.sha256())[:10]}"
        with (home / f"{out.name}.lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            return launch.run_capture(spec, out, engines.resolve("hf"))

    return make


@pytest.fixture(scope="session")
def bf16(take: Take) -> Path:
    return take()


@pytest.fixture(scope="session")
def fp32(take: Take) -> Path:
    return take(dtype="float32")


@pytest.fixture(scope="session")
def eager(take: Take) -> Path:
    return take(engine_args={"attn_implementation": "eager"})


@pytest.fixture(scope="session")
def eager_fp16(take: Take) -> Path:
    """Two knobs at once: float16 and eager attention."""
    return take(dtype="float16", engine_args={"attn_implementation": "eager"})


@pytest.fixture(scope="session")
def bare(take: Take) -> Path:
    """The final norm of two prompts, and nothing else."""
    return take(sites=("final_norm",), prompts=PROMPTS[:2])
