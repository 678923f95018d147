"""hsparity explain: the longer text behind a code."""

from __future__ import annotations

import difflib
import textwrap
from typing import TYPE_CHECKING

import click

from ..errors import HsparityError

if TYPE_CHECKING:
    from ..explain import Entry

WIDTH = 80


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> int:
    """Explain a finding, an error or an exit code.

    CODE is what a report or an error printed (HS101, E203), its name (layer-offset), or an
    exit code ("exit 3" or 3). Without it, all codes are listed.
    """
    from ..explain import entries

    known = entries()
    if code is None:
        width = max(len(c) for c in known)
        for entry in known.values():
            click.echo(f"{entry.code:<{width}}  {entry.name}")
        return 0
    click.echo(render(find(code, known)))
    return 0


def find(code: str, known: dict[str, Entry]) -> Entry:
    """The entry called `code`, by code or name, in any case. Raises E107 with near matches."""
    wanted = " ".join(code.split()).lower()
    names = {name.lower(): entry for entry in known.values() for name in (entry.name, entry.code)}
    names |= {entry.code[5:]: entry for entry in known.values() if entry.code.startswith("exit ")}
    if wanted in names:
        return names[wanted]
    near = difflib.get_close_matches(wanted, names, 3, 0.6)
    words = " or ".join(dict.fromkeys(f"{names[n].code} ({names[n].name})" for n in near))
    hint = f"did you mean {words}?" if near else "hsparity explain lists every code"
    raise HsparityError("E107", f"nothing is called {code!r}", help=hint)


def render(entry: Entry) -> str:
    """Plain text at 80 columns: headings on lines of their own, lists and examples kept as they are."""
    out, paragraph = [f"{entry.code} {entry.name}", ""], list[str]()
    for line in [*entry.text.splitlines(), ""]:
        if line.strip() and not line.startswith("#"):
            paragraph.append(line)
            continue
        out += [f"  {part}" for part in _folded(paragraph)]
        paragraph = []
        if out[-1]:
            out.append("")
        if line.startswith("#"):
            out.append(line.lstrip("# "))
    return "\n".join(line.rstrip() for line in out).rstrip()


def _folded(paragraph: list[str]) -> list[str]:
    if any(line.startswith(("    ", "- ", "* ", "|", "1. ")) for line in paragraph):
        return paragraph
    return textwrap.wrap(" ".join(paragraph), WIDTH - 2, break_on_hyphens=False)


COMMAND = explain
