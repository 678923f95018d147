"""The pages in docs/findings: one per finding from the docstring of its cause or check, and an index.

`python -m hsparity.explain.pages [FOLDER]` writes them, as `make docs` does. Pages that are not of a finding are
written by hand and left alone.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from ..registry import findings

FOLDER = "docs/findings"
INDEX = "README.md"
_INTRODUCTION = """\
# Findings

What `hsparity compare` can say about a pair of captures and `hsparity drafter check` about a draft head, one page each.
`hsparity explain CODE` (or its name) prints the same text. Codes and names are stable: the JSON carries both.

HS1xx rows, layers and slots. HS2xx which tensor was captured. HS3xx numbers. HS4xx what the sides ran. HS5xx why numbers
differ: hypotheses with evidence, see [the decision tree](../diagnose.md). HS6xx what a draft head's files, an engine and a
target say of each other. HS9xx nothing is wrong.
"""


def pages() -> dict[str, str]:
    """Every generated page by file name: the index, and "HS101-layer-offset.md" and so on."""
    made = {}
    rows = []
    for code, cause in findings().items():
        text = inspect.getdoc(type(cause)) or ""
        file = f"{code}-{cause.name}.md"
        made[file] = f"# {code} {cause.name}\n\n{_spaced(text)}\n\n[All findings]({INDEX})\n"
        rows.append(f"| [{code}]({file}) | {cause.name} | {first_sentence(text)} |")
    table = "\n".join(["| code | name | what it says |", "|---|---|---|", *rows])
    return {INDEX: f"{_INTRODUCTION}\n{table}\n\n{_beside()}", **made}


def first_sentence(text: str) -> str:
    """The first sentence below the first heading, on one line, without "A note: ", ready for a table."""
    body = text.split("\n", 1)[1] if text.startswith("#") else text
    paragraph = " ".join(body.split("\n\n")[0].split("\n## ")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0].removeprefix("A note: ")
    return (sentence[:1].upper() + sentence[1:]).replace("|", "\\|")


def write(folder: Path) -> list[Path]:
    """Write the pages, remove those of findings that are gone, and return what changed."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    changed = []
    for path in folder.glob("HS*.md"):
        if path.name not in wanted:
            path.unlink()
            changed.append(path)
    for name, text in wanted.items():
        path = folder / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
    return changed


def _spaced(text: str) -> str:
    """A blank line around every heading, as Markdown likes it."""
    return re.sub(r"\n*(^|\n)(## [^\n]+)\n+", r"\1\1\2\n\n", text).strip()


def _beside() -> str:
    return (
        "Written by hand: [look-alikes and what tells them apart](look-alikes.md), "
        "[names that were added, split or renamed](names.md).\n"
    )


if __name__ == "__main__":
    changed_pages = write(Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER))
    sys.stdout.writelines(f"{path}\n" for path in changed_pages)
