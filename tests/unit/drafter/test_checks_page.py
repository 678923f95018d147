"""hsparity drafter check as it is typed: exit status, page, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hsparity.cli.main import invoke
from hsparity.drafter.checking import from_json

from .heads import make_head, make_target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_target(tmp_path_factory.mktemp("target") / "t", layers=12))


def typed(*words: str) -> list[str]:
    return ["drafter", "check", *words]


def test_a_clean_head_exits_0(tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict, what this engine feeds, what the others would, and what was fine."""
    head = make_head(tmp_path / "h", "layers.0", ids=(2, 6, 9))
    code = invoke(
        typed(str(head), "--engine", "vllm", "--runner", "v1", "--model", target, "--algorithm", "eagle3")
    )
    out = capsys.readouterr().out
    assert code == 0, out
    assert "OK  on vLLM 0.32.0, fed boundaries 2, 6, 9" in out
    rows = [line for line in out.splitlines() if "0.5.23" in line]
    assert "3, 7, 10" in rows[0]
    assert "fine      algorithm-flag" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_problem_exits_1_and_gives_the_line(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both sides are lined up, and the change is spelled as the file spells it."""
    head = make_head(tmp_path / "h", ids=(2, 6, 9), embedding=False)
    words = typed(
        str(head), "--engine", "sglang", "--model", target, "--trained-on", "2,6,9", "--algorithm", "EAGLE3"
    )
    assert invoke(words) == 1
    page = " ".join(capsys.readouterr().out.split())
    assert "PROBLEMS on SGLang 0.5.23: fed boundaries 3, 7, 10, trained on 2, 6, 9" in page
    assert "eagle_config.eagle_aux_hidden_state_layer_ids [2,6,9] -> [1,5,8]" in page
    assert "SGLang 0.5.23 eagle_config 3, 7, 10 not as trained" in page
    assert invoke([*words, "-q"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_what_hangs_on_the_runner_exits_3(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rows for this engine, and the option that settles it."""
    head = make_head(tmp_path / "h", ids=(4, 5, 8))
    assert invoke(typed(str(head), "--engine", "vllm", "--model", target)) == 3
    out = capsys.readouterr().out
    assert len([line for line in out.splitlines() if line.startswith("this")]) == 2
    assert "settle  --runner v1 or --runner v2" in out


def test_json_goes_to_a_file_beside_the_page(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record can be read back; '-' puts it in the page's place."""
    head = make_head(tmp_path / "h", ids=(2, 6, 9))
    file = tmp_path / "out.json"
    words = typed(str(head), "--engine", "sglang", "--model", target)
    invoke([*words, "--json", str(file)])
    assert "SGLang" in capsys.readouterr().out
    result = from_json(file.read_text())
    assert (result.schema, result.engine, result.fed[0].boundaries) == (
        "hsparity.draft-check/1",
        "sglang",
        (3, 7, 10),
    )
    invoke([*words, "--json", "-"])
    assert json.loads(capsys.readouterr().out)["draft"] == str(head)


def test_bad_input_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No head, an engine that is not known, a list that is none."""
    head = str(make_head(tmp_path / "h"))
    for words, code in (
        ((str(tmp_path / "nothing"), "--engine", "vllm"), "E260"),
        ((head, "--engine", "tgi"), "E280"),
        ((head, "--engine", "vllm", "--trained-on", "a,b"), "E282"),
    ):
        assert invoke(typed(*words)) == 2
        assert f"error[{code}]" in capsys.readouterr().err


def test_the_verdict_is_coloured_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--color always, and nothing without it."""
    head = make_head(tmp_path / "h", config={"eagle_config": None})
    words = typed(str(head), "--engine", "vllm", "--algorithm", "eagle3")
    invoke([*words, "--color", "always"])
    assert "\x1b[" in capsys.readouterr().out
    invoke(words)
    assert "\x1b[" not in capsys.readouterr().out


def test_the_page_as_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file that asks nothing of the network, with the same words; '-' is standard output alone."""
    head = make_head(tmp_path / "<b>", ids=(2, 6, 9))
    words = typed(str(head), "--engine", "sglang")
    page = tmp_path / "page.html"
    code = invoke([*words, "--html", str(page)])
    shown = capsys.readouterr().out
    text = page.read_text()
    assert "default-src 'none'" in text
    assert "<b>" not in text
    assert all(word in text for word in shown.split()[:6] if "<" not in word)
    assert invoke([*words, "--html", "-"]) == code
    assert capsys.readouterr().out == text


def test_as_many_layers_as_the_head_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list of another length would end in advice that breaks the head."""
    head = make_head(tmp_path / "h", ids=(2, 6, 9))
    assert invoke(typed(str(head), "--engine", "sglang", "--trained-on", "2,6")) == 2
    assert "error[E282]: --trained-on names another number of states" in capsys.readouterr().err
