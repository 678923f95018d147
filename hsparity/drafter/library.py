"""The speculators library's own model of a head, run beside ours in the interpreter that holds the library."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from hsparity import engines
from hsparity.drafter import library_run
from hsparity.drafter.draft import SPECULATORS
from hsparity.drafter.head import Head
from hsparity.engines.child import clean_environment, tied
from hsparity.errors import HsparityError

KINDS = ("llama", "qwen3")  # decoder layers that the library builds an EAGLE-3 head from
LIMIT = 600.0  # seconds


@dataclass(frozen=True, slots=True, eq=False)
class LibraryRun:
    """What the library makes of some texts; `why` is empty where it ran, else says why it did not."""

    why: str
    version: str = ""
    states: tuple[torch.Tensor, ...] = ()  # per text float32 [steps, T - 1, H], as chain.run's
    drafted: tuple[
        torch.Tensor, ...
    ] = ()  # per text int64 [steps, T - 1]: draft ids of the largest logit, -1 for none


def run_library(
    head: Head, model: Path, fed: Sequence[torch.Tensor], token_ids: Sequence[torch.Tensor], steps: int
) -> LibraryRun:
    """Chains of the library's Eagle3DraftModel over texts (`fed` [T, slots x H] and `token_ids` [T] of each), in float32.

    It gives what `chain.run` gives, for every position: its forward pass feeds the text's tokens as training does, and
    the states are what its lm_head reads. Attention is the library's eager one, whose memory grows with T^2 x steps; the
    first rows of a text do without the later ones, so a text may be cut. A head in another format, one that the library
    has no layer for, and an absent library are told in `why`. Raises E269 where the library fails.
    """
    draft = head.draft
    kind = str(draft.layer.get("model_type", ""))
    if draft.layout != SPECULATORS:
        return LibraryRun(f"{draft.spelled} is not in speculators' own format")
    if kind not in KINDS or draft.target_hidden_size != draft.hidden_size:
        wide = "" if draft.target_hidden_size == draft.hidden_size else ", fed by a target of another width"
        return LibraryRun(f"speculators builds no EAGLE-3 head of {kind or 'no'} layers{wide}")
    try:
        interpreter = engines.resolve("speculators")
    except HsparityError as error:
        if error.code != "E301":
            raise
        return LibraryRun(f"{error.message}: {error.help}" if error.help else error.message)
    long = [i for i, ids in enumerate(token_ids) if len(ids) > 1]  # a text of one token has no start
    with tempfile.TemporaryDirectory(prefix="hsparity-") as scratch:
        folder = Path(scratch)
        held = {f"fed.{n}": fed[i].float().contiguous() for n, i in enumerate(long)}
        held |= {f"ids.{n}": token_ids[i].long().contiguous() for n, i in enumerate(long)}
        # Left to itself the library takes what lies in memory for an embedding that the head does not hold.
        held |= {f"lent.{name}": value.contiguous() for name, value in head.lent.items()}
        save_file(held, folder / "input.safetensors")
        made = _child(head, model, interpreter, folder, steps) if long else {}
    empty = torch.full((steps, 0, draft.hidden_size), torch.nan)
    states, drafted = [empty] * len(fed), [torch.full((steps, 0), -1)] * len(fed)
    for n, i in enumerate(long):
        states[i], drafted[i] = made[f"states.{n}"], made[f"drafted.{n}"]
        for step in range(1, steps + 1):  # behind the text the library read padding
            states[i][step - 1, max(0, len(token_ids[i]) - step) :] = torch.nan
            drafted[i][step - 1, max(0, len(token_ids[i]) - step) :] = -1
    return LibraryRun("", interpreter.version, tuple(states), tuple(drafted))


def _child(
    head: Head, model: Path, interpreter: engines.Interpreter, folder: Path, steps: int
) -> dict[str, torch.Tensor]:
    output, order = folder / "output.safetensors", folder / "order.json"
    told = {"draft": str(head.draft.folder), "model": str(model), "steps": steps, "output": str(output)}
    told |= {"input": str(folder / "input.safetensors"), "threads": torch.get_num_threads()}
    order.write_text(json.dumps(told))
    command = [str(interpreter.python), str(Path(library_run.__file__).resolve()), str(order)]
    env = clean_environment({**interpreter.env, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"})
    why = f"no answer in {LIMIT:.0f} s"
    try:
        done = subprocess.run(
            tied(command),
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        if done.returncode == 0:
            return load_file(output)
        said = [line for line in done.stderr.splitlines() if line.strip()]
        why = said[-1].strip()[:300] if said else f"it ended with status {done.returncode}"
    except subprocess.TimeoutExpired:
        pass
    raise HsparityError(
        "E269",
        f"speculators {interpreter.version} could not run {head.draft.spelled}",
        (why, f"in {interpreter.python}"),
        "hsparity engines install speculators",
    )
