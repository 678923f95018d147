"""Datasets that a glance would pass, and datasets that a glance would blame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hsparity.audit import repair
from hsparity.audit.claims import claims
from hsparity.audit.readings import SampleReading
from hsparity.capture.readers.base import LAST, Sample, Slot
from hsparity.model import Verdict
from tests.audit import bench
from tests.causes import real
from tests.causes.distortions import distorted


def rows(number: int, slot: int, start: int, fill: Callable[[torch.Tensor], torch.Tensor]) -> bench.Change:
    """One sample, one slot, its rows from `start` on."""

    def change(n: int, sample: Sample) -> Sample:
        if n != number:
            return sample
        states = [s.clone() for s in sample.states]
        states[slot][start:] = fill(states[slot][start:])
        return replace(sample, states=tuple(states))

    return change


@pytest.mark.parametrize("slot", [0, 2, 3])
@pytest.mark.parametrize("start", [20, 36])
def test_the_end_of_one_long_sample_is_wrong(
    tmp_path: Path, server: Path, floor: bench.Floor, slot: int, start: int
) -> None:
    """Medians are all right."""
    change = rows(0, slot, start, lambda s: s.flip(0))
    result = bench.run(bench.dataset(tmp_path / "data", bench.V2, change=change), tmp_path, server, floor)
    assert result.verdict is not Verdict.PARITY
    assert result.repair is None or not result.repair.possible


def test_two_samples_hold_each_others_states(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    made = bench.samples((*bench.FEEDS, bench.LAST))
    made[3], made[5] = replace(made[3], states=made[5].states), replace(made[5], states=made[3].states)
    result = bench.run(bench.written(tmp_path / "data", bench.V2, made), tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("name", ["noise 0.1", "growing noise 0.3", "int4 2", "bias 0.1"])
@pytest.mark.parametrize("form", [bench.V2, bench.FORGE])
def test_right_layers_with_wrong_numbers(
    tmp_path: Path, server: Path, floor: bench.Floor, name: str, form: str
) -> None:
    """Quantised weights, another checkpoint: every slot is nearest to where it belongs."""
    damaged = distorted(real.load(real.TINY, "vllm"), name)
    states = list(damaged.states.values())

    def change(number: int, sample: Sample) -> Sample:
        keys = [bench.key(b) for b in (*bench.FEEDS, bench.ENDS[form])]
        return replace(
            sample, states=tuple(torch.from_numpy(states[number][k]).to(torch.bfloat16) for k in keys)
        )

    result = bench.run(bench.dataset(tmp_path / "data", form, change=change), tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert "HS101" not in bench.causes(result)
    assert not any("write ids" in text for text in result.fix)
    assert not any(r.right is False for r in result.groups[0].readings)
    assert result.repair is None or not result.repair.possible


def test_padding_behind_the_last_learnt_token_is_no_damage(tmp_path: Path) -> None:
    """Zeros behind the mask's last one are padding; zeros before it are not."""

    def padded(number: int, sample: Sample) -> Sample:
        assert sample.loss_mask is not None
        mask = sample.loss_mask.copy()
        mask[-2:] = 0
        states = tuple(torch.cat((s[:-2], torch.zeros_like(s[-2:]))) for s in sample.states)
        return replace(sample, states=states, loss_mask=mask)

    def holed(number: int, sample: Sample) -> Sample:
        return replace(padded(number, sample), loss_mask=sample.loss_mask)

    fine = bench.run(bench.dataset(tmp_path / "fine", change=padded), tmp_path / "a")
    assert "zero-rows" not in bench.troubles(fine)
    assert fine.verdict is Verdict.PARITY
    wrong = bench.run(bench.dataset(tmp_path / "wrong", change=holed), tmp_path / "b")
    assert bench.troubles(wrong)["zero-rows"].count == 13


def test_what_no_learnt_token_attends_to_is_not_compared(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    """A batch is padded to its longest sample: the states of padding are those of no prompt."""

    def padded(number: int, sample: Sample) -> Sample:
        assert sample.token_ids is not None
        draw = torch.Generator().manual_seed(number)
        states = tuple(
            torch.cat((s, (torch.randn(4, s.shape[1], generator=draw) * s.float().std()).to(s.dtype)))
            for s in sample.states
        )
        ids, mask = np.append(sample.token_ids, [0] * 4), np.ones(len(sample.token_ids) + 4, np.uint8)
        mask[-4:] = 0
        return replace(sample, token_ids=ids, states=states, loss_mask=mask)

    def learnt(number: int, sample: Sample) -> Sample:
        made = padded(number, sample)
        return replace(
            made,
            token_ids=sample.token_ids,
            states=tuple(s[2:-2] for s in made.states),
            loss_mask=sample.loss_mask,
        )

    path = bench.dataset(tmp_path / "data", bench.FORGE, change=padded)
    fine = bench.run(path, tmp_path / "a", server, floor)
    assert (fine.verdict, fine.tokens) == (Verdict.PARITY, 149)
    path = bench.dataset(tmp_path / "other", bench.FORGE, change=learnt)
    assert bench.run(path, tmp_path / "b", server, floor).verdict is Verdict.DIVERGED


def test_a_repaired_dataset_is_compared_over_the_same_tokens(
    tmp_path: Path, floor: bench.Floor, server: Path
) -> None:
    """The capture ends before some samples do, and a repair is judged on what both have."""

    def longer(number: int, sample: Sample) -> Sample:
        assert sample.token_ids is not None
        states = tuple(torch.cat((s, s[:3])) for s in sample.states)
        ids = np.append(sample.token_ids, [7, 8, 9])
        return replace(sample, token_ids=ids, states=states, loss_mask=np.ones(len(ids), np.uint8))

    path = bench.dataset(tmp_path / "data", bench.V2, (4, 2, 5), change=longer)
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.tokens == 149
    assert result.repair is not None
    assert result.repair.verdict is Verdict.PARITY


def test_all_boundaries_of_a_capture_are_no_list_for_a_draft(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    """A capture as the dataset: its slots are named, so their number accuses nobody."""
    path = real.load(real.TINY, "vllm")
    states = {p: {k: v for k, v in s.items() if k[:4] in ("boun", "fina")} for p, s in path.states.items()}
    folder = replace(path, states=states).write(tmp_path / "capture")
    result = bench.run(folder, tmp_path, server, floor)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not bench.causes(result)


AUX3 = (*(Slot(f"s{i}") for i in range(3)), Slot("last", LAST))


def test_what_the_slots_ought_to_be() -> None:
    raw = claims(AUX3, (2, 4, 5), 8, last_normed=False)
    assert dict(raw.sites) == {0: "boundary.002", 1: "boundary.004", 2: "boundary.005", 3: "boundary.008"}
    assert raw.places == (2, 4, 5, 8)
    normed = claims(AUX3, (2, 4, 5), 8, last_normed=True)
    assert (normed.sites[3], normed.places) == ("final_norm", (2, 4, 5, 9))
    unknown = claims(AUX3, (2, 4, 5), 8, last_normed=None)
    assert 3 not in unknown.sites
    shared = claims(AUX3, (2, 4, 8), 8, last_normed=False)
    assert dict(shared.numbers) == {0: 2, 1: 4, 2: 8, 3: 8}
    assert 3 not in shared.sites  # a site is compared once


@pytest.mark.parametrize(
    ("slots", "feeds", "refuted", "known"),
    [
        (AUX3, (), False, False),
        (AUX3, (2, 2, 5), False, False),
        (AUX3, (2, 4), True, True),
        (AUX3, (2, 4, 5, 6, 7), True, True),
        (AUX3, (2, 4, 5, 6), False, True),  # the last slot may be one of them
        (AUX3[:3], (2, 4), False, True),  # the third may be the last state
        (AUX3[:3], (2,), True, True),
    ],
)
def test_slot_counts_that_refute(
    slots: tuple[Slot, ...], feeds: tuple[int, ...], refuted: bool, known: bool
) -> None:
    found = claims(slots, feeds, 8, last_normed=False)
    assert found.why_not
    assert not found.sites
    assert (found.refuted, bool(found.places)) == (refuted, known)


@pytest.mark.parametrize(
    ("errors", "signature"),
    [
        ([[0.01, 0.5, 0.9]], (0,)),
        ([[0.3, 0.2, 0.9]], (1,)),  # not plainly, and all the same nearest
        ([[1.2, 1.3, 1.25]], (-1,)),
        ([[np.inf, np.inf, np.inf]], (-1,)),
        ([[0.0, 0.0, 0.9], [0.9, 0.8, 0.1]], (0, 2)),
    ],
)
def test_the_signature_of_a_sample(errors: list[list[float]], signature: tuple[int, ...]) -> None:
    assert SampleReading("p", np.array(errors)).signature == signature


def test_a_disk_that_is_full_leaves_no_half_of_a_repair(
    tmp_path: Path, server: Path, floor: bench.Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2, (4, 2, 5))
    mended, count = repair.mended, iter(range(100))

    def full(*given: object) -> Sample:
        if next(count) == 5:
            raise OSError(28, "No space left on device")
        return mended(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(repair, "mended", full)
    with pytest.raises(repair.HsparityError) as caught:
        bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert caught.value.code == "E205"
    assert not (tmp_path / "out").exists()
