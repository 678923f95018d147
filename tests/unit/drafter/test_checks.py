"""Every static check fires on a planted mistake, says which line to change, and is silent beside it."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from hsparity.drafter.checking import DraftCheck, check, from_json
from hsparity.drafter.checks.base import Problem
from hsparity.drafter.contract import contract
from hsparity.drafter.draft import open_draft
from hsparity.errors import HsparityError
from hsparity.explain.pages import pages
from hsparity.registry import causes, checks

from .heads import MLA, make_head, make_target
from .planted import LAYERS, NESTED, PLANTED, TOP, Plan, run

CASES = [(code, *case) for code, cases in PLANTED.items() for case in cases]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("target") / "t", layers=LAYERS)


def of(result: DraftCheck, code: str) -> list[Problem]:
    return [p for p in result.problems if p.code == code]


@pytest.mark.parametrize(("code", "severity", "planted", "fine"), CASES)
def test_a_check_fires_on_its_mistake_and_not_beside_it(
    code: str, severity: str, planted: Plan, fine: Plan, tmp_path: Path, target: Path
) -> None:
    """The planted head has the finding, with both sides; the same head without the mistake does not."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    result = run(planted, tmp_path / "a", target)
    found = of(result, code)
    assert [p.severity for p in found] == [severity]
    assert found[0].headline
    assert len(found[0].sides) >= 2
    assert of(run(fine, tmp_path / "b", target), code) == []
    wanted = {
        "error": {"problems"},
        "warning": {"unclear", "problems"},
        "note": {"ok", "unclear", "problems"},
    }
    assert result.verdict in wanted[severity]


def test_every_check_is_planted_twice_over() -> None:
    """No check is without a mistake that it finds."""
    assert set(PLANTED) == set(checks())


def test_codes_and_names_are_no_causes() -> None:
    """Codes begin with HS6, names are nobody else's, and every text has four parts on a page of its own."""
    names = {c.name for c in causes().values()}
    made = pages()
    for code, found in checks().items():
        assert re.fullmatch(r"HS6\d\d", code)
        assert found.name not in names
        assert found.look.__doc__ is None
        page = made[f"findings/{code}-{found.name}.md"]
        assert re.findall(r"(?m)^## (.+)$", page)[:4] == [
            "What it is",
            "Why it happens",
            "How it shows",
            "Fix",
        ]
        assert len(inspect.getdoc(type(found)) or "") > 200


@pytest.mark.parametrize(
    ("ids", "trained", "engine", "line"),
    [
        ((2, 6, 9), (2, 6, 9), "sglang", (NESTED, "[2,6,9]", "[1,5,8]")),
        ((1, 5, 8), (2, 6, 9), "vllm", (TOP, "", "[2,6,9]")),
    ],
)
def test_the_line_to_write_is_read_as_what_was_trained(
    ids: tuple[int, ...],
    trained: tuple[int, ...],
    engine: str,
    line: tuple[str, str, str],
    tmp_path: Path,
    target: Path,
) -> None:
    """The change puts into the config what this engine reads as the trained boundaries; written, the finding is gone."""
    more = {"trained_on": trained, "runner": "v1"} if engine == "vllm" else {"trained_on": trained}
    result = run(Plan(head={"ids": ids}, engine=engine, more=more), tmp_path, target)
    (found,) = of(result, "HS607")
    assert [(c.key, c.old, c.new) for c in found.changes] == [line]
    head = tmp_path / "head"
    config = json.loads((head / "config.json").read_text())
    place = config["eagle_config"] if line[0] == NESTED else config
    place[TOP] = json.loads(line[2])
    (head / "config.json").write_text(json.dumps(config))
    mended = check(open_draft(str(head)), engine, model=str(target), **more)
    assert of(mended, "HS607") == []


def test_an_embedding_that_is_the_targets_is_not_missed(tmp_path: Path, target: Path) -> None:
    """SGLang's exchange of two equal embeddings changes nothing, in bfloat16 either; its lm_head likewise."""
    theirs = load_file(target / "model.safetensors")
    copied = {
        "embed_tokens.weight": theirs["model.embed_tokens.weight"].bfloat16(),
        "lm_head.weight": theirs["lm_head.weight"].bfloat16(),
    }
    plan = Plan(
        head={"draft_vocab": 320, "config": {"eagle_config": {}, "draft_vocab_size": 320}},
        weights=lambda tensors: tensors.update(copied),
        engine="sglang",
    )
    result = run(plan, tmp_path, target)
    assert {"embedding-replaced", "lm-head-source"} <= set(result.fine)
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    (tmp_path / "head" / "config.json").write_text(json.dumps({**config, "draft_vocab_size": None}))
    result = check(open_draft(str(tmp_path / "head")), "sglang", model=str(target))
    assert "lm-head-source" in result.fine


def test_an_lm_head_that_sglang_exchanges_is_compared(tmp_path: Path, target: Path) -> None:
    """draft_vocab_size null: the head's own lm_head is not the target's."""
    head = make_head(tmp_path / "head", draft_vocab=320)
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps({**config, "draft_vocab_size": None}))
    (found,) = of(check(open_draft(str(head)), "sglang", model=str(target)), "HS616")
    assert (found.severity, "differs" in found.headline) == ("error", True)
    (found,) = of(check(open_draft(str(head)), "sglang"), "HS616")
    assert (found.severity, bool(found.rival)) == ("warning", True)


def test_without_a_target_the_default_is_told_in_words(tmp_path: Path) -> None:
    """L is not known: boundaries 2, L//2, L-3, and what needs the target is listed as not checked."""
    head = make_head(tmp_path / "head", config={"eagle_config": None})
    result = check(open_draft(str(head)), "sglang", algorithm="EAGLE3")
    assert result.fed[0].spelled == "2, L//2, L-3"
    assert result.verdict == "ok"
    assert {n for n, why in result.unchecked if "--model" in why} >= {
        "target-vocab",
        "draft-rope",
        "positions",
    }


def test_a_version_beyond_the_table_makes_no_errors_of_its_source(tmp_path: Path, target: Path) -> None:
    """What rests on a source that was not read is a warning, with the doubt beside it."""
    head = make_head(tmp_path / "head", norm_before_residual=True)
    result = check(open_draft(str(head)), "sglang", version="0.9.0", model=str(target))
    assert [p.severity for p in of(result, "HS622")] == ["warning"]
    assert "nearest checked is 0.5.23" in result.doubts[0]


def test_vllm_guesses_the_method_from_the_folders_name(tmp_path: Path, target: Path) -> None:
    """A name with "eagle3" is taken for EAGLE-3, one with "eagle-" for EAGLE."""
    for name, codes in (("my-eagle3", []), ("my-eagle-3", ["HS601"])):
        head = make_head(tmp_path / name, config={"eagle_config": None})
        result = check(open_draft(str(head)), "vllm", model=str(target))
        assert [p.code for p in of(result, "HS601")] == codes


def test_a_record_comes_back_from_json(tmp_path: Path, target: Path) -> None:
    """Every field, findings and lines to change included; anything else is E283."""
    result = run(
        Plan(head={"ids": (2, 6, 9)}, engine="sglang", more={"trained_on": (2, 6, 9)}), tmp_path, target
    )
    assert of(result, "HS607")
    assert from_json(result.to_json()) == result
    for text in ("{}", '{"schema": "hsparity.draft-check/2"}', "no json"):
        with pytest.raises(HsparityError) as caught:
            from_json(text)
        assert caught.value.code == "E283"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"engine": "llama.cpp"}, "E280"),
        ({"engine": "vllm", "version": "new"}, "E280"),
        ({"engine": "vllm", "model": "/no/such/folder"}, "E281"),
        ({"engine": "vllm", "trained_by": "nobody 1.0"}, "E282"),
    ],
)
def test_bad_input_is_told(more: dict[str, Any], code: str, tmp_path: Path) -> None:
    """No engine, no version, no target, no such trainer."""
    draft = open_draft(str(make_head(tmp_path / "head")))
    with pytest.raises(HsparityError) as caught:
        check(draft, **more)
    assert caught.value.code == code


def test_an_mla_head_is_judged_by_its_own_tensors(tmp_path: Path, target: Path) -> None:
    """Neither class takes the other's attention; its own is fine on both engines."""
    head = make_head(tmp_path / "head", mla=True, ids=(2, 6, 9), layout="layers.0")
    assert json.loads((head / "config.json").read_text())["architectures"] == [MLA]
    for engine in ("vllm", "sglang"):
        result = check(open_draft(str(head)), engine, model=str(target), algorithm="EAGLE3")
        assert {"model-class", "tensors-unread", "tensors-absent", "attention-shape"} <= set(result.fine)


# What vLLM 0.32.0's own functions returned for a Llama head with these keys: GPUModelRunner's
# _get_eagle3_aux_layers_from_config (V1) and eagle3_utils.get_eagle3_aux_layers_from_config (V2), None for the default.
LOOKED_UP: list[tuple[dict[str, Any], tuple[int, ...] | None, tuple[int, ...] | None]] = [
    ({"eagle_config": None}, None, None),
    ({"eagle_config": None, TOP: [1, 5, 8]}, (1, 5, 8), (1, 5, 8)),
    ({"eagle_config": {TOP: [4, 5, 8]}}, (4, 5, 8), None),
    ({"eagle_config": {TOP: [4, 5, 8]}, TOP: [1, 5, 8]}, (1, 5, 8), (1, 5, 8)),
    ({"eagle_config": {"layer_ids": [3, 4, 5]}}, None, (3, 4, 5)),
]


@pytest.mark.parametrize(("config", "first", "second"), LOOKED_UP)
def test_the_keys_are_read_as_vllm_reads_them(
    config: dict[str, Any], first: tuple[int, ...] | None, second: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """Each runner's list is the one that its own function found."""
    draft = open_draft(str(make_head(tmp_path / "head", config=config)))
    found = {
        r: contract(draft, "vllm", "0.32.0", r, "LlamaForCausalLM", LAYERS).reading for r in ("v1", "v2")
    }
    assert (found["v1"].ids, found["v2"].ids) == (first, second)
    for reading in found.values():
        assert reading.boundaries == (reading.ids or (2, LAYERS // 2, LAYERS - 3))


def test_the_runner_is_named_where_it_decides(tmp_path: Path) -> None:
    """Two readings up to where the runners differ, one where they agree or there is one runner."""
    draft = open_draft(str(make_head(tmp_path / "head", ids=(4, 5, 8))))
    for version, readings in (("0.32.0", 2), ("0.25.0", 2), ("0.18.0", 1), ("0.11.0", 1)):
        assert len(contract(draft, "vllm", version, "", "LlamaForCausalLM", LAYERS).readings) == readings
    plain = open_draft(str(make_head(tmp_path / "plain", config={"eagle_config": None})))
    assert len(contract(plain, "vllm", "0.32.0", "", "LlamaForCausalLM", LAYERS).readings) == 1
