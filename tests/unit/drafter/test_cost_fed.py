"""Which tensors a side feeds the head: its own slots, or what its engine makes of the ids in the head's config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hsparity.align.tokens import align_rows
from hsparity.capture.read import open_source
from hsparity.drafter.draft import NESTED, TOP, open_draft
from hsparity.drafter.fed import Fed, feed
from hsparity.errors import HsparityError
from hsparity.query import Query
from tests.causes.streams import Capture, edited, keep, plain

from .costed import TOY, VOCABULARY, World, captured, slots
from .heads import make_head

GIVEN = (1, 3, 6)
V1, V2 = {"model_runner": "V1"}, {"model_runner": "V2"}


def head(folder: Path, keys: tuple[str, ...], ids: tuple[int, ...] = GIVEN, count: int = 3) -> str:
    config: dict[str, Any] = {"eagle_config": {}}
    if NESTED in keys:
        config["eagle_config"] = {TOP: list(ids)}
    if TOP in keys:
        config[TOP] = list(ids)
    made = make_head(
        folder,
        hidden=64,
        vocab=VOCABULARY,
        draft_vocab=50,
        target_hidden=TOY.width,
        slots=count,
        config=config,
    )
    return str(made)


def fed(
    folder: Path,
    made: Capture,
    draft: str,
    ids: tuple[int, ...] | None = None,
    boundaries: tuple[int, ...] = (),
) -> Fed:
    source = open_source(made.write(folder / "side"))
    own = align_rows(source, source, [], Query()).prompts
    return feed(open_draft(draft), "cand", source, own, None, ids, boundaries)


@pytest.mark.parametrize(
    ("engine", "settings", "keys", "numbers", "said"),
    [
        ("vllm", V1, (NESTED,), (1, 3, 6), "ids 1,3,6, as vLLM 0.32.0 reads them"),
        ("vllm", V2, (NESTED,), (2, 4, 5), "vLLM 0.32.0 reads none of its ids: the default"),
        ("vllm", V2, (TOP,), (1, 3, 6), "ids 1,3,6"),
        ("vllm", V1, (TOP,), (1, 3, 6), "ids 1,3,6"),
        ("sglang", {}, (NESTED,), (2, 4, 7), "ids 1,3,6, as SGLang 0.5.23 reads them"),
        ("sglang", {}, (TOP,), (2, 4, 5), "SGLang 0.5.23 reads none of its ids: the default"),
        ("sglang", {}, (), (2, 4, 5), "the head's config holds no ids: the default"),
        ("hf", {}, (NESTED,), (1, 3, 6), "ids 1,3,6 taken as boundaries"),
        ("hf", {}, (), (2, 4, 5), "the head's config holds no ids"),
    ],
)
def test_ids_as_each_engine_reads_them(
    engine: str,
    settings: dict[str, Any],
    keys: tuple[str, ...],
    numbers: tuple[int, ...],
    said: str,
    tmp_path: Path,
) -> None:
    """vLLM feeds boundary k for id k, SGLang's Llama k + 1, and either its default where it does not read the key."""
    made = captured(1, engine, 1, settings=settings)
    found = fed(tmp_path, made, head(tmp_path / "head", keys))
    assert found.numbers == numbers
    assert found.keys == tuple(f"boundary.{n:03d}" for n in numbers)
    assert said in found.why


@pytest.mark.parametrize(
    ("engine", "ids", "numbers"),
    [
        ("vllm", (3, 5, 6), (3, 5, 6)),
        ("sglang", (3, 5, 6), (4, 6, 7)),
        ("sglang", (3, 5, 7), (4, 6, 8)),
        ("sglang", (), (2, 4, 5)),
        ("vllm", (), (2, 4, 5)),
        ("hf", (3, 5, 6), (3, 5, 6)),
        ("hf", (), (2, 4, 5)),
    ],
)
def test_ids_in_place_of_the_configs(
    engine: str, ids: tuple[int, ...], numbers: tuple[int, ...], tmp_path: Path
) -> None:
    """--ids stand for the config's and are read as the engine reads them; none at all is its default."""
    found = fed(tmp_path, captured(1, engine, 1), head(tmp_path / "head", (NESTED,)), ids)
    assert found.numbers == numbers


def test_boundaries_that_are_named(tmp_path: Path) -> None:
    """Boundaries are boundaries, whatever the engine; L + 1 is the state after the final norm."""
    found = fed(tmp_path, captured(1, "sglang", 1), head(tmp_path / "head", (NESTED,)), None, (2, 4, 9))
    assert found.keys == ("boundary.002", "boundary.004", "final_norm")


@pytest.mark.parametrize("own", [True, False])
def test_own_slots_come_first(own: bool, tmp_path: Path) -> None:
    """Slots that the engine handed over are what is fed, read on the hooks beside them; without those nothing tells them. What
    is said of a side comes before its slots."""
    made = slots(captured(1, "sglang", 1), ["boundary.003", "boundary.005", "boundary.006"], own)
    draft = head(tmp_path / "head", (NESTED,))
    if own:
        assert fed(tmp_path / "ids", made, draft, (1, 3, 6)).numbers == (2, 4, 7)
        assert fed(tmp_path / "named", made, draft, None, (2, 4, 5)).numbers == (2, 4, 5)
    found = fed(tmp_path, made, draft)
    assert found.keys == ("slot.00", "slot.01", "slot.02")
    assert found.numbers == ((3, 5, 6) if own else ())


def test_a_datasets_last_state_is_no_slot(tmp_path: Path) -> None:
    """A file of one state more than the head takes ends in the verifier's last state, which is left out; a capture's does not."""
    keys = ["boundary.003", "boundary.005", "boundary.006", "boundary.008"]
    folder = plain(tmp_path / "plain", captured(1, "sglang", 2), [{"label": k} for k in keys], keys)
    source = open_source(folder)
    own = align_rows(source, source, [], Query()).prompts
    draft = head(tmp_path / "head", (NESTED,))
    assert len(feed(open_draft(draft), "cand", source, own, None, None).keys) == 3
    with pytest.raises(HsparityError) as raised:
        fed(tmp_path, slots(captured(1, "sglang", 1), keys), draft)
    assert raised.value.code == "E270"


@pytest.mark.parametrize(
    ("keys", "ids", "boundaries"),
    [
        (["boundary.003", "boundary.005"], None, ()),
        (None, None, (2, 4)),
        (None, (1, 3), ()),
        (None, (1, 2, 3, 4), ()),
    ],
)
def test_another_number_than_the_head_takes(
    keys: list[str] | None, ids: tuple[int, ...] | None, boundaries: tuple[int, ...], tmp_path: Path
) -> None:
    """Fewer or more states than fc takes is E270, with the shape of fc and what the side holds."""
    made = captured(1, "vllm", 1)
    made = slots(made, keys) if keys else made
    with pytest.raises(HsparityError) as raised:
        fed(tmp_path, made, head(tmp_path / "head", (NESTED,)), ids, boundaries)
    assert raised.value.code == "E270"
    assert "3 slots of 128" in raised.value.render()


@pytest.mark.parametrize(
    ("boundaries", "lacking"), [((2, 4, 6), "boundary 6"), ((2, 4, 9), "boundary 8, normed")]
)
def test_what_was_not_captured(boundaries: tuple[int, ...], lacking: str, tmp_path: Path) -> None:
    """A boundary that the side does not hold is E210, and names it and what is held."""
    made = edited(captured(1, "hf", 1), lambda _, s: keep(s, ["boundary.002", "boundary.004"]))
    with pytest.raises(HsparityError) as raised:
        fed(tmp_path, made, head(tmp_path / "head", (NESTED,)), None, boundaries)
    assert raised.value.code == "E210"
    assert lacking in raised.value.message
    assert "boundaries 2,4" in raised.value.render()


@pytest.mark.parametrize("ids", [(1, 3, 99), (2, 4, 10)])
def test_ids_behind_the_last_layer(ids: tuple[int, ...], tmp_path: Path) -> None:
    """An id that no layer has is not taken for the normed last state."""
    with pytest.raises(HsparityError) as raised:
        fed(tmp_path, captured(1, "hf", 1), head(tmp_path / "head", (NESTED,)), ids)
    assert raised.value.code == "E210"
    assert f"boundary {ids[-1]}" in raised.value.message


def test_prompts_without_their_first_row(world: World, tmp_path: Path) -> None:
    """A prompt with a gap is left out and told; where every one has a gap it is E271."""
    made = captured(2, "vllm")
    gap = [i for i in range(len(made.ids["p0"])) if i not in (0, 1)]
    one = edited(made, lambda _, s: s, positions={"p1": gap})
    found = world.price(open_source(one.write(tmp_path / "one")), ids=()).cost
    assert found.prompts == len(made.ids) - 1
    assert found.dropped == ("prompt p1: row 0 is of position 2",)
    every = edited(made, lambda _, s: s, positions=dict.fromkeys(made.ids, gap))
    with pytest.raises(HsparityError) as raised:
        world.price(open_source(every.write(tmp_path / "every")))
    assert raised.value.code == "E271"


def test_an_order_of_its_own(world: World, tmp_path: Path) -> None:
    """The candidate's rows may lie in any order, and its prompts under other names: nothing changes."""
    made = captured(2, "vllm")
    names = {n: f"q{n}" for n in made.ids}
    renamed = Capture(
        {names[n]: s for n, s in reversed(made.states.items())},
        {names[n]: t for n, t in made.ids.items()},
        engine="vllm",
        positions={names[n]: list(range(len(t) - 1, -1, -1)) for n, t in made.ids.items()},
        prefill={names[n]: p for n, p in made.prefill.items()},
        real=made.real,
    )
    plainly, other = (
        world.price(open_source(m.write(tmp_path / n))).cost for m, n in ((made, "a"), (renamed, "b"))
    )
    assert plainly.feeds == other.feeds
    assert plainly.by_prompt == other.by_prompt
