"""From what every sample shows to what is wrong with a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from hsparity.audit.drift import find_step
from hsparity.audit.result import Integrity, Trouble
from hsparity.audit.scan import Facts
from hsparity.capture.readers.base import Record

SHOWN = 5
# Decades of a slot's median norm between two runs of the same tokens: arithmetic and experts that change cost less (at
# most 0.008, over samples of 5 tokens), a layer more or less costs 0.03 and more in most.
RERUN = 0.02
# What makes a dataset wrong by itself; the rest is worth knowing.
SERIOUS = ("unreadable", "not-finite", "zero-rows", "other-make", "same-tokens", "no-loss")


def judged(records: Sequence[Record], facts: Sequence[Facts], complete: bool, size: int) -> Integrity:
    """The integrity of a dataset by the facts of its samples, in order. `size`: bytes of all its files."""
    good = [f for f in facts if not f.code]
    makes = Counter((f.slots, f.width, f.dtype) for f in good)
    slots, width, dtype = makes.most_common(1)[0][0] if makes else (0, 0, "")
    lengths = sorted(f.tokens for f in good) or [0]
    at, text = _change(good, (slots, width, dtype))
    return Integrity(
        complete=complete,
        samples=len(records),
        read=len(facts),
        tokens=sum(f.tokens for f in good),
        bytes=size,
        slots=slots,
        hidden_size=width,
        dtype=dtype,
        lengths=(lengths[0], lengths[len(lengths) // 2], lengths[-1]),
        troubles=tuple(_troubles(records, facts, good, (slots, width, dtype))),
        change=at,
        change_text=text,
    )


def _troubles(
    records: Sequence[Record], facts: Sequence[Facts], good: Sequence[Facts], make: tuple[int, int, str]
) -> Iterator[Trouble]:
    bad = [f for f in facts if f.code]
    for code in sorted({f.code for f in bad}):
        same = [f for f in bad if f.code == code]
        yield Trouble("unreadable", len(same), f"cannot be read [{code}]: {same[0].message}", _first(same))
    others = [f for f in good if (f.slots, f.width, f.dtype) != make]
    if others:
        odd = others[0]
        words = f"{odd.slots} slots of {odd.width}, {odd.dtype}, where most have {make[0]} of {make[1]}, {make[2]}"
        yield Trouble("other-make", len(others), words, _first(others))
    yield from _rows(good)
    nameless = [f for f in good if not f.ids_digest]
    if nameless:
        words = "no token ids, and states are compared token by token: hsparity import … --token-ids"
        yield Trouble("no-ids", len(nameless), words, _first(nameless))
    masked = [f for f in good if f.masked == 0]
    if masked:
        # A few are conversations that were cut before the first answer; where it is most, the mask is wrong.
        kind = "no-loss" if 2 * len(masked) > len(good) else "unlearnt"
        yield Trouble(kind, len(masked), "the loss mask keeps no token", _first(masked))
    short = [f for f in good if f.rows != f.tokens]
    if short:
        yield Trouble("rows", len(short), "fewer rows of states than token ids", _first(short))
    yield from _repeats(good)
    yield from _holes(records)


def _rows(good: Sequence[Facts]) -> Iterator[Trouble]:
    kinds: tuple[tuple[str, str, Callable[[Facts], int]], ...] = (
        ("not-finite", "NaN or Inf in {}", lambda f: f.nonfinite),
        ("zero-rows", "all zero: {}", lambda f: f.zero),
        ("repeated-rows", "the same as the row before, bit for bit: {}", lambda f: f.repeated),
    )
    for kind, words, count in kinds:
        found = [f for f in good if count(f)]
        if found:
            rows = sum(map(count, found))
            yield Trouble(kind, len(found), words.format(f"{rows} row{'s' * (rows != 1)}"), _first(found))


def _repeats(good: Sequence[Facts]) -> Iterator[Trouble]:
    first: dict[str, Facts] = {}
    copies: list[Facts] = []
    again: list[Facts] = []
    parted: list[Facts] = []
    for f in good:
        if not f.ids_digest:
            continue
        other = first.setdefault(f.ids_digest, f)
        if other is f:
            continue
        if other.states_digest == f.states_digest:
            copies.append(f)
        else:
            (again if _alike(other, f) else parted).append(f)
    for kind, found, words in (
        ("duplicate", copies, "the same tokens and states as an earlier sample"),
        (
            "run-again",
            again,
            "the tokens of an earlier sample, states as large but not bit for bit the same: run twice",
        ),
        ("same-tokens", parted, "the tokens of an earlier sample, states of another size: two makes"),
    ):
        if found:
            yield Trouble(kind, len(found), words, _first(found))


def _alike(one: Facts, other: Facts) -> bool:
    """Whether two runs of the same tokens may have been of one make, as far as norms tell: an engine need not give the
    same bits twice."""
    if len(one.norms) != len(other.norms):
        return False
    return not any(abs(a - b) > RERUN for a, b in zip(one.norms, other.norms, strict=True))


def _holes(records: Sequence[Record]) -> Iterator[Trouble]:
    numbers = sorted({r.index for r in records})
    if len(numbers) < len(records) or not numbers:
        return
    missing = numbers[-1] - numbers[0] + 1 - len(numbers)
    if missing:
        first = [n for low, high in pairwise(numbers) for n in range(low + 1, min(high, low + 1 + SHOWN))][
            :SHOWN
        ]
        words = f"numbers between {numbers[0]} and {numbers[-1]} have no sample"
        yield Trouble("missing", missing, words, tuple(map(str, first)))


def _change(good: Sequence[Facts], make: tuple[int, int, str]) -> tuple[str, str]:
    """The first sample of another make by the norms, and what changes there."""
    alike = [f for f in good if (f.slots, f.width, f.dtype) == make]
    step = find_step([f.norms for f in alike])
    if step is None:
        return "", ""
    ratio = 10.0 ** (step.after - step.before)
    words = f"from {alike[step.at].id} on the rows of slot {step.slot} are {ratio:.3g}× as large"
    return alike[step.at].id, f"{words} ({step.apart:.0f} robust standard deviations of a sample)"


def _first(facts: Sequence[Facts]) -> tuple[str, ...]:
    return tuple(f.id for f in facts[:SHOWN])
