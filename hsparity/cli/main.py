"""The command group and the one place where an exception becomes an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from importlib import import_module
from io import TextIOWrapper
from pkgutil import iter_modules
from typing import NoReturn

import click

from .. import __version__
from ..errors import ExitCode, HsparityError
from . import __path__ as command_folder
from . import interrupts
from .output import drop, tell, unwritable

# What a newcomer needs first comes first; the rest follows in alphabetical order.
FIRST = ("compare", "capture", "demo", "engines", "doctor")


class Commands(click.Group):
    """Finds cmd_*.py beside this file; there is no second list."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = sorted(
            m.name.removeprefix("cmd_") for m in iter_modules(command_folder) if m.name.startswith("cmd_")
        )
        return [n for n in FIRST if n in names] + [n for n in names if n not in FIRST]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{__package__}.cmd_{cmd_name}").COMMAND
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hsparity")
def hsparity() -> None:
    """Find where and why the hidden states of two inference engines part.

    \b
    Start here:
      hsparity demo                                 recorded captures, no engine needed
      hsparity capture vllm --model M -o DIR        then sglang, then hf
      hsparity compare REF CAND --layers 2,30,58    one page: what differs, where, why
    """


def run() -> NoReturn:
    """Console entry point. Python and click both exit 1 on failures of their own, which would read as "diverged"."""
    interrupts.install()
    if sys.stderr is None:
        # Takes the closed descriptor's place, so that no file of ours does.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        error = HsparityError("E106", "standard output is closed", help="send it to /dev/null to drop it")
        tell(error.render())
        sys.exit(int(error.exit_code))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(invoke(sys.argv[1:]))


def invoke(args: list[str]) -> int:
    """Run one command line and return its exit code; messages go to stderr."""
    try:
        result = hsparity.main(args=args, prog_name="hsparity", standalone_mode=False)
        sys.stdout.flush()
        return int(result or 0)
    except HsparityError as error:
        tell(error.render())
        return int(error.exit_code)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except click.ClickException as error:
        _show_usage(error)
        return int(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        tell("interrupted")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        return _closed_pipe()
    except SystemExit as stop:
        # click answers a closed pipe with sys.exit(1) even in non-standalone mode.
        return _closed_pipe() if stop.code == 1 else int(stop.code or 0)
    except OSError as error:
        # Whatever writes files of its own reports a full disk itself.
        return _full(error) if error.errno == errno.ENOSPC else _bug()
    except Exception:
        return _bug()


def _bug() -> int:
    tell(
        f"{traceback.format_exc()}error[E900]: this is a bug in hsparity {__version__}, not a divergence\n"
        "  help: please report it with the command line, the lines above and what this writes:\n"
        "        hsparity doctor --bundle bug.zip"
    )
    return int(ExitCode.BUG)


def _full(error: OSError) -> int:
    shown = unwritable(error.filename or "standard output", error)
    drop(sys.stdout)
    tell(shown.render())
    return int(shown.exit_code)


def _show_usage(error: click.ClickException) -> None:
    """A mistyped command line in the same form as every other error."""
    context = getattr(error, "ctx", None)
    if context is not None and error.format_message() == context.get_help():
        tell(error.format_message())  # a group typed without a command
        return
    message = error.format_message().rstrip(".")
    shout = message[:2].isupper()  # PATHS, as an argument is called
    shown = HsparityError(
        "E100",
        message if shout else message[:1].lower() + message[1:],
        help=f"{context.command_path if context else 'hsparity'} --help",
    )
    tell(shown.render())


def _closed_pipe() -> int:
    drop(sys.stdout)
    return int(ExitCode.CLOSED_PIPE)
