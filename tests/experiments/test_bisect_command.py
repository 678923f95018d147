"""Command lines of `hsparity bisect` that are wrong, without an engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hsparity.cli.main import invoke


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    assert invoke(["bisect", *words]) == code
    out, err = capsys.readouterr()
    assert not out
    return err


def test_a_side_without_its_spec(bf16: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E240 says what to type."""
    bare = tmp_path / "bare"
    shutil.copytree(bf16, bare)
    (bare / "spec.json").unlink()
    text = said(capsys, str(bf16), str(bare))
    assert text.startswith(f"error[E240]: {bare} cannot be made again: it holds no spec.json")
    assert "hsparity capture hf --model" in text


def test_a_knob_that_nobody_has(bf16: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E242 lists the knobs and the nearest one."""
    text = said(capsys, str(bf16), str(bf16), "--knobs", "kv-dtyp")
    assert "error[E242]: no such knob: kv-dtyp" in text
    assert "did you mean kv-dtype?" in text


def test_no_knob_at_all(bf16: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty --knobs is a mistake, not every knob."""
    assert "error[E103]: --knobs names no knob" in said(capsys, str(bf16), str(bf16), "--knobs", " , ")


def test_nothing_to_measure_at(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Captures of the final norm alone share no boundary: E243."""
    assert "error[E243]" in said(capsys, str(bare), str(bare))


def test_a_folder_that_is_none(bf16: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E202, as for compare."""
    assert "error[E202]" in said(capsys, str(bf16), "no/such/capture")


def test_a_cache_that_cannot_be_written(
    bf16: Path, eager: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E106 ends the bisection: no other capture would fit either."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    text = said(capsys, str(bf16), str(eager), "--cache", str(blocked / "cache"))
    assert "error[E106]" in text


def test_every_code_is_explained() -> None:
    """`hsparity explain` has a text for each error that bisect adds."""
    from hsparity.explain.bisects import TEXTS

    assert [e.code for e in TEXTS] == ["E240", "E241", "E242", "E243"]
    assert all("## What to do" in e.text for e in TEXTS)
