"""One vLLM, loaded once by hsprobe in this process: a capture of it healthy, and one under each fault asked for.

Runs in vLLM's interpreter. Options of the job: `forced` ids per prompt, `sites`, `steps` (folder, fault, severity,
layer), `engine_args`. After each fault the first prompt is run again and must come back bit for bit.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from hsprobe import drive, spool, stack
from hsprobe.engines import vllm_engine
from hsprobe.engines.vllm_runner import RunnerProbe
from hsprobe.protocol import OUT_ENV, SPEC_ENV, Completion, EngineInfo
from hsprobe.schema import CaptureSpec, PromptSpec
from tests.engines.faults.plain import Job
from tests.engines.faults.planted_faults import FAULTS, Live


class Kept:
    """The one engine behind every capture; hsprobe's driver loads and closes it in vain."""

    def __init__(self, files: Path) -> None:
        self.files = files  # what hsprobe left at the load, for later captures
        self.probe: Any = None
        self.engine: Any = None
        self.start = vllm_engine.load

    def attach(self, worker: Any, spec: CaptureSpec, out: Path) -> None:
        self.probe = RunnerProbe(worker.model_runner, spec, out)
        self.probe.wrap()

    def load(self, spec: CaptureSpec, out: Path) -> Kept:
        left = (
            stack.NORM_FILE,
            f"{spool.FOLDER}/{stack.EMBEDDING_FILE}",
            f"{spool.FOLDER}/{stack.FACTS_FILE}",
        )
        if self.engine is None:
            self.engine = self.start(spec, out)
            (self.files / spool.FOLDER).mkdir(parents=True)
            for name in left:
                shutil.copy(out / name, self.files / name)
        else:
            for name in left:
                shutil.copy(self.files / name, out / name)
            self.probe.out, self.probe.recorder = out, spool.StepRecorder(out)
            self.engine.out, self.engine.spec = out, spec
        return self

    def info(self) -> EngineInfo:
        info: EngineInfo = self.engine.info()
        return info

    def generate(self, prompts: Sequence[PromptSpec]) -> list[Completion]:
        answers: list[Completion] = self.engine.generate(prompts)
        return answers

    def close(self) -> None:
        pass


def first_rows(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "shards" / "00000.safetensors")


def differing(one: Path, other: Path) -> list[str]:
    """The tensors of the first prompt that are not equal bit for bit."""
    a, b = first_rows(one), first_rows(other)
    assert a.keys() == b.keys()
    return [key for key in a if not torch.equal(a[key], b[key])]


def main() -> None:
    job = Job.from_arguments()
    prompts = tuple(PromptSpec(k, tuple(v), tuple(job.options["forced"][k])) for k, v in job.prompts.items())
    generate = len(prompts[0].forced)
    sites, arguments = tuple(job.options["sites"]), job.options.get("engine_args", {})
    spec = CaptureSpec(
        "vllm", str(job.model), prompts, sites, generate=generate, engine_args=arguments, dtype="bfloat16"
    )
    one = CaptureSpec(
        "vllm", str(job.model), prompts[:1], sites, generate=generate, engine_args=arguments, dtype="bfloat16"
    )
    asked = job.out / "spec.json"
    asked.write_text(spec.to_json())
    healthy = job.out / "healthy"
    healthy.mkdir()
    os.environ.update({SPEC_ENV: str(asked), OUT_ENV: str(healthy), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    kept = Kept(job.out / "kept")
    vllm_engine.load, vllm_engine.attach = kept.load, kept.attach  # type: ignore[assignment]
    vllm_engine.plugin()
    drive.capture(spec, healthy)
    runner = kept.probe.runner
    live = Live(runner, list(stack.find_stack(runner.get_model()).layers), job.model)
    for number, step in enumerate(job.options["steps"]):
        began = time.time()
        folder = job.out / step["folder"]
        with FAULTS[step["fault"]](live, step["severity"], step["layer"]):
            drive.capture(spec, folder)
        moved = differing(folder, healthy)
        assert moved, f"{step['folder']} changes nothing"
        again = job.out / "again" / str(number)
        drive.capture(one, again)
        left = differing(again, healthy)
        assert not left, f"{step['folder']} left its mark on {left}"
        said = {**step, "moved": len(moved), "seconds": round(time.time() - began, 2)}
        sys.stderr.write(f"planted {json.dumps(said)}\n")
    shutil.rmtree(job.out / "again", ignore_errors=True)
    shutil.rmtree(job.out / "kept")
    kept.engine.close()


if __name__ == "__main__":
    main()
