"""One pass over all samples, which goes on where it was stopped."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hsparity.audit import scan as scanning
from hsparity.audit.scan import JOURNAL, Facts, scan
from hsparity.capture import foreign
from hsparity.capture.readers.base import Dataset, Record, Sample
from hsparity.errors import HsparityError
from tests.audit import bench


class Counted:
    """A dataset that tells what was read of it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> None:
        self.dataset: Dataset = foreign.open_dataset(path, str(path))
        self.ids: list[str] = []
        read = self.dataset.read

        def counted(record: Record) -> Sample:
            if stop_at is not None and len(self.ids) >= stop_at:
                raise KeyboardInterrupt
            self.ids.append(record.id)
            return read(record)

        monkeypatch.setattr(self.dataset, "read", counted)

    def scan(self, work: Path) -> list[Facts]:
        work.mkdir(exist_ok=True)
        return scan(self.dataset, self.dataset.records(), work)


@pytest.mark.parametrize("form", bench.FORMATS)
def test_a_second_pass_reads_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    path = bench.dataset(tmp_path / "data", form)
    first, second = Counted(path, monkeypatch), Counted(path, monkeypatch)
    before = first.scan(tmp_path / "work")
    assert len(first.ids) == 13
    assert second.scan(tmp_path / "work") == before
    assert second.ids == []


def test_the_scan_of_an_audit_is_resumed_as_well(tmp_path: Path) -> None:
    path = bench.dataset(tmp_path / "data")
    one = bench.run(path, tmp_path)
    lines = (tmp_path / "work" / JOURNAL).read_text()
    two = bench.run(path, tmp_path)
    assert (tmp_path / "work" / JOURNAL).read_text() == lines
    assert one.integrity == two.integrity


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2)
    Counted(path, monkeypatch).scan(tmp_path / "work")
    other = bench.written(tmp_path / "other", bench.V2, bench.samples((3, 5, 6, bench.LAST)))
    name = "hidden_states/hs_4.safetensors"
    (path / name).write_bytes((other / name).read_bytes())
    again = Counted(path, monkeypatch)
    found = again.scan(tmp_path / "work")
    assert again.ids == ["hs_4"]
    assert found == Counted(path, monkeypatch).scan(tmp_path / "fresh")


def test_what_could_not_be_read_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock leaves no trace in the file that it was held for."""
    path = bench.dataset(tmp_path / "data", bench.V2)
    file = path / "hidden_states" / "hs_3.safetensors"
    lock = file.with_name(file.name + ".lock")
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        first = Counted(path, monkeypatch).scan(tmp_path / "work")
        assert [f.code for f in first if f.code] == ["E218"]
    again = Counted(path, monkeypatch)
    assert not any(f.code for f in again.scan(tmp_path / "work"))
    assert again.ids == ["hs_3"]


def test_another_reading_of_the_same_files_is_another_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2)
    Counted(path, monkeypatch).scan(tmp_path / "work")
    told = Counted(path, monkeypatch)
    told.dataset.claimed = 4
    told.scan(tmp_path / "work")
    assert len(told.ids) == 13


@pytest.mark.parametrize(
    "torn", ['{"id": "data_3", "stamp": "1', "\x00\x00\x00", '{"id": 3}', "[]", "null", "\n\n"]
)
def test_a_torn_line_is_passed_over_and_the_next_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: str
) -> None:
    path = bench.dataset(tmp_path / "data")
    before = Counted(path, monkeypatch).scan(tmp_path / "work")
    journal = tmp_path / "work" / JOURNAL
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:5]) + torn)
    again = Counted(path, monkeypatch)
    assert again.scan(tmp_path / "work") == before
    assert len(again.ids) == 8
    third = Counted(path, monkeypatch)
    assert third.scan(tmp_path / "work") == before
    assert third.ids == []


def test_a_journal_that_is_no_text_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.dataset(tmp_path / "data")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / JOURNAL).write_bytes(bytes(range(256)) * 4)
    assert not any(f.code for f in Counted(path, monkeypatch).scan(tmp_path / "work"))


def test_stopped_in_the_middle_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "AT_ONCE", 4)
    path = bench.dataset(tmp_path / "data")
    stopped = Counted(path, monkeypatch, stop_at=6)
    with pytest.raises(KeyboardInterrupt):
        stopped.scan(tmp_path / "work")
    again = Counted(path, monkeypatch)
    found = again.scan(tmp_path / "work")
    assert [f.id for f in found] == [r.id for r in again.dataset.records()]
    assert len(again.ids) <= 9  # the first four were kept at least
    assert found == Counted(path, monkeypatch).scan(tmp_path / "fresh")


def test_the_journal_is_read_by_nothing_but_its_own_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version may write more."""
    path = bench.dataset(tmp_path / "data")
    Counted(path, monkeypatch).scan(tmp_path / "work")
    journal = tmp_path / "work" / JOURNAL
    lines = [json.loads(line) | {"later": 1} for line in journal.read_text().splitlines()]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = Counted(path, monkeypatch)
    again.scan(tmp_path / "work")
    assert again.ids == []


def test_progress_is_told_to_the_end(tmp_path: Path) -> None:
    path = bench.dataset(tmp_path / "data")
    opened = foreign.open_dataset(path, str(path))
    told: list[Sequence[object]] = []
    (tmp_path / "work").mkdir()
    scan(opened, opened.records(), tmp_path / "work", lambda *now: told.append(now))
    assert told[-1] == (13, 13, "data_12")


def test_a_folder_that_cannot_be_written_is_a_coded_error(tmp_path: Path) -> None:
    path = bench.dataset(tmp_path / "data")
    opened = foreign.open_dataset(path, str(path))
    with pytest.raises(HsparityError) as caught:
        scan(opened, opened.records(), tmp_path / "nowhere")
    assert caught.value.code == "E205"


def test_a_repair_into_a_folder_that_holds_something_is_refused_before_any_work(tmp_path: Path) -> None:
    path = bench.dataset(tmp_path / "data")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(HsparityError) as caught:
        bench.run(path, tmp_path, repair=tmp_path / "out")
    assert caught.value.code == "E106"
    assert not (tmp_path / "work").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(HsparityError) as caught:
        bench.run(path, tmp_path, repair=tmp_path / "file")
    assert caught.value.code == "E106"


def test_a_repair_into_the_dataset_itself_is_refused(tmp_path: Path) -> None:
    """Its files would be samples of it from then on."""
    path = bench.dataset(tmp_path / "data")
    with pytest.raises(HsparityError) as caught:
        bench.run(path, tmp_path, repair=path / "fixed")
    assert caught.value.code == "E106"
    assert not (tmp_path / "work").exists()
