"""Datasets of other layers than the server feeds: told, with the ids to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.model import Verdict
from tests.audit import bench


@pytest.mark.parametrize("form", bench.FORMATS)
@pytest.mark.parametrize(
    ("aux", "words", "ids"),
    [
        ((3, 5, 6), "One layer earlier", "3,5,6"),
        ((4, 6, 7), "2 layers earlier", "4,6,7"),
        # A list that starts with 1 is read as ids that lack one: 1 goes behind the others.
        ((1, 3, 4), "One layer later", "3,4,1"),
    ],
)
def test_a_whole_offset(
    tmp_path: Path,
    server: Path,
    floor: bench.Floor,
    form: str,
    aux: tuple[int, ...],
    words: str,
    ids: str,
) -> None:
    result = bench.run(bench.dataset(tmp_path / "data", form, aux), tmp_path, server, floor)
    held = ", ".join(map(str, aux))
    assert result.verdict is Verdict.DIVERGED
    assert result.headline.startswith(f"{words}: ")
    assert f"boundaries 2, 4, 5, the dataset holds {held}. This is your cause." in result.headline
    assert bench.causes(result) == {"HS101"}
    assert bench.holds(result.groups[0].readings) == (*aux, bench.ENDS[form])
    assert [r.right for r in result.groups[0].readings] == [False, False, False, True]
    assert any(f"write ids {ids} for sglang" in text for text in result.fix)
    assert result.repair is not None
    assert not result.repair.possible
    assert "is not in the file" in result.repair.text


@pytest.mark.parametrize(
    ("form", "told"),
    [(bench.V1, "--layer-ids [1,3,4,7]"), (bench.V2, "eagle_aux_hidden_state_layer_ids [2,4,5]")],
)
def test_what_the_trainer_is_to_be_told(
    tmp_path: Path, server: Path, floor: bench.Floor, form: str, told: str
) -> None:
    result = bench.run(bench.dataset(tmp_path / "data", form, (3, 5, 6)), tmp_path, server, floor)
    assert any(told in text for text in result.fix)


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_one_slot_off(tmp_path: Path, server: Path, floor: bench.Floor, slot: int) -> None:
    aux = tuple(b + (k == slot) for k, b in enumerate(bench.FEEDS))
    if len(set(aux)) < 3:
        aux = tuple(b - (k == slot) for k, b in enumerate(bench.FEEDS))
    result = bench.run(bench.dataset(tmp_path / "data", bench.V2, aux), tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result) == {"HS101"}
    assert [r.right for r in result.groups[0].readings] == [k != slot for k in range(4)]
    assert f"holds boundary {aux[slot]} where sglang feeds boundary {bench.FEEDS[slot]}" in result.headline
    assert any(f"write ids {','.join(map(str, aux))} for sglang" in text for text in result.fix)


def test_the_same_ids_for_other_tensors(tmp_path: Path, floor: bench.Floor) -> None:
    """speculators 0.4 and SGLang's DeepSeek of 0.5.13 and later, both given 2, 4, 6."""
    server = bench.served(tmp_path / "server", (2, 4, 6))
    result = bench.run(bench.dataset(tmp_path / "data", bench.V1, (3, 5, 7)), tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert result.numbering.startswith("same ids, different tensors: 2, 4, 6 are boundaries 3, 5, 7 to ")
    assert "boundaries 2, 4, 6 to sglang" in result.numbering
    assert any("write ids 3,5,7 for sglang" in text for text in result.fix)


def test_the_default_triple_of_speculators_against_the_servers(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    """0.3 and 0.4 take 3, L//2+1, L-2, the engines 2, L//2, L-3: one layer, with other ids too."""
    half, end = bench.LAYERS // 2, bench.LAYERS
    path = bench.dataset(tmp_path / "data", bench.V1, (3, half + 1, end - 2))
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert result.headline.startswith("One layer earlier: sglang feeds boundaries 2, 4, 5")
    assert result.groups[0].readings[3].right is True


def test_a_claim_in_the_files_does_not_rescue_other_states(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    """data_config.json says the server's boundaries, the states are one layer later."""
    path = bench.dataset(tmp_path / "data", bench.V1, (3, 5, 6), said=bench.FEEDS)
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert bench.holds(result.groups[0].readings)[:3] == (3, 5, 6)


def test_boundaries_that_were_named_refute_a_dataset(tmp_path: Path, hooks: Path, floor: bench.Floor) -> None:
    path = bench.dataset(tmp_path / "data")
    result = bench.run(path, tmp_path, hooks, floor, boundaries=(2, 4, 6))
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result) == {"HS101"}
