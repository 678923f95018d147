"""The pages of docs/ that say what codes mean: one per finding and an index, look-alikes, errors, exit codes.

`python -m hsparity.explain.pages [FOLDER]` writes them, as `make docs` does. Other pages there are written by hand and
left alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from . import entries, groups
from .entry import Entry
from .look_alikes import page as look_alikes

FOLDER = "docs"
INDEX, LOOK_ALIKES, ERRORS, EXITS = (
    "findings/README.md",
    "findings/look-alikes.md",
    "errors.md",
    "exit-codes.md",
)
_INTRODUCTION = """\
# Findings

What `hsparity compare` can say about a pair of captures and `hsparity drafter check` about a draft head, one page each.
`hsparity explain CODE` (or its name) prints the same text. Codes and names are stable: the JSON carries both.

HS1xx rows, layers and slots. HS2xx which tensor was captured. HS3xx numbers. HS4xx what the sides ran. HS5xx why numbers
differ: hypotheses with evidence, see [the decision tree](../diagnose.md). HS6xx what a draft head's files, an engine and a
target say of each other. HS9xx nothing is wrong.
"""
_ERRORS = """\
# Errors

What a command could not do, and what to type. `hsparity explain CODE` (or its name) prints the same text. Codes and names
are stable. What they exit with: [exit codes](exit-codes.md). What a comparison finds is no error: [findings](findings/README.md).
"""
_EXITS = """\
# Exit codes

A script can tell a difference (1) from everything that kept hsparity from judging. `hsparity explain 3` prints a line of
this table. The errors that a code stands for: [errors](errors.md).
"""


def pages() -> dict[str, str]:
    """Every generated page by its path below docs/."""
    findings = [entry for code, entry in entries().items() if code.startswith("HS")]
    return {
        INDEX: _index(findings),
        LOOK_ALIKES: _named(look_alikes()),
        ERRORS: _errors(),
        EXITS: _exits(),
        **{f"findings/{_file(entry)}": _finding(entry) for entry in findings},
    }


def first_sentence(text: str) -> str:
    """The first sentence below the first heading, on one line, without "A note: ", ready for a table."""
    body = text.split("\n", 1)[1] if text.startswith("#") else text
    paragraph = " ".join(body.split("\n\n")[0].split("\n## ")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0].removeprefix("A note: ")
    return _cell(sentence[:1].upper() + sentence[1:])


def write(folder: Path) -> list[Path]:
    """Write the pages below `folder`, remove those of findings that are gone, and return what changed."""
    (folder / "findings").mkdir(parents=True, exist_ok=True)
    wanted = pages()
    changed = []
    for path in folder.glob("findings/HS*.md"):
        if path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
            changed.append(path)
    for name, text in wanted.items():
        path = folder / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
    return changed


def _index(findings: list[Entry]) -> str:
    rows = [f"| [{e.code}]({_file(e)}) | {e.name} | {first_sentence(e.text)} |" for e in findings]
    table = "\n".join(["| code | name | what it says |", "|---|---|---|", *rows])
    return (
        f"{_INTRODUCTION}\n{table}\n\n"
        "See also: [look-alikes and what tells them apart](look-alikes.md), [names that were added, split or "
        "renamed](names.md), [errors](../errors.md), [exit codes](../exit-codes.md).\n"
    )


def _finding(entry: Entry) -> str:
    text = _linked(_spaced(entry.text, "##"), entry.code, lambda other: _place(other, "", "../"))
    return f"# {entry.code} {entry.name}\n\n{text}\n\n[All findings](README.md)\n"


def _errors() -> str:
    parts = [_ERRORS]
    for heading, group in groups().items():
        if not group[0].code.startswith("E"):
            continue
        parts.append(f"\n## {heading.rstrip('.')}\n")
        for entry in sorted(group, key=lambda e: e.code):
            text = _linked(
                _spaced(entry.text, "####"), entry.code, lambda other: _place(other, "findings/", "")
            )
            parts.append(f"\n### {entry.code} {entry.name}\n\n{text}\n")
    return "".join(parts)


def _exits() -> str:
    rows = [
        f"| {e.code.removeprefix('exit ')} | {e.name} | {_cell(e.text)} |"
        for e in entries().values()
        if e.code.startswith("exit ")
    ]
    return "\n".join([_EXITS, "| code | name | what it says |", "|---:|---|---|", *rows]) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _file(entry: Entry) -> str:
    return f"{entry.code}-{entry.name}.md"


def _place(entry: Entry, findings: str, errors: str) -> str:
    """Where a code is explained, from a page that has the findings and the errors in these folders."""
    if entry.code.startswith("HS"):
        return findings + _file(entry)
    return f"{errors}{ERRORS if errors else ''}#{entry.code.lower()}-{entry.name}"


def _linked(text: str, own: str, place: Callable[[Entry], str]) -> str:
    """Every code in the prose as a link to its page, but for the page's own; examples are left alone."""
    known = entries()

    def link(match: re.Match[str]) -> str:
        code = match[0]
        return f"[{code}]({place(known[code])})" if code in known and code != own else code

    lines = [
        line if line.startswith("    ") else re.sub(r"(?<![`\[])\b(?:HS|E)\d{3}\b(?!`)", link, line)
        for line in text.split("\n")
    ]
    return "\n".join(lines)


def _named(text: str) -> str:
    """Every finding's name in backticks as a link to its page."""
    files = {e.name: _file(e) for e in entries().values() if e.code.startswith("HS")}
    return re.sub(r"`([a-z0-9-]+)`", lambda m: f"[{m[0]}]({files[m[1]]})" if m[1] in files else m[0], text)


def _spaced(text: str, level: str) -> str:
    """A blank line around every heading, as Markdown likes it, at the level that the page has room for."""
    return re.sub(r"\n*(^|\n)## ([^\n]+)\n+", rf"\1\1{level} \2\n\n", text).strip()


if __name__ == "__main__":
    changed_pages = write(Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER))
    sys.stdout.writelines(f"{path}\n" for path in changed_pages)
