"""hsparity report: a saved result, read and rendered where there are no captures and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hsparity.cli import saved_kinds
from hsparity.cli.main import invoke
from hsparity.model import encode, from_json, to_json
from hsparity.replay.result import Replay
from hsparity.report import Options, reporters
from hsparity.report.schema import schemas
from hsparity.report.validate import validate
from tests.golden.cases import CASES
from tests.hostile.records import filled
from tests.unit.drafter.records import COSTS

ALL = pytest.mark.parametrize("name", CASES)
WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None; from hsparity.cli.main import invoke; "
    "sys.exit(invoke(sys.argv[1:]))"
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_text(to_json(CASES["offset"]()), encoding="utf-8")
    return path


@ALL
def test_json_round_trip_renders_the_same(name: str) -> None:
    """What was written is read back: every report of the copy is the report of the original."""
    original = CASES[name]()
    copy = from_json(reporters()["json"].render(original, Options()))
    validate(copy)
    for kind, reporter in reporters().items():
        assert reporter.render(copy, Options()) == reporter.render(original, Options()), kind


def test_every_report_is_made_without_torch(saved: Path, tmp_path: Path) -> None:
    """A laptop that has numpy, rich and jinja2 renders all four."""
    outputs = {
        "--html": tmp_path / "r.html",
        "--markdown": tmp_path / "r.md",
        "--json": tmp_path / "again.json",
    }
    arguments = [str(part) for pair in outputs.items() for part in pair]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "report", str(saved), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "DIVERGED" in done.stdout
    assert outputs["--html"].read_text(encoding="utf-8") == reporters()["html"].render(
        CASES["offset"](), Options()
    )
    assert outputs["--markdown"].read_text(encoding="utf-8").startswith("**DIVERGED**")
    assert json.loads(outputs["--json"].read_text(encoding="utf-8")) == json.loads(
        saved.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize(
    "arguments", [["explain"], ["explain", "E203"], ["explain", "E213"], ["report", "--help"]]
)
def test_help_and_explain_work_without_torch(arguments: list[str]) -> None:
    """Reading about a code needs no torch."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_json_on_standard_output_is_the_document_alone(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--json - prints nothing else, and reads back."""
    assert invoke(["report", str(saved), "--json", "-"]) == 0
    assert to_json(from_json(capsys.readouterr().out)) == saved.read_text(encoding="utf-8")


def test_quiet_prints_the_verdict_line(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, the one that starts the full report."""
    assert invoke(["report", str(saved), "-q"]) == 0
    assert capsys.readouterr().out == "DIVERGED  3 of 3 requested layers lie outside the floor.\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"schema": "hsparity.comparison/1"}',
        b'{"schema": "hsparity.comparison/2"}',
        b"[" * 100_000,
    ],
    ids=["empty", "object", "list", "null", "cut", "not-text", "no-fields", "next-major", "deep"],
)
def test_other_files_are_refused(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E213, exit 2, and what would make a result."""
    path = tmp_path / "other.json"
    path.write_bytes(content)
    assert invoke(["report", str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error[E213]: ")
    assert "hsparity compare REF CAND --json" in shown.err
    assert shown.out == ""


def test_every_saved_result_says_what_it_is_good_for(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each kind has its help, as RESULT, as MORE, and in hsparity inspect: the command that shows it."""
    assert sorted(saved_kinds.names()) == sorted(schemas())
    path = tmp_path / "x y.json"
    first = {"bisect", "replay"}
    for name in set(schemas()) - {"comparison", "draft-cost"}:
        path.write_text(json.dumps({"schema": f"hsparity.{name}/1"}), encoding="utf-8")
        shown = saved_kinds.show(f"hsparity.{name}/1", str(path))
        assert invoke(["report", str(path)]) == 2
        assert (
            f"  help: it is {saved_kinds.kind_of(f'hsparity.{name}/1').words}: {shown}\n"
            in capsys.readouterr().err
        )  # type: ignore[union-attr]
        assert invoke(["report", str(saved), str(path)]) == 2
        err = capsys.readouterr().err
        assert ("hsparity bisect REF CAND --json" in err) == (name in first)
        assert (shown in err) == (name not in first)
    assert invoke(["report", str(saved), str(saved)]) == 2
    assert "hsparity diff OLD.json" in capsys.readouterr().err
    path.write_text("{}", encoding="utf-8")
    assert invoke(["report", str(saved), str(path)]) == 2
    assert "hsparity replay REF CAND --json replay.json" in capsys.readouterr().err


def test_inspect_says_what_a_saved_result_is(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A comparison, its page, a redacted page, and every other kind; the last line is the command that shows it."""
    page = tmp_path / "page.html"
    assert invoke(["report", str(saved), "--redact", "--html", str(page), "-q"]) == 0
    capsys.readouterr()
    for path, words in ((saved, ": a comparison, "), (page, ": an HTML page that carries a comparison, ")):
        assert invoke(["inspect", str(path)]) == 0
        shown = capsys.readouterr().out
        assert words in shown
        assert f"  next      hsparity report {path} --html page.html\n" in shown
        assert ("  redacted  " in shown) == (path is page)
    for name, record in (("replay", filled(Replay, "words")), ("draft-cost", COSTS["cost-real"]())):
        other = tmp_path / f"{name}.json"
        other.write_text(json.dumps({**encode(record), "schema": f"hsparity.{name}/1"}), encoding="utf-8")
        assert invoke(["inspect", str(other)]) == 0
        shown = capsys.readouterr().out
        assert f"verdict   {record.verdict.value}: {record.headline[:20]}" in shown
        assert f"{other} --html page.html\n" in shown
    page.write_text(page.read_text(encoding="utf-8").replace("H4sI", "H4sX"), encoding="utf-8")
    assert invoke(["inspect", str(page)]) == 0
    assert "damaged" in capsys.readouterr().out
    page.write_text("<html></html>", encoding="utf-8")
    assert invoke(["inspect", str(page)]) == 0
    assert ": unknown" in capsys.readouterr().out


def test_a_missing_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So is a folder."""
    for path in (tmp_path / "nothing.json", tmp_path):
        assert invoke(["report", str(path)]) == 2
        assert "error[E213]: cannot read" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_said_first(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E106 before any work, and no half-written report."""
    assert invoke(["report", str(saved), "--html", str(saved / "below-a-file.html")]) == 2
    assert "error[E106]" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["result.json"]


def test_damaged_results_never_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With any one field replaced the result is refused as E213 or still renders: never a bug's exit 70."""
    path, refused = tmp_path / "damaged.json", 0
    for document in _damaged(json.loads(to_json(CASES["one-token"]()))):
        path.write_text(json.dumps(document), encoding="utf-8")
        code = invoke(["report", str(path), "--html", str(tmp_path / "r.html")])
        shown = capsys.readouterr()
        assert code in (0, 2), shown.err
        refused += code == 2
        assert code == 0 or "error[E213]" in shown.err
    assert refused > 50


def _damaged(document: Any) -> Iterator[Any]:
    """The document with one field replaced, each in turn; of a list, its first element."""
    odd = (None, "x", -1, [], {}, [[1]], 1e400)
    for i, (holder, key) in enumerate(list(_places(document))):
        original = holder[key]
        holder[key] = odd[i % len(odd)]
        yield document
        holder[key] = original


def _places(node: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if depth > 5:
        return
    keys: list[Any] = (
        list(node)
        if isinstance(node, dict)
        else list(range(min(len(node), 1)))
        if isinstance(node, list)
        else []
    )
    for key in keys:
        yield node, key
        if key != "base64":
            yield from _places(node[key], depth + 1)
