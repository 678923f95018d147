"""The text report: what it says, and what it never does to a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from hsparity.conventions import draft_ids
from hsparity.model import Comparison, Verdict, to_json
from hsparity.report import Options, reporters
from hsparity.report.bars import bars, marks
from hsparity.report.columns import Column, fit, table
from tests.golden.cases import CASES
from tests.golden.fixtures import comparison

ANSI = re.compile(r"\x1b\[([0-9;]*)m")
ALL = pytest.mark.parametrize("name", CASES)


def text(name: str, **options: object) -> str:
    return reporters()["terminal"].render(CASES[name](), Options(**options))  # type: ignore[arg-type]


@ALL
@pytest.mark.parametrize("width", [48, 60, 80, 120, 200])
def test_lines_fit_and_nothing_is_cut(name: str, width: int) -> None:
    """Columns are dropped and words wrapped; only a command's long word may stand out; no ellipsis."""
    own = "…" in to_json(CASES[name]())  # a finding may speak of a list that goes on
    for line in text(name, width=width).splitlines():
        long_word = max((cell_len(w) for w in line.split()), default=0)
        assert cell_len(line) <= width or long_word > width - 10, line
        assert own or "…" not in line


@ALL
def test_plain_output_holds_no_control_character(name: str) -> None:
    """Escapes in a path, a prompt id or a token are spelled out; so are bidirectional overrides."""
    shown = text(name)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


@ALL
def test_color_is_on_verdict_words_only(name: str) -> None:
    """Without colour the report reads the same."""
    colored = text(name, color=True)
    assert ANSI.sub("", colored) == text(name)
    words = {v.value for v in Verdict} | {v.value.upper() for v in Verdict}
    assert {m[1] for m in re.finditer(r"\x1b\[3[0-9]m(.*?)\x1b\[0m", colored)} <= words
    assert len(ANSI.findall(colored)) >= 2


@ALL
def test_ascii_output_is_ascii(name: str) -> None:
    """An encoding that lacks block characters gets none, and text of a model is escaped."""
    shown = text(name, unicode=False, width=80)
    assert shown.isascii()
    assert all(
        len(line) <= 80 or " " not in line.strip().removesuffix("\\").strip() for line in shown.splitlines()
    )


@ALL
def test_quiet_is_one_line(name: str) -> None:
    """-q prints the verdict line only."""
    assert text(name, quiet=True).splitlines() == [text(name, quiet=True)]
    assert text(name, quiet=True).startswith(CASES[name]().verdict.value.upper())


@ALL
def test_both_numberings_and_draft_ids_are_printed(name: str) -> None:
    """Layers and boundaries differ by one and engines count their own way: a report says all of it."""
    shown, asked = text(name, width=120), CASES[name]().request
    assert re.search(r"\b[Ll]ayers? |\bthe embeddings", shown)
    assert re.search(r"\bboundar(y|ies) ", shown)
    leads = [f.code for f in CASES[name]().findings if f.severity == "cause" and not f.ruled_out]
    fixed = leads[:1] in (["HS101"], ["HS103"])  # its fix says what to write
    wanted = not fixed and not asked.spelled.endswith(" all")
    assert bool(re.search("^(to feed a draft model|draft ids) ", shown, re.M)) is wanted
    for engine, _ in draft_ids(asked.boundaries, 61, "DeepseekV3ForCausalLM"):
        assert engine in " ".join(shown.split()) or not wanted


@ALL
def test_the_floor_is_named(name: str) -> None:
    """A ratio never stands without what it was taken over."""
    c = CASES[name]()
    shown = " ".join(text(name).split())
    assert re.search(r"\bfloor:? (none|what bf16|repeats|bit equality|the tolerance)", shown)
    if c.floor.kind == "bf16-reference" and name != "hostile":
        assert c.floor.source in shown


def test_parity_is_short() -> None:
    """A healthy pair needs no page."""
    assert len(text("parity").splitlines()) <= 15
    assert "rel-L2    floor" not in text("parity")
    assert "rel-L2    floor" in text("parity", verbose=True)


def test_inconclusive_says_what_is_missing_and_how_to_get_it() -> None:
    """INCONCLUSIVE names the missing floor and the two commands that make and use one."""
    joined = text("inconclusive").replace(" \\\n", " ")
    assert "floor     none given: " in joined
    assert not re.search("^missing", joined, re.M)
    assert "hsparity floor captures/hf-bf16 --only fp32,bf16" in joined
    assert "hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers 2,30,58" in " ".join(joined.split())


def test_missing_sites_name_the_capture_command() -> None:
    """A side that lacks requested boundaries gets the command that captures them."""
    joined = " ".join(text("missing-sites").replace(" \\\n", " ").split())
    assert "boundary 31 is not in cand" in joined
    assert "hsparity capture vllm --model models/deepseek-v3-tiny --layers 2,30,58" in joined


def test_offset_column_stands_while_an_offset_leads() -> None:
    """The shifted error is shown beside the claimed one, and only then."""
    assert "offset +1" in text("offset")
    assert "3.0e-03  diverged" in text("offset")
    assert "offset +" not in text("few-tokens")


def test_parts_are_shown_apart_when_they_tell_another_story() -> None:
    """A sink token that carries the norm cannot hide the rest."""
    assert "massive channels and sink tokens, apart" in text("apart")
    assert "7.1e-01" in text("apart")
    assert "massive channels" not in text("offset")


def test_numbers_that_are_not_finite_are_counted() -> None:
    """NaN is never silent."""
    assert "0 elements in ref, 1,024 in cand" in " ".join(text("nan-rows").split())


def test_many_rows_are_summed_up_unless_verbose() -> None:
    """62 requested boundaries print twelve rows and how many were left out."""
    assert "50 more rows: -v" in text("pooled")
    assert len(text("pooled", verbose=True).splitlines()) > 62


def test_commands_paste() -> None:
    """A wrapped command ends its lines in a backslash, so that a shell reads it as one."""
    joined = text("offset", width=60).replace(" \\\n", " ")
    assert "hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers 2,30,58 --offset 1" in " ".join(
        joined.split()
    )


def test_several_causes_are_a_list_with_a_fix_each() -> None:
    """Strongest first, each with its place, the rival it beat, its fix in each engine's terms, and its command."""
    shown = text("several")
    assert re.findall(r"^(\d)  (HS\d+ \S+)", shown, re.M) == [
        ("1", "HS101 layer-offset"),
        ("2", "HS113 request-order"),
        ("3", "HS201 final-norm-applied"),
    ]
    assert [m[1] for m in re.finditer(r"^fix  (HS\d+)", shown, re.M)] == ["HS101", "HS113", "HS201"]
    assert re.findall("evidence for (HS\\d+)", shown) == ["HS101", "HS113", "HS201"]
    assert "next best  boundary 31, 12× farther (slot.001)" in shown
    assert re.search(
        "^     vLLM: 3,31,61 .*\n     SGLang 0.5.13", shown, re.M
    )  # the candidate's engine first
    assert "  ruled out: HS401 tokens-differ" in shown.splitlines()


def test_findings_peel() -> None:
    """What slots hold was measured on rows that were put back, and the report says so; rows are first by nature."""
    shown = text("several", width=120)
    assert "HS101 layer-offset  61.1% of the excess, after the rows are given back" in shown
    assert "HS113 request-order  24.0% of the excess\n" in shown
    assert "given back" not in text("final-norm")


def test_rows_show_their_spans_and_tokens_as_a_picture() -> None:
    """Which rows are wrong, how many, and that the first prompt's are right."""
    shown = text("rows")
    assert "rows       64 tokens (prompt and positions): 1 0-31, 2 0-31" in shown
    assert "  " + "·" * 16 + "█" * 32 in shown.splitlines()
    assert "excess by token" not in text("offset")


def test_a_clean_target_lists_what_is_left_to_check() -> None:
    """Each on a line of its own, for the draft's side."""
    lines = text("target-clean").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("note HS902 target-clean: "))
    assert [line.split(":")[0].strip() for line in lines[start + 2 : start + 4]] == [
        "left to check on the draft",
        "its layer ids in this engine's terms",
    ]


def test_evidence_is_cut_unless_verbose() -> None:
    """The report keeps to a page; -v has every line and why a cause is ruled out."""
    short, whole = text("rows"), text("rows", verbose=True)
    assert "2 more lines: -v" in short
    assert "both prompts have 32 tokens" not in short
    assert "both prompts have 32 tokens" in whole
    assert "ruled out: HS401 tokens-differ: Token ids are equal on both sides." in whole


@pytest.mark.parametrize("name", ["final-norm", "native-ids", "offset", "rows", "several"])
def test_common_cases_fit_a_page(name: str) -> None:
    """A3 at most for three causes at once, a printed page for one."""
    assert len(text(name).splitlines()) <= (80 if name == "several" else 50)


def test_a_result_without_sites_renders() -> None:
    """Nothing compared is a report too."""
    empty = comparison(Verdict.INCONCLUSIVE, "Nothing was compared.", [])
    for name, reporter in reporters().items():
        assert "Nothing was compared." in reporter.render(empty, Options()), name


def test_reporters_are_found_by_file() -> None:
    """to_NAME.py is reporter NAME."""
    assert {n: r.suffix for n, r in reporters().items()} == {
        "github": ".github",
        "html": ".html",
        "json": ".json",
        "junit": ".xml",
        "markdown": ".md",
        "sarif": ".sarif",
        "terminal": ".txt",
    }


def test_columns_are_dropped_by_rank() -> None:
    """The least important column goes first, and rank 0 stays though it does not fit."""
    columns = [Column("a", ("1",)), Column("wide", ("22222222",), 2), Column("b", ("3",), 1)]
    assert [c.head for c in fit(columns, 40)] == ["a", "wide", "b"]
    assert [c.head for c in fit(columns, 8)] == ["a", "b"]
    assert [c.head for c in fit(columns, 1)] == ["a"]


def test_the_short_form_stands_in_for_the_long_one() -> None:
    """Of two columns of one name the first that fits is shown."""
    columns = [Column("r", ("1 (0-2)",), 9, name="r"), Column("r", ("1",), name="r")]
    assert table(columns, 40)[-1].plain == "1 (0-2)"
    assert table(columns, 4)[-1].plain == "1"


def test_bars_pool_by_maximum() -> None:
    """One loud boundary among quiet ones stays visible however narrow the terminal."""
    row, per_bar = bars([0.0] * 50 + [3.0] + [0.0] * 49, 10, True)
    assert (len(row), per_bar, row.index("█"), row.count("·")) == (10, 10, 5, 9)


def test_bars_keep_unknown_apart_from_within() -> None:
    """A boundary nobody measured is no parity."""
    assert bars([float("nan"), 0.0, float("inf")], 10, True)[0] == " ·█"


@pytest.mark.parametrize(
    ("positions", "line"),
    [([(0, "2"), (1, "3"), (9, "61")], "2       61"), ([(3, "3"), (9, "59")], "   3    59"), ([], "")],
)
def test_labels_keep_apart(positions: list[tuple[int, str]], line: str) -> None:
    """A label that would touch its neighbour is left out, one at the edge moves in."""
    assert marks(positions, 10) == line


@pytest.mark.parametrize(
    ("boundaries", "expected"),
    [
        ((3, 31, 59), ("2,30,58", "3,31,59", "2,30,58")),
        ((1, 3, 5), ("0,2,4", "3,5,1 (1 in front is read as 2)", "0,2,4")),
        ((1,), ("0", "none: 1 in front is read as 2", "0")),
        (
            (2, 61),
            ("1,60 (few families reach the last)", "none: boundary 61 is out of reach", "2,61"),
        ),
    ],
)
def test_draft_ids_follow_each_engine(boundaries: tuple[int, ...], expected: tuple[str, ...]) -> None:
    """vLLM counts boundaries, SGLang layers, but DeepSeek and gpt-oss by rules of their own."""
    assert tuple(written(boundaries, family) for family in FAMILIES) == expected


FAMILIES = ("LlamaForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM")


def written(boundaries: tuple[int, ...], architecture: str) -> str:
    """What SGLang's line says."""
    return draft_ids(boundaries, 61, architecture)[1][1]


def test_only_the_family_of_the_model_is_printed() -> None:
    """One line an engine; without an architecture SGLang is answered by the rule of most families."""
    assert [label for label, _ in draft_ids((2, 4), 8, "GptOssForCausalLM")] == [
        "vLLM",
        "SGLang 0.5.17+, gpt-oss",
        "Transformers",
    ]
    assert draft_ids((2, 4), 8, "")[1] == ("SGLang", "1,3")
    assert draft_ids((2, 4), 8, "")[0] == ("vLLM", "2,4")


def test_parity_over_everything_leaves_draft_ids_out() -> None:
    """Nobody asked about a list of layers."""
    c = CASES["parity"]()
    everything = replace(c, request=replace(c.request, spelled="--layers all"))
    assert "draft ids" in text("parity")
    assert "draft ids" not in reporters()["terminal"].render(everything, Options())


@pytest.mark.parametrize("boundary", range(1, 61))
def test_deepseek_ids_round_trip(boundary: int) -> None:
    """Ids written as told are read back as the boundaries that were asked for."""
    asked = (boundary, 60) if boundary < 60 else (boundary,)
    told = written(asked, "DeepseekV3ForCausalLM").split(" (")[0]
    if told.startswith("none"):
        assert asked == (1,)
        return
    ids = [int(i) for i in told.split(",")]
    read = [i + 1 for i in ids] if ids[0] == 1 else ids  # deepseek_v2.py, set_eagle3_layers_to_capture
    assert sorted(read) == sorted(asked)


def test_request_offset_pairs_other_boundaries() -> None:
    """With --offset the candidate's boundary stands in its own column."""
    c: Comparison = CASES["offset"]()
    moved = replace(
        c,
        deltas=tuple(replace(d, cand=f"boundary.{int(d.ref[9:]) - 1:03d}") for d in c.deltas if d.requested),
    )
    shown = reporters()["terminal"].render(moved, Options(width=120))
    assert re.search(r"^layer  boundary  cand ", shown, re.M)
