"""hsparity export: what it prints, and what it refuses in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.cli.main import invoke
from hsparity.demo import show
from tests.readers import exports
from tests.readers.exports import Made

PAGE = """\
{out}: speculators-v2, bfloat16, 4 samples, 44 tokens, 3 auxiliary states and the last one of 256
auxiliary  boundaries 2, 4, 5
last       boundary 8, before the final norm
loss mask  1 on every token: nothing was decoded, and a capture holds no mask
in the config of a draft trained on it
"""
# Of the table of conventions, what to write for those boundaries in the words of each.
WRITE = {
    "vLLM": "eagle_aux_hidden_state_layer_ids [2,4,5]",
    "SGLang 0.5.13+, DeepSeek and Kimi-K2": "eagle_config.eagle_aux_hidden_state_layer_ids [2,4,5]",
    "speculators 0.9.0": "eagle_aux_hidden_state_layer_ids [2,4,5]",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's captures, one of some boundaries only, one of the normed last state only, and two exports."""
    folder = tmp_path_factory.mktemp("here")
    show.unpack(folder)
    exports.capture(folder / "some", [Made(4)], ["boundary.001", "boundary.003"])
    exports.capture(folder / "normed", [Made(4)], ["boundary.001", "boundary.002", "final_norm"])
    exports.capture(folder / "no-norm", [Made(4)])
    exports.exported(folder / "no-norm", folder / "v1", "speculators-v1")
    exports.exported(folder / "normed", folder / "forge", "specforge", "1,2")
    (folder / "empty").mkdir()
    return folder


def run(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.chdir(here)
    code = invoke(["export", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_page(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default triple of 8 layers, the mask in one line, and each engine's own ids."""
    out = str(tmp_path / "out")
    arguments = ("captures/sglang", "--layers", "eagle3", "--to", "speculators-v2", "-o", out)
    code, printed, err = run(here, monkeypatch, capsys, *arguments)
    assert (code, err) == (0, "")
    assert printed.startswith(PAGE.format(out=out))
    for who, what in WRITE.items():
        assert [line for line in printed.splitlines() if line.startswith(f"  {who}  ") and what in line]
    assert printed.endswith(f"\nnext  hsparity inspect {out}\n")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ("captures/vllm", "--boundaries", "2,4", "--to", "specforge"),
            ("last       boundary 8, normed here in float32 with the capture's final norm",),
        ),
        (
            ("captures/vllm-draft", "--to", "speculators-v1", "--limit", "2"),
            ("2 samples", "auxiliary  aux_hidden_state_layers[0] of 2,4,6", "is not known"),
        ),
        (
            ("v1", "--to", "speculators-v2"),
            (
                "auxiliary  hidden_states[0] (id 0)",
                "last       hidden_states[3] (id 3)",
                "as the files have it",
            ),
        ),
    ],
)
def test_what_is_said_of_the_states(
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    lines: tuple[str, ...],
) -> None:
    """Normed here, native slots in their order, another dataset's own names."""
    code, printed, err = run(here, monkeypatch, capsys, *arguments, "-o", str(tmp_path / "out"))
    assert code == 0, err
    for line in lines:
        assert line in printed


def test_left_out_samples_are_told_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the count, the reasons and their code; the exit code is still 0."""
    exports.capture(tmp_path / "c", [Made(4), Made(5, rows=(0, 1))])
    arguments = ("c", "--boundaries", "1", "--to", "speculators-v1", "-o", "out")
    code, printed, err = run(tmp_path, monkeypatch, capsys, *arguments)
    assert code == 0
    assert "1 samples" in printed
    assert err.startswith("warning: 1 samples left out: p1: rows are missing: 2 rows of states for 5 tokens")
    assert "[E216]" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("captures/vllm", "--to", "specforge"), "E102", "nothing says which of them the draft is fed"),
        (("captures/vllm", "--boundaries", "2,9", "--to", "specforge"), "E102", "outside this model: 0 to 8"),
        (("captures/vllm", "--boundaries", "2,8", "--to", "specforge"), "E102", "--boundaries 2"),
        (("captures/vllm", "--boundaries", "8", "--to", "specforge"), "E102", "is the last state"),
        (("captures/vllm", "--boundaries", "2", "--layers", "1", "--to", "specforge"), "E103", "exclude"),
        (("captures/vllm", "--boundaries", "2", "--to", "specforg"), "E107", "did you mean specforge?"),
        (("absent", "--to", "specforge"), "E202", "no such path: absent"),
        (("empty", "--to", "specforge"), "E202", "it is empty"),
        (("some", "--boundaries", "1,2", "--to", "specforge"), "E210", "does not hold boundary 2"),
        (("some", "--boundaries", "1,3", "--to", "speculators-v2"), "E210", "does not hold boundary 4"),
        (("some", "--boundaries", "1,3", "--to", "specforge"), "E210", "neither final_norm nor boundary 4"),
        (
            ("no-norm", "--boundaries", "1", "--to", "specforge"),
            "E210",
            "the norm's weight to apply to boundary 4",
        ),
        (("normed", "--boundaries", "1", "--to", "speculators-v1"), "E210", "it cannot be undone"),
        (("captures/sglang-draft", "--to", "speculators-v2"), "E210", "does not hold boundary 8"),
        (("forge", "--to", "speculators-v2"), "E210", "it cannot be undone"),
        (("v1", "--to", "specforge"), "E210", "a capture of the model does"),
        (("v1", "--boundaries", "1", "--to", "speculators-v2"), "E102", "leave it out"),
    ],
)
def test_what_cannot_be_exported_is_coded(
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: str,
    words: str,
) -> None:
    """Exit 2, the code, the reason in words; and no folder is left behind."""
    got, printed, err = run(here, monkeypatch, capsys, *arguments, "-o", str(tmp_path / "out"))
    assert (got, printed) == (2, "")
    assert err.startswith(f"error[{code}]: ")
    assert words in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("output", "code", "words"),
    [
        ("no-norm", "E106", "the output is the input"),
        ("no-norm/inside", "E106", "the output lies inside the input"),
        ("captures", "E106", "holds other files and no export"),
        ("v1", "E204", "boundaries: [1, 2, 3] then, [1] now"),
        ("some/manifest.json", "E106", "cannot be written"),
    ],
)
def test_a_folder_with_something_else_is_left_alone(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    output: str,
    code: str,
    words: str,
) -> None:
    """The input itself, other files, another export, a file."""
    before = sorted(here.rglob("*"))
    arguments = ("no-norm", "--boundaries", "1", "--to", "speculators-v1", "-o", output)
    got, _, err = run(here, monkeypatch, capsys, *arguments)
    assert got == 2
    assert err.startswith(f"error[{code}]: ")
    assert words in err
    assert sorted(here.rglob("*")) == before
