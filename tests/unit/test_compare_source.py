"""Opening folders: what is read, and how each kind of damage ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.read import open_source
from hsparity.capture.shards import read_header
from hsparity.compare import Query, compare
from hsparity.errors import ExitCode, HsparityError
from tests.causes.streams import LAYERS, WIDTH, Capture, capture, plain

KEYS = ["boundary.002", "boundary.004", "final_norm"]
SLOTS = [{"boundary": 2}, {"label": "aux0"}, {"site": "final_norm"}]


@pytest.fixture(scope="module")
def made() -> Capture:
    return capture(1, count=2, length=20)


def code_of(path: Path) -> str:
    with pytest.raises(HsparityError) as caught:
        open_source(path).verify()
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.help
    return caught.value.code


def test_a_capture_reads_back_what_was_written(made: Capture, tmp_path: Path) -> None:
    """Blocks come in the dtype on disk, any rows in any order; a reused buffer changes nothing."""
    source = open_source(made.write(tmp_path / "c"))
    wanted = torch.from_numpy(made.states["p1"]["boundary.003"]).bfloat16()
    buffer = torch.empty(1 << 16, dtype=torch.uint8)
    assert torch.equal(source.block("p1", "boundary.003", 4, 11), wanted[4:11])
    assert torch.equal(source.block("p1", "boundary.003", 0, 20, buffer), wanted)
    rows = np.array([7, 3, 4, 5, 19, 0])
    assert torch.equal(source.rows("p1", "boundary.003", rows, buffer), wanted[rows])
    assert source.token_ids("p1").tolist() == list(made.ids["p1"])
    assert source.sites()[:2] == ("boundary.000", "boundary.001")
    weight, eps, plus_one = source.norm() or (np.zeros(0), 0.0, True)
    assert (len(weight), eps, plus_one) == (WIDTH, 1e-6, False)
    source.verify()


def test_a_prompt_may_lie_in_several_shards(made: Capture, tmp_path: Path) -> None:
    """Sites of one prompt are found in whichever of its shards holds them."""

    one = open_source(made.write(tmp_path / "one"))
    two = open_source(replace(made, split=True).write(tmp_path / "two"))
    for site in one.sites():
        assert torch.equal(one.block("p0", site, 0, 20), two.block("p0", site, 0, 20))


def test_plain_reads_what_the_capture_reads(made: Capture, tmp_path: Path) -> None:
    """A slot of the plain form, strided in its file, equals the site it was made from."""
    source = open_source(plain(tmp_path / "p", made, SLOTS, KEYS))
    assert source.sites() == ("boundary.002", "final_norm", "slot.001")
    assert source.manifest.native_labels == {"slot.001": "aux0"}
    for site, key in (("boundary.002", KEYS[0]), ("slot.001", KEYS[1]), ("final_norm", KEYS[2])):
        wanted = torch.from_numpy(made.states["p0"][key]).bfloat16()
        assert torch.equal(source.block("p0", site, 3, 17), wanted[3:17])
        assert torch.equal(source.rows("p0", site, np.array([9, 2])), wanted[[9, 2]])
    assert source.manifest.dtype == "bfloat16"
    assert (
        source.manifest.prompts[0].token_ids_sha256
        == open_source(made.write(tmp_path / "c")).prompts[0].token_ids_sha256
    )


def test_plain_rows_may_be_missing(tmp_path: Path) -> None:
    """Positions say which rows there are; the gaps are recorded."""

    held = [0, 1, 5, 6, 7, 19]
    some = replace(capture(1, count=1, length=20), positions={"p0": held})
    source = open_source(plain(tmp_path / "p", some, SLOTS, KEYS))
    assert source.positions("p0").tolist() == held
    assert source.prompts[0].missing == ((2, 5), (8, 19))


def test_no_folder_and_no_capture(made: Capture, tmp_path: Path) -> None:
    """A mistyped name lists what lies beside it; a folder of captures says that it is one."""
    made.write(tmp_path / "vllm")
    with pytest.raises(HsparityError) as caught:
        open_source(tmp_path / "vlm")
    assert caught.value.code == "E202"
    assert "vllm" in caught.value.notes[0]
    assert code_of(tmp_path) == "E202"
    assert code_of(tmp_path / "vllm" / "manifest.json") == "E202"


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "hsparity.capture/1"}', "\x00"])
def test_a_broken_manifest(made: Capture, tmp_path: Path, text: str) -> None:
    folder = made.write(tmp_path / "c")
    (folder / "manifest.json").write_text(text)
    assert code_of(folder) == "E202"


@pytest.mark.parametrize("schema", ["hsparity.capture/2", "someone.else/1"])
def test_an_unknown_schema(made: Capture, tmp_path: Path, schema: str) -> None:
    folder = made.write(tmp_path / "c")
    raw = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**raw, "schema": schema}))
    assert code_of(folder) == "E201"


def test_an_unfinished_capture(made: Capture, tmp_path: Path) -> None:
    """Without its manifest a capture says how many prompts it has and how to go on."""
    folder = made.write(tmp_path / "c")
    (folder / "manifest.json").unlink()
    (folder / "journal.jsonl").write_text("{}\n{}\n")
    with pytest.raises(HsparityError) as caught:
        open_source(folder)
    assert caught.value.code == "E207"
    assert "2 prompts" in caught.value.notes[0]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def _garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8:40] = b"\xff" * 32
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [_cut, _flip, _garble, Path.unlink])
def test_a_damaged_shard_is_never_a_verdict(
    made: Capture, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Truncated, altered, garbled or missing: E206, whatever the comparison would have said."""
    ref = open_source(made.write(tmp_path / "ref"))
    folder = made.write(tmp_path / "cand")
    damage(folder / "shards" / "00001.g0.safetensors")
    with pytest.raises(HsparityError) as caught:
        compare(ref, open_source(folder), [], Query())
    assert caught.value.code == "E206"
    assert caught.value.exit_code is ExitCode.USAGE


VALUES = {
    "schema is a number": (("schema",), 1, "E201"),
    "settings is null": (("settings",), None, "E206"),
    "environment is a list": (("environment",), [1], "E206"),
    "label is a number": (("native_labels",), {"slot.000": 1}, "E206"),
    "weights is a number": (("weights_sha256",), 3, "E206"),
    "dtype is unknown": (("dtype",), "int8", "E206"),
    "dtype is a list": (("dtype",), [], "E206"),
    "no layers": (("num_layers",), 0, "E206"),
    "width is true": (("hidden_size",), True, "E206"),
    "prompts is a number": (("prompts",), 1, "E202"),
    "prompt id is a list": (("prompts", 0, "id"), [], "E206"),
    "prompt id twice": (("prompts", 0, "id"), "p1", "E206"),
    "rows beyond tokens": (("prompts", 0, "rows"), 21, "E206"),
    "unknown site": (("shards", 0, "sites"), ["attic"], "E206"),
    "shard of no prompt": (("shards", 0, "prompt"), "x", "E206"),
    "no file can be called so": (("shards", 0, "path"), "\0", "E206"),
    "eps is huge": (("norm", "eps"), 10**400, "E206"),
    "native ids of lists": (("settings", "native_ids"), [[1]], "E206"),
    "native ids of text": (("settings", "native_ids"), "2,4", "E206"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_manifest_value_that_no_capture_has(made: Capture, tmp_path: Path, name: str) -> None:
    """Refused when the folder is opened, with the place named."""
    path, value, code = VALUES[name]
    folder = made.write(tmp_path / "c")
    _set(*path, value=value, file="manifest.json")(folder)
    assert code_of(folder) == code


def test_an_unreadable_manifest(made: Capture, tmp_path: Path) -> None:
    """A manifest that is nested beyond reason, and a name too long to look up."""
    folder = made.write(tmp_path / "c")
    (folder / "manifest.json").write_text("[" * 100_000)
    assert code_of(folder) == "E202"
    assert code_of(tmp_path / ("x" * 300)) == "E202"


SHARDS: dict[str, Callable[[dict[str, torch.Tensor]], object]] = {
    "narrow": lambda t: t.update({"boundary.003": t["boundary.003"][:, :10].clone()}),
    "3-D": lambda t: t.update({"boundary.003": t["boundary.003"][:, None].clone()}),
    "uint8": lambda t: t.update({"boundary.003": t["boundary.003"].to(torch.uint8)}),
    "int32": lambda t: t.update({"boundary.003": t["boundary.003"].int()}),
    "another float": lambda t: t.update({"boundary.003": t["boundary.003"].float()}),
    "negative position": lambda t: t["positions"].__setitem__(0, -1),
    "position past the end": lambda t: t["positions"].__setitem__(0, 20),
    "float ids": lambda t: t.update(token_ids=t["token_ids"].float()),
}


@pytest.mark.parametrize("name", SHARDS)
def test_a_shard_that_its_manifest_does_not_describe(made: Capture, tmp_path: Path, name: str) -> None:
    """E206 with both sides lined up, although size and digest agree."""
    ref = open_source(made.write(tmp_path / "ref"))
    folder = made.write(tmp_path / "cand")
    file = folder / "shards" / "00001.g0.safetensors"
    tensors = load_file(file)
    SHARDS[name](tensors)
    save_file(tensors, file)
    data = file.read_bytes()
    for key, value in (("bytes", len(data)), ("sha256", hashlib.sha256(data).hexdigest())):
        _set("shards", 1, key, value=value, file="manifest.json")(folder)
    with pytest.raises(HsparityError) as caught:
        compare(ref, open_source(folder), [], Query())
    assert caught.value.code == "E206"
    assert len(caught.value.notes) == 2


@pytest.mark.parametrize(
    "entry",
    [
        {"data_offsets": [-4, 4]},
        {"data_offsets": [4, 99]},
        {"data_offsets": [4, 0]},
        {"shape": [-1]},
        {"dtype": []},
    ],
)
def test_a_header_that_points_outside_its_file(tmp_path: Path, entry: dict[str, object]) -> None:
    head = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}}).encode()
    (tmp_path / "f").write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))
    with pytest.raises(HsparityError) as caught:
        read_header(tmp_path / "f")
    assert caught.value.code == "E206"


def test_a_damaged_norm_file(made: Capture, tmp_path: Path) -> None:
    folder = made.write(tmp_path / "c")
    _flip(folder / "norm.safetensors")
    assert code_of(folder) == "E206"


def _set(*path: Any, value: Any, file: str = "plain.json") -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        raw = json.loads((folder / file).read_text())
        place = raw
        for key in path[:-1]:
            place = place[key]
        if value is None and file == "plain.json":
            del place[path[-1]]
        else:
            place[path[-1]] = value
        (folder / file).write_text(json.dumps(raw))

    return edit


def _tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "p1.safetensors")
        change(tensors)
        save_file(tensors, folder / "p1.safetensors")

    return edit


def _write(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "plain.json").write_text(text) and None


MALFORMED = {
    "not json": (_write("{"), "plain.json", "JSON"),
    "not an object": (_write("[]"), "plain.json", "an object"),
    "no format": (_set("format", value=None), "format", "hsparity.plain/1"),
    "other format": (_set("format", value="x/1"), "format", "hsparity.plain/1"),
    "no model": (_set("model", value=None), "model", "an object"),
    "model is text": (_set("model", value="m"), "model", "an object"),
    "no layers": (_set("model", "num_layers", value=None), "model.num_layers", "an integer"),
    "layers as text": (_set("model", "num_layers", value="8"), "model.num_layers", "an integer"),
    "layers true": (_set("model", "num_layers", value=True), "model.num_layers", "an integer"),
    "no layer": (_set("model", "num_layers", value=0), "model.num_layers", "a positive integer"),
    "no name": (_set("model", "name", value=None), "model.name", "text"),
    "no slots": (_set("slots", value=None), "slots", "a list"),
    "empty slots": (_set("slots", value=[]), "slots", "at least one slot"),
    "slot of nothing": (_set("slots", 0, value={}), "slots[0]", "boundary"),
    "slot is a number": (_set("slots", 0, value=3), "slots[0]", "boundary"),
    "boundary too large": (
        _set("slots", 0, value={"boundary": LAYERS + 1}),
        "slots[0].boundary",
        f"0 to {LAYERS}",
    ),
    "boundary as text": (_set("slots", 0, value={"boundary": "2"}), "slots[0].boundary", "an integer"),
    "unknown site": (_set("slots", 0, value={"site": "attic"}), "slots[0].site", "final_norm"),
    "slot twice": (_set("slots", 0, value={"site": "final_norm"}), "slots[2]", "named once"),
    "slot too many": (_set("slots", value=[*SLOTS, {"label": "x"}]), "p0.safetensors", "4 slots"),
    "other width": (_set("model", "hidden_size", value=64), "p0.safetensors", "64"),
    "no norm file": (_set("model", "norm_weight", value="n.safetensors"), "model.norm_weight", "a file"),
    "settings as list": (_set("settings", value=[1]), "settings", "an object"),
    "no states": (
        _tensors(lambda t: t.pop("hidden_states")),
        "p1.safetensors, tensor hidden_states",
        "to be there",
    ),
    "no ids": (_tensors(lambda t: t.pop("token_ids")), "p1.safetensors, tensor token_ids", "to be there"),
    "integer states": (
        _tensors(lambda t: t.update(hidden_states=t["hidden_states"].int())),
        "p1.safetensors, tensor hidden_states",
        "BF16",
    ),
    "float ids": (_tensors(lambda t: t.update(token_ids=t["token_ids"].float())), "token_ids", "I64"),
    "ids of rank two": (
        _tensors(lambda t: t.update(token_ids=t["token_ids"][None])),
        "token_ids",
        "shape [T]",
    ),
    "states of rank two": (
        _tensors(lambda t: t.update(hidden_states=t["hidden_states"][:, 0].clone())),
        "hidden_states",
        "shape [R",
    ),
    "fewer rows": (
        _tensors(lambda t: t.update(hidden_states=t["hidden_states"][:9].clone())),
        "hidden_states",
        "positions [R]",
    ),
    "positions too long": (
        _tensors(lambda t: t.update(positions=torch.arange(9))),
        "positions",
        "integers [20]",
    ),
    "positions outside": (
        _tensors(lambda t: t.update(positions=torch.arange(1, 21))),
        "positions",
        "0 to 19",
    ),
    "positions repeat": (
        _tensors(lambda t: t.update(positions=torch.zeros(20, dtype=torch.int64))),
        "positions",
        "once",
    ),
    "positions beyond int32": (
        _tensors(lambda t: t.update(positions=torch.arange(20) + 2**32)),
        "positions",
        "0 to 2147483647",
    ),
    "ids beyond int32": (
        _tensors(lambda t: t.update(token_ids=t["token_ids"].long() + 2**32)),
        "token_ids",
        "0 to 2147483647",
    ),
    "negative ids": (
        _tensors(lambda t: t.update(token_ids=t["token_ids"].long() - 2**20)),
        "token_ids",
        "0 to 2147483647",
    ),
    "unknown dtype": (
        _tensors(lambda t: t.update(hidden_states=t["hidden_states"].to(torch.uint8))),
        "hidden_states",
        "BF16",
    ),
    "native ids of text": (_set("settings", value={"native_ids": [1, "a"]}), "native_ids", "integers"),
    "two dtypes": (
        _tensors(lambda t: t.update(hidden_states=t["hidden_states"].float())),
        "hidden_states",
        "one dtype",
    ),
    "no prompts": (
        lambda folder: [p.unlink() for p in folder.glob("p*.safetensors")] and None,
        "holds no prompt",
        "safetensors",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_plain_folder_says_where(made: Capture, tmp_path: Path, name: str) -> None:
    """E209 names the file and the key, what was expected and what was found."""
    edit, where, expected = MALFORMED[name]
    folder = plain(tmp_path / "p", made, SLOTS, KEYS)
    edit(folder)
    with pytest.raises(HsparityError) as caught:
        open_source(folder)
    assert caught.value.code == "E209"
    assert where in caught.value.message
    assert expected in " ".join(caught.value.notes)


def test_a_newer_plain_format(made: Capture, tmp_path: Path) -> None:
    folder = plain(tmp_path / "p", made, SLOTS, KEYS)
    _set("format", value="hsparity.plain/2")(folder)
    assert code_of(folder) == "E201"


def test_a_truncated_plain_file(made: Capture, tmp_path: Path) -> None:
    folder = plain(tmp_path / "p", made, SLOTS, KEYS)
    _cut(folder / "p1.safetensors")
    assert code_of(folder) == "E206"


@pytest.mark.parametrize("weight", [torch.ones(7), torch.zeros(WIDTH), torch.full((WIDTH,), torch.nan)])
def test_a_final_norm_that_cannot_be_one(made: Capture, tmp_path: Path, weight: torch.Tensor) -> None:
    """Another length, zeros or NaN are refused on either side, whatever the digest says."""
    good = open_source(made.write(tmp_path / "good"))
    folder = made.write(tmp_path / "bad")
    save_file({"norm": weight}, folder / "norm.safetensors")
    about = json.loads((folder / "manifest.json").read_text())
    about["norm"]["sha256"] = hashlib.sha256((folder / "norm.safetensors").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(about))
    for sides in ((good, open_source(folder)), (open_source(folder), good)):
        with pytest.raises(HsparityError) as error:
            compare(*sides, [], Query())
        assert error.value.code == "E206"


def test_an_offset_that_leaves_no_pair(made: Capture, tmp_path: Path) -> None:
    source = open_source(made.write(tmp_path / "c"))
    with pytest.raises(HsparityError) as error:
        compare(source, source, [], Query(offset=99))
    assert error.value.code == "E102"
