"""python -m hsprobe capture|measure|stage|check|convert: what runs under an engine's interpreter."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import traceback
from pathlib import Path

from .protocol import ProbeError

PROBE_FAILED = 3


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when it worked, 3 when it ended in a ProbeError."""
    parser = argparse.ArgumentParser(
        prog="python -m hsprobe", description="Capture hidden states in an engine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("capture", help="run an engine and write a capture folder")
    command.add_argument("--spec", type=Path, required=True, help="a capture spec, JSON")
    command.add_argument("--out", type=Path, required=True, help="the capture folder; resumed when it exists")
    command = commands.add_parser("measure", help="run an engine with a draft and write what it accepted")
    command.add_argument("--spec", type=Path, required=True, help="a capture spec with a draft, JSON")
    command.add_argument("--out", type=Path, required=True, help="a working folder")
    command = commands.add_parser(
        "stage", help="copy the probe and its entry points into a PYTHONPATH folder"
    )
    command.add_argument("folder", type=Path)
    command = commands.add_parser("check", help="verify a capture's hashes and read its self-check")
    command.add_argument("folder", type=Path)
    command = commands.add_parser(
        "convert", help="keep what is data of pickle files that you trust; this runs the code in them"
    )
    command.add_argument(
        "source", type=Path, metavar="SRC", help="a file, or a folder of .pt, .ckpt, .ckpt.gz"
    )
    command.add_argument("target", type=Path, metavar="DST", help="is never overwritten")
    options = parser.parse_args(arguments)
    if options.command == "stage":
        from . import stage

        _say(str(stage.stage(options.folder)))
        _say(stage.digest())
        return 0
    if options.command == "check":
        return _check(options.folder)
    if options.command == "convert":
        return _convert(options.source, options.target)
    return _drive(options.command, options.spec, options.out)


def _drive(command: str, spec_path: Path, out: Path) -> int:
    from .drive import capture
    from .measure import measure
    from .schema import CaptureSpec

    # Engines print on stdout from native code too; the events alone keep it, everything else goes to stderr.
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def emit(event: dict[str, object]) -> None:
        events.write(json.dumps(event) + "\n")

    (out / "probe.error").unlink(missing_ok=True)
    try:
        try:
            spec = CaptureSpec.from_json(spec_path.read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ProbeError("E105", f"{spec_path} is not a capture spec: {error}") from error
        (measure if command == "measure" else capture)(spec, out, emit)
    except ProbeError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        return _fail(error, out)
    return 0


def _check(folder: Path) -> int:
    from .verify import verify

    try:
        for line in verify(folder):
            _say(line)
    except ProbeError as error:
        return _fail(error, None)
    return 0


def _convert(source: Path, target: Path) -> int:
    from .convert import convert

    try:
        failed = convert(source, target, _warn)
    except ProbeError as error:
        return _fail(error, None)
    if failed:
        return PROBE_FAILED
    _say(str(target))
    return 0


def _fail(error: ProbeError, out: Path | None) -> int:
    sys.stderr.write(f"{error.code}: {error.message}\n" + (f"help: {error.help}\n" if error.help else ""))
    if out is not None and out.is_dir():
        record = json.dumps({"code": error.code, "message": error.message, "help": error.help})
        if error.code == "E205":
            shutil.rmtree(out / "spool", ignore_errors=True)  # makes the room that the record needs
        try:
            (out / "probe.error").write_text(record)
        except OSError as refused:  # a read-only disk, or still full: stderr has said it
            sys.stderr.write(f"probe.error could not be written: {refused}\n")
    return PROBE_FAILED


def _warn(line: str) -> None:
    sys.stderr.write(line + "\n")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
