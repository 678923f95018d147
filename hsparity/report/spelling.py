"""Numbers and foreign text as every report spells them."""

from __future__ import annotations

import json
import math
import re
import unicodedata

# Foreign text may hold terminal escapes, and bidirectional controls that reorder what stands after them.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LONGEST, _LONGEST_TOKEN = 4000, 200  # characters of foreign text that are shown
_JOINERS = frozenset("\u200c\u200d")  # scripts and emoji sequences need these
_BEYOND_ASCII = re.compile("[^\\x00-\\x7e]")
_ASCII = str.maketrans(
    {
        "×": "x",
        "–": "-",
        "─": "-",
        "…": "...",
        "±": "+-",
        "√": "sqrt ",
        "≠": "!=",
        "→": "->",
        "≥": ">=",
        "·": ".",
    }
)


def error(value: float) -> str:
    """An error with two significant figures: 4.6e-01. Zero is 0, what was not measured is -."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "inf"
    return "0" if value == 0 else f"{value:.1e}"


def ratio(value: float) -> str:
    """A ratio with two significant figures: 0.94, 1.2, 93, 930, 1.2e+04."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "inf"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(f"{value:.1e}"))))
    if magnitude >= 4:
        return f"{value:.1e}"
    if magnitude >= 1:
        return str(round(value, 1 - magnitude)).split(".", maxsplit=1)[0]
    return f"{value:.{1 - magnitude}f}" if magnitude >= -2 else f"{value:.1e}"


def cosine(value: float) -> str:
    """Four decimals, six where four would read 1.0000."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.6f}" if 0 < 1 - value < 5e-5 else f"{value:.4f}"


def percent(share: float | None) -> str:
    """99.5%. Never 100.0% for less than all, never 0.0% for more than none; - where nothing was measured."""
    if share is None or not math.isfinite(share):
        return "-"
    text = f"{100 * share:.1f}%"
    if text == "100.0%" and share < 1:
        return ">99.9%"
    return "<0.1%" if text == "0.0%" and share > 0 else text


def count(number: int, noun: str, plural: str = "") -> str:
    """1 prompt, 3 prompts."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def numbers(values: tuple[int, ...]) -> str:
    """2,30,58; runs of three or more as 0-61."""
    parts: list[str] = []
    start = 0
    for i in range(1, len(values) + 1):
        if i < len(values) and values[i] == values[i - 1] + 1:
            continue
        run = values[start:i]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(v) for v in run]
        start = i
    return ",".join(parts)


def clean(text: str, longest: int = _LONGEST) -> str:
    """Foreign text with every character that could steer a terminal or reorder a line spelled out, cut with a mark where it
    goes on for more than `longest` characters."""
    if len(text) > longest:
        text = f"{text[:longest]}… ({len(text):,} characters)"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(ch) for ch in text)


def quoted(text: str) -> str:
    """A token's text in double quotes."""
    return '"' + clean(text, _LONGEST_TOKEN).replace('"', '\\"') + '"'


def json_text(text: str) -> str:
    """A JSON document that says the same without such characters: within its strings they are escapes."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _BEYOND_ASCII.sub(lambda m: m[0] if _visible(m[0]) == m[0] else json.dumps(m[0])[1:-1], text)


def to_ascii(text: str) -> str:
    """The same line for an encoding without these characters."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def slug(name: str) -> str:
    """A name as an HTML id."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name)


def _visible(ch: str) -> str:
    if ch in _JOINERS or unicodedata.category(ch) not in _UNSAFE_CATEGORIES:
        return ch
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(ch) or (
        f"\\x{ord(ch):02x}"
        if ord(ch) < 256
        else f"\\u{ord(ch):04x}"
        if ord(ch) < 65536
        else f"\\U{ord(ch):08x}"
    )
