"""Importing: what is begun is finished, what was made anew is refused, what is said of ids has to fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from hsparity.capture import foreign, importing
from hsparity.capture.importing import Wish
from hsparity.capture.read import open_source
from hsparity.cli.main import invoke
from hsparity.errors import HsparityError

REAL = Path(__file__).parent / "real"


def v1(folder: Path, lengths: tuple[int, ...], seed: int = 0) -> Path:
    """Hand-built: data_<i>.pt of random states, three auxiliary slots and the last."""
    draw = torch.Generator().manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for i, n in enumerate(lengths):
        ids = torch.randint(5, 90, (n,), generator=draw)
        states = [torch.randn(n, 16, generator=draw).bfloat16() for _ in range(4)]
        torch.save(
            {"input_ids": ids, "hidden_states": states, "loss_mask": torch.ones(n)}, folder / f"data_{i}.pt"
        )
    return folder


def code_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert invoke(list(words)) == 2
    return capsys.readouterr().err.split("[")[1][:4]


def test_a_dataset_made_anew_is_not_the_one_that_was_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal names, other files: refused, by import and by export."""
    v1(tmp_path / "data", (6, 7))
    first = ["import", str(tmp_path / "data"), "-o", str(tmp_path / "out")]
    second = ["export", str(tmp_path / "data"), "--to", "speculators-v1", "-o", str(tmp_path / "exported")]
    assert invoke(first) == invoke(first) == 0
    assert invoke(second) == invoke(second) == 0
    v1(tmp_path / "data", (9, 9), seed=1)
    capsys.readouterr()
    assert code_of(*first, capsys=capsys) == "E204"
    assert code_of(*second, capsys=capsys) == "E204"


@pytest.mark.parametrize("leftover", ["shards", "spec.json.123.tmp"])
def test_an_import_stopped_in_its_first_write_goes_on(tmp_path: Path, leftover: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / leftover).mkdir() if leftover == "shards" else (out / leftover).touch()
    assert invoke(["import", str(v1(tmp_path / "data", (6,))), "-o", str(out)]) == 0
    assert len(open_source(out).prompts) == 1


def test_a_resumed_import_says_what_the_whole_one_says(tmp_path: Path) -> None:
    """Warnings of samples come from the journal: the second half says those of the first as well."""
    opened = foreign.open_dataset(REAL / "sglang-response" / "chunked.json", "chunked")
    ids = tuple(range(20, 42))
    wish = Wish(token_ids=(ids,))
    whole = importing.import_dataset(opened, tmp_path / "whole", wish)
    shutil.copytree(tmp_path / "whole", tmp_path / "half")
    (tmp_path / "half" / "manifest.json").unlink()
    again = importing.import_dataset(opened, tmp_path / "half", wish)
    assert again.manifest.warnings == whole.manifest.warnings
    assert any("chunk" in text or "rows" in text for text in whole.manifest.warnings)


@pytest.mark.parametrize(
    ("count", "code"), [(3, "E105"), (21, "E105"), (22, ""), (23, ""), (24, "E105"), (5000, "E105")]
)
def test_given_ids_have_to_fit_the_rows(tmp_path: Path, count: int, code: str) -> None:
    """The real answer holds rows 16 to 19 of a prompt of 20 and two decoded ones: lists that end elsewhere are another prompt's."""
    opened = foreign.open_dataset(REAL / "sglang-response" / "chunked.json", "chunked")
    wish = Wish(token_ids=(tuple(range(count)),))
    if not code:
        made = importing.import_dataset(opened, tmp_path / "out", wish)
        (prompt,) = made.manifest.prompts
        assert prompt.rows == 6
        assert not any("prompt ids" in text for text in made.manifest.warnings)
        return
    with pytest.raises(HsparityError) as caught:
        importing.import_dataset(opened, tmp_path / "out", wish)
    assert caught.value.code == code


def test_ids_for_files_that_hold_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lists for a dataset with ids of its own, or more lists than samples, are a mistake, not a wish."""
    data = v1(tmp_path / "data", (6,))
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(json.dumps([1] * 6))
    two.write_text(f"{json.dumps([1] * 6)}\n{json.dumps([2] * 6)}\n")
    words = ["import", str(data), "-o", str(tmp_path / "out"), "--token-ids"]
    assert code_of(*words, str(one), capsys=capsys) == "E103"
    words[3] = str(tmp_path / "other")
    assert code_of(*words, str(two), capsys=capsys) == "E105"


def test_the_output_never_lies_in_the_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = v1(tmp_path / "data", (6,))
    assert code_of("import", str(data), "-o", str(data / "capture"), capsys=capsys) == "E106"
    assert code_of("import", str(data), "-o", str(data), capsys=capsys) == "E106"
    assert invoke(["inspect", str(data)]) == 0


def test_captures_made_of_a_dataset_are_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit's work folder below the dataset is passed over: the next audit sees the same samples."""
    data = v1(tmp_path / "data", (6, 7, 8))
    monkeypatch.chdir(data)
    before = [r.id for r in foreign.open_dataset(Path(), ".").records()]
    assert invoke(["audit", "."]) == 0
    assert [r.id for r in foreign.open_dataset(Path(), ".").records()] == before


@pytest.mark.parametrize("slots", ["last,last", "2,x", "b-1,2", "2,,3", "1e3"])
def test_names_that_name_nothing(slots: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = v1(tmp_path / "data", (6,))
    assert (
        code_of("import", str(data), "-o", str(tmp_path / "out"), "--slots", slots, capsys=capsys) == "E102"
    )
