"""Make the fixtures of this folder again, with the programs that people use.

python -m tests.readers.real.remake SOURCES [FORMAT...]

SOURCES is a folder with what has no environment of its own, each wheel unpacked into a folder:
  speculators-0.4.0/     pip download --no-deps speculators==0.4.0
  specforge-0.2.0/       pip download --no-deps specforge==0.2.0
  data_generation_offline.py   scripts/ of speculators at tag v0.4.0: the wheel does not have it
  prepare_hidden_states.py     scripts/ of SpecForge at a6b6b023: the wheel does not have it
The engines vllm, sglang and speculators have to be installed (hsparity engines install).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from hsparity import engines, models
from hsparity.capture import launch
from hsparity.engines.child import clean_environment, tied
from hsprobe.schema import CaptureSpec
from tests.engines.conftest import random_prompts, tensors
from tests.engines.speculators.dataset import make_dataset
from tests.engines.speculators.server import ROOT, site_packages, speculators_python

HERE = Path(__file__).parent
MODEL = "tiny:llama"  # 8 layers of 256
PROMPTS = random_prompts((8, 13, 17, 24), 512)
# Each producer's own default ids for 8 layers.
IDS_V2, IDS_V1, IDS_SPECFORGE = [2, 4, 5, 8], [2, 4, 5, 7], [1, 3, 4]


def _fresh(name: str) -> Path:
    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    return out


def speculators_v2(work: Path, sources: Path) -> None:
    """speculators 0.9 against vLLM, and what vLLM itself leaves."""
    make_dataset(_fresh("speculators-v2"), models.path(MODEL), _ids(), IDS_V2, raw=_fresh("vllm-connector"))


def hs_connectors_fp8(work: Path, sources: Path) -> None:
    """The same with hs_connectors' quantising writer, then what its own reader gives back."""
    out = _fresh("hs-connectors-fp8")
    make_dataset(out, models.path(MODEL), _ids(), IDS_V2, connector="CpuFP8HiddenStatesConnector")
    _child(speculators_python(), "fp8_read", {"states": str(out / "hidden_states")}, work)
    (HERE / "hs-connectors-fp8.read.json").write_text((work / "fp8_read.out").read_text())


def speculators_v1(work: Path, sources: Path) -> None:
    """The worker code, the saving script and the config of speculators 0.4.0 on today's vLLM."""
    _v1(work, sources, "speculators-v1", _ids(), IDS_V1)


def speculators_v1_unsorted(work: Path, sources: Path) -> None:
    """The same two prompts with the ids typed in another order."""
    _v1(work, sources, "speculators-v1-unsorted", _ids()[:2], [5, 2, 7, 4])


def _v1(work: Path, sources: Path, name: str, prompts: list[list[int]], ids: list[int]) -> None:
    job: dict[str, object] = {"wheel": str(sources / "speculators-0.4.0"), "prompts": prompts, "ids": ids}
    job |= {"script": str(sources / "data_generation_offline.py"), "model": str(models.path(MODEL))}
    job |= {"site": str(site_packages()), "out": str(_fresh(name))}
    _child(engines.resolve("vllm").python, "v1_producer", job, work)


def specforge(work: Path, sources: Path) -> None:
    """The saving code of SpecForge 0.2.0 on SGLang's states: its Llama adds one to these ids."""
    model = models.path(MODEL)
    spec = CaptureSpec("sglang", str(model), PROMPTS, ("boundary.*", "final_norm"))
    launch.run_capture(spec, work / "sglang", engines.resolve("sglang"))
    states = work / "states.pt"
    found = [tensors(work / "sglang", p.id) for p in PROMPTS]
    keys = [f"boundary.{i + 1:03d}" for i in IDS_SPECFORGE]
    torch.save([{"aux": torch.cat([t[k] for k in keys], -1), "last": t["final_norm"]} for t in found], states)
    job = {"wheel": str(sources / "specforge-0.2.0"), "script": str(sources / "prepare_hidden_states.py")}
    job |= {"states": str(states), "prompts": _ids(), "out": str(_fresh("specforge"))}
    _child(speculators_python(), "specforge_producer", job, work)


def _ids() -> list[list[int]]:
    return [list(prompt.token_ids) for prompt in PROMPTS]


def _child(python: Path, module: str, job: dict[str, object], work: Path) -> None:
    """Run a module of this folder in another interpreter, in `work`, with its job as JSON."""
    (work / f"{module}.json").write_text(json.dumps(job))
    env = clean_environment({"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"})
    env["PATH"] = os.pathsep.join((str(python.parent), env["PATH"]))
    command = [str(python), "-m", f"tests.readers.real.{module}", str(work / f"{module}.json")]
    with (work / f"{module}.out").open("wb") as out:
        subprocess.run(tied(command), env=env, cwd=work, stdout=out, timeout=300, check=True)


FORMATS: dict[str, Callable[[Path, Path], None]] = {
    "speculators-v2": speculators_v2,
    "hs-connectors-fp8": hs_connectors_fp8,
    "speculators-v1": speculators_v1,
    "speculators-v1-unsorted": speculators_v1_unsorted,
    "specforge": specforge,
}


def main() -> None:
    sources, *names = sys.argv[1:]
    for name in names or FORMATS:
        with tempfile.TemporaryDirectory(prefix="remake-") as work:
            FORMATS[name](Path(work), Path(sources).absolute())
        print(name)


if __name__ == "__main__":
    main()
