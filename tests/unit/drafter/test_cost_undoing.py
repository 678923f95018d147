"""Every finding undone: what the head is then fed, and what it gets for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.model import Verdict
from tests.causes.faults.rows import request_order, rows_scattered, rows_shifted
from tests.causes.faults.slots import layer_offset
from tests.causes.streams import Capture, edited

from .costed import IDS, Priced, World, apart, captured, rows_of, slots, write_head

CLOSE = 2.0**-6  # bf16 over eight layers; neighbouring boundaries of the toy are farther apart than 0.3
FACTOR = 1.5
LAST = 8


def boundaries(*numbers: int) -> list[str]:
    return [f"boundary.{n:03d}" if n <= LAST else "final_norm" for n in numbers]


def scaled(made: Capture, *keys: str) -> Capture:
    return edited(made, lambda _, s: {k: x * FACTOR if not keys or k in keys else x for k, x in s.items()})


@dataclass(frozen=True)
class Case:
    """A candidate, and what it is fed with each finding undone: (boundary, factor) a slot; a slot is said to stand in."""

    make: Any
    undone: dict[str, tuple[tuple[int, float], ...]]
    stands_in: dict[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""
    wanted: tuple[int, ...] = IDS
    ref: Any = None


def off(made: Capture) -> Capture:
    return slots(made, boundaries(3, 5, 6), and_boundaries=True)


RIGHT = tuple((k, 1.0) for k in IDS)
OWN, ORDER = "the candidate's own states of the right boundaries", "the slots in the right order"
CASES = {
    "one late, own boundaries": Case(off, {"HS101": RIGHT}, note=OWN),
    "one late, slots only": Case(
        lambda m: slots(m, boundaries(3, 5, 6)), {"HS101": RIGHT}, {"HS101": ("slot.00", "slot.01")}, ORDER
    ),
    "hooks named one late, and read as ids": Case(
        lambda m: layer_offset(m, by=1), {"HS101": RIGHT}, note=OWN
    ),
    "permuted": Case(lambda m: slots(m, boundaries(4, 2, 5)), {"HS105": RIGHT}, note=ORDER),
    "a constant in one slot": Case(
        lambda m: scaled(slots(m, boundaries(2, 4, 5)), "slot.01"),
        {"HS207": RIGHT},
        note="the constant or basis taken out",
    ),
    "a constant in the whole stream": Case(
        lambda m: slots(scaled(m), boundaries(2, 4, 5), True),
        {"HS207": RIGHT},
        note="the constant or basis taken out",
    ),
    "norm applied, own boundaries": Case(
        lambda m: slots(m, boundaries(2, 4, 9), True),
        {"HS201": ((2, 1.0), (4, 1.0), (8, 1.0))},
        note=OWN,
        wanted=(2, 4, 8),
    ),
    "norm applied, slots only": Case(
        lambda m: slots(m, boundaries(2, 4, 9)),
        {"HS201": ((2, 1.0), (4, 1.0), (8, 1.0))},
        {"HS201": ("slot.02",)},
        "the reference's own states in those slots",
        wanted=(2, 4, 8),
    ),
    "norm missing, slots only": Case(
        lambda m: slots(m, boundaries(2, 4, 8)),
        {"HS202": ((2, 1.0), (4, 1.0), (9, 1.0))},
        note="the final norm applied",
        wanted=(2, 4, 9),
    ),
    "one late, and a constant": Case(
        lambda m: off(scaled(m)),
        {
            "HS101": tuple((k, FACTOR) for k in IDS),
            "HS207": ((3, 1.0), (5, 1.0), (6, 1.0)),
            "all": RIGHT,
        },
    ),
    "one late, and a constant in the slots alone": Case(
        lambda m: scaled(off(m), "slot.00", "slot.01", "slot.02"),
        {
            "HS101": tuple((k, FACTOR) for k in IDS),
            "HS207": ((3, 1.0), (5, 1.0), (6, 1.0)),
            "all": RIGHT,
        },
    ),
    "permuted, and normed": Case(
        lambda m: slots(m, boundaries(4, 2, 9), True),
        {
            "HS105": ((2, 1.0), (4, 1.0), (9, 1.0)),
            "HS201": ((4, 1.0), (2, 1.0), (8, 1.0)),
            "all": ((2, 1.0), (4, 1.0), (8, 1.0)),
        },
        wanted=(2, 4, 8),
    ),
    "slots only on both sides, one late": Case(
        lambda m: slots(m, boundaries(3, 5, 6)),
        {"HS101": RIGHT},
        {"HS101": ("slot.00", "slot.01")},
        ORDER,
        ref=lambda m: slots(m, boundaries(2, 4, 5)),
    ),
    "reference's slots on the candidate's boundaries": Case(
        off, {"HS101": RIGHT}, note="the candidate's boundary 2", ref=lambda m: slots(m, boundaries(2, 4, 5))
    ),
    "reference's slots, a constant in all the candidate has": Case(
        lambda m: slots(scaled(m), boundaries(2, 4, 5), True),
        {"HS207": RIGHT},
        ref=lambda m: slots(m, boundaries(2, 4, 5)),
    ),
}


@pytest.fixture(scope="module")
def heads(world: World) -> dict[tuple[int, ...], Path]:
    """Heads for the slots that end in the last boundary, before and after the norm."""
    made = {
        ids: write_head(world.folder / f"head-{ids[-1]}", world.target, boundaries(*ids))
        for ids in ((2, 4, 8), (2, 4, 9))
    }
    return {IDS: world.head, **made}


@pytest.fixture(scope="module")
def late(world: World) -> Path:
    """A head that was trained on states of one layer later."""
    return write_head(world.folder / "head-late", world.target, boundaries(3, 5, 6))


@pytest.fixture(scope="module")
def same(world: World) -> Source:
    """Another engine's slots, the right ones."""
    return open_source(slots(captured(2, "sglang"), boundaries(*IDS)).write(world.folder / "same"))


@pytest.mark.parametrize("name", CASES)
def test_undone(name: str, world: World, heads: dict[tuple[int, ...], Path], tmp_path: Path) -> None:
    """The head is fed the candidate's own states of the right boundary, or what is said to stand in for them, and loses
    nothing by it; fed as served it loses. A finding of two leaves the other."""
    case = CASES[name]
    make_ref = case.ref or (lambda m: slots(m, boundaries(*case.wanted), True))
    ref = open_source(make_ref(captured(1)).write(tmp_path / "ref"))
    clean = captured(2, "sglang")
    cand = open_source(case.make(clean).write(tmp_path / "cand"))
    found = world.price(cand, ref, heads[case.wanted])
    assert found.cost.verdict is Verdict.DIVERGED
    assert found.change("cand") < -0.5
    undone = {k.removeprefix("undone:") for k in found.feedings if k.startswith("undone:")}
    assert undone == set(case.undone)
    for code, wanted in case.undone.items():
        key = f"undone:{code}"
        feeding = found.feedings[key]
        assert feeding.stands_in == case.stands_in.get(code, ())
        for i, ((number, factor), rows) in enumerate(zip(wanted, found.fed(key), strict=True)):
            exact = _exact(found, i, ref, world.healthy, feeding.stands_in, boundaries(number)[0])
            assert (
                apart(rows, factor * exact) < 2.0**-8 + (factor != 1.0) * CLOSE
            )  # a constant is fitted, and stored in bf16
        if wanted == tuple((k, 1.0) for k in case.wanted):
            assert abs(found.change(key)) < 0.1
            assert found.cost.feed(key).stands_in == feeding.stands_in
    if name == "one late, own boundaries":  # rounded as they are, bit for bit
        assert torch.equal(found.fed("undone:HS101")[1], rows_of(world.healthy, "boundary.004"))
    if case.note:
        assert found.feedings[f"undone:{next(iter(case.undone))}"].note == case.note


def _exact(
    found: Priced, i: int, ref: Source, true: Source, stands_in: tuple[str, ...], key: str
) -> torch.Tensor:
    if found.served.feeds[1].keys[i] in stands_in:
        return rows_of(ref, found.served.feeds[0].keys[i])
    return rows_of(true, key)


def test_a_name_is_not_believed(world: World, tmp_path: Path) -> None:
    """A candidate whose own boundary of that name holds noise is not fed it: the reference stands in, and it is said."""
    rng = np.random.default_rng(0)

    def spoil(_: str, states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        noise = rng.standard_normal(states["boundary.004"].shape)
        return {**states, "boundary.004": 30 * noise}

    made = edited(off(captured(2, "sglang")), spoil)
    found = world.price(open_source(made.write(tmp_path / "cand")))
    assert found.feedings["undone:HS101"].stands_in == ("slot.01",)
    assert torch.equal(found.fed("undone:HS101")[1], rows_of(world.ref, "boundary.004"))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m: rows_shifted(m, 1), "HS115"),
        (lambda m: request_order(m, "rotated"), "HS113"),
        (lambda m: rows_scattered(m, 2), "HS116"),
    ],
    ids=["shifted", "of another request", "scattered"],
)
def test_rows_given_back(change: Any, code: str, world: World, tmp_path: Path) -> None:
    """Rows that hold other tokens' states are given back: the head is fed each token's own state, bit for bit."""
    made = slots(change(captured(2, "sglang")), boundaries(*IDS))
    found = world.price(open_source(made.write(tmp_path / "cand")))
    assert [k for k in found.feedings if k.startswith("undone:")] == [f"undone:{code}"]
    assert found.change("cand") < -2
    assert abs(found.change(f"undone:{code}")) < 0.1
    for i, rows in enumerate(found.fed(f"undone:{code}")):
        true, stood_in = (rows_of(s, boundaries(IDS[i])[0]) for s in (world.healthy, world.ref))
        given = (rows == true).all(dim=1)
        assert given.float().mean() > 0.99  # a row that nobody holds any more is the reference's
        assert torch.equal(rows[~given], stood_in[~given])


def test_rows_and_slots_at_once(world: World, tmp_path: Path) -> None:
    """Undoing one of two faults leaves the other; only both bring the head back."""
    made = slots(request_order(captured(2, "sglang"), "rotated"), boundaries(4, 2, 5))
    found = world.price(open_source(made.write(tmp_path / "cand")))
    assert {k for k in found.feedings if k.startswith("undone:")} == {
        "undone:HS113",
        "undone:HS105",
        "undone:all",
    }
    swapped = found.fed("undone:HS113")
    for i, (number, both) in enumerate(zip((4, 2, 5), found.fed("undone:all"), strict=True)):
        assert torch.equal(swapped[i], rows_of(world.healthy, boundaries(number)[0]))
        assert torch.equal(both, rows_of(world.healthy, boundaries(IDS[i])[0]))
    assert found.change("undone:HS113") < -1
    assert found.change("undone:HS105") < -1
    assert abs(found.change("undone:all")) < 0.1


def test_noise_has_the_floors_size(world: World) -> None:
    """Every row is off by exactly what bf16 is off from fp32 there, half of them in the opposite direction."""
    found = world.price(world.healthy, ids=())
    exact, rounded = (rows_of(s, "boundary.004") for s in world.floors)
    noise = found.fed("noise")[1] - rows_of(world.ref, "boundary.004")
    floor = rounded - exact
    torch.testing.assert_close(noise.norm(dim=1), floor.norm(dim=1), rtol=1e-3, atol=1e-4)
    signs = torch.nn.functional.cosine_similarity(noise, floor)
    assert (signs.abs() > 0.999).all()
    assert 0.4 < float((signs > 0).float().mean()) < 0.6


def test_without_a_floor_there_is_no_noise(world: World) -> None:
    """Nothing stands for noise where no floor was captured."""
    assert "noise" not in world.price(world.healthy, ids=(), floors=[]).feedings


def test_slot_by_slot(world: World, tmp_path: Path) -> None:
    """One slot is the candidate's, the others the reference's; each alone costs less than all together."""
    found = world.price(
        open_source(slots(captured(2, "sglang"), boundaries(4, 2, 5)).write(tmp_path / "cand"))
    )
    for i in range(3):
        for j, rows in enumerate(found.fed(f"only:{i}")):
            source, key = (
                (found.served.cand, f"slot.{j:02d}") if i == j else (world.ref, boundaries(IDS[j])[0])
            )
            assert torch.equal(rows, rows_of(source, key))
    assert abs(found.change("only:2")) < 0.1
    assert found.change("cand") < min(found.change("only:0"), found.change("only:1")) < -0.3


def test_a_head_trained_a_layer_later(world: World, late: Path, same: Source) -> None:
    """Nothing is wrong with the states; the head does better on those one later, and it is said where it was trained."""
    found = world.price(same, head=late)
    assert found.cost.verdict is not Verdict.DIVERGED
    assert found.cost.feed("shift:+1").accepted.value > 2.5
    note = next(n for n in found.cost.notes if "boundaries 3, 5, 6" in n)
    assert "is then at fault itself, or its config" in note
    assert any(line.endswith("--boundaries 3,5,6") for line in found.cost.next)
    # On a healthy head nothing of the kind is said.
    assert not any("trained" in n for n in world.price(same).cost.notes)


def test_a_candidate_that_feeds_what_the_head_was_trained_on(
    world: World, late: Path, tmp_path: Path
) -> None:
    """A difference by which the head gains is no divergence."""
    found = world.price(open_source(off(captured(2, "sglang")).write(tmp_path / "cand")), head=late)
    assert found.change("cand") > 0.5
    assert found.cost.verdict is Verdict.PARITY
    assert "gains" in found.cost.headline
    assert "-" not in found.cost.headline.partition("gains")[2]


def test_a_head_trained_before_the_norm(
    world: World, heads: dict[tuple[int, ...], Path], tmp_path: Path
) -> None:
    """Fed the normed last state on both sides, a head of un-normed ones is known by what it does better on."""
    ref = open_source(slots(captured(1), boundaries(2, 4, 9), True).write(tmp_path / "ref"))
    cand = open_source(slots(captured(2, "sglang"), boundaries(2, 4, 9), True).write(tmp_path / "cand"))
    found = world.price(cand, ref, heads[2, 4, 8])
    assert found.cost.verdict is not Verdict.DIVERGED
    assert any("the last slot before the final norm" in n for n in found.cost.notes)
