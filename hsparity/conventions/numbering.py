"""How an id list becomes boundaries and back: the arithmetic that the rows of the table share.

Boundary r is the residual stream after r layers; L + 1 stands for the last one after the final norm.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What to write for some boundaries; `ids` None: nothing gives them, and `remark` says why."""

    ids: Ids | None
    remark: str = ""
    why: str = ""  # how the engine reads exactly this list
    said: str = ""  # the whole answer, where it is no list

    @property
    def text(self) -> str:
        """One line: "2,30,58", "0,2 (0 fails on DeepSeek)", "none: boundary 0 is out of reach"."""
        if self.said or self.ids is None:
            return self.said or f"none: {self.remark}"
        return ",".join(str(i) for i in self.ids) + (f" ({self.remark})" if self.remark else "")


@dataclass(frozen=True, slots=True)
class Numbering:
    """`read(ids, L)`: the boundaries that are handed over; None where they cannot be told. `write` is its inverse.

    L may be None: then no boundary is taken to be the last.
    """

    read: Callable[[Ids, int | None], Ids | None]
    write: Callable[[Ids, int | None], Written]


def shifted(by: int, lowest: int, last: str, *, zero: str = "", why: str = "") -> Numbering:
    """Id i is boundary i + by, from `lowest` on.

    `last`: "raw" (boundary L is handed over as it is), "normed" (after the final norm), "none" (out of reach),
    or a remark for a list that holds L. `zero`: a remark for a list that holds boundary 0.
    """

    def read(ids: Ids, num_layers: int | None) -> Ids:
        found = (i + by for i in ids)
        kept = tuple(r for r in found if r >= lowest and not (last == "none" and r == num_layers))
        if last == "normed" and num_layers is not None:
            return tuple(r + 1 if r == num_layers else r for r in kept)
        return kept

    def write(boundaries: Ids, num_layers: int | None) -> Written:
        ids = tuple(b - by for b in boundaries)
        ends = num_layers in boundaries
        if ends and last == "none":
            return Written(None, f"boundary {num_layers} is out of reach")
        if ends and last == "normed":
            return Written(None, f"boundary {num_layers} is handed over after the final norm")
        if 0 in boundaries and zero:
            return Written(ids, zero, why)
        if min(boundaries, default=lowest) < lowest:
            return Written(None, f"boundary {min(boundaries)} is out of reach")
        return Written(ids, last if ends and last != "raw" else "", why)

    return Numbering(read, write)


def fixed(*places: str) -> Numbering:
    """A list that nobody can change: "2", "L//2", "L-3"."""

    def read(ids: Ids, num_layers: int | None) -> Ids | None:
        return None if num_layers is None else tuple(int(concrete(p, num_layers)) for p in places)

    def write(boundaries: Ids, num_layers: int | None) -> Written:
        if num_layers is not None and tuple(boundaries) == read((), num_layers):
            return Written((), said="nothing: the fixed set is this one")
        return Written(None, f"no list is read; always boundaries {', '.join(places)}")

    return Numbering(read, write)


def opaque(reason: str) -> Numbering:
    """What is handed over is not a boundary, or nothing is."""
    return Numbering(lambda ids, num_layers: None, lambda boundaries, num_layers: Written(None, reason))


def _deepseek_read(ids: Ids, num_layers: int | None) -> Ids:
    found = tuple(i + 1 for i in ids) if ids[:1] == (1,) else ids
    return tuple(r for r in found if r != num_layers)


def _deepseek_write(boundaries: Ids, num_layers: int | None) -> Written:
    if num_layers in boundaries:
        return Written(None, f"boundary {num_layers} is out of reach")
    if 0 in boundaries:
        return Written(None, said="not tried with boundary 0")
    if boundaries[:1] == (1,):
        # A list that starts with 1 is read as ids that lack one; behind another id, 1 is taken as it stands.
        if len(boundaries) == 1:
            return Written(None, "1 in front is read as 2")
        return Written((*boundaries[1:], 1), "1 in front is read as 2")
    return Written(boundaries, why="used as they are because the first is not 1")


def _gpt_oss_read(ids: Ids, num_layers: int | None) -> Ids | None:
    if num_layers is None:
        return None
    return ids if ids and max(ids) == num_layers else tuple(i + 1 for i in ids)


def _gpt_oss_write(boundaries: Ids, num_layers: int | None) -> Written:
    if num_layers in boundaries:
        return Written(boundaries, why=f"used as they are because {num_layers} is among them")
    return shifted(1, 1, "raw", why="1 is added because the last boundary is not among them").write(
        boundaries, num_layers
    )


def _tuple_read(ids: Ids, num_layers: int | None) -> Ids | None:
    return None if num_layers is None else tuple(i + 1 if i == num_layers else i for i in ids)


def _tuple_write(boundaries: Ids, num_layers: int | None) -> Written:
    plain = tuple(b for b in boundaries if b != num_layers)
    words = [f"hidden_states at {','.join(str(b) for b in plain)}"] if plain else []
    if num_layers in boundaries:
        words.append(f"the input of the final norm for {num_layers}")
    return Written(plain or None, said=", ".join(words))


def _minus_one_read(ids: Ids, num_layers: int | None) -> Ids | None:
    if num_layers is None:
        return None
    # Sorted, with -1 behind the others.
    return (*sorted(i + 1 for i in ids if i >= 0), *((num_layers + 1,) if -1 in ids else ()))


DEEPSEEK = Numbering(_deepseek_read, _deepseek_write)
GPT_OSS = Numbering(_gpt_oss_read, _gpt_oss_write)
TUPLE = Numbering(_tuple_read, _tuple_write)
TENSORRT = Numbering(_minus_one_read, shifted(1, 1, "raw").write)


def concrete(text: str, num_layers: int) -> str:
    """L, L//2, L-3, L//2+1 in a text as numbers."""

    def number(match: re.Match[str]) -> str:
        value = num_layers // 2 if match[1] else num_layers
        return str(value + int(match[2] or 0))

    return re.sub(r"\bL(//2)?([+-]\d+)?(?![\w(])", number, text)
