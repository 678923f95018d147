"""hsparity drafter measure, up to the engine and behind it: what is refused, what an engine is given, the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hsparity.cli import main
from hsparity.cli.drafter_measure_page import render
from hsparity.drafter import measuring
from hsparity.drafter.draft import NESTED, TOP, open_draft
from hsparity.errors import HsparityError
from hsparity.report.base import Options
from hsprobe import measure_steps
from hsprobe.measure_steps import Step

from .heads import make_head
from .test_measurement import OTHER, PROMPT, record


@pytest.mark.parametrize("layout", ["midlayer", "layers.0", "speculators"])
def test_other_ids_go_into_a_copy(layout: str, tmp_path: Path) -> None:
    """The draft's own folder stays as it is; the copy has the ids where its kind has them, and nowhere else."""
    draft = open_draft(str(make_head(tmp_path / "head", layout)))
    before = {p.name: p.read_bytes() for p in draft.folder.iterdir()}
    folder, ids = measuring.served(draft, (1, 3, 4), tmp_path / "copy")
    again = open_draft(str(folder))
    assert ids == (1, 3, 4)
    assert again.ids_by_key == {TOP if layout == "speculators" else NESTED: (1, 3, 4)}
    assert again.tensors == draft.tensors
    assert measuring.weights_sha256(again) == measuring.weights_sha256(draft)
    assert {p.name: p.read_bytes() for p in draft.folder.iterdir()} == before
    bare, none = measuring.served(draft, (), tmp_path / "bare")
    assert none is None
    assert open_draft(str(bare)).ids is None
    assert measuring.served(draft, None, tmp_path / "unmade") == (draft.folder, draft.ids)
    assert not (tmp_path / "unmade").exists()


def test_what_cannot_be_measured_is_refused_before_any_work(tmp_path: Path) -> None:
    """Transformers serves no draft; a head of three slots takes no two ids."""
    draft = open_draft(str(make_head(tmp_path / "head")))
    for asked, code in (
        (measuring.Asked("hf", "m"), "E290"),
        (measuring.Asked("vllm", "m", ids=(1, 2)), "E291"),
        (measuring.Asked("vllmm", "m"), "E107"),
    ):
        with pytest.raises(HsparityError) as raised:
            measuring.check(draft, asked)
        assert raised.value.code == code
    measuring.check(draft, measuring.Asked("sglang", "m", ids=()))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "hf"], "error[E290]: Transformers serves no EAGLE-3 draft"),
        (["--engine", "vllm", "--ids", "2,x"], "error[E100]: invalid value for --ids"),
        (["--engine", "sglang", "--ids", "2"], "error[E291]: --ids names 1 layers"),
        (["--engine", "vllm", "--env", "X"], "error[E100]: invalid value for --env"),
        (["--engine", "vllm", "--generate", "1"], "error[E100]: invalid value for '--generate'"),
    ],
)
def test_the_command_exits_2_for_what_it_refuses(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the command line, before any engine starts."""
    head = make_head(tmp_path / "head")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    assert main.invoke(["drafter", "measure", str(head), "--model", str(tmp_path / "m"), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [
        ({"eos_token_id": 2}, None, (2,)),
        ({"eos_token_id": 2}, {"eos_token_id": [5, 6]}, (5, 6)),
        ({"eos_token_id": None}, {"temperature": 0.6}, ()),
    ],
)
def test_a_text_ends_where_a_server_ends_it(
    config: dict[str, object],
    generation: dict[str, object] | None,
    ids: tuple[int, ...],
    tmp_path: Path,
) -> None:
    """generation_config.json comes before config.json."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert measuring.stop_ids(str(tmp_path)) == ids


def test_steps_leave_the_engine_in_order(tmp_path: Path) -> None:
    """What is appended is taken once, in order; a folder without any gives none."""
    first, second = Step("r", 4, (1, 2), 1, 9), Step("s", 6, (3,), 0, 8)
    assert measure_steps.take(tmp_path) == ()
    measure_steps.append(tmp_path, [first])
    measure_steps.append(tmp_path, [])
    measure_steps.append(tmp_path, [second])
    assert measure_steps.take(tmp_path) == (first, second)
    assert measure_steps.take(tmp_path) == ()


@pytest.mark.parametrize("quiet", [True, False])
def test_stand_ins_are_said_wherever_figures_are_shown(quiet: bool) -> None:
    """The headline alone says it too; without stand-ins nothing does."""
    made = record(PROMPT, OTHER)
    page = render(made, Options(width=100, quiet=quiet))
    assert "accept length 2.25 (1.00 to 3.50) of 4 in SGLang 0.5.23, over 1 stand-in of hsparity's" in page
    assert ("sgl_kernel.verify_tree_greedy_cpu" in page) is not quiet
    assert "stand-in" not in render(replace(made, stand_ins=()), Options(width=100, quiet=quiet))


def test_the_page_fits_and_says_what_was_counted() -> None:
    """Every line of the page stands in the width asked for, in ASCII where asked."""
    for width in (60, 80, 120):
        page = render(record(PROMPT, OTHER), Options(width=width, verbose=True, unicode=False))
        assert page.isascii()
        assert max(len(line) for line in page.splitlines()) <= width
    assert "2,15,27  (the draft's config); the running target hands over 3,16,28" in page
    rows = [line.split()[:2] for line in page.splitlines()]
    assert [r for r in rows if r[:1] in (["1"], ["2"], ["3"]) and r[1].endswith("%")] == [
        ["1", "50.0%"],
        ["2", "50.0%"],
        ["3", "25.0%"],
    ]
    assert "is in no step" in " ".join(page.split())
    assert "agrees    yes" in page
    assert "agrees    no" in render(record(replace(PROMPT, counters={})), Options())
