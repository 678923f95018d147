"""The page, the JSON and the exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.audit.result import Audit
from hsparity.cli.audit_page import render
from hsparity.cli.main import invoke
from hsparity.model import from_json
from hsparity.report.base import Options
from tests.audit import bench

CASES: dict[str, dict[str, Any]] = {
    "parity": {},
    "offset": {"aux": (3, 5, 6)},
    "normed": {"last": bench.NORMED},
    "four slots": {"aux": (2, 4, 5, 7)},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, server: Path, floor: bench.Floor) -> dict[str, Audit]:
    found = {}
    for name, how in CASES.items():
        folder = tmp_path_factory.mktemp("output")
        found[name] = bench.run(bench.dataset(folder / "data", bench.V2, **how), folder, server, floor)
    folder = tmp_path_factory.mktemp("output")
    made = bench.samples((*bench.FEEDS, bench.LAST))
    other = bench.samples((3, 5, 6, bench.LAST))
    path = bench.written(folder / "data", bench.V2, [*made[:6], *other[6:]])
    found["two makes"] = bench.run(path, folder, server, floor)
    found["files"] = bench.run(path, folder / "files")
    found["no floor"] = bench.run(path, folder / "bare", server)
    return found


NAMES = (*CASES, "two makes", "files", "no floor")


def refuse(word: str) -> None:
    raise AssertionError(word)


@pytest.mark.parametrize("name", NAMES)
def test_the_json_is_strict_and_whole(results: dict[str, Audit], name: str) -> None:
    result = json.loads(results[name].to_json(), parse_constant=refuse)
    assert result["schema"] == "hsparity.audit/1"
    assert result["verdict"] == results[name].verdict.value
    for mine, group in zip(results[name].groups, result["groups"], strict=True):
        assert mine.comparison is not None
        again = from_json(json.dumps(group["comparison"]))
        assert again.verdict is mine.comparison.verdict
        assert [f.code for f in again.findings] == [f.code for f in mine.comparison.findings]


def test_the_json_of_noise_has_no_nan(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    def infinite(number: int, sample: bench.Sample) -> bench.Sample:
        return bench.replace(sample, states=tuple(s * float("inf") for s in sample.states))

    path = bench.dataset(tmp_path / "data", bench.V2, change=infinite)
    result = bench.run(path, tmp_path, server, floor, scan=False)
    with pytest.raises(AssertionError):
        json.loads("NaN", parse_constant=refuse)
    json.loads(result.to_json(), parse_constant=refuse)
    assert render(result, Options(width=80))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_page_cuts_no_number(results: dict[str, Audit], name: str, width: int) -> None:
    result = results[name]
    page = render(result, Options(width=width))
    whole = " ".join(page.split())
    assert "…" not in page.replace(", …", "")
    for line in page.splitlines():
        assert len(line) <= width or line.startswith("next") or " " not in line[10:].strip()
    for group in result.groups:
        for reading in group.readings:
            assert reading.slot in page
            assert (reading.holds or "no boundary") in whole
            assert re.search(rf"\b{reading.error:.1e}".replace("+", r"\+"), page)
    for word in (result.headline, *result.fix, result.numbering, *(r.text for r in [result.repair] if r)):
        assert " ".join(word.split()) in whole
    for command in result.next:
        assert f"next      {command}" in page


@pytest.mark.parametrize("name", NAMES)
def test_a_quiet_page_is_one_line(results: dict[str, Audit], name: str) -> None:
    page = render(results[name], Options(width=80, quiet=True))
    word = results[name].verdict.value.upper() if results[name].server else "WHOLE"
    assert page.startswith(f"{word}  ")
    assert "\n" not in page


@pytest.mark.parametrize("name", NAMES)
def test_a_page_without_unicode(results: dict[str, Audit], name: str) -> None:
    assert render(results[name], Options(width=80, unicode=False)).isascii()


@pytest.mark.parametrize(("aux", "code", "word"), [(bench.FEEDS, 0, "PARITY"), ((3, 5, 6), 1, "DIVERGED")])
def test_the_command(
    tmp_path: Path,
    server: Path,
    floor: bench.Floor,
    capsys: pytest.CaptureFixture[str],
    aux: tuple[int, ...],
    code: int,
    word: str,
) -> None:
    path = bench.dataset(tmp_path / "data", bench.V1, aux)
    floors = [w for name in floor.paths for w in ("--floor", name)]
    command = ["audit", str(path), "--against", str(server), *floors, "--work", str(tmp_path / "work")]
    saved = ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]
    assert invoke([*command, *saved]) == code
    page = capsys.readouterr().out
    assert any(line.startswith(word) for line in page.splitlines())
    assert json.loads((tmp_path / "a.json").read_text())["verdict"] == word.lower()
    assert "<html" in (tmp_path / "a.html").read_text()[:200]
    # On standard output nothing else than the JSON.
    assert invoke([*command, "--json", "-"]) == code
    assert json.loads(capsys.readouterr().out)["verdict"] == word.lower()
    assert invoke([*command, "-q"]) == code
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_command_repairs(
    tmp_path: Path, server: Path, floor: bench.Floor, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bench.dataset(tmp_path / "data", bench.FORGE, last=bench.LAST)
    floors = [w for name in floor.paths for w in ("--floor", name)]
    command = ["audit", str(path), "--against", str(server), *floors, "--work", str(tmp_path / "work")]
    out = tmp_path / "out"
    assert invoke([*command, "--repair", str(out)]) == 1
    page = " ".join(capsys.readouterr().out.split())
    assert (
        f"Written to {out} (hsparity-repair.json there says which sample was which): 13 samples, 0 left out"
        in page
    )
    assert "compared again: parity" in page
    assert invoke([*command, "--repair", str(out)]) == 2
    assert "E106" in capsys.readouterr().err


def test_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bench.dataset(tmp_path / "data")
    work = ["--work", str(tmp_path / "work")]
    assert invoke(["audit", str(path), *work]) == 0
    assert "Whose states they are was not asked" in capsys.readouterr().out
    (path / "data_3.pt").write_bytes(b"")
    assert invoke(["audit", str(path), *work]) == 1
    page = capsys.readouterr().out
    assert "1× unreadable" in page
    assert "data_3" in page


ESCAPE = "\x1b[31mred\x1b]0;title\x07"


@pytest.mark.parametrize("odd", [f"{ESCAPE}/", "right\u202eleft/", "bell\x07/"])
def test_text_from_files_is_inert(
    tmp_path: Path, server: Path, floor: bench.Floor, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of folders join the ids of samples where numbers start again in each."""
    top = tmp_path / "data"
    for folder in (odd.rstrip("/"), "plain"):
        bench.dataset(tmp_path / f"made-{len(folder)}")
        (top / folder).mkdir(parents=True)
        for file in (tmp_path / f"made-{len(folder)}").glob("data_*.pt"):
            (top / folder / file.name).write_bytes(file.read_bytes())
    (top / odd.rstrip("/") / "data_3.pt").write_bytes(b"")
    assert invoke(["audit", str(top), "--work", str(tmp_path / "work"), "--color", "never"]) == 1
    out = capsys.readouterr()
    for text in (out.out, out.err):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", text.replace("\r", ""))
    assert "unreadable" in out.out
    assert not [line for line in out.out.splitlines() if line.startswith("lines/")]


def test_what_a_config_says_is_inert(
    tmp_path: Path, server: Path, floor: bench.Floor, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bench.dataset(tmp_path / "data")
    config = json.loads((path / "data_config.json").read_text())
    config["speculators_version"] = f"0.4{ESCAPE}\nPARITY  forged"
    config["model"]["target_model_path"] = ESCAPE
    (path / "data_config.json").write_text(json.dumps(config))
    invoke(["audit", str(path), "--work", str(tmp_path / "work"), "--color", "never"])
    page = capsys.readouterr().out
    assert "\x1b" not in page
    assert "\x07" not in page
    assert not any(line.startswith("PARITY  forged") for line in page.splitlines())


def test_states_that_need_a_gradient_are_read_as_any(tmp_path: Path) -> None:
    path = bench.dataset(tmp_path / "data")
    file = path / "data_2.pt"
    content = torch.load(file)
    content["hidden_states"] = [s.requires_grad_() for s in content["hidden_states"]]
    torch.save(content, file)
    assert bench.run(path, tmp_path).integrity.troubles == ()
