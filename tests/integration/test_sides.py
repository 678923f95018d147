"""Sides that are engines: captured once, reused, of the same tokens, with a floor."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.capture import sides
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest
from tests.integration.tiny_models import save_llama


def manifest(folder: Path) -> CaptureManifest:
    return CaptureManifest.from_json((folder / "manifest.json").read_text())


def test_engines_as_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An engine against itself is two runs of the same tokens; its floor is fp32 and the bf16 there is."""
    model = save_llama(tmp_path / "model")
    (tmp_path / "ids.jsonl").write_text("[1, 2, 3, 4, 5, 6]\n[9, 8, 7]\n")
    (tmp_path / "hsparity.toml").write_text('model = "model"\nprompts = "ids.jsonl"\ngenerate = 2\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HsparityError) as caught:
        sides.resolve_pair("hf", "hf", allow_capture=False)
    assert caught.value.code == "E101"
    chosen = sides.resolve_pair("hf", "hf")
    assert chosen.ref != chosen.cand
    assert [manifest(path).dtype for path in chosen.floors] == ["float32", "bfloat16"]
    assert chosen.floors[1] == chosen.ref
    generated = [
        [p.generated for p in manifest(p).prompts] for p in (chosen.ref, chosen.cand, *chosen.floors)
    ]
    assert all(each == generated[0] for each in generated)
    assert {len(ids) for ids in generated[0]} == {2}
    assert manifest(chosen.ref).model == str(model.relative_to(tmp_path))
    capsys.readouterr()
    assert sides.resolve_pair("hf", "hf", allow_capture=False) == chosen
    assert capsys.readouterr().err == ""
    # A capture that is there says which model and prompts the other side needs: only the run is missing.
    (tmp_path / "hsparity.toml").unlink()
    with pytest.raises(HsparityError) as caught:
        sides.resolve_pair(str(chosen.ref), "hf", allow_capture=False)
    assert chosen.cand.name.removesuffix("-again") in caught.value.notes[0]
