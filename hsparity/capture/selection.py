"""From `--layers 2,30,58` or `--boundaries 3,31,59` to boundaries: layer N's output is boundary N+1."""

from __future__ import annotations

import re

from ..errors import HsparityError

_RANGE = re.compile(r"(\d+)-(\d+)(?::(\d+))?")


def select(layers: str | None, boundaries: str | None, num_layers: int) -> tuple[int, ...]:
    """Boundaries in ascending order, each once, in a model of `num_layers` layers; all when neither is given.

    Takes 2,30,58, ranges 0-60:5, all, eagle3 (the engines' default triple) and eagle3-speculators (that of
    speculators 0.3 and 0.4). Raises E102 for anything else or outside the model, E103 when both are given.
    """
    if layers and boundaries:
        raise HsparityError(
            "E103",
            "--layers and --boundaries exclude each other",
            (f"--layers {layers}", f"--boundaries {boundaries}"),
            "layer N is boundary N+1; give one of the two",
        )
    option, text = ("--layers", layers) if layers else ("--boundaries", boundaries or "all")
    chosen: set[int] = set()
    for part in (piece.strip().lower() for piece in text.split(",")):
        chosen.update(_part(part, option, text, num_layers))
    return tuple(sorted(chosen))


def _part(part: str, option: str, text: str, num_layers: int) -> list[int]:
    shift, last = (1, num_layers - 1) if option == "--layers" else (0, num_layers)
    named = {
        "all": range(shift, num_layers + 1),
        "eagle3": (2, num_layers // 2, num_layers - 3),
        "eagle3-speculators": (3, num_layers // 2 + 1, num_layers - 2),
    }
    if part in named:
        found = list(named[part])
        if min(found) < 1 and part != "all":
            raise _bad(option, text, f"{part} needs at least 4 layers, this model has {num_layers}")
        return found
    if match := _RANGE.fullmatch(part):
        start, stop, step = number(match[1]), number(match[2]), number(match[3] or "1")
        numbers = range(start, stop + 1, step) if step else range(0)
        if not numbers:
            raise _bad(option, text, f"{short(part)} is empty")
    elif part.isdecimal():
        numbers = range(number(part), number(part) + 1)
    else:
        raise _bad(option, text, f"cannot read {short(part)!r}")
    if numbers[-1] > last:  # asked of the range: it may be longer than memory
        raise _bad(option, text, f"{short(part)} lies outside this model: 0 to {last}")
    return [n + shift for n in numbers]


def number(digits: str) -> int:
    """Decimal digits as an integer; of more than 18, one larger than anything that is counted here."""
    return int(digits) if len(digits) <= 18 else 10**18


def short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bad(option: str, text: str, why: str) -> HsparityError:
    return HsparityError(
        "E102",
        f"bad {option} {short(text)!r}: {why}",
        help="numbers 2,30,58, ranges 0-60:5, all, eagle3 or eagle3-speculators, joined by commas",
    )
