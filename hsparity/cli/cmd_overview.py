"""hsparity overview: every result below a folder on one page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .grouped import GroupedCommand, color_option, grouped_option
from .output import console_options, open_outputs, tell_reports, write_texts
from .progress import Progress
from .saved import read

if TYPE_CHECKING:
    from ..overview.result import Overview
    from ..report.base import Options

REPORTS, OUTPUT = "Reports", "Output"


@click.command(cls=GroupedCommand)
@click.argument("folder")
@grouped_option(
    REPORTS, "--html", metavar="FILE", help="Write a one-file HTML page; its links are relative to it."
)
@grouped_option(REPORTS, "--json", "json_", metavar="FILE", help="Write every line; '-' for standard output.")
@grouped_option(REPORTS, "--markdown", metavar="FILE", help="Write a table to paste into an issue.")
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print how many stand how, and no more.")
@grouped_option(
    OUTPUT, "-v", "--verbose", is_flag=True, help="Show every result and every file that is none."
)
@color_option
def overview(**given: Any) -> int:
    """Lay many results side by side, worst first.

    FOLDER holds results anywhere below it: files that hsparity compare --json or hsparity drafter
    --json wrote. What varies among them, engines, releases, settings, models, makes rows and
    columns; each cell is a link to the page of the same name beside the result, or to the result.
    Needs neither captures nor torch. Exits 0 whatever the verdicts are, 2 where nothing could be read.

    \b
    Examples:
      hsparity overview results
      hsparity overview results --html results/overview.html
    """
    folder, outputs = (
        Path(given["folder"]),
        open_outputs(html=given["html"], json=given["json_"], markdown=given["markdown"]),
    )
    from ..overview.gathering import gather

    # What is about to be written is no result, and must not count as one on the second run.
    leave = frozenset(os.path.realpath(path) for path in outputs.values() if path != "-")
    with Progress("reading results") as progress:
        found = gather(folder, read, leave, progress)
    options = console_options(given["color"], quiet=given["quiet"], verbose=given["verbose"])
    write_texts(outputs, lambda name: _text(found, name, outputs.get(name, "-"), options), options)
    tell_reports(outputs)
    return 0


def _text(found: Overview, name: str, path: str, options: Options) -> str:
    if name == "json":
        return found.to_json(indent=1) + "\n"
    if name == "html":
        from ..overview.page import render as as_html

        return as_html(found, path)
    if name == "markdown":
        from ..overview.issue import render as as_markdown

        return as_markdown(found, path)
    from ..overview.terminal import render

    return render(found, options)


COMMAND = overview
