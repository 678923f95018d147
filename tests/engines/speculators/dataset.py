"""A dataset as speculators 0.9 makes it: its prepare-data and generate-offline-data commands against a vLLM server."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hsparity.engines.child import clean_environment, tied

from .server import complete, serving, speculators_python

COMMAND = 180.0  # seconds for one command of speculators


def make_dataset(
    out: Path,
    model: Path,
    prompts: Sequence[Sequence[int]],
    ids: Sequence[int],
    *,
    raw: Path | None = None,
    connector: str = "CpuHiddenStatesConnector",
) -> Path:
    """The v2 dataset folder `out`: arrow rows of input_ids, loss_mask and seq_len, hidden_states/hs_<i>.safetensors.

    Row i is some prompt, not prompt i: prepare-data shuffles. The loss mask is 0 over the first half of a prompt.
    With `raw`, one more plain request per prompt leaves vLLM's own files there as it names them, with their locks.
    One server start. Raises AssertionError with the end of the log of what failed.
    """
    with tempfile.TemporaryDirectory(prefix="speculators-", dir=out.parent) as scratch:
        work = Path(scratch)
        rows = work / "rows.jsonl"
        rows.write_text(
            "".join(
                json.dumps({"input_ids": list(p), "loss_mask": [int(2 * k >= len(p)) for k in range(len(p))]})
                + "\n"
                for p in prompts
            )
        )
        prepare = ["prepare-data", "--model", str(model), "--data", str(rows), "--output", str(out)]
        _run([*prepare, "--num-preprocessing-workers", "1", "--no-skip-token-freq"], work)
        storage = work / "storage"
        with serving(model, list(ids), storage, work / "server.log", connector) as endpoint:
            generate = ["generate-offline-data", "--model", str(model), "--endpoint", endpoint]
            _run(
                [*generate, "--preprocessed-data", str(out), "--concurrency", "2", "--fail-on-error"],
                work,
            )
            if raw is not None:
                _plain(endpoint, model, prompts, raw)
    return out


def _plain(endpoint: str, model: Path, prompts: Sequence[Sequence[int]], raw: Path) -> None:
    """Ask for each prompt once more and keep vLLM's file and its lock."""
    raw.mkdir(parents=True)
    for path in [complete(endpoint, model, list(prompt)) for prompt in prompts]:
        lock = path.with_name(f"{path.name}.lock")
        _unlocked(lock)
        for file in (path, lock):
            file.replace(raw / file.name)


def _unlocked(lock: Path) -> None:
    """Wait until the writer has let go of its lock, as vLLM's own load_hidden_states does."""
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)


def _run(arguments: list[str], work: Path) -> None:
    """One command of speculators in its own environment; its caches stay in `work`."""
    python = speculators_python()
    env = clean_environment({"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(work / "cache")})
    env |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    env["PATH"] = os.pathsep.join((str(python.parent), env["PATH"]))
    log = work / f"{arguments[0]}.log"
    with log.open("wb") as out:
        done = subprocess.run(
            tied([str(python), "-m", "speculators", *arguments]),
            env=env,
            stdout=out,
            stderr=out,
            timeout=COMMAND,
            check=False,
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-4000:]
