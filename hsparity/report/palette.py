"""Colours of the page and of its maps, light and dark.

Ink is signal: what lies within the floor has the page's own colour.
"""

from __future__ import annotations

from dataclasses import dataclass

# Cividis (Nunez, Anderton and Renslow 2018) at 17 points: it looks close to the same to people with and
# without red-green deficiency.
_CIVIDIS = [
    "00224e",
    "0a2d61",
    "17386f",
    "2f436d",
    "424e6c",
    "51596d",
    "60646f",
    "6e7073",
    "7d7c76",
    "8c8778",
    "9b9475",
    "aba172",
    "bbad6c",
    "ccba63",
    "ddc958",
    "eed848",
    "fee838",
]
WITHIN, UNKNOWN, FIRST = 0, 1, 2  # palette indices; values run from FIRST to 255
LEVELS = 256 - FIRST

Rgb = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Theme:
    """CSS colours by name, and whether the map's ramp runs from its dark end."""

    name: str
    colors: dict[str, str]
    dark_first: bool

    def css(self) -> str:
        return ";".join(f"--{k}:{v}" for k, v in self.colors.items())

    def map_palette(self) -> list[Rgb]:
        """256 colours: within the floor, not compared, then from just beyond the floor to far beyond."""
        ramp = cividis(LEVELS)
        if not self.dark_first:
            ramp.reverse()
        return [rgb(self.colors["paper"]), rgb(self.colors["void"]), *ramp]


LIGHT = Theme(
    "light",
    {
        "paper": "#fdfdfb",
        "ink": "#1c1d1f",
        "muted": "#5a5e65",
        "rule": "#dad9d2",
        "accent": "#0b5fa5",
        "bad": "#a4300f",
        "good": "#246340",
        "warn": "#7a5200",
        "band": "#e4e0d3",
        "code": "#f3f2ec",
        "void": "#e9e6df",
    },
    dark_first=False,
)
DARK = Theme(
    "dark",
    {
        "paper": "#15171a",
        "ink": "#e8e6e1",
        "muted": "#a0a5ad",
        "rule": "#32363b",
        "accent": "#7db8ee",
        "bad": "#ff9677",
        "good": "#83cba3",
        "warn": "#e3bb63",
        "band": "#2c3034",
        "code": "#1f2226",
        "void": "#2a2d31",
    },
    dark_first=True,
)
PRINT = Theme(
    "print",
    {
        **LIGHT.colors,
        "paper": "#ffffff",
        "ink": "#000000",
        "muted": "#444444",
        "rule": "#bbbbbb",
        "accent": "#000000",
        "bad": "#7a2208",
        "good": "#1d4d32",
        "warn": "#5c3d00",
        "code": "#f4f4f4",
    },
    dark_first=False,
)
THEMES = (LIGHT, DARK)


def rgb(color: str) -> Rgb:
    """(r, g, b) of "#rrggbb"."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def cividis(steps: int) -> list[Rgb]:
    """`steps` colours from dark blue to yellow."""
    points = [rgb("#" + p) for p in _CIVIDIS]
    out = []
    for i in range(steps):
        at = i * (len(points) - 1) / (steps - 1)
        low = min(int(at), len(points) - 2)
        part = at - low
        a, b = points[low], points[low + 1]
        out.append(
            (
                round(a[0] + (b[0] - a[0]) * part),
                round(a[1] + (b[1] - a[1]) * part),
                round(a[2] + (b[2] - a[2]) * part),
            )
        )
    return out


def contrast(first: str, second: str) -> float:
    """WCAG contrast ratio of two colours, 1 to 21."""
    high, low = sorted((_luminance(rgb(first)), _luminance(rgb(second))), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(color: Rgb) -> float:
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in color))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
