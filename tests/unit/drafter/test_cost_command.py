"""hsparity drafter DRAFT REF CAND, and --draft of compare and audit, through the command line."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from hsparity.capture.read import open_source
from hsparity.cli import main
from hsparity.drafter.result import DraftCost
from tests.causes.streams import plain

from .costed import IDS, TOY, VOCABULARY, World, captured, slots
from .heads import make_head

HOSTILE = "h\x1b[31m[bold]<b>&"


@dataclass(frozen=True)
class Desk:
    """Where the commands run: captures by short names, a target that --model names."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main.invoke(list(words))
        said = self.capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    def cost(
        self, *words: str, head: str = "head", ref: str = "ref", cand: str = "cand"
    ) -> tuple[int, str, str]:
        return self.run("drafter", head, ref, cand, *words)


@pytest.fixture(scope="module")
def made(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, heads, and captures that name the target; a floor lies beside them."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(world.target, folder / "toy")  # what the captures call their model
    shutil.copytree(world.head, folder / "head")
    keys = ["boundary.003", "boundary.005", "boundary.006"]
    captured(1).write(folder / "ref")
    slots(captured(2, "sglang"), keys).write(folder / "cand")
    slots(captured(2, "sglang"), [f"boundary.{k:03d}" for k in IDS]).write(folder / "good")
    captured(3, "sglang").write(folder / "hooks")
    labels = [{"label": k} for k in keys]
    plain(folder / "data", captured(2, "sglang"), labels, keys)
    for source, name in zip(world.floors, ("hf-fp32", "hf-bf16"), strict=True):
        shutil.copytree(source.path, folder / "floors" / name)
    return folder


@pytest.fixture
def desk(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.chdir(made)
    monkeypatch.setenv("COLUMNS", "100")
    return Desk(made, capsys)


FLOORS = ("--floor", "floors/hf-fp32", "--floor", "floors/hf-bf16")


def test_drafter_is_drafter_cost(desk: Desk) -> None:
    """The group's default command is cost: the same page, the same exit."""
    one = ("head", "ref", "ref", *FLOORS)
    short, long = desk.run("drafter", *one), desk.run("drafter", "cost", *one)
    assert short == long
    assert short[0] == 0
    assert "PARITY" in short[1]


def test_exit_codes(desk: Desk) -> None:
    """0 parity, 1 diverged, 3 inconclusive: for captures that feed alike, unlike, and for a head of noise."""
    assert desk.cost(*FLOORS, cand="good")[0] == 0
    make_head(
        desk.folder / "idle",
        hidden=64,
        vocab=VOCABULARY,
        draft_vocab=VOCABULARY,
        target_hidden=TOY.width,
        ids=IDS,
    )
    code, out, _ = desk.cost(*FLOORS, "-q", head="idle")
    assert code == 3
    assert out.startswith("INCONCLUSIVE")
    assert out.count("\n") == 1


def test_records(desk: Desk) -> None:
    """--json holds the whole result and the command; '-' puts it, alone, on standard output."""
    code, out, err = desk.cost(*FLOORS, "--json", "cost.json", "--html", "cost.html")
    assert code == 1
    assert "json report: cost.json" in err
    found = DraftCost.from_json((desk.folder / "cost.json").read_text())
    assert found.verdict.value == "diverged"
    assert found.steps == 3
    assert f"{found.feed('ref').accepted.value:.2f}" in out
    html = (desk.folder / "cost.html").read_text()
    assert f"{found.feed('ref').accepted.value:.2f}" in html
    _, only, _ = desk.cost(*FLOORS, "--json", "-")
    assert json.loads(only)["headline"] == found.headline


def test_steps_and_ids(desk: Desk) -> None:
    """--steps sets the chain, --ids what the candidate's engine is given, --boundaries what a reference without slots feeds."""
    desk.cost(
        *FLOORS, "--steps", "2", "--ids", "3,5,6", "--boundaries", "2,4,5", "--json", "c.json", cand="hooks"
    )
    found = DraftCost.from_json((desk.folder / "c.json").read_text())
    assert len(found.feed("ref").by_position) == 2
    assert found.cand.places == ("boundary 4", "boundary 6", "boundary 7")
    assert found.ref.places == ("boundary 2", "boundary 4", "boundary 5")
    assert found.ref.why == "as --boundaries says"
    desk.cost(*FLOORS, "--ids", "default", "--layers", "1,3,4", "--json", "c.json", cand="hooks")
    found = DraftCost.from_json((desk.folder / "c.json").read_text())
    assert found.cand.places == found.ref.places == ("boundary 2", "boundary 4", "boundary 5")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--steps", "0"], "E100"),
        (["--steps", "17"], "E100"),
        (["--steps", "many"], "E100"),
        (["--ids", "2,x"], "E100"),
        (["--ids", "-1,2,3"], "E100"),
        (["--ids", ""], "E100"),
        (["--layers", "1,3,4", "--boundaries", "2,4,5"], "E103"),
        (["--boundaries", "2,4"], "E270"),
        (["--boundaries", "2,4,99"], "E102"),
        (["--boundaries", "two"], "E102"),
        (["--tokens", "x:y"], "E102"),
        (["--html", "a.html", "--json", "a.html"], "E103"),
        (["--json", "ref/manifest.json/x.json"], "E106"),
        (["--measured", "none.json"], "E202"),
        (["--measured", "toy/config.json"], "E293"),
        (["--model", "nowhere"], "E107"),
        (["--floor", "nowhere"], "E202"),
        (["--prompts", "nowhere.jsonl"], "E105"),
    ],
)
def test_what_is_refused(words: list[str], code: str, desk: Desk) -> None:
    """A wrong option ends with its code and exit 2, and leaves no report behind."""
    status, out, err = desk.cost(*words)
    assert (status, out) == (2, "")
    assert f"error[{code}]" in err
    assert not (desk.folder / "a.html").exists()


@pytest.mark.parametrize(("head", "ref", "cand", "code"), [
    ("nowhere", "ref", "cand", "E260"),
    ("head", "nowhere", "cand", "E107"),
    ("head", "ref", "toy", "E202"),
    ("toy", "ref", "cand", "E262"),
])  # fmt: skip
def test_what_is_not_there(head: str, ref: str, cand: str, code: str, desk: Desk) -> None:
    """No head, no capture, or a model in place of either."""
    status, out, err = desk.cost(head=head, ref=ref, cand=cand)
    assert (status, out) == (2, "")
    assert f"error[{code}]" in err


def _damage(folder: Path, how: str) -> None:
    file = folder / "model.safetensors"
    if how == "cut short":
        file.write_bytes(file.read_bytes()[:2000])
    elif how == "no JSON":
        (folder / "config.json").write_text("{")
    elif how == "no weights":
        file.unlink()
    elif how == "no lm_head":
        tensors = load_file(file)
        del tensors["lm_head.weight"]
        save_file(tensors, file)
    elif how == "no norm":
        tensors = load_file(file)
        del tensors["norm.weight"]
        save_file(tensors, file)
    else:
        shutil.rmtree(folder)
        hidden = {"a wider target": 256, "a narrower target": 64}[how]
        make_head(folder, hidden=64, vocab=VOCABULARY, draft_vocab=VOCABULARY, target_hidden=hidden, ids=IDS)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("cut short", "E206"),
        ("no JSON", "E260"),
        ("no weights", "E261"),
        ("no norm", "E263"),
        ("a wider target", "E264"),
        ("a narrower target", "E264"),
    ],
)
def test_a_head_that_cannot_run(how: str, code: str, desk: Desk, tmp_path: Path) -> None:
    """A damaged head, and one for another hidden size, each with its code."""
    shutil.copytree(desk.folder / "head", tmp_path / "head")
    _damage(tmp_path / "head", how)
    status, out, err = desk.cost(head=str(tmp_path / "head"))
    assert (status, out) == (2, "")
    assert f"error[{code}]" in err


def test_an_absent_lm_head_is_the_targets(desk: Desk, tmp_path: Path) -> None:
    """A head without lm_head drafts with the target's where that fits, and is refused where it does not."""
    shutil.copytree(desk.folder / "head", tmp_path / "head")
    _damage(tmp_path / "head", "no lm_head")
    status, _, err = desk.cost(head=str(tmp_path / "head"))
    assert status == 2  # the head is wider than the target's lm_head
    assert "error[E267]" in err
    made = make_head(
        tmp_path / "same",
        hidden=TOY.width,
        vocab=VOCABULARY,
        draft_vocab=VOCABULARY,
        target_hidden=TOY.width,
        ids=IDS,
        lm_head=False,
    )
    assert desk.cost(*FLOORS, head=str(made))[0] == 3


def test_hostile_names(desk: Desk) -> None:
    """A head in a folder with escapes and markup in its name is shown inert, in every report."""
    os.rename(desk.folder / "head", desk.folder / HOSTILE)
    try:
        code, out, err = desk.cost(*FLOORS, "--html", "h.html", "--json", "h.json", head=HOSTILE)
        _, quiet, _ = desk.run("compare", "ref", "cand", "--draft", HOSTILE, *FLOORS, "-q")
        _, refused, problem = desk.cost("--boundaries", "2,4", head=HOSTILE)
    finally:
        os.rename(desk.folder / HOSTILE, desk.folder / "head")
    assert code == 1
    for text in (out, err, quiet, problem):
        assert "\x1b" not in text
        assert "[bold]" in text or text is err
    assert refused == ""
    html = (desk.folder / "h.html").read_text()
    assert "\x1b" not in html
    assert "<b>&" not in html
    assert DraftCost.from_json((desk.folder / "h.json").read_text()).draft == HOSTILE


@pytest.mark.parametrize("command", ["compare", "audit"])
def test_the_headline_of_others(command: str, desk: Desk) -> None:
    """compare and audit with --draft say what the difference costs, in every report; the verdict on the states is theirs."""
    words = {
        "compare": ["compare", "ref", "cand", "--boundaries", "2,4,5", *FLOORS],
        "audit": ["audit", "data", "--against", "hooks", "--boundaries", "2,4,5", "--work", "work", *FLOORS],
    }[command]
    plainly = desk.run(*words, "-q")
    kinds = ("html", "json", "md") if command == "compare" else ("html", "json")
    reports = {kind: f"{command}.{kind}" for kind in kinds}
    options = [
        x for kind, name in reports.items() for x in (f"--{'markdown' if kind == 'md' else kind}", name)
    ]
    code, out, _ = desk.run(*words, "--draft", "head", *options)
    quiet = desk.run(*words, "--draft", "head", "-q")
    assert code == quiet[0] == plainly[0]
    assert quiet[1].count("\n") == 1
    assert quiet[1].startswith(plainly[1].strip().rstrip("."))
    record = json.loads((desk.folder / reports["json"]).read_text())
    cost = record["cost"]
    assert cost["draft"] == "head"
    # The head was fitted on boundaries 2, 4, 5: it loses by the candidate, and gains by what the audit's server is to feed.
    sign = 1 if command == "compare" else -1
    lost = sign * (cost["ref"] - cost["cand"])
    assert (
        0.5
        < min(sign * cost["low"], sign * cost["high"])
        <= lost
        <= max(sign * cost["low"], sign * cost["high"])
    )
    said = f"For the draft head, {cost['headline']}"
    for text in (
        quiet[1],
        " ".join(out.split()),
        *(_flat(desk.folder / n) for k, n in reports.items() if k != "json"),
    ):
        assert said in text


def _flat(path: Path) -> str:
    return " ".join(path.read_text().split())


def test_a_head_that_does_not_fit_costs_no_comparison(desk: Desk, tmp_path: Path) -> None:
    """The comparison is whole without it; the reason is told on standard error. A head that is none ends it at once."""
    narrow = make_head(
        tmp_path / "narrow", hidden=64, vocab=VOCABULARY, draft_vocab=VOCABULARY, target_hidden=64, ids=IDS
    )
    words = ["compare", "ref", "cand", "--boundaries", "2,4,5", *FLOORS, "-q"]
    plainly, tried = desk.run(*words), desk.run(*words, "--draft", str(narrow))
    assert tried[:2] == plainly[:2]
    assert "no cost: error[E264]" in tried[2]
    status, out, err = desk.run(*words, "--draft", "toy")
    assert (status, out) == (2, "")
    assert "error[E262]" in err


def test_compare_takes_the_targets_checkpoint(desk: Desk, made: Path) -> None:
    """Where the captures name a checkpoint that is not here, --model of compare names it for the head too."""
    os.rename(made / "toy", made / "elsewhere")
    try:
        words = ["compare", "ref", "cand", "--boundaries", "2,4,5", *FLOORS, "-q", "--draft", "head"]
        lost, found = desk.run(*words), desk.run(*words, "--model", "elsewhere")
    finally:
        os.rename(made / "elsewhere", made / "toy")
    assert "no cost: error[E107]" in lost[2]
    assert "For the draft head" not in lost[1]
    assert "For the draft head, the difference costs" in found[1]


def test_the_desk_is_what_it_says(desk: Desk) -> None:
    """The candidate has slots only, the reference none."""
    assert open_source("cand").sites() == ("slot.00", "slot.01", "slot.02")
    assert not any(k.startswith("slot") for k in open_source("ref").sites())


def test_states_that_agree_and_a_draft_that_loses_are_no_parity(desk: Desk) -> None:
    """What is compared may be equal while the sides feed the draft other layers: that is DIVERGED, never a pass."""
    late = slots(captured(2, "sglang"), ["boundary.003", "boundary.005", "boundary.006"], True)
    late.write(desk.folder / "late")
    words = ["compare", "ref", "late", "--boundaries", "2,4,5", *FLOORS, "-q"]
    assert desk.run(*words)[0] == 0
    code, out, _ = desk.run(*words, "--draft", "head")
    assert code == 1
    assert out.startswith("DIVERGED  The states compared agree, but not those that the sides feed the draft.")
