"""`hsparity floor` on Transformers, which runs here in seconds: what is made, shared, kept, refused and used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hsparity.capture import floorstore, launch, sides
from hsparity.cli.main import invoke
from hsparity.engines import resolve
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest, CaptureSpec
from tests.integration.tiny_models import make_spec, save_llama


def spec_of(model: Path, **changes: object) -> CaptureSpec:
    """Three prompts without the pad token, whose embedding is zero."""
    spec = make_spec(model, **changes)  # type: ignore[arg-type]
    prompts = tuple(replace(p, token_ids=tuple(t or 1 for t in p.token_ids)) for p in spec.prompts)
    return replace(spec, prompts=prompts)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bf16 capture of three prompts and five decoded tokens each."""
    folder = tmp_path_factory.mktemp("floor")
    spec = spec_of(save_llama(folder / "model"), generate=6, dtype="bfloat16")
    launch.run_capture(spec, folder / "hf", resolve("hf"))
    return folder


@pytest.fixture(scope="module")
def report(made: Path) -> dict[str, object]:
    """The command's own report after everything was made."""
    assert invoke(["floor", str(made / "hf"), "--json", str(made / "floor.json")]) == 0
    found: dict[str, object] = json.loads((made / "floor.json").read_text())
    return found


def parts(report: dict[str, object]) -> dict[str, dict[str, str]]:
    return {p["kind"]: p for p in report["parts"]}  # type: ignore[attr-defined]


def noises(report: dict[str, object], kind: str, site: str) -> dict[str, dict[str, float]]:
    found = [n for n in report["noises"] if (n["kind"], n["site"]) == (kind, site)]  # type: ignore[attr-defined]
    return {n["rows"]: n for n in found}


def manifest(folder: Path) -> CaptureManifest:
    return CaptureManifest.from_json((folder / "manifest.json").read_text())


def test_every_kind_is_made_shared_or_said(made: Path, report: dict[str, object]) -> None:
    """The bf16 half is the capture itself; what Transformers cannot do has its reason."""
    found = parts(report)
    assert {k: p["state"] for k, p in found.items()} == {
        "fp32": "made",
        "bf16": "shared",
        "repeat": "made",
        "batch": "none",
        "prefilled": "made",
        "decoded": "made",
        "chunked": "none",
    }
    assert found["bf16"]["path"] == str(made / "hf")
    assert found["batch"]["reason"] == "Transformers runs every prompt alone here"
    assert found["chunked"]["reason"] == "Transformers runs a prompt in one pass"


def test_the_same_tokens_in_other_phases(made: Path, report: dict[str, object]) -> None:
    """Every capture was fed the same ids; `prefilled` decodes none of them and `decoded` more."""
    store = floorstore.store_of(made / "hf")
    base = manifest(made / "hf")
    ids = [p.token_ids_sha256 for p in base.prompts]
    for kind, more in (("fp32", 0), ("repeat", 0), ("prefilled", 5), ("decoded", -6)):
        prompts = manifest(store / kind).prompts
        assert [p.token_ids_sha256 for p in prompts] == ids
        assert prompts[2].prefill == base.prompts[2].prefill + more


def test_the_figures(report: dict[str, object]) -> None:
    """A repeat is equal in every bit; decoding and prefilling are not, and stay near what bf16 costs."""
    repeat = noises(report, "repeat", "boundary.004")
    assert {rows: n["bit_equal"] == n["tokens"] for rows, n in repeat.items()} == {
        "prefill": True,
        "decode": True,
    }
    assert {rows: n["over"] for rows, n in repeat.items()} == {"prefill": None, "decode": None}
    crossed = noises(report, "prefilled", "boundary.004")["decode as prefill"]
    assert crossed["tokens"] == 15
    assert 0 <= crossed["median"] <= crossed["p95"] <= crossed["p99"] <= crossed["largest"]
    assert 0 < crossed["largest"] < 0.05
    assert crossed["bit_equal"] < crossed["tokens"]
    assert noises(report, "decoded", "boundary.004")["prefill as decode"]["tokens"] == 6 + 6 + 6
    e0, own = (noises(report, kind, "boundary.004") for kind in ("e0", "capture"))
    assert e0["all"]["tokens"] == own["prefill"]["tokens"] + own["decode"]["tokens"] == 63 + 15
    assert 0.5 < own["prefill"]["over"] < 1.5


def test_again_makes_nothing(made: Path, report: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is kept: no engine starts a second time."""
    monkeypatch.setattr(launch, "run_capture", lambda *_: pytest.fail("an engine was started"))
    assert invoke(["floor", str(made / "hf"), "--json", str(made / "again.json")]) == 0
    again = json.loads((made / "again.json").read_text())
    assert {p["state"] for p in again["parts"]} == {"kept", "shared", "none"}
    assert again["noises"] == report["noises"]


def test_the_table(made: Path, report: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    """Kinds that are equal in every bit take one line; the others a row for each site."""
    assert invoke(["floor", str(made / "hf")]) == 0
    shown = capsys.readouterr().out
    assert "the same run again; over √2 e0; decode rows, 15 tokens\n  bit-equal at all 6 sites" in shown
    assert "its decoded tokens given as prompt; over √2 e0; decode as prefill rows, 15 tokens" in shown
    assert f"hsparity compare finds it in {made / 'hf.floor'}; there is none of: batch, chunked" in shown


def test_a_plan_starts_nothing(
    made: Path, report: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would be captured is listed with its size and time; what lies beside the capture is named."""
    other = made / "other"
    spec = spec_of(made / "model", generate=6, dtype="bfloat16")
    launch.run_capture(spec, other, resolve("hf"))
    capsys.readouterr()
    assert invoke(["floor", str(other), "--plan", "--only", "fp32,repeat,batch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"fp32       there    {made / 'hf.floor' / 'fp32'}"
    assert lines[1].startswith("repeat     capture  nothing: the same run again, ")
    assert ", about " in lines[1]
    assert lines[2] == "batch      -        Transformers runs every prompt alone here"
    assert lines[3].startswith("1 to capture: ")
    assert invoke(["floor", str(other), "--plan", "--only", "repeat", "--json", "-"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [(p["kind"], p["state"]) for p in planned["parts"]] == [("repeat", "planned")]
    assert planned["noises"] == []
    assert not floorstore.store_of(other).exists()


def test_compare_finds_it(made: Path, report: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    """The floor beside either side is used and named; --floor none and --floor DIR win over it."""
    repeat = made / "hf.floor" / "repeat"
    chosen = sides.resolve_pair(str(made / "hf"), str(repeat))
    assert chosen.floors == (made / "hf.floor" / "fp32", made / "hf")
    assert sides.resolve_pair(str(repeat), str(made / "hf")).floors == chosen.floors
    assert sides.resolve_pair(str(made / "hf"), str(repeat), floors=["none"]).floors == ()
    named = sides.resolve_pair(str(made / "hf"), str(repeat), floors=[str(made / "hf.floor" / "decoded")])
    assert named.floors == (made / "hf.floor" / "decoded",)
    capsys.readouterr()
    assert invoke(["compare", str(made / "hf"), str(made / "hf.floor" / "prefilled")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"fp32 {made / 'hf.floor' / 'fp32'}" in shown
    assert "prefill against decode" in shown


def test_it_comes_before_a_config_that_is_about_other_captures(
    made: Path, report: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hsparity.toml names a floor for its own sides; two captures that are typed keep the one beside them."""
    (tmp_path / "hsparity.toml").write_text(f'[floor]\ncaptures = ["{made / "hf.floor" / "decoded"}"]\n')
    monkeypatch.chdir(tmp_path)
    typed = sides.resolve_pair(str(made / "hf"), str(made / "hf.floor" / "repeat"))
    assert typed.floors == (made / "hf.floor" / "fp32", made / "hf")
    away = sides.resolve_pair(str(made / "hf.floor" / "repeat"), str(made / "hf.floor" / "repeat"))
    assert away.floors == (made / "hf.floor" / "decoded",)


def test_a_capture_made_again_is_another_one(made: Path, report: dict[str, object]) -> None:
    """An index that belongs to an earlier capture of the same name is not used."""
    assert floorstore.beside(made / "hf")
    store = made / "stale.floor"
    floorstore.write(
        store, manifest(made / "hf.floor" / "repeat"), [floorstore.Entry("fp32", "../hf.floor/fp32")]
    )
    (made / "stale").symlink_to(made / "hf")
    assert floorstore.captures(store)
    assert floorstore.beside(made / "stale") == ()


@pytest.mark.parametrize(("only", "code"), [("fp31", "E252"), (",", "E252"), ("batch", "E250")])
def test_refused(made: Path, capsys: pytest.CaptureFixture[str], only: str, code: str) -> None:
    """An unknown kind is refused before anything starts; nothing that can be made is an error with the reasons."""
    assert invoke(["floor", str(made / "hf"), "--only", only]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


def test_another_release_is_no_repeat(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine's own floors are of the release that made the capture, or there are none."""
    spec: CaptureSpec = make_spec(made / "model", prompts=1)
    launch.run_capture(spec, tmp_path / "old", resolve("hf"))
    file = tmp_path / "old" / "manifest.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps(said | {"engine_version": "5.0.0"}))
    capsys.readouterr()
    assert invoke(["floor", str(tmp_path / "old"), "--plan", "--only", "repeat"]) == 0
    assert "E251: the capture is of Transformers 5.0.0, and" in capsys.readouterr().out


def test_where_a_floor_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the capture, however its folder is spelled."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert floorstore.store_of(Path("../b")) == Path("../b.floor")
    assert floorstore.store_of(Path(".")) == (tmp_path / "a" / "b.floor").resolve()
    assert floorstore.store_of(Path("..")) == (tmp_path / "a.floor").resolve()
    assert floorstore.beside(Path(".")) == ()


def test_a_place_that_cannot_be_written(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HsparityError) as caught:
        floorstore.write(tmp_path / "file" / "x.floor", manifest(made / "hf"), [])
    assert caught.value.code == "E106"
