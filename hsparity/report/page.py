"""Lines of plain or styled text under construction, wrapped to a width."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.containers import Lines
from rich.text import Text

from . import spelling as sp
from .base import Options


class Page:
    """A report's lines; every method adds to them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.width = max(options.width, 20)
        self.lines: list[Text] = []

    def text(self) -> str:
        """Everything as one string; the words say the same without colour."""
        out = io.StringIO()
        console = Console(
            file=out,
            width=self.width,
            color_system="standard" if self.options.color else None,
            force_terminal=self.options.color,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )
        for line in self.lines:
            line.rstrip()
            shown = line if self.options.unicode else ascii_line(line)
            console.print(shown, soft_wrap=True)
        return out.getvalue().rstrip("\n")

    def gap(self) -> None:
        if self.lines and self.lines[-1].plain:
            self.lines.append(Text())

    def heading(self, words: str) -> None:
        self.gap()
        self.prose(words)

    def prose(self, words: str | Text, first: str = "", rest: str | None = None) -> None:
        """Words wrapped at the width, `first` before the first line and `rest` before the others."""
        rest = " " * cell_len(first) if rest is None else rest
        text = Text(words) if isinstance(words, str) else words
        if not self.options.unicode:
            text, first, rest = (
                ascii_line(text),
                sp.to_ascii(first),
                sp.to_ascii(rest),
            )  # escapes take room: before wrapping
        # A token of a model may be wider than the terminal; it folds, it is not cut.
        line = self._wrapped(text, first)[0] if text else Text()
        left = text[len(line) :]
        left = left[len(left) - len(left.plain.lstrip(" ")) :]
        line.rstrip()
        self.lines.append(Text(first) + line)
        for line in self._wrapped(left, rest) if left else ():
            line.rstrip()
            self.lines.append(Text(rest) + line)

    def _wrapped(self, text: Text, indent: str) -> Lines:
        room = max(self.width - cell_len(indent), 10)
        return text.wrap(Console(width=room, file=io.StringIO(), _environ={}), room, overflow="fold")

    def labelled(self, label: str, lines: Iterable[str], column: int = 10) -> None:
        for i, line in enumerate(lines):
            self.prose(line, (label if i == 0 else "").ljust(column))

    def command(self, command: str, indent: str) -> None:
        """A command over several lines, each but the last ending in a backslash, so that it pastes."""
        line = indent
        for word in (command if self.options.unicode else sp.to_ascii(command)).split(" "):
            joined = f"{line} {word}" if line.strip() else f"{indent}{word}"
            if cell_len(joined) > self.width - 2 and line.strip():
                self.lines.append(Text(f"{line} \\"))
                joined = f"{indent}  {word}"
            line = joined
        self.lines.append(Text(line))


def pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def ascii_line(line: Text) -> Text:
    """The line in ASCII, its styles kept."""
    out = Text()
    for part in line.divide(sorted({o for s in line.spans for o in (s.start, s.end)})):
        out.append(sp.to_ascii(part.plain), style=part.spans[0].style if part.spans else "")
    return out
