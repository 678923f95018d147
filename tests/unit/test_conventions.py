"""The table of conventions: what the engines were seen to do, its own consistency, and the command that prints it."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations

import pytest

from hsparity.cli.main import invoke
from hsparity.conventions import (
    ALIASES,
    FAMILIES,
    RULES,
    answers,
    concrete,
    draft_config,
    engines,
    parse_version,
    reading,
    sentence,
)

LAYERS = 61
LLAMA, DEEPSEEK, GPT_OSS = "LlamaForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM"


@pytest.mark.parametrize(
    ("engine", "version", "architecture", "ids", "seen"),
    [
        ("vllm", "0.32.0", LLAMA, (2, 4, 6), (2, 4, 6)),
        ("vllm", "0.32.0", LLAMA, (1, 3, 5), (1, 3, 5)),
        ("vllm", "0.32.0", DEEPSEEK, (2, 4, 6), (2, 4, 6)),
        ("vllm", "0.32.0", DEEPSEEK, (1, 3, 5), (1, 3, 5)),
        ("sglang", "0.5.23", DEEPSEEK, (2, 4, 6), (2, 4, 6)),
        ("sglang", "0.5.23", DEEPSEEK, (1, 3, 5), (2, 4, 6)),
        ("sglang", "0.5.23", LLAMA, (2, 4, 6), (3, 5, 7)),
        ("sglang", "0.5.23", LLAMA, (1, 3, 5), (2, 4, 6)),
    ],
)
def test_where_the_same_ids_land(
    engine: str, version: str, architecture: str, ids: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    """What real engines handed over for these lists, tiny DeepSeek-V3 and Llama of 8 layers."""
    answer = reading(engine, version, architecture, ids, 8)
    assert answer is not None
    assert answer[1] == seen
    assert answer[0].rule.run


@pytest.mark.parametrize(
    ("engine", "version", "architecture", "ids", "boundaries"),
    [
        # The last boundary: dropped, reached, normed.
        ("vllm", "0.24.1", DEEPSEEK, (2, 61), (2,)),
        ("vllm", "0.25.0", DEEPSEEK, (2, 61), (2, 61)),
        ("vllm", "0.17.0", LLAMA, (2, 61), (2,)),
        ("vllm", "0.11.0", LLAMA, (7, 8), (2, 30, 58)),
        ("hf", "5.24.0", LLAMA, (2, 61), (2, 62)),
        ("transformers", "5.24.0", LLAMA, (6, 2), (6, 2)),
        # Ids are sorted and, where they are captured in a loop over layers, single.
        ("vllm", "0.32.0", LLAMA, (6, 2, 2), (2, 6)),
        # The first id of the list as given decides, whatever its place in the order.
        ("sglang", "0.5.23", DEEPSEEK, (3, 5, 1), (1, 3, 5)),
        ("sglang", "0.5.12", DEEPSEEK, (2, 4, 6), (3, 5, 7)),
        ("sglang", "0.5.23", "KimiK25ForConditionalGeneration", (1, 29, 57), (2, 30, 58)),
        ("sglang", "0.5.23", "Glm4MoeLiteForCausalLM", (2, 4), (2, 4)),
        ("sglang", "0.5.23", "Glm4MoeForCausalLM", (2, 4), (3, 5)),
        ("sglang", "0.5.23", GPT_OSS, (24, 30, 61), (24, 30, 61)),
        ("sglang", "0.5.23", GPT_OSS, (24, 30, 36), (25, 31, 37)),
        ("sglang", "0.5.16", GPT_OSS, (24, 30, 60), (25, 31, 61)),
        ("speculators", "0.4.0", LLAMA, (2, 30, 58, 60), (3, 31, 59, 61)),
        ("speculators", "0.5.0", LLAMA, (2, 30, 58, 61), (2, 30, 58, 61)),
        ("specforge", "0.2.0", LLAMA, (1, 29, 57), (2, 30, 58)),
        ("specforge", "0.2.0", DEEPSEEK, (2, 30, 58), (2, 30, 58)),
    ],
)
def test_readings_follow_version_and_family(
    engine: str, version: str, architecture: str, ids: tuple[int, ...], boundaries: tuple[int, ...]
) -> None:
    answer = reading(engine, version, architecture, ids, LAYERS)
    assert answer is not None
    assert answer[1] == boundaries
    assert not answer[0].doubts


@pytest.mark.parametrize(
    ("engine", "version", "architecture"),
    [
        ("sglang", "0.5.23", "FooForCausalLM"),  # no row names the family
        ("sglang", "0.5.23", "Gemma3ForCausalLM"),  # branches, not boundaries
        ("sglang", "0.5.23", "DeepseekV4ForCausalLM"),  # several streams
        ("sglang", "0.5.4", DEEPSEEK),
        ("vllm", "0.32.0", "Gemma3ForCausalLM"),
        ("vllm", "", LLAMA),
        ("plain", "1.0", LLAMA),
        ("vllm", "0.32.0", ""),
    ],
)
def test_no_reading_where_nothing_is_known(engine: str, version: str, architecture: str) -> None:
    assert reading(engine, version, architecture, (2, 4, 6), LAYERS) is None


@pytest.mark.parametrize(
    ("engine", "version", "nearest"),
    [
        ("sglang", "0.5.24", "0.5.23"),
        ("vllm", "1.0", "0.32.0"),
        ("vllm", "0.8.4", "0.8.5"),
        ("hf", "4.0", "4.57.1"),
    ],
)
def test_a_version_outside_the_checked_ones_is_answered_as_such(
    engine: str, version: str, nearest: str
) -> None:
    found = answers(engine, version, LLAMA)
    assert found
    assert {a.other_version for a in found} == {f"{version} is not checked; nearest checked is {nearest}"}


def test_a_tool_read_at_a_commit_says_so_for_every_version() -> None:
    assert {a.other_version for a in answers("torchspec", "0.1")} == {"0.1 is not checked; read at 6f21829"}
    assert {a.other_version for a in answers("torchspec")} == {""}


def test_a_family_that_no_row_names_gets_the_rule_of_most() -> None:
    (answer,) = [a for a in answers("sglang", "0.5.23", "FooForCausalLM") if a.rule.native]
    assert answer.rule.most
    assert "FooForCausalLM is not among the families read" in answer.other_family


def test_a_class_name_and_a_model_type_name_one_family() -> None:
    for engine in engines():
        assert answers(engine, "", DEEPSEEK) == answers(engine, "", "deepseek_v3")


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda r: f"{r.engine}-{r.setting}-{r.since or r.read_at}-{r.models[:12]}"
)
def test_what_is_written_is_read_back(rule) -> None:
    """Whatever ids a row advises without a remark give these boundaries by its own rule."""
    lists = list(combinations((0, 1, 2, 3, 31, 59, 60, LAYERS), 3))
    advised = [(w, rule.numbering.write(w, LAYERS)) for w in lists]
    # A row that reads no list, or hands over no boundary, advises none.
    if rule.numbering.read((1, 5, 9), LAYERS) in (None, rule.numbering.read((2, 6, 8), LAYERS)):
        assert not any(written.ids for _, written in advised)
        return
    plain = [(w, x) for w, x in advised if x.ids and x.remark in ("", "1 in front is read as 2")]
    assert len(plain) >= 10
    for wanted, written in plain:
        kept = tuple(b for b in wanted if b != LAYERS) if written.said else wanted
        assert tuple(sorted(rule.numbering.read(written.ids, LAYERS))) == kept


def test_every_row_says_where_it_comes_from_and_for_which_versions() -> None:
    for rule in RULES:
        assert rule.source
        assert rule.read_at or (parse_version(rule.since) and parse_version(rule.until))
        if rule.since:
            assert parse_version(rule.since) <= (*parse_version(rule.until), 99)
        assert all(f == f.lower() and f.isalnum() for f in rule.families)


@pytest.mark.parametrize(
    "architecture", [LLAMA, DEEPSEEK, GPT_OSS, "Qwen3MoeForCausalLM", "Gemma3ForCausalLM", "Foo"]
)
@pytest.mark.parametrize(
    "version",
    [
        "0.1.0",
        "0.3.0",
        "0.4.9",
        "0.5.4",
        "0.5.12",
        "0.5.23",
        "0.9.0",
        "0.11.1",
        "0.17.9",
        "0.24.0",
        "0.32.0",
        "9",
    ],
)
def test_one_row_answers_for_a_capture(version: str, architecture: str) -> None:
    """No two rows claim the native ids of one engine, version and model."""
    for engine in engines():
        native = [a.rule for a in answers(engine, version, architecture) if a.rule.native]
        assert len(native) <= 1, (engine, [r.label for r in native])
        if engine in ("vllm", "sglang", "hf"):
            assert len(native) == 1


def test_each_engine_is_told_what_to_write_in_its_own_terms() -> None:
    """One request, in the words of four tools."""

    def said(engine: str, version: str, architecture: str) -> str:
        (answer,) = [a for a in answers(engine, version, architecture) if a.rule.native]
        return sentence(answer, (3, 31, 59), LAYERS)

    assert said("vllm", "0.32.0", DEEPSEEK) == "eagle_aux_hidden_state_layer_ids [3,31,59]"
    assert (
        said("sglang", "0.5.23", DEEPSEEK)
        == "eagle_config.eagle_aux_hidden_state_layer_ids [3,31,59], used as they are because the first is not 1"
    )
    assert said("sglang", "0.5.23", LLAMA) == "eagle_config.eagle_aux_hidden_state_layer_ids [2,30,58]"
    assert said("speculators", "0.4.0", LLAMA) == "--layer-ids [2,30,58]"


def test_reports_answer_from_the_same_table() -> None:
    assert {f.engine for f in FAMILIES} == {"vllm", "sglang", "hf"}
    assert all(f in RULES for f in FAMILIES)
    assert draft_config((7, 3), 8, ("sglang",), LLAMA) == {
        "SGLang, most families": "eagle_config.eagle_aux_hidden_state_layer_ids [2,6]  (adds 1 to every id)"
    }


def test_numbers_of_layers_replace_the_formulas() -> None:
    assert concrete("2, L//2, L-3, L//2+1 (boundary L)", 61) == "2, 30, 58, 31 (boundary 61)"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = invoke(["conventions", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_page_says_that_it_is_a_prior_and_names_versions_and_sources(capsys) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert "the data of a comparison overrule it" in " ".join(out.split())
    assert "HS107" in out
    assert "What to write" not in out
    for rule in RULES:
        assert " ".join(rule.source.split()) in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 100


def test_layers_are_translated_for_every_tool(capsys) -> None:
    _, out, _ = run(capsys, "--layers", "2,30,58", "--arch", DEEPSEEK)
    text = " ".join(out.split("What to write for ")[1].split())
    assert text.startswith("boundaries 3,31,59 (the outputs of layers 2,30,58):")
    assert (
        "eagle_config.eagle_aux_hidden_state_layer_ids [3,31,59], used as they are because the first is not 1"
        in text
    )
    assert "speculators 0.3.0 to 0.4.0: --layer-ids [2,30,58]" in text
    assert run(capsys, "--boundaries", "3,31,59", "--arch", DEEPSEEK)[1] == out


def test_the_last_boundary_needs_the_number_of_layers(capsys) -> None:
    sglang = ("--engine", "sglang", "--version", "0.5.23", "--arch", DEEPSEEK, "--layers", "60")
    assert "boundary 61 is out of reach" in run(capsys, *sglang, "--num-layers", "61")[1]
    assert "none of them is taken to be the last" in run(capsys, *sglang)[1]


def test_json_holds_the_same_rows(capsys) -> None:
    _, out, _ = run(
        capsys,
        "--engine",
        "Transformers",
        "--version",
        "5.24.0",
        "--layers",
        "0,7",
        "--num-layers",
        "8",
        "--json",
    )
    said = json.loads(out)
    assert said["schema"] == "hsparity.conventions/1"
    assert said["asked"]["engine"] == ALIASES["transformers"]
    native, listed, hook = said["rules"]
    assert listed["versions"]["since"] == "5.23"
    assert native["write"] == {
        "ids": [1],
        "text": "output_hidden_states=True: hidden_states at 1, the input of the final norm for 8",
    }
    assert hook["write"]["ids"] == [0, 7]
    assert native["versions"]["until"] == "5.24.0"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--engine", "vlm"), "E107", "did you mean vllm?"),
        (("--layers", "2", "--boundaries", "3"), "E103", "exclude each other"),
        (("--layers", "61", "--num-layers", "61"), "E102", "0 to 60"),
        (("--layers", "x"), "E102", "cannot read"),
        (("--layers", "eagle3"), "E102", "--num-layers"),
        (("--version", "0.32"), "E100", "needs --engine"),
        (("--engine", "vllm", "--version", "newest"), "E100", "begin with a number"),
    ],
)
def test_what_cannot_be_answered_is_an_error(
    capsys, arguments: tuple[str, ...], code: str, words: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert f"error[{code}]" in err
    assert words in err


def test_the_table_needs_no_torch_and_no_numpy() -> None:
    program = (
        "import sys\nfrom hsparity.cli.main import invoke\n"
        "assert invoke(['conventions', '--layers', '2,30', '--json']) == 0\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
