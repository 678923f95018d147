"""Where results go: stdout for the one result, files for the reports, opened before any work is done."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from ..errors import ExitCode, HsparityError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..gate import GateResult
    from ..model import Comparison
    from ..report.base import Options

# Of a verdict.
EXIT_CODES = {"parity": ExitCode.PARITY, "diverged": ExitCode.DIVERGED, "inconclusive": ExitCode.INCONCLUSIVE}


def open_outputs(**files: str | None) -> dict[str, str]:
    """The reports asked for, by reporter name; every path is tried for writing now.

    Raises E103 for a path given twice and E106 for one that cannot be written.
    """
    wanted = {name: path for name, path in files.items() if path}
    taken: dict[str, str] = {}
    for name, path in wanted.items():
        place = path if path == "-" else os.path.realpath(path)
        if place in taken:
            notes = (f"--{taken[place]} {wanted[taken[place]]}", f"--{name} {path}")
            raise HsparityError("E103", "two reports cannot share one file", notes, "name two files")
        taken[place] = name
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
            raise unwritable(path, error) from error
    return wanted


def write_file(path: str, text: str) -> None:
    """Write a report, whole or not at all: what was there stays until the new one is complete. Raises E106."""
    # Through a link to its target; a device or a pipe takes the text as it comes.
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".hsparity-{secrets.token_hex(8)}")
    # A path need not be text: its odd bytes are shown, and are valid escapes in JSON.
    data = text.encode("utf-8", "backslashreplace")
    try:
        if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
            target.write_bytes(data)
            return
        file = draft.open("xb")  # a new one, or an error: never a file or a link that was there
        try:
            with file:
                file.write(data)
            if target.exists():
                shutil.copymode(target, draft)
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: str, error: OSError) -> HsparityError:
    """E106 for a file or a stream that took no (more) bytes."""
    return HsparityError(
        "E106",
        f"cannot write {path}",
        (f"{type(error).__name__}: {error.strerror}",),
        "name a file in a folder you may write to, on a disk with room",
    )


def console_options(
    color: str, *, quiet: bool = False, verbose: bool = False, gate: GateResult | None = None
) -> Options:
    """How to render for the terminal at hand. NO_COLOR wins over auto; a pipe gets 80 columns and no colour."""
    from ..report.base import Options

    terminal = sys.stdout.isatty()
    colored = color == "always" or (color == "auto" and terminal and not os.environ.get("NO_COLOR"))
    width = shutil.get_terminal_size((80, 24)).columns if terminal or os.environ.get("COLUMNS") else 80
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return Options(width=width, color=colored, unicode=unicode, verbose=verbose, quiet=quiet, gate=gate)


def write_reports(result: Comparison, files: dict[str, str], options: Options) -> None:
    """Write every report asked for; the terminal report goes to stdout unless a file took it with '-'.

    Raises E106 when a file takes no more.
    """
    from ..report import reporters

    available = reporters()
    write_texts(files, lambda name: available[name].render(result, options), options)
    tell_reports(files)


def write_texts(files: dict[str, str], text_of: Callable[[str], str], options: Options) -> None:
    """Write the text of each name to its path; that of "terminal" goes to stdout unless a file took it with '-'. Raises E106."""
    from ..report.spelling import json_text

    for name, path in files.items():
        text = json_text(text_of(name)) if name == "json" else text_of(name)
        if path == "-":
            click.echo(text, nl=not text.endswith("\n"))
        else:
            write_file(path, text)
    if "-" not in files.values():
        click.echo(text_of("terminal"), color=options.color)


def echo_json(text: str) -> None:
    """A JSON document on stdout, which may be a terminal: what could steer one is escaped."""
    from ..report.spelling import json_text

    click.echo(json_text(text))


def tell_reports(files: dict[str, str]) -> None:
    """Say where the reports lie."""
    for name, path in files.items():
        if path != "-":
            tell(f"{name} report: {path}")


def tell(text: str) -> None:
    """Say it on stderr, if that takes it: a full or closed one must not change the exit code. A name in it that could
    steer the terminal is spelled out."""
    from ..report.spelling import clean

    try:
        click.echo("\n".join(map(clean, text.split("\n"))), err=True)
    except OSError:
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Point a stream at nothing, so that the interpreter's own flush at exit stays quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
