"""Where results go: stdout for the one result, files for the reports, opened before any work is done."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import HsparityError

if TYPE_CHECKING:
    from ..model import Comparison
    from ..report.base import Options


def open_outputs(**files: str | None) -> dict[str, str]:
    """The reports asked for, by reporter name; every path is tried for writing now.

    Raises E106 for a path that cannot be written.
    """
    wanted = {name: path for name, path in files.items() if path}
    for path in wanted.values():
        if path == "-":
            continue
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            existed = target.exists()
            with target.open("a"):
                pass
            if not existed:
                target.unlink()
        except OSError as error:
            raise HsparityError(
                "E106",
                f"cannot write {path}",
                (f"{type(error).__name__}: {error.strerror}",),
                "name a file in a folder you may write to",
            ) from error
    return wanted


def console_options(color: str, *, quiet: bool = False, verbose: bool = False) -> Options:
    """How to render for the terminal at hand. NO_COLOR wins over auto; a pipe gets 80 columns and no colour."""
    from ..report.base import Options

    terminal = sys.stdout.isatty()
    colored = color == "always" or (color == "auto" and terminal and not os.environ.get("NO_COLOR"))
    width = shutil.get_terminal_size((80, 24)).columns if terminal or os.environ.get("COLUMNS") else 80
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return Options(width=width, color=colored, unicode=unicode, verbose=verbose, quiet=quiet)


def write_reports(result: Comparison, files: dict[str, str], options: Options) -> None:
    """Write every report asked for; the terminal report goes to stdout unless a file took it with '-'."""
    from ..report import reporters

    available = reporters()
    for name, path in files.items():
        text = available[name].render(result, options)
        if path == "-":
            click.echo(text, nl=not text.endswith("\n"))
        else:
            Path(path).write_text(text, encoding="utf-8")
    if "-" not in files.values():
        click.echo(available["terminal"].render(result, options), color=options.color)
    for name, path in files.items():
        if path != "-":
            click.echo(f"{name} report: {path}", err=True)
