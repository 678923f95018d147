"""What a slot is read as: the entries that the held sites allow, and when the best of them is proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hsparity.align.layers import sample
from hsparity.align.tokens import align_rows
from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.metrics.kernel import Norm
from hsparity.query import Query
from hsparity.solve.dictionary import Bench, Entry, entries
from hsparity.solve.readings import CLOSE, Reader, Reading, Slot
from tests.causes.streams import Capture, States, Toy, capture, edited, keep, rms_norm

TOY = Toy(layers=4, width=64)
LAST = TOY.layers
KEYS = [f"boundary.{k:03d}" for k in range(LAST + 1)]
NOISE = 0.02  # what the floor allows; rounding costs 0.002 to 0.01


def toy(seed: int, count: int = 4, length: int = 12) -> Capture:
    return capture(seed, toy=TOY, count=count, length=length)


def norm() -> Norm:
    return Norm(torch.from_numpy(TOY.model().norm.copy()), 1e-6)


def with_branches(made: Capture, *kinds: str) -> Capture:
    """Branches that add up to each layer's update, as an engine would hand them over."""

    def change(_: str, states: States) -> States:
        found = dict(states)
        for k in range(LAST):
            update = states[KEYS[k + 1]] - states[KEYS[k]]
            attn = np.roll(update, 1, axis=1) * 0.7
            parts = {
                f"attn_out.{k:03d}": attn,
                f"mlp_out.{k:03d}": update - attn,
                f"hidden.{k + 1:03d}": update - attn,
                f"residual.{k + 1:03d}": states[KEYS[k]] + attn,
            }
            found |= {key: x for key, x in parts.items() if key.partition(".")[0] in kinds}
        return found

    return edited(made, change)


def opened(made: Capture, folder: Path) -> Source:
    return open_source(made.write(folder))


def listed(made: Capture, folder: Path, with_norm: bool = True, plus_one: bool = False) -> list[Entry]:
    return entries(opened(made, folder), norm() if with_norm else None, plus_one)


def of(found: Sequence[Entry], kind: str) -> list[int]:
    return [e.number for e in found if e.kind == kind]


def test_boundaries_alone_give_boundaries_and_updates(tmp_path: Path) -> None:
    """Without norm and branches: every boundary, and every layer's whole update."""
    only = edited(toy(1), lambda _, s: keep(s, KEYS))
    found = listed(only, tmp_path / "ref", with_norm=False)
    assert {e.kind for e in found} == {"", "residual-missing"}
    assert of(found, "") == [0, 1, 2, 3, 4]
    assert of(found, "residual-missing") == [1, 2, 3, 4]


def test_a_gap_gives_no_update_across_it(tmp_path: Path) -> None:
    """The difference of boundaries two apart is no layer's update."""
    some = edited(toy(1), lambda _, s: keep(s, [KEYS[0], KEYS[1], KEYS[3]]))
    found = listed(some, tmp_path / "ref", with_norm=False)
    assert (of(found, ""), of(found, "residual-missing")) == ([0, 1, 3], [1])


@pytest.mark.parametrize(("plus_one", "other"), [(False, "1 + w"), (True, "scales by w")])
def test_the_norm_gives_every_boundary_normed_in_both_forms(
    tmp_path: Path, plus_one: bool, other: str
) -> None:
    """Once, twice, and by the other form of the weight; no gain on any of them."""
    found = listed(toy(1), tmp_path / "ref", plus_one=plus_one)
    assert sorted(of(found, "final-norm-applied")) == sorted([0, 1, 2, 3, 4] * 2)
    assert of(found, "final-norm-twice") == [0, 1, 2, 3, 4]
    assert sum(other in e.words for e in found) == 5
    assert not any(e.scalable for e in found if e.kind.startswith("final-norm"))


def test_final_norm_stands_in_for_the_last_boundary(tmp_path: Path) -> None:
    """Where boundary L is not held, the captured norm output is its normed form."""
    without = edited(toy(1), lambda _, s: {k: x for k, x in s.items() if k != KEYS[LAST]})
    found = listed(without, tmp_path / "ref")
    sites = {e.form.sites for e in found if e.number == LAST}
    assert sites == {("final_norm",)}
    assert {e.kind for e in found if e.number == LAST} == {"final-norm-applied", "final-norm-twice"}


@pytest.mark.parametrize(
    ("held", "kinds"),
    [
        (("attn_out",), {"branch-only", "mid-layer"}),
        (("mlp_out",), {"mid-layer"}),
        (("hidden",), set()),
        (("residual",), {"mid-layer"}),
        (("attn_out", "mlp_out", "hidden", "residual"), {"branch-only", "mid-layer"}),
        ((), set()),
    ],
)
def test_branches_give_what_lies_inside_a_layer(
    tmp_path: Path, held: tuple[str, ...], kinds: set[str]
) -> None:
    """The state between attention and MLP needs one of the branches, an attention output its own."""
    found = listed(with_branches(toy(1), *held), tmp_path / "ref", with_norm=False)
    assert {e.kind for e in found} - {"", "residual-missing"} == kinds
    extra = len(of(found, "residual-missing")) - LAST
    assert extra == LAST * sum(kind in held for kind in ("mlp_out", "hidden"))


def readings(
    folder: Path,
    slot: Mapping[str, np.ndarray] | str,
    *,
    ref: Capture | None = None,
    claimed: int | None = None,
    floor: bool = True,
    noise: float = NOISE,
) -> list[Reading]:
    """The readings of a slot, given per prompt or as the name of the other engine's boundary."""
    ruler = ref or toy(1)
    other = toy(2, len(ruler.ids), len(next(iter(ruler.ids.values()))))
    rows = {p: other.states[p][slot] for p in other.states} if isinstance(slot, str) else slot
    cand = replace(other, ids=ruler.ids, states={p: {"slot.000": x} for p, x in rows.items()})
    sources = [opened(ruler, folder / "ref"), opened(cand, folder / "cand")]
    prompts = align_rows(sources[0], sources[1], [], Query()).prompts
    bench = Bench(sources, sample(prompts, 128), np.zeros(0, np.int64))
    found = entries(sources[0], norm(), False)
    reader = Reader(bench, 0, 1, found, lambda form, number: noise, floor, 2.0**-9)
    return reader.read([Slot("slot.000", claimed)])


def read(folder: Path, slot: Mapping[str, np.ndarray] | str, **given: Any) -> Reading:
    """The one reading of a slot."""
    (reading,) = readings(folder, slot, **given)
    return reading


@pytest.mark.parametrize("floor", [True, False])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_boundary_is_read_as_itself(tmp_path: Path, number: int, floor: bool) -> None:
    """At the floor, the runner-up plainly farther: proved, with a floor and without."""
    found = read(tmp_path, KEYS[number], claimed=number, floor=floor)
    assert (found.kind, found.number, found.gain) == ("", number, 1.0)
    assert found.proved
    assert found.as_claimed
    assert found.error < 0.015 < found.rival_error
    assert not replace(found, slot=Slot("slot.000", 3)).as_claimed


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("final-norm-applied", lambda s: s["final_norm"]),
        ("final-norm-twice", lambda s: rms_norm(s["final_norm"], TOY.weights()[2].astype(np.float32))),
        ("residual-missing", lambda s: s[KEYS[4]] - s[KEYS[3]]),
    ],
)
def test_the_form_is_named_not_the_nearest_boundary(tmp_path: Path, kind: str, make: object) -> None:
    """A normed last state and a layer's update, each by its own kind."""
    found = read(tmp_path, {p: make(s) for p, s in toy(2).states.items()}, claimed=LAST)  # type: ignore[operator]
    assert (found.kind, found.number) == (kind, LAST)
    assert found.proved
    assert not found.as_claimed


def test_a_constant_is_found_beside_the_boundary(tmp_path: Path) -> None:
    """Half of boundary 3 is boundary 3 with a gain of 1/2, and is compared after it is divided out."""
    found = read(tmp_path, {p: 0.5 * s[KEYS[3]] for p, s in toy(2).states.items()}, claimed=3)
    assert (found.kind, found.number) == ("", 3)
    assert found.gain == pytest.approx(0.5, rel=0.02)
    assert found.slot_form.gain == found.gain
    assert not found.as_claimed


@pytest.mark.parametrize("size", [0.9, 1.1])
def test_a_gain_near_one_is_no_hypothesis(tmp_path: Path, size: float) -> None:
    """A tenth less is what truncation makes: the boundary itself, away from the floor."""
    found = read(tmp_path, {p: size * s[KEYS[3]] for p, s in toy(2).states.items()}, claimed=3)
    assert (found.number, found.gain, found.at_floor, found.proved) == (3, 1.0, False, False)


def test_nothing_is_proved_beyond_the_floor(tmp_path: Path) -> None:
    """The nearest entry by far, but not at the floor."""
    found = read(tmp_path, KEYS[2], noise=1e-4)
    assert (found.number, found.at_floor, found.proved) == (2, False, False)
    assert found.margin > 0.5


@pytest.mark.parametrize(
    ("count", "length", "proved"), [(1, 7, False), (1, 1, False), (7, 1, False), (1, 14, True)]
)
def test_few_tokens_prove_nothing(tmp_path: Path, count: int, length: int, proved: bool) -> None:
    """Under eight tokens a coin could fall so."""
    found = read(tmp_path, KEYS[2], ref=toy(1, count, length))
    assert (found.number, found.at_floor, found.proved) == (2, True, proved)


def test_equal_rows_are_one_token(tmp_path: Path) -> None:
    """48 tokens that are one row prove no more than one."""

    def flat(made: Capture) -> Capture:
        row = {k: v[3:4] for k, v in made.states["p0"].items()}
        return edited(made, lambda _, s: {k: np.repeat(row[k], len(v), 0) for k, v in s.items()})

    slot = {p: s[KEYS[2]] for p, s in flat(toy(2)).states.items()}
    found = read(tmp_path, slot, ref=flat(toy(1)))
    assert (found.number, found.at_floor, found.proved) == (2, True, False)


@pytest.mark.parametrize(
    ("step", "floor", "proved"), [(0.0, True, False), (0.03, True, True), (0.03, False, False)]
)
def test_a_near_rival_is_told_only_with_a_floor(
    tmp_path: Path, step: float, floor: bool, proved: bool
) -> None:
    """A layer that adds 3 % of its input: with a floor that is a difference, without one it may be noise; a layer
    that adds nothing leaves two boundaries that are one."""

    def near(made: Capture) -> Capture:
        def change(_: str, s: States) -> States:
            return {**s, KEYS[3]: s[KEYS[2]] + step * np.roll(s[KEYS[2]], 1, axis=1)}

        return edited(made, change)

    slot = {p: s[KEYS[2]] for p, s in near(toy(2)).states.items()}
    found = read(tmp_path, slot, ref=near(toy(1)), floor=floor, noise=NOISE if floor else CLOSE)
    assert found.at_floor
    assert found.proved is proved
    assert {found.number, 2} <= {2, 3}
    assert "boundary" in found.rival
    if not proved:
        assert found.margin < 1.0


def test_a_rival_that_wins_on_some_tokens_is_not_beaten(tmp_path: Path) -> None:
    """Nearer by the median is not nearer on nearly every token: a fifth of the rows are the next boundary's."""
    slot = {p: s[KEYS[2]].copy() for p, s in toy(2).states.items()}
    for p, s in toy(2).states.items():
        slot[p][::5] = s[KEYS[3]][::5]
    found = read(tmp_path, slot)
    assert (found.number, found.at_floor) == (2, True)
    assert found.wins < 0.95
    assert not found.proved


def test_a_slot_of_no_number_is_not_read(tmp_path: Path) -> None:
    """Rows that are not finite have no nearest entry."""
    slot = {p: np.full_like(s[KEYS[2]], np.nan) for p, s in toy(2).states.items()}
    assert readings(tmp_path, slot) == []
