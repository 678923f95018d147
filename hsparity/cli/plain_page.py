"""The frame of a command's plain page: the verdict, labelled lines, text wrapped to the width."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..report.base import Options

STYLES = {"parity": "green", "diverged": "red", "inconclusive": "yellow"}
LABEL = 10


def framed(word: str, lines: Sequence[str], style: str, options: Options) -> str:
    """The lines as one text, with the verdict `word` that begins one of them in colour `style`, and in ASCII where the
    encoding asks for it. Nothing in a line can steer a terminal."""
    from ..report.spelling import clean, to_ascii

    shown = [clean(line) if options.unicode else to_ascii(clean(line)) for line in lines]
    if options.color:
        at = next(i for i, line in enumerate(shown) if line.startswith(word))
        shown[at] = click.style(word, fg=style) + shown[at].removeprefix(word)
    return "\n".join(shown)


def entry(label: str, text: str, options: Options) -> list[str]:
    """A label and what belongs to it, wrapped behind it."""
    return wrapped(f"{label:<{LABEL}}{text}", options.width, " " * LABEL)


def wrapped(text: str, width: int, rest: str) -> list[str]:
    """Lines of at most `width` columns (40 at least), those after the first behind `rest`, or half of the width of it."""
    from ..report.spelling import clean

    return textwrap.wrap(
        clean(text),
        max(width, 40),
        subsequent_indent=rest[: max(width, 40) // 2],
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def as_page(title: str, render: Callable[[Options], str], options: Options) -> str:
    """A plain page, as `render` makes it at 100 columns with everything shown, as one HTML file that asks nothing of the
    network."""
    from markupsafe import Markup

    from .. import __version__
    from ..report.spelling import clean
    from ..report.to_html import script, style_sheet, template

    text = render(replace(options, width=100, color=False, unicode=True, quiet=False, verbose=True))
    page = template("plain.html.j2").render(
        title=clean(title), text=text, version=__version__, css=Markup(style_sheet()), js=Markup(script())
    )
    return page + "\n"
