"""What is claimed of slots and of the server: judged where the data can, refused where it means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.audit.result import Audit
from hsparity.cli.audit_page import as_html
from hsparity.cli.main import invoke
from hsparity.model import Verdict
from hsparity.report.base import Options
from tests.audit import bench


@pytest.mark.parametrize("against", [True, False])
def test_ids_without_an_engine_are_refused(
    against: bool, server: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A capture feeds what it was made with: other ids would be ignored, and its PARITY be taken for theirs."""
    path = bench.dataset(tmp_path / "data", bench.V2)
    words = ["audit", str(path), "--ids", "2,4,5", *(["--against", str(server)] if against else [])]
    assert invoke(words) == 2
    assert "error[E103]: --ids goes with --engine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("slots", "verdict", "wrong"),
    [
        ("b2,b4,b5,last", Verdict.PARITY, ()),
        ("b2,b4,b5,last-raw", Verdict.PARITY, ()),
        ("2,4,5,last", Verdict.PARITY, ()),
        ("30,31,58,last", Verdict.PARITY, ()),
        ("b2,b4,b6,last", Verdict.DIVERGED, (2,)),
        ("b3,b5,b6,last-normed", Verdict.DIVERGED, (0, 1, 2, 3)),
    ],
)
def test_a_claim_is_judged_and_an_id_is_none(
    slots: str, verdict: Verdict, wrong: tuple[int, ...], server: Path, floor: bench.Floor, tmp_path: Path
) -> None:
    """b3 says that a slot is boundary 3; where it holds another one, that is wrong however right the slot is."""
    path = bench.dataset(tmp_path / "data", bench.V2)
    result = bench.run(path, tmp_path, server, floor, slots=slots)
    assert result.verdict is verdict, result.headline
    readings = result.groups[0].readings
    assert tuple(k for k, r in enumerate(readings) if r.refuted) == wrong
    assert all(r.right for r in readings)
    assert ("is said to be" in result.headline) == bool(wrong)


def test_the_default_list_is_called_that(floor: bench.Floor, tmp_path: Path) -> None:
    """PARITY with a server that was given no ids says nothing of a draft whose config gives some."""
    server = bench.served(tmp_path / "server", bench.FEEDS, ids=())
    result = bench.run(bench.dataset(tmp_path / "data", bench.V2), tmp_path, server, floor)
    assert result.verdict is Verdict.PARITY
    assert result.headline.startswith("These are the states sglang feeds a draft whose config gives no ids")


def test_boundaries_that_the_server_does_not_feed(server: Path, floor: bench.Floor, tmp_path: Path) -> None:
    """They may be named, and the page says that the capture's own slots are others."""
    path = bench.dataset(tmp_path / "data", bench.V1, (3, 5, 6))
    result = bench.run(path, tmp_path, server, floor, boundaries=(3, 5, 6))
    assert result.verdict is Verdict.PARITY
    assert result.headline.startswith("These are the states named: boundaries 3, 5, 6")
    assert result.numbering == "boundaries 3, 5, 6 were named; the server's own slots are boundaries 2, 4, 5"


def test_another_model_of_the_same_width(server: Path, tmp_path: Path) -> None:
    """No slot is a state of any layer: that is said, and both models are named."""
    made = [
        bench.replace(s, states=tuple(x.flip(1) + x.roll(7, 1) for x in s.states)) for s in bench.samples()
    ]
    path = bench.written(tmp_path / "data", bench.V1, made, bench.FEEDS, model="org/another")
    result = bench.run(path, tmp_path, server, bench.Floor(()))
    assert result.verdict is Verdict.DIVERGED
    assert result.headline.startswith("No slot is a state of any layer of ")
    assert result.headline.endswith(": the files say org/another.")


def test_a_last_state_of_which_the_format_says_nothing_is_kept(
    server: Path, floor: bench.Floor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair that reorders the others leaves it where it is."""
    from hsparity.capture.readers.speculators_v2 import READER

    monkeypatch.setattr(READER.open, "last_normed", None)
    path = bench.dataset(tmp_path / "data", bench.V2, (4, 2, 5))
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.repair is not None
    assert result.repair.verdict is Verdict.PARITY
    again = bench.run(tmp_path / "out", tmp_path / "again", server, floor)
    assert bench.holds(again.groups[0].readings) == (2, 4, 5, bench.LAST)


def test_the_html_is_the_page(server: Path, floor: bench.Floor, tmp_path: Path) -> None:
    result: Audit = bench.run(bench.dataset(tmp_path / "data", bench.V2, (3, 5, 6)), tmp_path, server, floor)
    page = as_html(result, Options(width=80))
    assert "default-src 'none'" in page
    assert "One layer earlier: sglang feeds boundaries 2, 4, 5" in page
    assert "write ids 3,5,6 for sglang" in page
    assert page.count("<script") == 1  # of the theme's button
