"""Which captures a comparison takes, as far as that is decided without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.capture import sides
from hsparity.config import Config, FloorConfig, SideConfig
from hsparity.errors import HsparityError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "fp32"):
        (tmp_path / name).mkdir()


def code_of(*arguments: object, **options: object) -> HsparityError:
    with pytest.raises(HsparityError) as caught:
        sides.resolve_pair(*arguments, **options)  # type: ignore[arg-type]
    return caught.value


def test_two_folders() -> None:
    """Two folders are taken as they are typed; nothing is made, no floor is invented."""
    chosen = sides.resolve_pair("one", "./two", layers="2")
    assert (chosen.ref, chosen.cand, chosen.floors) == (Path("one"), Path("./two"), ())
    assert (chosen.layers, chosen.boundaries, chosen.tokens) == ("2", None, "all")


def test_config(tmp_path: Path) -> None:
    """hsparity.toml gives what the command line does not; the command line wins."""
    (tmp_path / "hsparity.toml").write_text(
        'layers = "1"\ntokens = "decode"\n[ref]\ncapture = "one"\n[cand]\ncapture = "two"\n'
        '[floor]\ncaptures = ["fp32"]\n'
    )
    chosen = sides.resolve_pair(None, None)
    assert (chosen.ref, chosen.cand, chosen.floors) == (Path("one"), Path("two"), (Path("fp32"),))
    assert (chosen.layers, chosen.tokens) == ("1", "decode")
    other = sides.resolve_pair("two", None, boundaries="3", floors=["none"], tokens="all")
    assert (other.ref, other.floors) == (Path("two"), ())
    assert (other.layers, other.boundaries, other.tokens) == (None, "3", "all")


def test_nothing_given(tmp_path: Path) -> None:
    """A missing side is E101 and shows the forms that work; it never picks captures that lie about."""
    error = code_of(None, None)
    assert error.code == "E101"
    assert "hsparity compare hf vllm --model M" in error.help
    assert code_of("one", None).message == "nothing to compare: CAND is missing"
    (tmp_path / "hsparity.toml").write_text('[ref]\ncapture = "one"\n')
    assert "has no [cand]" in code_of(None, None).notes[0]


def test_missing_folder() -> None:
    """A path that does not exist is E202 with its near matches, a bare word is an unknown engine."""
    error = code_of("one", "./tow")
    assert (error.code, error.help) == ("E202", "did you mean two?")
    assert code_of("one", "three/two").help == "name a folder, or an engine to run: hf, vllm, sglang"
    assert code_of("one", "twoo").help == "did you mean two?"
    error = code_of("one", "vlm")
    assert (error.code, error.help) == ("E107", "did you mean vllm?")
    error = code_of("vllm", "trtllm", model="m")
    assert (error.code, error.notes[0]) == ("E107", "engines: hf, vllm, sglang")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model of four layers as far as its config says; no engine could load it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"num_hidden_layers": 4, "hidden_size": 8}')
    return "model"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"layers": "2,30,58"}, "E102"),
        ({"boundaries": "5"}, "E102"),
        ({"layers": "x"}, "E102"),
        ({"tokens": "8:2"}, "E102"),
        ({"tokens": "decode"}, "E102"),
        ({"floors": ["gone"]}, "E202"),
        ({"floors": ["fp32"]}, "E211"),
    ],
)
def test_refused_before_an_engine(
    model: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], code: str
) -> None:
    """What the model's config, the options or a floor rule out starts no engine and makes no folder."""
    monkeypatch.setattr(sides.launch, "run_capture", lambda *_: pytest.fail("an engine was started"))
    assert code_of("hf", "hf", model=model, **options).code == code
    assert not Path("captures").exists()


def test_limit(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--limit and --max-tokens reach the engine's spec."""
    (tmp_path / "ids.jsonl").write_text("[1, 2, 3]\n[4, 5, 6]\n")
    asked = []
    monkeypatch.setattr(sides.launch, "run_capture", lambda spec, *_: asked.append(spec))
    sides.resolve_pair(
        "hf", "hf", model=model, prompts="ids.jsonl", limit=1, max_tokens=2, floors=["none"], layers="3"
    )
    assert [[p.token_ids for p in spec.prompts] for spec in asked] == [[(1, 2)], [(1, 2)]]


def test_engine_without_model() -> None:
    """An engine side needs a model."""
    error = code_of("hf", "one")
    assert error.code == "E101"
    assert "--model" in error.help


def test_a_writer_of_files_is_no_side() -> None:
    """speculators is refused before anything starts, whichever side it is typed as."""
    for pair in (("speculators", "one"), ("one", "speculators@0.9.0")):
        error = code_of(*pair)
        assert (error.code, "name the folder that it wrote" in error.help) == ("E306", True)


def test_folder_called_like_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """./hf is the folder, hf the engine, and a capture of that name is pointed out."""
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "manifest.json").write_text("{}")
    assert sides.resolve_pair("./hf", "one").ref == Path("./hf")
    assert capsys.readouterr().err == ""
    assert code_of("hf", "one").code == "E101"
    assert capsys.readouterr().err == "hf: taken as the engine; ./hf names the folder\n"


def test_config_elsewhere(tmp_path: Path) -> None:
    """Paths in a config are meant from its folder, paths that were typed from ours."""
    config = Config(
        path=tmp_path / "sub" / "hsparity.toml",
        ref=SideConfig(capture="inner"),
        floor=FloorConfig(captures=("f",)),
    )
    (tmp_path / "sub" / "inner").mkdir(parents=True)
    assert sides.resolve("ref", config) == tmp_path / "sub" / "inner"
    assert sides.resolve("one", config) == tmp_path / "one"
    assert sides.floor(config) == [tmp_path / "sub" / "f"]
