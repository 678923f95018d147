"""What the tests of the readers ask of every format."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from hsparity import registry
from hsparity.capture.readers.base import Dataset, Record, Sample, read_sample
from hsparity.capture.readers.look import Look
from hsparity.errors import HsparityError

REAL = Path(__file__).parent / "real"


def recognised_by(path: Path) -> list[str]:
    """The names of all formats that a path is taken for."""
    return [name for name, reader in registry.readers().items() if reader.recognise(Look(path))]


def opened(path: Path, name: str) -> Dataset:
    """The path as a dataset, after asserting that this format and no other recognises it."""
    assert recognised_by(path) == [name]
    dataset = registry.readers()[name].open(path, str(path))
    assert isinstance(dataset, Dataset)
    assert dataset.format == name
    return dataset


def fault(dataset: Dataset, record: Record) -> HsparityError:
    """The coded error of a sample that cannot be read; anything else that is raised fails the test."""
    with pytest.raises(HsparityError) as caught:
        read_sample(dataset, record)
    return caught.value


def codes(dataset: Dataset) -> dict[str, str]:
    """Sample id -> "" for one that reads, else its code."""
    found = {}
    for record in dataset.records():
        try:
            read_sample(dataset, record)
            found[record.id] = ""
        except HsparityError as error:
            found[record.id] = error.code
    return found


def same(sample: Sample, states: Iterable[torch.Tensor]) -> None:
    """Asserts that a sample's states are these, bit for bit, NaN included."""
    expected = list(states)
    assert [(tuple(s.shape), s.dtype) for s in sample.states] == [(tuple(e.shape), e.dtype) for e in expected]
    for mine, other in zip(sample.states, expected, strict=True):
        assert torch.equal(mine.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def random_states(*shape: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Runs:
    """A class that no weights-only loading knows, with a payload that leaves a trace where it runs."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.trace}",)


def apart(cand_th: torch.Tensor, ref_th: torch.Tensor) -> float:
    """The median over tokens of |cand - ref| / |ref|."""
    cand_th, ref_th = cand_th.double(), ref_th.double()
    return float(((cand_th - ref_th).norm(dim=1) / ref_th.norm(dim=1)).median())
