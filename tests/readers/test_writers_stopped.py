"""An export that is stopped, or meets a full disk or a damaged capture, loses nothing and is finished by the same command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hsparity import registry
from hsparity.capture import exporting, exportplan, foreign
from hsparity.capture.read import open_source
from hsparity.capture.readers import pickled
from hsparity.capture.readers.base import Record, Sample
from hsparity.capture.writers.base import Layout
from hsparity.errors import HsparityError
from tests.readers import asserts, exports
from tests.readers.exports import FORMATS, Made

UNNORMED = ("speculators-v1", "speculators-v2")
PROMPTS = (Made(6), Made(9, prefill=5), Made(4))
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from tests.readers import exports
from tests.readers.test_writers_stopped import all_whole

capture, out, name, chance = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], random.Random(7)
exports.exported(capture, out.with_name("warm"), name)  # what the children need is imported
kills = 0
while True:
    child = os.fork()
    if not child:
        exports.exported(capture, out, name)
        os._exit(0)
    time.sleep(chance.uniform(0.001, 0.02) + 0.005 * kills)  # longer each time: the end alone takes a while
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        sys.exit(f"a child failed: {status}") if status else None
        break
    kills += 1
    all_whole(out)
print(kills)
"""


def all_whole(out: Path) -> None:
    """Asserts that every sample file of a stopped export opens."""
    if (out / exporting.CLAIM).exists() and json.loads((out / exporting.CLAIM).read_text()).get("finished"):
        return
    for path in out.rglob("*"):
        if path.name.endswith(".safetensors"):
            load_file(path)
        elif path.name.endswith((".pt", ".ckpt")):
            pickled.load(path)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file but those that say when and from where."""
    said = (exporting.CLAIM, exporting.JOURNAL, "data_config.json")
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name not in said
    }


@pytest.mark.parametrize("name", FORMATS)
def test_a_killed_export_leaves_whole_files_and_goes_on(tmp_path: Path, name: str) -> None:
    """Killed again and again it ends as one that ran through, byte for byte."""
    sites = [f"boundary.{b:03d}" for b in range(5)] + ["final_norm"]
    exports.capture(tmp_path / "c", [Made(3 + i % 5) for i in range(25)], sites)
    exports.exported(tmp_path / "c", tmp_path / "straight", name)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "c"), str(tmp_path / "killed"), name]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=asserts.REAL.parents[2], env=environment
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3
    assert tree(tmp_path / "killed") == tree(tmp_path / "straight")


class StopsAt(exportplan.Chosen):
    """A capture that cannot be read on after some samples, as when the program is stopped."""

    stop = 3

    def read(self, record: Record) -> Sample:
        if record.index == self.stop:
            raise KeyboardInterrupt
        return super().read(record)


@pytest.mark.parametrize("name", UNNORMED)
def test_a_stopped_export_is_no_dataset_yet(tmp_path: Path, name: str) -> None:
    """Nothing that makes a folder a dataset is there; the rows that are, are kept."""
    source = open_source(exports.capture(tmp_path / "c", [Made(4)] * 5))
    keys = ("boundary.001", "boundary.002", "boundary.004")
    writer, layout, out = registry.writers()[name], Layout("made", (1, 2), 4), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        exporting.export(StopsAt(source, keys), out, writer, (0, 1, 2), layout)
    held = {path.name for path in out.rglob("*") if path.is_file()}
    assert not held & {"state.json", "dataset_info.json", "data_config.json", "data-00000-of-00001.arrow"}
    assert len([n for n in held if n.startswith(("data_", "hs_"))]) == 3
    assert not [n for n in held if n.endswith(".tmp")]
    with pytest.raises(HsparityError) as error:
        exporting.export(StopsAt(source, keys), out, writer, (0, 2, 1), layout)
    assert error.value.code == "E204"
    made = exporting.export(exportplan.Chosen(source, keys), out, writer, (0, 1, 2), layout)
    assert made.count == 5
    dataset = asserts.opened(out, name)
    for i, record in enumerate(dataset.records()):
        asserts.same(dataset.read(record), [exports.states_of(i, key, Made(4)) for key in keys])


def test_a_damaged_capture_is_not_exported(tmp_path: Path) -> None:
    """A shard with a bit turned over is E206, and the export stays unfinished."""
    exports.capture(tmp_path / "c", PROMPTS)
    shard = tmp_path / "c" / "shards" / "00001.safetensors"
    raw = bytearray(shard.read_bytes())
    raw[-5] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(HsparityError) as error:
        exports.exported(tmp_path / "c", tmp_path / "out", "speculators-v2")
    assert error.value.code == "E206"
    assert not (tmp_path / "out" / "state.json").exists()


class FillsDisk(exportplan.Chosen):
    """As the second sample is read, the disk fills up: what is written next goes to /dev/full."""

    blocked: Path

    def read(self, record: Record) -> Sample:
        if record.index == 1:
            name = self.blocked.with_name(f"{self.blocked.name}.{os.getpid()}.tmp")
            name.parent.mkdir(exist_ok=True)
            name.symlink_to("/dev/full")
        return super().read(record)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("speculators-v1", "data_1.pt"),
        ("speculators-v2", "hidden_states/hs_1.safetensors"),
        ("specforge", "rows_0-2000/data_1.ckpt"),
    ],
)
def test_a_full_disk_is_e205_and_resumable(tmp_path: Path, name: str, file: str) -> None:
    """The first sample is kept, and the same command finishes later."""
    source = open_source(exports.capture(tmp_path / "c", PROMPTS))
    writer, out = registry.writers()[name], tmp_path / "out"
    dataset = FillsDisk(source, ("boundary.001", "boundary.004"))
    dataset.blocked = out / file
    with pytest.raises(HsparityError) as error:
        exporting.export(dataset, out, writer, (0, 1), Layout())
    assert error.value.code == "E205"
    healthy = exportplan.Chosen(source, ("boundary.001", "boundary.004"))
    assert exporting.export(healthy, out, writer, (0, 1), Layout()).count == 3
    assert len(foreign.open_dataset(out, str(out)).records()) == 3


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Files of four terabytes, which hold nothing, on a disk that has not that much room."""
    exports.exported(exports.capture(tmp_path / "c", PROMPTS), tmp_path / "big", "speculators-v1")
    with (tmp_path / "big" / "data_7.pt").open("wb") as file:
        file.truncate(4 << 40)
    with pytest.raises(HsparityError) as error:
        exports.exported(tmp_path / "big", tmp_path / "out", "speculators-v2", None)
    assert error.value.code == "E205"
    assert [p.name for p in (tmp_path / "out").iterdir()] == [exporting.CLAIM]


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_may_be_left_out(tmp_path: Path, name: str) -> None:
    """A repaired dataset keeps its samples' numbers; nothing is learnt from one that is not there."""
    source = open_source(exports.capture(tmp_path / "c", PROMPTS))
    dataset = exportplan.Chosen(source, ("boundary.001", "boundary.004"))
    records, out = dataset.records(), tmp_path / "out"
    out.mkdir()
    sink = registry.writers()[name].begin(out, Layout())
    for index, record in ((1, records[0]), (4, records[2])):
        sink.add(index, dataset.read(record))
    sink.finish()
    back = asserts.opened(out, name)
    assert [record.index for record in back.records()] == [1, 4]
    asserts.same(back.read(back.records()[1]), dataset.read(records[2]).states)
    if name in UNNORMED:
        counts = pickled.load(out / "token_freq.pt")
        assert sum(counts.values()) == PROMPTS[0].tokens + PROMPTS[2].tokens


def test_lost_rows_are_not_filled_up(tmp_path: Path) -> None:
    """Files of states whose rows are gone are E206: new rows would not be theirs."""
    source = open_source(exports.capture(tmp_path / "c", [Made(4)] * 5))
    keys, out = ("boundary.001", "boundary.004"), tmp_path / "out"
    writer = registry.writers()["speculators-v2"]
    with pytest.raises(KeyboardInterrupt):
        exporting.export(StopsAt(source, keys), out, writer, (0, 1), Layout())
    (out / "hsparity-rows.arrow").unlink()
    with pytest.raises(HsparityError, match="has lost rows") as error:
        exporting.export(exportplan.Chosen(source, keys), out, writer, (0, 1), Layout())
    assert error.value.code == "E206"
