"""`python -m hsprobe convert`: what is data in a pickle file survives, what would run code does not."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hsparity.capture.readers import pickled
from hsparity.errors import HsparityError
from hsprobe.convert import WARNING, convert
from hsprobe.protocol import ProbeError

ROOT = Path(__file__).parents[2]
Pair = namedtuple("Pair", "first second")


class Opaque:
    """A class of the user's own."""

    def __init__(self) -> None:
        self.inside = torch.ones(2)


class Output(OrderedDict[str, Any]):
    """Like Transformers' ModelOutput."""


class Encoding(UserDict[str, Any]):
    """Like Transformers' BatchEncoding."""


class Role(IntEnum):
    """An id with a name."""

    USER = 3


@dataclass
class Sampled:
    """A record with a tensor."""

    state: torch.Tensor
    name: str


def states() -> torch.Tensor:
    return torch.arange(12, dtype=torch.float32).reshape(3, 4).bfloat16()


def converted(tmp_path: Path, value: Any) -> tuple[Any, list[str]]:
    """A value through a file, `convert` and hsparity's own weights-only reading."""
    lines: list[str] = []
    torch.save(value, tmp_path / "raw.pt")
    assert convert(tmp_path / "raw.pt", tmp_path / "safe.pt", lines.append) == 0
    return pickled.load(tmp_path / "safe.pt"), lines


def test_a_custom_class_is_refused_and_opens_after_convert(tmp_path: Path) -> None:
    """E217 before; after it the tensors bit for bit, and a line about what was dropped."""
    value = {"input_ids": torch.arange(3), "hidden_states": [states()], "extra": Opaque()}
    torch.save(value, tmp_path / "data_0.pt")
    with pytest.raises(HsparityError) as refused:
        pickled.load(tmp_path / "data_0.pt")
    assert refused.value.code == "E217"
    assert "hsprobe convert" in refused.value.help
    lines: list[str] = []
    convert(tmp_path / "data_0.pt", tmp_path / "data_0.safe.pt", lines.append)
    found = pickled.load(tmp_path / "data_0.safe.pt")
    assert list(found) == ["input_ids", "hidden_states"]
    assert torch.equal(found["hidden_states"][0], states())
    assert lines[0] == WARNING
    assert lines[1].startswith("data_0.pt: dropped it['extra']:")
    assert lines[1].endswith(".Opaque")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Output(last=1, text="a"), {"last": 1, "text": "a"}),
        (Encoding({"input_ids": [1, 2]}), {"input_ids": [1, 2]}),
        (Pair(1.5, None), (1.5, None)),
        ({"role": Role.USER, Role.USER: True}, {"role": 3, 3: True}),
        ({"dtype": torch.bfloat16, "where": Path("a/b")}, {"dtype": "torch.bfloat16", "where": "a/b"}),
        ([np.float64(0.5), np.int32(7), np.bool_(True), np.array(["x"])], [0.5, 7, True, ["x"]]),
        ((b"\x00\xff", -(2**70)), (b"\x00\xff", -(2**70))),
        (torch.Size([2, 3]), (2, 3)),
    ],
)
def test_what_is_data_becomes_plain(tmp_path: Path, value: Any, expected: Any) -> None:
    """Dict-likes, tuples with names, enumerations and scalars come back as plain values of the same content."""
    found, lines = converted(tmp_path, value)
    assert found == expected
    assert type(found) is type(expected)
    assert lines == [WARNING]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float32", ">f4", "bool"])
def test_numpy_arrays_become_tensors(tmp_path: Path, dtype: str) -> None:
    """By value and by shape, whatever the byte order or the steps."""
    array = np.arange(12).reshape(3, 4).astype(dtype)[::-1, ::2]
    found, _ = converted(tmp_path, {"a": array})
    assert found["a"].numpy().tolist() == array.tolist()


def test_objects_and_loops_are_dropped(tmp_path: Path) -> None:
    """Each with a line that says where; a list keeps its places."""
    loop: dict[str, Any] = {"kept": 1}
    loop["itself"] = loop
    value = {
        "objects": np.array([{1: 2}, "a"], dtype=object),
        "list": [Opaque(), states()],
        "loop": loop,
        (1, 2): 3,
        "record": Sampled(states(), "a"),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    found, lines = converted(tmp_path, value)
    assert list(found) == ["list", "loop", "record", "parameter"]
    assert found["list"][0] is None
    assert torch.equal(found["list"][1], states())
    assert found["loop"] == {"kept": 1}
    assert torch.equal(found["record"]["state"], states())
    assert type(found["parameter"]) is torch.Tensor
    assert [line.partition("dropped ")[2].partition(":")[0] for line in lines[1:]] == [
        "it['objects']",
        "it['list'][0]",
        "it['loop']['itself']",
        "it[(1, 2)]",
    ]


def test_a_file_of_pickle_itself(tmp_path: Path) -> None:
    """What pickle.dump wrote, not torch.save, is converted too."""
    (tmp_path / "raw.pt").write_bytes(pickle.dumps({"a": np.ones(3, np.float32)}))
    convert(tmp_path / "raw.pt", tmp_path / "safe.pt", lambda line: None)
    assert torch.equal(pickled.load(tmp_path / "safe.pt")["a"], torch.ones(3))


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'probes'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hsprobe", "convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_folder_keeps_its_names(tmp_path: Path) -> None:
    """Every .pt, .ckpt and .ckpt.gz, and the JSON beside them; one bad file costs no other; nothing is overwritten."""
    source, target = tmp_path / "raw", tmp_path / "safe"
    (source / "rows_0-2000").mkdir(parents=True)
    value = {"role": OrderedDict(a=states())}
    torch.save(value, source / "data_0.pt")
    with gzip.open(source / "rows_0-2000" / "data_1.ckpt.gz", "wb") as file:
        torch.save(value, file)
    (source / "data_2.pt").write_bytes((source / "data_0.pt").read_bytes()[:400])
    (source / "data_config.json").write_text("{}")
    (source / "notes.txt").write_text("")
    done = run(source, target)
    assert done.returncode == 3
    assert WARNING in done.stderr
    assert "data_2.pt: E206" in done.stderr
    assert "2 of 3 files converted, 1 JSON files" in done.stderr
    assert "1 other files left" in done.stderr
    for name in ("data_0.pt", "rows_0-2000/data_1.ckpt.gz"):
        assert torch.equal(pickled.load(target / name)["role"]["a"], states())
    held = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
    assert held == ["data_0.pt", "data_config.json", "rows_0-2000/data_1.ckpt.gz"]
    before = (target / "data_0.pt").stat().st_mtime_ns
    assert "data_0.pt: E106" in run(source, target).stderr
    assert (target / "data_0.pt").stat().st_mtime_ns == before


def test_what_cannot_be_converted_is_coded(tmp_path: Path) -> None:
    """A class that is not here, a path that is not there, a target that is: each says so and writes nothing."""
    torch.save({"a": states()}, tmp_path / "there.pt")
    # A class of a module that no one has.
    (tmp_path / "unknown.pt").write_bytes(b"cno_such_module_at_all\nThing\n.")
    torch.save(Opaque(), tmp_path / "object.pt")
    with pytest.raises(ProbeError, match="no_such_module_at_all") as error:
        convert(tmp_path / "unknown.pt", tmp_path / "out.pt", lambda line: None)
    assert error.value.code == "E217"
    cases = {
        ("object.pt", "out.pt"): "E216",
        ("absent.pt", "out.pt"): "E202",
        ("there.pt", "unknown.pt"): "E106",
        (".", "inside"): "E106",
    }
    for (source, target), code in cases.items():
        with pytest.raises(ProbeError) as error:
            convert(tmp_path / source, tmp_path / target, lambda line: None)
        assert error.value.code == code
    assert sorted(p.name for p in tmp_path.iterdir()) == ["object.pt", "there.pt", "unknown.pt"]


def _deep(levels: int) -> bytes:
    """A pickle of lists in lists, which nests without recursing as it is read."""
    return b"\x80\x02" + b"]" * levels + b"a" * (levels - 1) + b"."


def _unfolding() -> list[Any]:
    value: list[Any] = [1]
    for _ in range(9):
        value = [value] * 10
    return value


class Leaves:
    """Exits as it is opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit(0)",)


def test_a_hostile_file_costs_no_other(tmp_path: Path) -> None:
    """Tensors that cannot be kept, nesting without end, an exit, a dangling link: each a line, the rest is converted."""
    source = tmp_path / "raw"
    source.mkdir()
    torch.save({"a": torch.ones(3).to_sparse()}, source / "data_0.pt")
    (source / "data_1.pt").write_bytes(_deep(3000))
    torch.save(_unfolding(), source / "data_2.pt")
    torch.save({"a": Leaves()}, source / "data_3.pt")
    (source / "data_4.pt").symlink_to("gone")
    os.mkfifo(source / "data_5.pt")
    os.mkfifo(source / "x.json")
    torch.save({"a": states(), "wide": torch.zeros(1).expand(10**10)}, source / "data_6.pt")
    lines: list[str] = []
    assert convert(source, tmp_path / "safe", lines.append) == 5
    told = {name: code for name, code, *_ in (line.split(": ") for line in lines if line.startswith("data_"))}
    assert told == {f"data_{i}.pt": code for i, code in enumerate(["E216", "E216", "E216", "E206", "E206"])}
    assert "1 of 6 files converted, 0 JSON files beside them copied" in lines
    found = pickled.load(tmp_path / "safe" / "data_6.pt")
    assert torch.equal(found["a"], states())
    assert sorted(p.name for p in (tmp_path / "safe").iterdir()) == ["data_6.pt"]


def test_what_is_no_file_is_neither_read_nor_written(tmp_path: Path) -> None:
    """A device as the source, a file or a device as a folder's target."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "data_config.json").write_text("{}")
    (tmp_path / "there").touch()
    os.mkfifo(tmp_path / "pipe")
    cases: dict[tuple[Path, Path], str] = {
        (Path("/dev/zero"), tmp_path / "out.pt"): "E202",
        (tmp_path / "pipe", tmp_path / "out.pt"): "E202",
        (tmp_path / "raw", tmp_path / "there"): "E106",
        (tmp_path / "raw", Path("/dev/full")): "E106",
    }
    for (source, target), code in cases.items():
        with pytest.raises(ProbeError) as error:
            convert(source, target, lambda line: None)
        assert error.value.code == code
    assert not (tmp_path / "out.pt").exists()
