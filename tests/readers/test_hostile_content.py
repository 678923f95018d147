"""Files whose content was made to break a reader: each costs its own sample, in bounded time and memory, with a code.

Hand-built throughout: no producer writes these.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch

from hsparity.capture.readers.base import Dataset, Reader, Record, guarded, read_sample, tensor_fault
from hsparity.capture.readers.look import Look
from hsparity.errors import HsparityError
from tests.readers import asserts

pytestmark = pytest.mark.usefixtures("bounded")
TOKENS, WIDTH = 4, 8


def _state(seed: int = 0) -> torch.Tensor:
    return asserts.random_states(TOKENS, WIDTH, dtype=torch.float32, seed=seed)


def _v1(**changes: Any) -> dict[str, Any]:
    states = [asserts.random_states(TOKENS, WIDTH, seed=k) for k in range(3)]
    return {
        "input_ids": torch.arange(TOKENS),
        "hidden_states": states,
        "loss_mask": torch.ones(TOKENS),
    } | changes


def _nested(value: Any, times: int, levels: int) -> Any:
    """A list of a list …, each `times` over: a few bytes of pickle that unfold to times ** levels values."""
    for _ in range(levels):
        value = [value] * times
    return value


def _itself() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def _quantised(value: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(value, 0.1, 0, torch.qint8)


def _all(state: torch.Tensor) -> dict[str, Any]:
    return _v1(hidden_states=[state] * 3)


# One stored value that stands for 25 GB.
ENDLESS = torch.zeros(1, 1).expand(10**9, WIDTH)
BAD: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "sparse ids": (lambda: _v1(input_ids=torch.arange(1, 5).to_sparse()), "layout sparse_coo"),
    "quantised ids": (lambda: _v1(input_ids=_quantised(torch.arange(4.0))), "quantised"),
    "meta ids": (lambda: _v1(input_ids=torch.arange(4, device="meta")), "on meta"),
    "ids that unfold": (lambda: _v1(input_ids=_nested(1, 10, 9)), "nested"),
    "wide ids that unfold": (lambda: _v1(input_ids=_nested(1, 9000, 2)), "nested"),
    "ids that hold themselves": (lambda: _v1(input_ids=_itself()), "nested"),
    "ids out of range": (lambda: _v1(input_ids=[1, 2, 3, 10**30]), "integers"),
    "endless ids": (lambda: _v1(input_ids=torch.zeros(1, dtype=torch.int64).expand(10**10)), "claims"),
    "sparse mask": (lambda: _v1(loss_mask=torch.ones(4).to_sparse()), "layout sparse_coo"),
    "meta mask": (lambda: _v1(loss_mask=torch.ones(4, device="meta")), "on meta"),
    "complex mask": (lambda: _v1(loss_mask=torch.ones(4, dtype=torch.complex64)), "fractions or nulls"),
    "mask of fractions": (lambda: _v1(loss_mask=torch.full((4,), 0.5)), "fractions or nulls"),
    "mask of nulls": (lambda: _v1(loss_mask=torch.full((4,), float("nan"))), "fractions or nulls"),
    "mask of infinities": (lambda: _v1(loss_mask=torch.full((4,), float("inf"))), "fractions or nulls"),
    "mask that unfolds": (lambda: _v1(loss_mask=_nested(1, 10, 9)), "nested"),
    "sparse states": (lambda: _all(_state().to_sparse()), "layout sparse_coo"),
    "csr states": (lambda: _all(_state().to_sparse_csr()), "layout sparse_csr"),
    "meta states": (lambda: _all(_state().to("meta")), "on meta"),
    "quantised states": (lambda: _all(_quantised(_state())), "expected"),
    "states that unfold": (lambda: _v1(hidden_states=_nested(_state(), 10, 8)), "nested"),
    "states that hold themselves": (lambda: _v1(hidden_states=_itself()), "nested"),
    "a state too often": (lambda: _v1(hidden_states=[_state()] * 20_000), "too long"),
    "endless states": (lambda: _v1(input_ids=torch.arange(4), hidden_states=[ENDLESS] * 3), "claims"),
    "states of another width": (lambda: _v1(hidden_states=[_state(), torch.zeros(TOKENS, 9)]), "shape"),
    "float64 beside float32": (lambda: _v1(hidden_states=[_state(), _state().double()]), "dtype"),
    **{
        f"states in {name}": (lambda name=name: _all(_state().to(getattr(torch, name))), name)  # type: ignore[misc]
        for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    },
    "states in float4": (
        lambda: _all(torch.zeros(TOKENS, WIDTH, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)),
        "float4",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_value_is_e216_and_costs_its_sample_alone(tmp_path: Path, name: str) -> None:
    make, text = BAD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own, as such a tensor is made
        torch.save(make(), tmp_path / "data_1.pt")
    for i in (0, 2):
        torch.save(_v1(), tmp_path / f"data_{i}.pt")
    dataset = asserts.opened(tmp_path, "speculators-v1")
    assert asserts.codes(dataset) == {"data_0": "", "data_1": "E216", "data_2": ""}
    error = asserts.fault(dataset, dataset.records()[1])
    assert text in " ".join((error.message, *error.notes))


def test_a_negated_view_is_read_as_what_it_means(tmp_path: Path) -> None:
    """torch.save keeps the bit that says "negate me", and byte views refuse such a tensor."""
    torch.save(_all(torch._neg_view(_state())), tmp_path / "data_0.pt")
    dataset = asserts.opened(tmp_path, "speculators-v1")
    asserts.same(read_sample(dataset, dataset.records()[0]), [-_state()] * 3)


@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
def test_states_of_two_dtypes_become_float32_exactly_and_say_so(tmp_path: Path, short: torch.dtype) -> None:
    """SpecForge: aux states in float32 beside a last state in bf16."""
    aux = asserts.random_states(1, TOKENS, 3 * WIDTH, dtype=torch.float32)
    last = asserts.random_states(1, TOKENS, WIDTH, dtype=short, seed=1)
    raw = {"input_ids": torch.arange(TOKENS), "aux_hidden_state": aux, "hidden_state": last}
    torch.save(raw, tmp_path / "data_0.ckpt")
    dataset = asserts.opened(tmp_path, "specforge")
    sample = read_sample(dataset, dataset.records()[0])
    asserts.same(sample, [*aux[0].split(WIDTH, 1), last[0].float()])
    assert "taken to float32" in sample.warnings[0]


class _Raises(Dataset):
    """A dataset whose reading raises what it is told to."""

    format = "raises"

    def __init__(self, error: BaseException) -> None:
        super().__init__(Path("x"), "x")
        self.error = error

    def said(self) -> Any: ...
    def records(self) -> Any: ...
    def slots(self, sample: Any) -> Any: ...

    def read(self, record: Record) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        *(kind("first\nsecond") for kind in (RuntimeError, ValueError, TypeError, KeyError, AttributeError)),
        *(
            kind("first\nsecond")
            for kind in (IndexError, OverflowError, RecursionError, MemoryError, OSError)
        ),
        *(
            kind("first\nsecond")
            for kind in (NotImplementedError, pyarrow.ArrowInvalid, pyarrow.ArrowException)
        ),
        RuntimeError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_reading_raises_is_e216_with_its_type(error: Exception) -> None:
    with pytest.raises(HsparityError) as caught:
        read_sample(_Raises(error), Record("a", 0, Path("a.pt")))
    assert caught.value.code == "E216"
    assert f"a.pt cannot be read as its format promises: {type(error).__name__}" in caught.value.message
    assert "second" not in caught.value.message.replace("first\\nsecond", "")


def test_coded_errors_and_interrupts_pass_the_guard() -> None:
    with pytest.raises(HsparityError) as caught, guarded(Path("a")):
        raise HsparityError("E218", "still being written")
    assert caught.value.code == "E218"
    with pytest.raises(KeyboardInterrupt):
        read_sample(_Raises(KeyboardInterrupt()), Record("a", 0, Path("a")))


def test_a_reader_that_breaks_does_not_recognise(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")

    def breaks(look: Look) -> str | None:
        raise AttributeError(look.path)

    assert (
        Reader("breaks", "", breaks, lambda path, spelled: _Raises(ValueError())).evidence(Look(tmp_path))
        is None
    )


def test_a_tensor_whose_size_overflows_is_seen() -> None:
    assert "claims" in tensor_fault(torch.zeros(1).expand(1 << 31, 1 << 31))
    assert tensor_fault(torch.zeros(4, 8)[:, ::2]) == ""


def _packed(source: Path, target: Path, extra: int = 0) -> None:
    """A torch file zipped again with deflate, its pickle followed by `extra` MB of zeros."""
    with zipfile.ZipFile(source) as held, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for name in held.namelist():
            with out.open(name, "w") as member:
                member.write(held.read(name))
                for _ in range(extra if name.endswith("data.pkl") else 0):
                    member.write(bytes(1 << 20))


def test_a_torch_file_zipped_again_is_read_and_a_bomb_is_not(tmp_path: Path) -> None:
    raw = _v1(
        hidden_states=[torch.ones(64, 64, dtype=torch.bfloat16)] * 3,
        input_ids=torch.arange(64),
        loss_mask=None,
    )
    torch.save(raw, tmp_path / "whole")
    _packed(tmp_path / "whole", tmp_path / "data_0.pt")
    _packed(tmp_path / "whole", tmp_path / "data_1.pt", extra=70)
    assert (tmp_path / "data_1.pt").stat().st_size < 1 << 18
    dataset = asserts.opened(tmp_path, "speculators-v1")
    asserts.same(read_sample(dataset, dataset.records()[0]), raw["hidden_states"])
    error = asserts.fault(dataset, dataset.records()[1])
    assert error.code == "E216"
    assert "unpacks to more" in error.message
