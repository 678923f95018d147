"""hsparity export: a capture as a trainer's dataset."""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import HsparityError
from .grouped import GroupedCommand, grouped_option

if TYPE_CHECKING:
    from ..capture.exporting import Exported
    from ..capture.exportplan import Plan
    from ..capture.readers.base import Dataset
    from ..capture.writers.base import Writer

WHAT, OUTPUT = "What to write", "Output"


@click.command(cls=GroupedCommand)
@click.argument("capture", metavar="CAPTURE")
@grouped_option(
    WHAT, "--layers", metavar="LIST", help="Decoder layers whose outputs a draft is fed: 2,30,58 or eagle3."
)
@grouped_option(
    WHAT,
    "--boundaries",
    metavar="LIST",
    help="The same as boundaries: layer N's output is boundary N+1.  [default: the capture's native slots]",
)
@grouped_option(WHAT, "--limit", type=click.IntRange(min=1), metavar="N", help="Write the first N samples.")
@grouped_option(
    OUTPUT,
    "--to",
    required=True,
    metavar="FORMAT",
    help="speculators-v2 (0.5 and later), speculators-v1 (0.3, 0.4) or specforge (0.1, 0.2).",
)
@grouped_option(
    OUTPUT,
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    help="Folder of the dataset. One that was begun with the same options is finished.",
)
def export(
    capture: str,
    layers: str | None,
    boundaries: str | None,
    limit: int | None,
    to: str,
    output: str,
) -> None:
    """Write a capture as the dataset that a draft model is trained on.

    CAPTURE is a capture, a plain folder or a dataset in one of the formats of docs/formats.md.
    The auxiliary states are stored in ascending order, then the last one, before or after the
    final norm as the format has it.

    \b
    Examples:
      hsparity export captures/sglang --boundaries 2,30,58 --to speculators-v2 -o data
      hsparity export captures/hf --layers eagle3 --to specforge -o data
    """
    from ..capture import exporting, exportplan, foreign
    from ..capture.sourced import SourceDataset
    from .output import tell
    from .progress import Progress

    writer = _writer(to)
    path = Path(capture)
    if not path.exists():
        raise HsparityError("E202", f"no such path: {capture}")
    dataset = foreign.open_dataset(path, capture)
    try:
        plan = exportplan.plan(dataset, writer, layers, boundaries)
        with Progress("writing") as progress:
            made = exporting.export(
                plan.dataset, Path(output), writer, plan.slots, plan.layout, limit=limit, progress=progress
            )
    finally:
        if isinstance(dataset, SourceDataset):
            dataset.source.close()
    click.echo("\n".join(_page(dataset, plan, writer, made, output)))
    for line in _warnings(plan, made):
        tell(f"warning: {line}")


def _writer(name: str) -> Writer:
    """Raises E107."""
    from .. import registry

    writers = registry.writers()
    if name in writers:
        return writers[name]
    near = difflib.get_close_matches(name, writers, n=1, cutoff=0.4)
    notes = (f"formats: {', '.join(writers)}",)
    raise HsparityError(
        "E107", f"no format to write is called {name!r}", notes, f"did you mean {near[0]}?" if near else ""
    )


def _page(dataset: Dataset, plan: Plan, writer: Writer, made: Exported, output: str) -> list[str]:
    lines = [
        f"{output}: {writer.name}, {made.dtype}, {made.count} samples, {made.tokens} tokens, "
        f"{len(plan.slots) - 1} auxiliary states and the last one of {made.width}",
        f"auxiliary  {plan.aux}",
        f"last       {plan.last}",
        f"loss mask  {_mask(made)}",
    ]
    lines += _draft(dataset, plan, writer)
    return [*lines, f"next  hsparity inspect {shlex.quote(output)}"]


def _mask(made: Exported) -> str:
    words = {
        "file": "as the files have it",
        "decoded": "0 on the prompt, 1 on the decoded tokens",
        "everywhere": "1 on every token: nothing was decoded, and a capture holds no mask",
    }
    if len(made.masks) == 1:
        return words[next(iter(made.masks))]
    return "; ".join(f"{words[kind]} ({count} samples)" for kind, count in made.masks.items())


def _draft(dataset: Dataset, plan: Plan, writer: Writer) -> list[str]:
    """What to write for these boundaries in the config of a draft that is trained on the dataset."""
    from ..capture.sourced import SourceDataset
    from ..conventions import draft_config

    layout = plan.layout
    if not layout.boundaries or not layout.num_layers:
        return [
            "draft      which boundaries these are is not known, so neither are the ids: hsparity compare finds them"
        ]
    architecture = dataset.source.manifest.architecture if isinstance(dataset, SourceDataset) else ""
    trainers = {
        "speculators-v1": "speculators 0.4.0",
        "speculators-v2": "speculators 0.9.0",
        "specforge": "specforge",
    }
    found = draft_config(
        layout.boundaries, layout.num_layers, (), architecture, trainers.get(writer.name, "")
    )
    width = max(map(len, found))
    return ["in the config of a draft trained on it", *(f"  {k:<{width}}  {v}" for k, v in found.items())]


def _warnings(plan: Plan, made: Exported) -> list[str]:
    lines = list(plan.doubts)
    if made.skipped:
        shown = "; ".join(each.text for each in made.skipped[:5])
        lines.append(f"{len(made.skipped)} samples left out: {shown}")
    return lines


COMMAND = export
