"""vLLM's OpenAI server with hidden-state extraction on, for as long as a `with` block lasts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hsparity import engines
from hsparity.engines.child import clean_environment, tied

ROOT = Path(__file__).parents[3]
CONNECTORS = "tests.engines.speculators.cpu_connector"
START, REQUEST = 240.0, 60.0  # seconds


def speculators_python() -> Path:
    """The interpreter of the managed speculators environment. Raises E301 when it is not installed."""
    return engines.resolve("speculators").python


def site_packages() -> Path:
    """Where the speculators environment keeps its packages."""
    return next(speculators_python().parents[1].glob("lib/python*/site-packages"))


@contextmanager
def serving(
    model: Path, ids: list[int], storage: Path, log: Path, connector: str = "CpuHiddenStatesConnector"
) -> Iterator[str]:
    """Serve `model` with the states of `ids` written to `storage`; yields the endpoint, "http://127.0.0.1:N/v1".

    The arguments are those that speculators' scripts/launch_vllm.py builds (its wheel does not have the script),
    with a connector that runs on a CPU in place of the one it names. Raises AssertionError with the end of the
    log when the server does not come up; the server and its children are gone when the block ends.
    """
    interpreter = engines.resolve("vllm")
    port = _free_port()
    extraction = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": ids}},
    }
    transfer = {
        "kv_connector": connector,
        "kv_connector_module_path": CONNECTORS,
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(storage)},
    }
    command = [
        # `vllm serve` asks for the version of a distribution called vllm, which the CPU build is not.
        *(str(interpreter.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--speculative_config", json.dumps(extraction), "--kv_transfer_config", json.dumps(transfer)),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--enforce-eager"),
        *("--max-model-len", "512", "--max-num-seqs", "4"),
    ]
    env = clean_environment(interpreter.env)
    env |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    env |= {"VLLM_NO_USAGE_STATS": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    if "FP8" in connector:
        env["HS_CONNECTORS_SITE"] = str(site_packages())
    env["PATH"] = os.pathsep.join((str(interpreter.python.parent), env["PATH"]))
    with log.open("wb") as out:
        server = subprocess.Popen(tied(command), env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        _wait(server, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _stop(server)


def complete(endpoint: str, model: Path, ids: list[int]) -> Path:
    """One completion request for token ids; the file that vLLM says it writes their states to."""
    asked = {"model": str(model), "prompt": ids, "max_tokens": 1, "temperature": 0}
    answer = _post(f"{endpoint}/completions", asked)
    return Path(answer["kv_transfer_params"]["hidden_states_path"])


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with _opener().open(request, timeout=REQUEST) as response:
        return dict(json.load(response))


def _opener() -> urllib.request.OpenerDirector:
    """Straight to this machine, whatever proxy the environment names."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], health: str, log: Path) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        try:
            with _opener().open(health, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    raise AssertionError(f"vLLM did not come up:\n{log.read_text(errors='replace')[-4000:]}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Ask the whole process group to end, then end it."""
    for how, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        try:
            os.killpg(server.pid, how)
        except ProcessLookupError:
            break
        try:
            server.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            continue
    server.wait()
