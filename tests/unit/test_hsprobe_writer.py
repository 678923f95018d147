"""A capture folder survives kills, torn lines, full disks and changed minds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from hsprobe import writer as writing
from hsprobe.protocol import ProbeError
from hsprobe.schema import SCHEMA, CaptureManifest, CaptureSpec, Prompt, PromptSpec
from hsprobe.writer import CaptureWriter, file_sha256, write_safetensors

KILLED_WRITER = """
import os, random, signal, sys, time
from pathlib import Path
from hsprobe.writer import CaptureWriter
sys.path.insert(0, sys.argv[2])
from test_hsprobe_writer import commit, make_spec

out, spec, chance = Path(sys.argv[1]), make_spec(40), random.Random(7)

def finish_what_is_left():
    writer = CaptureWriter(out, spec)
    for index, prompt in enumerate(spec.prompts):
        if prompt.id not in writer.done:
            commit(writer, index)

kills = 0
while kills < 8:
    child = os.fork()
    if not child:
        finish_what_is_left()
        os._exit(0)
    time.sleep(chance.uniform(0.002, 0.02))
    os.kill(child, signal.SIGKILL)
    if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        kills += 1
    elif len(CaptureWriter(out, spec).done) == 40:
        break
finish_what_is_left()
print(kills)
"""


def make_spec(prompts: int = 3, **changes: object) -> CaptureSpec:
    specs = tuple(PromptSpec(f"p{i}", tuple(range(i, i + 16))) for i in range(prompts))
    return CaptureSpec("hf", "model", specs, ("boundary.*",), **changes)  # type: ignore[arg-type]


def commit(writer: CaptureWriter, index: int) -> None:
    prompt = writer.spec.prompts[index]
    tokens = torch.tensor(prompt.token_ids, dtype=torch.int32)
    record = Prompt(prompt.id, 16, 16, 16, (), "", ())
    hidden_th = torch.full((16, 512), float(index)).bfloat16()
    rows = {"token_ids": tokens, "positions": torch.arange(16).int(), "steps": torch.zeros(16).int()}
    writer.commit(
        index, record, rows, {"boundary.000": hidden_th, "boundary.001": hidden_th + 1}, {"rows": 16}
    )


def commit_and_finish(writer: CaptureWriter, index: int) -> None:
    commit(writer, index)
    writer.finish(manifest_of(writer))


def manifest_of(writer: CaptureWriter) -> CaptureManifest:
    done = list(writer.done.values())
    return CaptureManifest(
        SCHEMA, "hf", "1", "model", "", "Llama", "", 1, 512, "bfloat16", {}, {}, {},
        tuple(c.prompt for c in done), tuple(s for c in done for s in c.shards), writer.spec.sha256(),
        "complete",
    )  # fmt: skip


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root passes every permission check, so act as another user meanwhile."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_shard_reads_back_bit_equal_in_every_dtype(tmp_path: Path) -> None:
    """Bytes written without safetensors' writer are what safetensors' reader returns."""
    tensors = {
        "f": torch.randn(3, 5),
        "b": torch.randn(7, 3).bfloat16(),
        "h": torch.randn(2, 2).half(),
        "i": torch.arange(5, dtype=torch.int32),
        "odd": torch.arange(3, dtype=torch.uint8),
        "strided": torch.randn(6, 4).T,
        "empty": torch.zeros(0, 8),
    }
    digest, size = write_safetensors(tmp_path / "x.safetensors", tensors, {"prompt": "p"})
    found = load_file(tmp_path / "x.safetensors")
    assert set(found) == set(tensors)
    assert all(
        torch.equal(found[key], tensors[key]) and found[key].dtype == tensors[key].dtype for key in tensors
    )
    assert (digest, size) == (
        file_sha256(tmp_path / "x.safetensors"),
        (tmp_path / "x.safetensors").stat().st_size,
    )
    with safe_open(tmp_path / "x.safetensors", "pt") as shard:
        assert shard.metadata() == {"prompt": "p"}


def test_sigkill_at_any_moment_loses_no_finished_prompt(tmp_path: Path) -> None:
    """Eight kills later every prompt is there, every hash right and nothing is left over."""
    program = [sys.executable, "-W", "ignore", "-c", KILLED_WRITER, str(tmp_path), str(Path(__file__).parent)]
    kills = int(subprocess.run(program, check=True, capture_output=True, text=True, timeout=100).stdout)
    assert kills >= 3
    writer = CaptureWriter(tmp_path, make_spec(40))
    assert sorted(writer.done) == sorted(p.id for p in make_spec(40).prompts)
    for index, prompt in enumerate(writer.spec.prompts):
        (shard,) = writer.done[prompt.id].shards
        assert file_sha256(tmp_path / shard.path) == shard.sha256
        assert float(load_file(tmp_path / shard.path)["boundary.000"][0, 0]) == index
    assert not list(tmp_path.rglob("*.tmp"))
    assert len(list((tmp_path / "shards").iterdir())) == 40


@pytest.mark.parametrize("torn", [b'{"prompt": {"id": "p1"', b"\xff\x00garbage"])
def test_a_torn_last_journal_line_costs_only_its_own_prompt(tmp_path: Path, torn: bytes) -> None:
    """The line is cut off, so the next commit is not glued to it."""
    commit(CaptureWriter(tmp_path, make_spec()), 0)
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(torn)
    writer = CaptureWriter(tmp_path, make_spec())
    assert list(writer.done) == ["p0"]
    commit(writer, 1)
    assert list(CaptureWriter(tmp_path, make_spec()).done) == ["p0", "p1"]


def test_a_damaged_line_inside_the_journal_is_refused(tmp_path: Path) -> None:
    """A crash tears only the end; damage elsewhere is not ours to repair."""
    writer = CaptureWriter(tmp_path, make_spec())
    commit(writer, 0)
    commit(writer, 1)
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_bytes(lines[0][:40] + b"\n" + lines[1])
    with pytest.raises(ProbeError) as error:
        CaptureWriter(tmp_path, make_spec())
    assert error.value.code == "E206"


def test_a_prompt_whose_shard_is_gone_or_short_is_captured_again(tmp_path: Path) -> None:
    """The journal's word is checked against the files."""
    writer = CaptureWriter(tmp_path, make_spec())
    for index in range(3):
        commit(writer, index)
    (tmp_path / writer.done["p0"].shards[0].path).unlink()
    short = tmp_path / writer.done["p1"].shards[0].path
    short.write_bytes(short.read_bytes()[:-1])
    assert list(CaptureWriter(tmp_path, make_spec()).done) == ["p2"]


def test_leftovers_are_dropped_on_start(tmp_path: Path) -> None:
    """A killed writer's temporary files and an old engine's spool do not reach the next run."""
    commit(CaptureWriter(tmp_path, make_spec()), 0)
    (tmp_path / "shards" / "00001.safetensors.99.tmp").write_bytes(b"half")
    (tmp_path / "manifest.json.99.tmp").write_bytes(b"{")
    (tmp_path / "spool" / "step-000-00000000.safetensors").write_bytes(b"old")
    CaptureWriter(tmp_path, make_spec())
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list((tmp_path / "spool").iterdir())


@pytest.mark.parametrize("changes", [{"generate": 2}, {"dtype": "float32"}, {"prompts": 4}])
def test_a_changed_spec_is_refused_by_name(tmp_path: Path, changes: dict[str, object]) -> None:
    """Resuming under another spec would mix two captures; the message names what changed."""
    commit(CaptureWriter(tmp_path, make_spec()), 0)
    with pytest.raises(ProbeError) as error:
        CaptureWriter(tmp_path, make_spec(**changes))  # type: ignore[arg-type]
    assert error.value.code == "E204"
    assert next(iter(changes)) in error.value.message


def test_shards_without_a_spec_are_refused(tmp_path: Path) -> None:
    """Nobody can say what such shards are."""
    commit(CaptureWriter(tmp_path, make_spec()), 0)
    (tmp_path / "spec.json").unlink()
    with pytest.raises(ProbeError) as error:
        CaptureWriter(tmp_path, make_spec())
    assert error.value.code == "E204"


def test_the_manifest_appears_last_and_alone_means_complete(tmp_path: Path) -> None:
    """Before finish there is none; after it the spool is gone and the manifest reads back equal."""
    writer = CaptureWriter(tmp_path, make_spec(1))
    commit(writer, 0)
    assert writer.complete is None
    writer.finish(manifest_of(writer))
    assert CaptureWriter(tmp_path, make_spec(1)).complete == manifest_of(writer)
    assert json.loads((tmp_path / "spec.json").read_text()) == json.loads(make_spec(1).to_json())


@pytest.mark.parametrize(
    "full", ["shards/00001.safetensors.{pid}.tmp", "journal.jsonl", "manifest.json.{pid}.tmp"]
)
def test_a_full_disk_is_e205_and_keeps_finished_prompts(tmp_path: Path, full: str) -> None:
    """/dev/full answers every write with ENOSPC, wherever it strikes."""
    writer = CaptureWriter(tmp_path, make_spec(2))
    commit(writer, 0)
    place = tmp_path / full.format(pid=os.getpid())
    kept = place.read_bytes() if place.exists() else None
    place.unlink(missing_ok=True)
    place.symlink_to("/dev/full")
    with pytest.raises(ProbeError) as error:
        commit_and_finish(writer, 1)
    assert error.value.code == "E205"
    assert not list(tmp_path.rglob("*.tmp"))  # what could not be finished gives its room back
    place.unlink(missing_ok=True)
    if kept is not None:
        place.write_bytes(kept)
    assert "p0" in CaptureWriter(tmp_path, make_spec(2)).done
    assert not (tmp_path / "manifest.json").exists()


def test_a_read_only_folder_is_e106() -> None:
    """The message names the folder and the system's reason."""
    with tempfile.TemporaryDirectory() as frozen:  # not tmp_path: its parents are closed to other users
        Path(frozen).chmod(0o555)
        with unprivileged(), pytest.raises(ProbeError) as error:
            CaptureWriter(Path(frozen) / "capture", make_spec())
    assert error.value.code == "E106"
    assert "Permission denied" in error.value.message


def test_a_file_in_the_way_is_e106(tmp_path: Path) -> None:
    """A capture cannot be a folder where a file is."""
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(ProbeError) as error:
            CaptureWriter(path, make_spec())
        assert error.value.code == "E106"


def test_a_large_prompt_is_split_by_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part holds whole sites and its own row keys; together they hold every site once."""
    monkeypatch.setattr(writing, "SHARD_BYTES", 5000)
    writer = CaptureWriter(tmp_path, make_spec(1))
    rows = {key: torch.arange(8).int() for key in ("token_ids", "positions", "steps")}
    sites = {f"boundary.{i:03d}": torch.randn(8, 64) for i in range(5)}  # 2048 bytes each
    sites["prompt_logprobs"] = torch.randn(7, 6)
    sites["prompt_logprob_ids"] = torch.zeros(7, 6).int()
    shards = writer.commit(0, Prompt("p0", 8, 8, 8, (), ""), rows, sites, {})
    assert [s.sites for s in shards] == [
        ("boundary.000", "boundary.001"),
        ("boundary.002", "boundary.003"),
        ("boundary.004", "prompt_logprobs"),
    ]
    parts = [load_file(tmp_path / s.path) for s in shards]
    assert all(torch.equal(part["positions"], rows["positions"]) for part in parts)
    assert all(
        any(torch.equal(part.get(key, torch.empty(0)), t) for part in parts) for key, t in sites.items()
    )


def test_an_engine_process_reports_a_full_disk_as_text() -> None:
    """The reason survives RPC and foreign exception types, along the chain of causes."""
    inner = RuntimeError("worker died: I/O error: No space left on device (os error 28)")
    outer = RuntimeError("engine failed")
    outer.__cause__ = inner
    assert writing.disk_full(outer)
    assert not writing.disk_full(RuntimeError("engine failed"))
