"""hsparity demo: the reports on real captures, recorded or made now."""

from __future__ import annotations

from pathlib import Path

import click

from .grouped import GroupedCommand, color_option, grouped_option
from .output import console_options, open_outputs, write_reports

WHAT, OUTPUT = "What to show", "Output"


@click.command(cls=GroupedCommand)
@grouped_option(
    WHAT,
    "--live",
    is_flag=True,
    help="Capture with the real engines now, about two minutes on a CPU. Installs vLLM and SGLang where "
    "they are missing (15 GB).",
)
@grouped_option(
    OUTPUT,
    "-o",
    "--output",
    "folder",
    default="hsparity-demo",
    metavar="DIR",
    help="Folder for the reports and the captures.  [default: hsparity-demo]",
)
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Show every layer, and the engines' own logs.")
@color_option
def demo(live: bool, folder: str, verbose: bool, color: str) -> int:
    """Show the reports on real captures; no engine needed.

    Compares vLLM with SGLang on a tiny DeepSeek-V3, shows what one draft config means to each of
    them, and audits a dataset of hidden states against a server. The captures were recorded from
    the engines; --live makes them anew. They are left in DIR/captures, to try hsparity on.

    Exits 0 whatever the reports find.
    """
    from ..demo import live as stage
    from ..demo import show, trained
    from ..demo.plan import SCENES
    from .audit_page import render

    home = Path(folder)
    names = {
        scene: {form: str(home / f"{scene.report}.{form}") for form in ("html", "json")} for scene in SCENES
    }
    for files in names.values():
        open_outputs(**files)
    if live:
        stage.capture_all(home, verbose=verbose)
    else:
        show.unpack(home)
    options = console_options(color, verbose=verbose)
    for scene, files in names.items():
        click.echo(f"{'' if scene is SCENES[0] else chr(10)}# {scene.question}\n")
        write_reports(show.compare_scene(scene, home), files, options)
    click.echo(f"\n# {trained.QUESTION}\n")
    trained.make(home)
    click.echo(render(trained.audit(home), options), color=options.color)
    return 0


COMMAND = demo
