"""docs/ci.md: its jobs are YAML, its command lines are hsparity's, its gate and its Python run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from hsparity import config
from hsparity.cli.main import hsparity as command
from hsparity.cli.main import invoke
from hsparity.demo import show
from hsparity.gate import judge, open_gate
from hsparity.model import Verdict
from tests.golden.cases import CASES

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def scripts(node: Any) -> list[str]:
    """Every shell text in a job: `run` of a GitHub step, lines of `script` in a GitLab job."""
    if isinstance(node, list):
        return [text for item in node for text in scripts(item)]
    if not isinstance(node, dict):
        return []
    own = [text for key, text in node.items() if key == "run"]
    return own + list(node.get("script", [])) + [text for value in node.values() for text in scripts(value)]


JOBS = [yaml.safe_load(text) for text in blocks("yaml")]
LINES = [
    part.strip()
    for text in scripts(JOBS)
    for line in text.replace("\\\n", " ").splitlines()
    for part in line.split("&&")
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo was run."""
    home = tmp_path_factory.mktemp("ci")
    show.unpack(home / "hsparity-demo")
    return home


def test_every_line_is_run_or_parsed() -> None:
    """Nothing but pip and hsparity stands in the jobs, and each does what the text says they do."""
    programs = [shlex.split(line)[0] for line in LINES]
    assert set(programs) == {"hsparity", "pip"}
    assert [job.get("runs-on") for job in JOBS[0]["jobs"].values()] == ["ubuntu-latest"]
    assert {line.split()[1] for line in LINES if line.startswith("hsparity")} == {
        "engines",
        "capture",
        "compare",
        "report",
    }


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("hsparity")])
def test_command_lines_are_hsparitys(line: str) -> None:
    """Click takes every option and value; nothing is run."""
    words = shlex.split(line, comments=True)[1:]
    group: click.Command = command
    while isinstance(group, click.Group):
        context = click.Context(group)
        found = group.get_command(context, words[0])
        assert found is not None, line
        group, words = found, words[1:]
    group.make_context("hsparity", words)


def test_uploads_are_what_the_commands_write() -> None:
    """An artifact that no command writes would be an empty one."""
    written = {word for line in LINES for word in shlex.split(line)}
    steps = JOBS[0]["jobs"]["parity"]["steps"]
    uploads = [step["with"] for step in steps if "upload" in step.get("uses", "")]
    named = [
        name for given in uploads for key in ("path", "sarif_file") for name in given.get(key, "").split()
    ]
    gitlab = JOBS[1]["parity"]["artifacts"]
    named += [*gitlab["paths"], gitlab["reports"]["junit"]]
    assert len(named) == 6
    assert set(named) <= written


@pytest.mark.parametrize("text", blocks("toml"))
def test_gates_are_read(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table opens as a gate that a healthy result passes and a shifted one fails."""
    monkeypatch.chdir(tmp_path)
    Path(config.FILE).write_text(text)
    gate = open_gate(None, config.load())
    assert gate is not None
    assert judge(CASES["parity"](), gate).passed
    assert judge(CASES["offset"](), gate).exit_code == 1


def test_the_table_has_every_key() -> None:
    """The page and the reader of hsparity.toml know the same keys."""
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", PAGE)) == set(config.GateConfig.__dataclass_fields__)


def test_the_python_runs(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tests pass on the demo's captures; the notebook's result is the divergence that the demo shows."""
    monkeypatch.chdir(demo)
    tests, notebook = ({} for _ in range(2))
    for text, names in zip(blocks("python"), (tests, notebook), strict=True):
        exec(compile(text, "docs/ci.md", "exec"), names)
    called = [test() for name, test in tests.items() if name.startswith("test_")]
    assert len(called) == 2
    assert notebook["result"].verdict is Verdict.DIVERGED
    assert capsys.readouterr() == ("", "")


def test_compare_takes_the_gate_of_the_page(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With the page's hsparity.toml the command passes on the demo's healthy pair, fails on its other one, and speaks last."""
    monkeypatch.chdir(tmp_path)
    Path(config.FILE).write_text(blocks("toml")[0])
    folder = demo / "hsparity-demo" / "captures"
    floors = [word for name in ("hf-fp32", "hf-bf16") for word in ("--floor", str(folder / name))]
    pair = [str(folder / "vllm"), str(folder / "sglang")]
    assert invoke(["compare", *pair, *floors, "-q", "--markdown", "r.md"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "gate: passed"
    assert invoke(["compare", *pair, "-q", "--fail-on", "HS101"]) == 3
    assert "max_ratio cannot be checked" in capsys.readouterr().err
    draft = [str(folder / "vllm-draft"), str(folder / "sglang-draft"), "--json", "-"]
    assert invoke(["compare", *draft, "--fail-on", "never"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("{")
    assert "gate: passed, never fails, whatever was found: verdict diverged" in shown.err
