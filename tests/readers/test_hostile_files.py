"""Folders and files made to break what lists and inspects them: pipes, links, odd names, JSON of the wrong types.

Hand-built throughout: no producer leaves these.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from hsparity import registry
from hsparity.capture import foreign
from hsparity.capture.readers.base import Dataset
from hsparity.capture.readers.look import Look, natural, number_in
from hsparity.capture.readers.plain import PlainFolder
from hsparity.cli import main
from hsparity.errors import HsparityError
from tests.readers import asserts, handmade

pytestmark = pytest.mark.usefixtures("bounded")
TOKENS, WIDTH = 4, 8


def _v1(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    states = [asserts.random_states(TOKENS, WIDTH, seed=seed + k) for k in range(3)]
    torch.save({"input_ids": torch.arange(TOKENS) + seed, "hidden_states": states}, path)
    return path


def inspect(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Exit code, and what `hsparity inspect` prints."""
    code = main.invoke(["inspect", *map(str, words)])
    return code, "".join(capsys.readouterr())


ODD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": lambda path: socket.socket(socket.AF_UNIX).bind(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to a pipe": lambda path: (os.mkfifo(path.with_name("pipe")), path.symlink_to("pipe")),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ["data_0.pt", "x.json", "a.safetensors", "data_config.json"])
def test_what_is_no_file_is_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """A pipe would wait for a writer for ever, /dev/zero never end."""
    monkeypatch.chdir(_v1(tmp_path / "data_1.pt").parent)  # a socket's path is short
    ODD[kind](tmp_path / name)
    assert Look(tmp_path).names == ["data_1.pt"]
    dataset = foreign.open_dataset(tmp_path, "x")
    assert asserts.codes(dataset) == {"data_1": ""}
    assert dataset.said().producer == "speculators"


@pytest.mark.parametrize("target", ["gone.pt", "data_0.pt"], ids=["dangling", "loop"])
def test_a_link_that_leads_nowhere_is_a_sample_that_is_gone(tmp_path: Path, target: str) -> None:
    (tmp_path / "data_0.pt").symlink_to(target)
    _v1(tmp_path / "data_1.pt")
    (tmp_path / "data_2.pt").symlink_to(_v1(tmp_path / "store" / "b"))
    assert asserts.codes(asserts.opened(tmp_path, "speculators-v1")) == {
        "data_0": "E206",
        "data_1": "",
        "data_2": "",
    }


@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_odd_files_beside_safetensors_are_not_opened(tmp_path: Path, kind: str) -> None:
    """The Arrow dataset, and a prompt of a plain folder."""
    for i in range(2):
        handmade.write(tmp_path / "hidden_states" / f"hs_{i}.safetensors", handmade.extracted(i))
    ODD[kind](tmp_path / "data-00000-of-00001.arrow")
    dataset = foreign.open_dataset(tmp_path, "x")
    assert dataset.said().unknown[-1] == "the loss mask (no Arrow dataset lies beside the states)"
    plain = _plain(tmp_path / "plain")
    ODD[kind](plain / "p1.safetensors")
    assert len(PlainFolder(plain, "x").prompts) == 1


def test_names_count_ascii_digits_alone(tmp_path: Path) -> None:
    """ "²" is a digit to str.isdigit and none to int; "٣" is one to both, and nobody's number."""
    assert sorted(["1²3.txt", "data_10.pt", "data_9.pt"], key=natural)[1:] == ["data_9.pt", "data_10.pt"]
    assert (number_in("1²3.txt"), number_in("a/data_7.ckpt.gz"), number_in("b_2/x")) == (3, 7, 0)
    _v1(tmp_path / "data_0.pt")
    (tmp_path / "1²3.txt").touch()
    (tmp_path / "data_٣.pt").touch()
    (tmp_path / os.fsdecode(b"\xff.txt")).touch()
    assert asserts.codes(asserts.opened(tmp_path, "speculators-v1")) == {"data_0": ""}


def test_a_number_beyond_any_dataset_keeps_its_sample(tmp_path: Path) -> None:
    for name in ("data_1.pt", f"data_{10**30}.pt"):
        _v1(tmp_path / name)
    assert [r.index for r in foreign.open_dataset(tmp_path, "x").records()] == [1, 2**31 - 1]


PASSED: dict[str, tuple[str, str]] = {
    "same number": ("data_00.pt", "1 file bears the number of another one"),
    "suffix": ("data_1.PT", "1 file bears a sample's name in other upper and lower case"),
    "name": ("DATA_1.pt", "1 file bears a sample's name in other upper and lower case"),
    "deeper": ("a/b/c/d/data_1.pt", "Folders more than 3 levels down are not looked into: 1"),
    "link": ("part -> ../elsewhere", "Folders that are links are not looked into: 1"),
    "hidden": (".data_1.pt", ""),
    "hidden folder": (".h/data_1.pt", ""),
    "own folder": ("a/data_1.pt", ""),
}


@pytest.mark.parametrize("kind", PASSED)
def test_what_is_passed_over_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """Before the format's own notes, so that inspect shows it."""
    name, text = PASSED[kind]
    root = tmp_path / "data"
    _v1(root / "data_0.pt")
    if kind == "link":
        _v1(tmp_path / "elsewhere" / "data_1.pt")
        (root / "part").symlink_to(tmp_path / "elsewhere")
    else:
        _v1(root / name, seed=9)
    dataset = foreign.open_dataset(root, "x")
    own = len(foreign.open_dataset(root / "data_0.pt", "x").said().notes)
    notes = dataset.said().notes
    assert len(dataset.records()) == 1 + (kind in ("same number", "own folder"))
    assert len(notes) == own + bool(text)
    assert text in notes[0]
    assert not text or text in inspect(capsys, root)[1]


def test_a_folder_is_listed_once_for_all_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recognising, opening, counting, reading: one listing, in seconds for tens of thousands of files."""
    first = _v1(tmp_path / "data_0.pt")
    for i in range(1, 20_000):
        os.link(first, tmp_path / f"data_{i}.pt")
    listed: list[object] = []
    scandir = os.scandir

    def counted(path: Any) -> Any:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr("hsparity.capture.readers.look.os.scandir", counted)
    dataset = foreign.open_dataset(tmp_path, "x")
    started = time.process_time()
    dataset.said()
    assert len(dataset.records()) == 20_000
    assert time.process_time() - started < 2
    assert listed.count(tmp_path / "") == 1
    monkeypatch.undo()
    assert "samples   20000, numbered 0 to 19999" in inspect(capsys, tmp_path)[1]


# -- inspect


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full", "pipe"])
def test_inspect_opens_no_pipe_and_no_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    if path == "pipe":
        os.mkfifo(tmp_path / path)
    code, text = inspect(capsys, tmp_path / path)
    assert code == 0
    assert "unknown, neither a file nor a folder" in text


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt", "x.bin", "x.json", "hs_0.safetensors"])
def test_inspect_reads_no_large_file_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A hole of 40 GB, more than the test may take."""
    (tmp_path / name).write_bytes(b"ab")
    os.truncate(tmp_path / name, 40 << 30)
    code, text = inspect(capsys, tmp_path / name)
    assert (code == 0 and ("unknown" in text or "damaged" in text)) or "error[E206]" in text


DEEP = "[" * 100_000
FILES: dict[str, tuple[str, bytes | str, str]] = {
    "deep": ("x.json", DEEP, "unknown"),
    "deep without suffix": ("x", DEEP, "unknown"),
    "result without parts": ("x.json", '{"schema": "hsparity.comparison/1"}', "damaged, a result"),
    "result of numbers": (
        "x.json",
        '{"schema": "hsparity.comparison/1", "ref": 1, "cand": 2}',
        "damaged, a result",
    ),
    "findings of numbers": (
        "x.json",
        '{"schema": "hsparity.comparison/1", "findings": [1]}',
        "damaged, a result",
    ),
    "schema of another kind": ("x.json", '{"schema": ["hsparity.comparison/1"]}', "unknown JSON"),
    **{
        f"header {text[:9]}": (
            "x.safetensors",
            len(text).to_bytes(8, "little") + text.encode(),
            "damaged: its header cannot be read",
        )
        for text in ("[1,2]", "null", '"x"', '{"a":1}', '{"a":{"dtype":"F32"}}', DEEP)
    },
    "header without end": ("x.safetensors", b"\xff" * 8 + b"{}", "damaged: its header cannot be read"),
    "manifest": ("manifest.json", "[1]", "a manifest.json that is not of a capture"),
    "deep manifest": ("manifest.json", DEEP, "a manifest.json that is not of a capture"),
    "deep spec": ("spec.json", DEEP, "damaged   spec.json"),
    "spec of numbers": (
        "spec.json",
        '{"prompts": 5, "sites": [1], "engine": []}',
        "an unfinished capture, 0 of ?",
    ),
    "spec of nulls": ("spec.json", '{"prompts": null, "sites": null}', "an unfinished capture, 0 of ?"),
    "deep plain": ("plain.json", DEEP, "damaged, a plain.json"),
    "plain list": ("plain.json", "[]", "damaged, a plain.json"),
    **{
        f"plain {text}": ("plain.json", text, "in the plain form")
        for text in (
            '{"model": [1]}',
            '{"model": "x"}',
            '{"slots": 5}',
            '{"slots": null}',
            '{"slots": [{}, 1]}',
        )
    },
}


@pytest.mark.parametrize("kind", FILES)
def test_inspect_says_unknown_or_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    name, content, text = FILES[kind]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    folder = name in ("manifest.json", "spec.json", "plain.json")
    code, said = inspect(capsys, tmp_path if folder else tmp_path / name)
    assert code == 0
    assert text in said


# -- the plain form


def _plain(folder: Path, **model: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    states = asserts.random_states(TOKENS, 2, WIDTH)
    save_file({"hidden_states": states, "token_ids": torch.arange(TOKENS)}, folder / "p0.safetensors")
    save_file({"norm": torch.ones(WIDTH)}, folder / "norm.safetensors")
    said = {"name": "m", "num_layers": 4, "hidden_size": WIDTH, "norm_weight": "norm.safetensors"} | model
    slots = [{"boundary": 1}, {"boundary": 2}]
    (folder / "plain.json").write_text(
        json.dumps({"format": "hsparity.plain/1", "model": said, "slots": slots})
    )
    return folder


@pytest.mark.parametrize(
    "model",
    [
        *({"norm_eps": eps} for eps in (10**400, float("nan"), float("inf"), -1e-6, 1.0)),
        {"num_layers": 10**30},
        {"hidden_size": 10**30},
    ],
    ids=lambda model: str(model)[:24],
)
def test_numbers_that_no_model_has_are_e209(tmp_path: Path, model: dict[str, Any]) -> None:
    with pytest.raises(HsparityError) as caught:
        PlainFolder(_plain(tmp_path / "a", **model), "a")
    assert caught.value.code == "E209"
    assert f"model.{next(iter(model))}" in caught.value.message


def test_a_norm_of_a_dtype_that_none_has_is_e209(tmp_path: Path) -> None:
    folder = _plain(tmp_path / "a")
    header = json.dumps({"norm": {"dtype": "F4", "shape": [WIDTH], "data_offsets": [0, 0]}}).encode()
    (folder / "norm.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(HsparityError) as caught:
        PlainFolder(folder, "a")
    assert caught.value.code == "E209"


@pytest.mark.parametrize("what", ["folder", "file", "pipe", "device"])
def test_format_plain_of_what_is_no_plain_folder_is_e209(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    path = tmp_path
    if what == "file":
        path = _v1(tmp_path / "data_0.pt")
    elif what != "folder":
        ODD["pipe" if what == "pipe" else "link to a device"](tmp_path / "plain.json")
    code, text = inspect(capsys, path, "--format", "plain")
    assert code == 2
    assert "error[E209]" in text


def test_a_reader_that_is_named_for_other_files_says_so(tmp_path: Path) -> None:
    """--format NAME skips the looking: every format on a folder of another ends in codes alone."""
    _v1(tmp_path / "data_0.pt")
    _v1(tmp_path / "data_0.ckpt")
    handmade.write(tmp_path / "hs_0.safetensors", handmade.extracted())
    (tmp_path / "a.json").write_text("[1]")
    for name, reader in registry.readers().items():
        if name == "plain":
            continue
        dataset = foreign.opened(reader, Look(tmp_path), "x")
        assert isinstance(dataset, Dataset)
        dataset.said()
        assert set(asserts.codes(dataset).values()) <= {"", "E206", "E216"}, name
