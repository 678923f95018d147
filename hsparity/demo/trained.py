"""The demo's third question: a dataset as speculators 0.4 files it, audited against a server given the same ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .plan import DRAFT_IDS
from .show import CAPTURES, make_way

if TYPE_CHECKING:
    from ..audit.result import Audit

DATASET, SERVER, FORMAT = "dataset", "vllm-draft", "speculators-v1"
QUESTION = (
    f"A dataset that speculators 0.4 would write for ids {','.join(map(str, DRAFT_IDS))}: are these the states that vLLM "
    "feeds a draft with the same ids? A tiny Llama."
)


def make(folder: Path) -> Path:
    """Write the dataset from vLLM's states, in `folder`/captures. Raises E106."""
    from .. import registry
    from ..capture import exporting, exportplan, foreign

    make_way(folder, DATASET)
    out, server = folder / CAPTURES / DATASET, folder / CAPTURES / SERVER
    writer = registry.writers()[FORMAT]
    # Its ids count layer outputs: id k is boundary k + 1.
    layers = ",".join(map(str, DRAFT_IDS))
    plan = exportplan.plan(foreign.open_dataset(server, str(server)), writer, layers=layers)
    exporting.export(plan.dataset, out, writer, plan.slots, plan.layout)
    return out


def audit(folder: Path) -> Audit:
    """The audit of the dataset that `make` wrote."""
    from ..audit.auditing import audit as run
    from ..audit.case import Wanted
    from ..capture import foreign

    dataset, server = folder / CAPTURES / DATASET, folder / CAPTURES / SERVER
    typed = ("hsparity", "audit", str(dataset), "--against", str(server))
    opened = foreign.open_dataset(dataset, str(dataset))
    return run(Wanted(opened, folder / "audit", against=str(server), typed=typed))
