"""Reads README.md's command blocks and runs them as a reader would: in order, in one folder.

A block is ```console (lines after `$ ` are commands, the rest what they print; `…` on a line of its own is
anything) or ```sh (every line is a command). `# exits 1` behind a command says its exit code. A comment
before the block says more: <!-- engines --> needs real engines, <!-- file: NAME --> is a file's content.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "make",
    "pip",
    "git",
    "docker",
    "scp",
    "rsync",
    "cd",
}  # covered by CI, or not for this machine to do
_BLOCK = re.compile(r"(?:<!--\s*(?P<note>[^>]*?)\s*-->\n)?```(?P<kind>[\w-]*)\n(?P<body>.*?)```", re.DOTALL)


@dataclass
class Command:
    line: str
    exits: int = 0
    prints: list[str] = field(default_factory=list)

    @property
    def program(self) -> str:
        return shlex.split(self.line)[0]


@dataclass(frozen=True)
class Block:
    kind: str
    engines: bool
    file: str  # "" unless the block is a file's content
    body: str

    def commands(self) -> list[Command]:
        found: list[Command] = []
        for line in self.body.replace("\\\n", " ").splitlines():
            prompt = line.startswith("$ ")
            if prompt or (self.kind == "sh" and line.strip() and not line.startswith("#")):
                text, _, remark = line.removeprefix("$ ").partition("  #")
                said = re.fullmatch(r"\s*exits (\d+)", remark)
                found.append(Command(" ".join(text.split()), int(said[1]) if said else 0))
            elif self.kind == "console" and found:
                found[-1].prints.append(line.rstrip())
        return found


def blocks(text: str) -> list[Block]:
    """Every command block and file block, in order."""
    found = []
    for match in _BLOCK.finditer(text):
        note = match["note"] or ""
        file = note.removeprefix("file:").strip() if note.startswith("file:") else ""
        if file or match["kind"] in ("console", "sh"):
            found.append(Block(match["kind"], note == "engines", file, match["body"]))
    return found


def run(command: Command, folder: Path) -> None:
    """Run a command line of hsparity or python, and hold its exit code and output to what the README says."""
    words = shlex.split(command.line)
    start = {"hsparity": [sys.executable, "-m", "hsparity"], "python": [sys.executable]}[words[0]]
    env = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*start, *words[1:]], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == command.exits, f"$ {command.line}\n{done.stdout}\n{done.stderr}"
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    at = 0
    for chunk in re.split(r"^…$", "\n".join(command.prints).strip(), flags=re.MULTILINE):
        wanted = chunk.strip("\n")
        place = printed.find(wanted, at)
        assert place >= 0, f"$ {command.line}\nREADME.md says\n{wanted}\nit printed\n{printed}"
        at = place + len(wanted)


def follow(text: str, folder: Path, engines: bool) -> int:
    """Run every block in order, those that need engines or the others, and return how many commands ran."""
    ran = 0
    for block in blocks(text):
        if block.file:
            (folder / block.file).write_text(block.body)
            continue
        for command in block.commands():
            if command.program not in ELSEWHERE and block.engines == engines:
                run(command, folder)
                ran += 1
    return ran
