"""What cannot be answered, and what is refused before any work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hsparity import models
from hsparity.audit.serving import Serving, check_model
from hsparity.capture.readers.base import Sample
from hsparity.cli.main import invoke
from hsparity.errors import HsparityError
from hsparity.model import Verdict
from tests.audit import bench
from tests.causes import real
from tests.causes.streams import capture, keep


def refused(path: Path, tmp_path: Path, server: Path, **kw: object) -> HsparityError:
    with pytest.raises(HsparityError) as caught:
        bench.run(path, tmp_path, server, **kw)  # type: ignore[arg-type]
    return caught.value


def test_nothing_says_what_the_server_feeds(
    tmp_path: Path, hooks: Path, floor: bench.Floor, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2)
    floors = [word for name in floor.paths for word in ("--floor", name)]
    command = ["audit", str(path), "--against", str(hooks), *floors, "--work", str(tmp_path / "work")]
    code = invoke([*command, "--json", str(tmp_path / "audit.json")])
    page = capsys.readouterr().out
    assert code == 3
    assert "INCONCLUSIVE" in page
    assert "nothing says which boundaries the server feeds" in " ".join(page.split())
    result = json.loads((tmp_path / "audit.json").read_text())
    assert result["repair"] is None
    assert [r["boundary"] for r in result["groups"][0]["readings"]] == [2, 4, 5, 8]
    (line,) = result["next"]
    # What was found is not filled in: with it the answer could only be PARITY.
    assert line.endswith("--boundaries LIST")
    assert invoke([*command, "--boundaries", "2,4,5"]) == 0
    assert invoke([*command, "--boundaries", "3,5,6"]) == 1


def test_layers_name_what_is_fed_in_the_other_count(tmp_path: Path, hooks: Path, floor: bench.Floor) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2)
    floors = [word for name in floor.paths for word in ("--floor", name)]
    command = ["audit", str(path), "--against", str(hooks), *floors, "--work", str(tmp_path / "work"), "-q"]
    assert invoke([*command, "--layers", "1,3,4"]) == 0
    assert invoke([*command, "--layers", "2,4,5"]) == 1


def test_an_engine_and_a_capture_exclude_each_other(
    tmp_path: Path, server: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bench.dataset(tmp_path / "data")
    assert invoke(["audit", str(path), "--engine", "sglang", "--against", str(server)]) == 2
    assert "E103" in capsys.readouterr().err


def test_a_path_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "/nowhere/at-all"]) == 2
    assert "E202" in capsys.readouterr().err


def test_a_capture_of_other_prompts(tmp_path: Path) -> None:
    other = capture(1, count=2, length=9).write(tmp_path / "other")
    error = refused(bench.dataset(tmp_path / "data"), tmp_path, other)
    assert error.code == "E203"
    assert "hsparity audit" in (error.help or "")


def test_a_capture_of_a_few_boundaries(tmp_path: Path) -> None:
    """One boundary beside the slots tells none from another."""
    made = real.load(real.TINY, "sglang")
    states = {p: keep(s, ("boundary.002",)) for p, s in made.states.items()}
    few = replace(made, states=states).write(tmp_path / "few")
    assert refused(bench.dataset(tmp_path / "data"), tmp_path, few).code == "E210"


@pytest.mark.parametrize("held", [(2, 4, 5), (2, 4, 8)])
def test_a_capture_of_three_boundaries_cannot_tell_their_neighbours(
    tmp_path: Path, held: tuple[int, ...]
) -> None:
    """The neighbour of a boundary that is not there would be taken for it."""
    made = real.load(real.TINY, "sglang")
    states = {p: keep(s, [bench.key(b) for b in held]) for p, s in made.states.items()}
    few = replace(made, states=states).write(tmp_path / "few")
    assert refused(bench.dataset(tmp_path / "data"), tmp_path, few).code == "E210"


def test_a_model_of_another_width(tmp_path: Path) -> None:
    serving = Serving("sglang", str(models.path("tiny:llama")))
    with pytest.raises(HsparityError) as caught:
        check_model(serving, 4096, 10, "data/")
    assert caught.value.code == "E208"


def test_token_ids_beyond_the_vocabulary() -> None:
    serving = Serving("sglang", str(models.path("tiny:llama")))
    from hsparity.capture.checkpoint import read_shape

    shape = read_shape(serving.model)
    assert shape is not None
    check_model(serving, shape.hidden_size, shape.vocab_size - 1, "data/")
    with pytest.raises(HsparityError) as caught:
        check_model(serving, shape.hidden_size, shape.vocab_size, "data/")
    assert caught.value.code == "E105"


def test_a_capture_of_another_width(tmp_path: Path) -> None:
    """The same tokens, another model."""
    ids = {name: list(tokens) for name, tokens in real.load(real.TINY, "sglang").ids.items()}
    toy = capture(1)
    short = {n: [i % 50 for i in t] for n, t in ids.items()}
    states = {n: toy.toy.run(tuple(t), 1) for n, t in short.items()}
    other = replace(toy, states=states, ids=ids).write(tmp_path / "toy")
    assert refused(bench.dataset(tmp_path / "data"), tmp_path, other).code == "E208"


def test_an_empty_dataset(tmp_path: Path, server: Path) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2)
    for file in path.rglob("hs_*"):
        file.write_bytes(b"")
    assert refused(path, tmp_path, server).code in ("E221", "E202", "E206")


def test_a_dataset_of_which_nothing_can_be_read(tmp_path: Path, server: Path) -> None:
    path = bench.dataset(tmp_path / "data")
    assert bench.run(path, tmp_path / "a", server).sampled == 13
    opened = sorted(path.glob("data_*.pt"))
    for file in opened:
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(HsparityError) as caught:
        bench.run(path, tmp_path / "b", server)
    assert caught.value.code in ("E221", "E202", "E206")


def test_slots_that_do_not_fit_are_a_usage_error(tmp_path: Path, server: Path) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2)
    assert refused(path, tmp_path, server, slots="2,30,last").code == "E102"


def test_a_dataset_that_was_put_right_in_place_is_read_anew(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    """What an earlier run imported is not what lies there now."""
    path = bench.dataset(tmp_path / "data", bench.V2, (3, 5, 6))
    work = tmp_path / "work"
    assert bench.run(path, tmp_path, server, floor, work=work).verdict is Verdict.DIVERGED
    right = bench.dataset(tmp_path / "right", bench.V2)
    for file in right.rglob("hs_*"):
        (path / "hidden_states" / file.name).write_bytes(file.read_bytes())
    assert bench.run(path, tmp_path, server, floor, work=work).verdict is Verdict.PARITY


def test_a_native_path_that_is_not_what_its_hooks_saw_is_no_yardstick(
    tmp_path: Path, floor: bench.Floor
) -> None:
    """The server's own slots are at fault: that the dataset equals its hooks is no parity with what it feeds."""

    def scaled(prompt: str, sites: bench.States) -> bench.States:
        return {f"slot.{i:03d}": 1.1 * sites[bench.key(b)] for i, b in enumerate(bench.FEEDS)}

    def stale(prompt: str, sites: bench.States) -> bench.States:
        found = {f"slot.{i:03d}": sites[bench.key(b)].copy() for i, b in enumerate(bench.FEEDS)}
        found["slot.001"][1::3] = found["slot.001"][0]
        return found

    path = bench.dataset(tmp_path / "data", bench.V2)
    for number, fault in enumerate((scaled, stale)):
        server = bench.served(tmp_path / f"server{number}", slots=fault)
        result = bench.run(path, tmp_path / str(number), server, floor)
        assert result.verdict is not Verdict.PARITY


def test_a_file_without_token_ids_is_refused_with_the_way_out(tmp_path: Path, server: Path) -> None:
    """Equal tokens are what makes states comparable."""
    from hsparity.capture import foreign

    path = bench.dataset(tmp_path / "data")
    opened = foreign.open_dataset(path, str(path))
    read = opened.read

    def without(record: bench.Record) -> Sample:
        return replace(read(record), token_ids=None)

    opened.read = without  # type: ignore[method-assign]
    from hsparity.audit.auditing import audit
    from hsparity.audit.case import Wanted

    with pytest.raises(HsparityError) as caught:
        audit(Wanted(dataset=opened, work=tmp_path / "work", against=str(server)))
    assert caught.value.code in ("E203", "E220")
