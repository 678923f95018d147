"""Captures by the real engines, each made once per session and shared by all that ask for its settings."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from hsparity import engines, models
from hsparity.capture import launch
from hsparity.engines.child import clean_environment, tied
from hsprobe.schema import CaptureManifest, CaptureSpec, PromptSpec, canonical_sha256

Capture = Callable[..., Path]
Inside = Callable[..., Path]
ROOT = Path(__file__).parents[2]


def shared(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all workers of this run share."""
    base = factory.getbasetemp()
    # Each worker's own folder lies in one of the run.
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    root.mkdir(exist_ok=True)
    return root


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One worker at a time."""
    with lock.open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """capture(engine, model=…, prompts=…, sites=…, env={…}, repeat=0, **spec fields) -> folder.

    Equal settings return the same folder, so an engine starts once for them, whichever worker asks; another `repeat`
    starts again.
    """
    root = shared(tmp_path_factory, "captures")

    def make(
        engine: str,
        *,
        model: Path,
        prompts: tuple[PromptSpec, ...],
        sites: tuple[str, ...] = ("boundary.*", "final_norm"),
        env: dict[str, str] | None = None,
        repeat: int = 0,
        **fields: Any,
    ) -> Path:
        spec = CaptureSpec(engine, str(model), prompts, sites, **fields)
        key = canonical_sha256([asdict(spec), env or {}, repeat])[:12]
        out = root / f"{engine}-{model.name}-{key}"
        with alone(root / f"{key}.lock"):
            if launch.is_complete(out, spec):
                return out
            with pytest.MonkeyPatch.context() as patch:
                for name, value in (env or {}).items():
                    patch.setenv(name, value)
                return launch.run_capture(spec, out, engines.resolve(engine))

    return make


@pytest.fixture(scope="session")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    """inside(engine, module, model=…, prompts=…, **options) -> folder of what tests/engines/faults/<module> wrote.

    The module runs in the engine's own interpreter, once for all that ask for it.
    """
    made: dict[str, Path] = {}
    root = tmp_path_factory.mktemp("faults")

    def run(
        engine: str, module: str, *, model: Path, prompts: tuple[PromptSpec, ...], **options: Any
    ) -> Path:
        out = root / module
        if module in made:
            return made[module]
        out.mkdir()
        ids = {p.id: list(p.token_ids) for p in prompts}
        job = out / "job.json"
        job.write_text(json.dumps({"model": str(model), "prompts": ids, "out": str(out), "options": options}))
        interpreter = engines.resolve(engine)
        env = clean_environment(interpreter.env)
        env["PYTHONPATH"], env["HF_HUB_OFFLINE"] = str(ROOT), "1"
        env["PATH"] = os.pathsep.join((str(interpreter.python.parent), env["PATH"]))
        command = [str(interpreter.python), "-m", f"tests.engines.faults.{module}", str(job)]
        with (out / "engine.log").open("wb") as log:
            done = subprocess.run(tied(command), env=env, stdout=log, stderr=log, timeout=600, check=False)
        assert done.returncode == 0, (out / "engine.log").read_text()[-4000:]
        made[module] = out
        return out

    return run


@pytest.fixture(scope="session")
def tiny_deepseek() -> Path:
    return models.path("tiny:deepseek-v3")


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    return models.path("tiny:llama")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return models.path("smollm2")


def manifest(folder: Path) -> CaptureManifest:
    return CaptureManifest.from_json((folder / "manifest.json").read_text())


def tensors(folder: Path, prompt: str) -> dict[str, torch.Tensor]:
    """Every tensor of a prompt, read straight from its shards."""
    found: dict[str, torch.Tensor] = {}
    for entry in manifest(folder).shards:
        if entry.prompt == prompt:
            with safe_open(folder / entry.path, "pt") as shard:
                found.update({key: shard.get_tensor(key) for key in shard.keys()})  # noqa: SIM118
    return found


def site(folder: Path, key: str, prompts: tuple[str, ...] | None = None) -> torch.Tensor:
    """A site's rows over `prompts` (all), in float64 [N, H]."""
    names = prompts or tuple(p.id for p in manifest(folder).prompts)
    return torch.cat([tensors(folder, name)[key] for name in names]).double()


def rel_l2(cand_nh: torch.Tensor, ref_nh: torch.Tensor) -> float:
    """The median over tokens of |cand - ref| / |ref|."""
    return float(((cand_nh - ref_nh).norm(dim=1) / ref_nh.norm(dim=1)).median())


def nearest_boundary(slot_nh: torch.Tensor, folder: Path) -> tuple[int, float, float]:
    """The boundary of `folder` whose states fit best: its number, its error, the runner-up's error."""
    count = manifest(folder).num_layers + 1
    errors = sorted((rel_l2(slot_nh, site(folder, f"boundary.{r:03d}")), r) for r in range(count))
    return errors[0][1], errors[0][0], errors[1][0]


def random_prompts(lengths: tuple[int, ...], vocabulary: int, forced: int = 0) -> tuple[PromptSpec, ...]:
    """Prompts of random token ids, the same at every run; the first id is a BOS."""
    draw = torch.Generator().manual_seed(7)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, vocabulary, (count,), generator=draw).tolist())

    return tuple(PromptSpec(f"p{i}", (1, *ids(n - 1)), ids(forced)) for i, n in enumerate(lengths))


def english_prompts(model: Path) -> tuple[PromptSpec, ...]:
    """Four short English prompts, tokenised once."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = (
        "The lighthouse keeper wrote in his diary that the storm had taken the north pier.",
        "Water boils at a lower temperature on a mountain because",
        "def mean(values):\n    return sum(values) / len(values)\n\n\ndef median(values):\n",
        "My favourite recipe begins with two onions, a spoon of butter and a great deal of patience. First,",
    )
    return tuple(
        PromptSpec(f"e{i}", tuple(tokenizer(text)["input_ids"]), text=text) for i, text in enumerate(texts)
    )


@pytest.fixture(scope="session")
def speculators_dataset(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    """A v2 dataset that speculators 0.9 made of test_vllm's prompts with ids 2,4,6,8 against a real vLLM server; vLLM's own
    files lie in raw/ beside it."""
    from .speculators.dataset import make_dataset
    from .test_vllm import PROMPTS

    root = shared(tmp_path_factory, "speculators")
    with alone(root / "lock"):
        if not (root / "done").exists():
            make_dataset(
                root / "v2", tiny_llama, [p.token_ids for p in PROMPTS], (2, 4, 6, 8), raw=root / "raw"
            )
            (root / "done").touch()
    return root / "v2"


@pytest.fixture(scope="session")
def yardstick(capture: Capture) -> Callable[[Path], dict[str, tuple[float, float]]]:
    """yardstick(folder) -> site key -> (median error of `folder` to Transformers fp32, the same of its bf16).

    The references are captured from the same token ids, decoded ones included.
    """

    def measure(folder: Path) -> dict[str, tuple[float, float]]:
        about = manifest(folder)
        prompts = tuple(
            PromptSpec(p.id, tuple(ids[: p.prefill]), (*ids[p.prefill :], *p.generated[-1:]))
            for p in about.prompts
            for ids in [tensors(folder, p.id)["token_ids"].tolist()]
        )
        generate = max(len(p.forced) for p in prompts)
        keys = [k for k in about.shards[0].sites if k.startswith("boundary.") or k == "final_norm"]
        fp32, bf16 = (
            capture("hf", model=Path(about.model), prompts=prompts, generate=generate, dtype=dtype)
            for dtype in ("float32", "bfloat16")
        )
        return {
            key: (rel_l2(site(folder, key), site(fp32, key)), rel_l2(site(bf16, key), site(fp32, key)))
            for key in keys
        }

    return measure
