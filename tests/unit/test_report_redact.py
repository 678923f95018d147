"""--redact: nothing that names a prompt, a path, a model or a machine reaches any report, and the figures stay."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from hsparity.cli.main import hsparity, invoke
from hsparity.diffing.diff import diff
from hsparity.drafter.result import DraftCost
from hsparity.experiments.knobs import KNOBS
from hsparity.model import Comparison, Finding, TokenRef, encode, from_json, to_json
from hsparity.report import Options, cost_page, embedded, reporters
from hsparity.report.placeholders import Secrets
from hsparity.report.redact import _value, redact
from hsparity.report.validate import validate, validate_cost
from tests.golden.cases import CASES
from tests.unit.drafter.records import COSTS
from tests.unit.filling import changed

ROOT = Path(__file__).parents[2]
FOLDER, MODEL = "/data/acmecorp/grafenwald/run-7f/capture", "acmecorp/Geheimnis-7B-instruct"
PROMPT, TEXT, IDENT, HOST = "ticket-90125", "Grundstücksverkehr", 48879, "gpu-node-17.acmecorp.example"
# What each field is known by; every string of the record holds all of them too.
KNOWN = {
    "path": FOLDER,
    "model": MODEL,
    "draft": f"{FOLDER}/head",
    "text": TEXT,
    "texts": TEXT,
    "environment": HOST,
}
SAID = (
    f'{FOLDER}/manifest.json of {MODEL}: prompt {PROMPT}, position 3, (id {IDENT}) "{TEXT}", {TEXT}; prompt {PROMPT} '
    f"holds the states of prompt {PROMPT}; ids differ from the first: ref {IDENT}, 4, cand 4; {HOST} 10.20.30.40:8000 "
    f"who@acmecorp.example s3://acmecorp-bucket/x ../relative/acmefile C:\\acmecorp\\x \\\\acmehost\\acmeshare ~/acmefile "
    f"unseen/acmefile/y 'acme quoted' {'5eadbeef' * 4} hsparity capture hf --model {MODEL} --prompts {FOLDER}/acme.jsonl"
)
LEAKS = re.compile(
    r"acme|grafenwald|geheimnis|ticket|grundst|verkehr|48879|gpu-node|10\.20\.30|bucket|run-7f|5eadbeef|relative/",
    re.I,
)


def stuffed(record: Any) -> Any:
    """The record with the secret in the fields that hold it, and a sentence of all of them behind every other string."""
    # A cost holds no token's text, so nothing tells one from a word unless it is quoted.
    said = SAID if isinstance(record, Comparison) else SAID.replace(f" {TEXT};", ";")

    def change(name: str, value: str) -> str:
        if name in KNOWN:
            return KNOWN[name]
        if name in ("prompt", "prompts"):
            return f"{PROMPT}{value}"
        return value if name in ("schema", "key") else f"{value} {said}"

    return changed(record, change)


def rendered(comparison: Comparison) -> dict[str, str]:
    shown = {name: r.render(comparison, Options(width=200, verbose=True)) for name, r in reporters().items()}
    inside = embedded.unpack(shown["html"])
    return {
        **shown,
        "embedded": inside or "",
        "quiet": reporters()["terminal"].render(comparison, Options(quiet=True)),
    }


@pytest.mark.parametrize("name", ["offset", "several", "why", "tokens-differ", "hostile", "native-ids"])
def test_no_report_holds_a_secret(name: str) -> None:
    """Stuffed into every string of a comparison, they are in none of its reports once it is redacted."""
    case = CASES[name]()
    deltas = [replace(d, worst=TokenRef("x", 3, IDENT, 0.1, "x")) for d in case.deltas if d.requested]
    evil = stuffed(replace(case, deltas=tuple(deltas)))
    assert len(LEAKS.findall(to_json(evil))) > 500
    for kind, text in rendered(redact(evil)).items():
        found = LEAKS.search(text)
        assert not found, f"{kind}: …{text[max(found.start() - 200, 0) : found.end() + 40]}…"


@pytest.mark.parametrize("name", COSTS)
def test_no_page_of_a_cost_holds_a_secret(name: str) -> None:
    """The same for what a draft costs."""
    made = redact(stuffed(COSTS[name]()))
    validate_cost(made)
    for text in (made.to_json(), cost_page.render(made)):
        assert not LEAKS.search(text)


def test_a_field_that_is_new_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a record of ours will hold: a mapping in the settings stands for it."""
    new = {"later": [{"note": SAID, "prompt": PROMPT}], SAID: 1}
    finding = Finding(
        "HS999", "x", "x", fix={"any": json.dumps(new), SAID: SAID}, confirm=(f"hsparity compare {SAID}",)
    )
    case = CASES["one-token"]()
    made = redact(stuffed(replace(case, findings=(finding,), ref=replace(case.ref, settings=new))))
    assert not LEAKS.search(to_json(made))


def test_what_is_left_out_of_the_settings_is_hidden_in_sentences() -> None:
    """Names that were given, hosts, files and keys, also below engine_args; words of engines and versions stay."""
    case = CASES["one-token"]()
    given = {
        "engine_args": {"served_model_name": "qzbank", "api_key": "qzsekret", "int_api_key": 123456789},
        "otlp_traces_endpoint": "collector.qz.internal",
        "jinja": "qz-bank.jinja",
        "worker_cls": "qzclass",
        "bucket": ["qzbucket"],
        "attention_backend": "triton",
        "flashinfer": "0.7.2.post1+cu130",
        "load_format": "auto",
    }
    said = " ".join(re.findall(r"[\w.-]*qz[\w.-]*", json.dumps(given))) + " 123456789 on triton, auto"
    made = redact(replace(case, cand=replace(case.cand, settings=given, warnings=(said,))))
    assert not re.search("qz|123456789", to_json(made))
    assert made.cand.warnings[0].endswith(" on triton, auto")
    assert made.cand.settings["attention_backend"] == "triton"
    assert made.cand.settings["flashinfer"] == "0.7.2.post1+cu130"


@pytest.mark.parametrize("part", ["a", "a.", "a@", '\\"', "“", "hf-", "+a", "ids differ ", "a://"])
def test_a_long_string_is_searched_in_a_moment(part: str) -> None:
    """A hundred kilobytes of any of them in less than two seconds, where squared time took minutes."""
    start = time.process_time()
    Secrets().hide(part * (100_000 // len(part)))
    assert time.process_time() - start < 2


def figures(value: Any) -> Any:
    """A result without its strings and without token ids."""
    if isinstance(value, dict):
        kept = {
            k: figures(v)
            for k, v in value.items()
            if k not in ("settings", "environment", "token_id", "ids_c", "redacted")
        }
        return {k: v for k, v in kept.items() if v is not str}
    if isinstance(value, list):
        return [v for v in map(figures, value) if v is not str]
    return str if isinstance(value, str) else value


@pytest.mark.parametrize("name", ["offset", "several", "why", "tokens-differ", "hostile", "missing-sites"])
def test_figures_stay_and_the_result_reads_back(name: str) -> None:
    """Every number but token ids; the same verdict, codes, engines, versions and what was asked for."""
    case = CASES[name]()
    made = redact(case)
    validate(made)
    assert made.redacted
    assert figures(encode(made)) == figures(encode(case))
    assert to_json(redact(from_json(to_json(made)))) == to_json(made)
    assert [f.code for f in made.findings] == [f.code for f in case.findings]
    for side in ("ref", "cand"):
        old, new = getattr(case, side), getattr(made, side)
        assert (new.engine, new.version, new.dtype, new.sites) == (
            old.engine,
            old.version,
            old.dtype,
            old.sites,
        )
    assert made.request == case.request
    assert "redacted: prompts, token texts and ids" in reporters()["terminal"].render(
        made, Options(width=200)
    )
    assert "Redacted: prompts, token texts and ids" in reporters()["markdown"].render(made, Options())
    assert "redacted" not in reporters()["markdown"].render(case, Options())


def test_a_redacted_page_still_says_what_to_do() -> None:
    """Of a real result: sentences keep their sense, prompts are numbered alike everywhere, commands can be typed again with
    one's own paths."""
    saved = (ROOT / "reports" / "request-order" / "report.json").read_text(encoding="utf-8")
    case, made = from_json(saved), redact(from_json(saved))
    assert (
        made.findings[0].evidence[0] == "prompt prompt-3 holds the states of prompt prompt-11"
    )  # p2 and p10; the first is p0
    assert made.findings[0].rows[0] == "prompt-3 1-4"
    assert made.findings[0].evidence[4:] == case.findings[0].evidence[4:]
    assert made.findings[0].fix == case.findings[0].fix
    assert made.findings[0].confirm == (
        "hsparity compare REF CAND --floor FLOOR-FP32 --floor REF --boundaries 2,4,6 -v",
    )
    assert made.floor.source == "fp32 FLOOR-FP32 and bf16 REF by hf 5.24.0, 13 prompts, 149 tokens"
    assert made.ref.settings == case.ref.settings
    assert [p[0] for p in made.map.prompts] == [f"prompt-{n}" for n in range(1, 14)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "hsparity compare /a/b c --layers 2,30 --tol=0.1",
            "hsparity compare FILE FILE --layers 2,30 --tol=0.1",
        ),
        ("hsparity capture vllm --model m -o x", "hsparity capture vllm --model FILE -o FILE"),
        ("hsparity explain HS101", "hsparity explain HS101"),
        ("hsparity compare --model=/x 'a b'", "hsparity compare --model=FILE FILE"),
        ("/usr/local/bin/hsparity compare", "hsparity compare"),
    ],
)
def test_commands_keep_their_options(line: str, shown: str) -> None:
    """Words of hsparity's own and numbers stay; whatever was typed beside them is a file."""
    assert Secrets().command(line) == shown


@pytest.mark.parametrize(
    "sentence",
    [
        "every site fits the boundary it is said to be best (10 tested)",
        "in vllm 0.32.0 (LlamaForCausalLM) ids 2, 4, 6 landed on boundaries 2, 4, 6 (margin 1.9e+02×)",
        "write eagle_config.eagle_aux_hidden_state_layer_ids [1,3,5] (adds 1 to every id)",
        "DeepSeek V2/V3, Kimi K2/K2.5: the engine's own rule, and the candidate's",
        "not finite (NaN or Inf), 1/sqrt(hidden_size); ref/cand and/or NaN/Inf",
        "the states of 11 prompts came back sorted as text (0, 1, 10, 11, 2 …)",
    ],
)
def test_sentences_without_a_secret_stay(sentence: str) -> None:
    """Ids of layers, ratios and names of public models are no secrets."""
    assert Secrets().hide(sentence) == sentence


def test_short_prompt_ids_are_replaced_after_the_word_only() -> None:
    """Prompts called 0, 1 and 2 do not turn every number into a prompt; chains of renaming do not happen."""
    secrets = Secrets()
    assert [secrets.prompt(n) for n in ("2", "0", "1")] == ["prompt-1", "prompt-2", "prompt-3"]
    assert secrets.hide("prompt 0: 2 tokens; prompts 1, 2 and 0, position 1") == (
        "prompt prompt-2: 2 tokens; prompts prompt-3, prompt-1 and prompt-2, position 1"
    )


def test_every_file_that_report_writes_is_redacted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """hsparity report --redact with all of its reports."""
    (tmp_path / "result.json").write_text(to_json(stuffed(CASES["several"]())), encoding="utf-8")
    files = {
        name: tmp_path / f"r.{name}" for name in ("html", "json", "markdown", "junit", "sarif", "github")
    }
    options = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    assert invoke(["report", str(tmp_path / "result.json"), "--redact", *options]) == 0
    shown = capsys.readouterr()
    for text in (shown.out, *(path.read_text(encoding="utf-8") for path in files.values())):
        assert text
        assert not LEAKS.search(text)
    again = from_json(files["json"].read_text(encoding="utf-8"))
    assert again.redacted


def test_a_cost_has_no_other_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E103 names what a result of hsparity drafter has."""
    saved = ROOT / "reports" / "drafter" / "report.json"
    assert invoke(["report", str(saved), "--sarif", str(tmp_path / "x.sarif")]) == 2
    assert "error[E103]" in capsys.readouterr().err
    assert invoke(["report", str(saved), "--redact", "--json", str(tmp_path / "x.json")]) == 0
    assert "redacted: prompts" in capsys.readouterr().out
    assert DraftCost.from_json((tmp_path / "x.json").read_text(encoding="utf-8")).redacted


def test_token_arrays_are_emptied() -> None:
    """An array of token ids holds -1 everywhere, whatever field it is in, if the field has no default."""
    holder = make_dataclass("Holder", [("ids_c", np.ndarray), ("positions_c", np.ndarray)])
    made = _value(Secrets(), "", holder(np.arange(3, dtype=np.int32), np.arange(3)))
    assert made.ids_c.tolist() == [-1, -1, -1]
    assert made.positions_c.tolist() == [0, 1, 2]


def _commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_words_of_the_tool_stay_in_commands() -> None:
    """Every command's name, every value that an option offers a choice of, every knob."""
    hide = Secrets().command
    for path, command in _commands(hsparity, ("hsparity",)):
        line = " ".join(path)
        assert hide(line) == line
        for option in command.params:
            if isinstance(option, click.Option) and isinstance(option.type, click.Choice):
                for value in option.type.choices:
                    assert hide(f"{line} {option.opts[0]} {value}") == f"{line} {option.opts[0]} {value}"
    for knob in KNOBS:
        line = f"hsparity bisect FILE FILE --knobs {knob.name}"
        assert hide(line) == line
    assert hide("hsparity bisect a b --knobs dtype,kv-dtype --cache /x") == (
        "hsparity bisect FILE FILE --knobs dtype,kv-dtype --cache FILE"
    )
    assert hide("hsparity capture vllm -- max_model_len=4096 enforce_eager=true port=8000 name=mine") == (
        "hsparity capture vllm -- max_model_len=4096 enforce_eager=true FILE FILE"
    )


def test_settings_keep_plain_numbers() -> None:
    """Whatever they are called by, but for what says where a machine is or what was said to it."""
    kept = {
        "max_model_len": 4096,
        "env": {"VLLM_USE_V2_MODEL_RUNNER": "1", "SGLANG_LOAD_THRESHOLD": "0.5"},
        "load_in_8bit": True,
    }
    hidden = {"port": 30000, "served_model_name": "acme", "eos_token_id": 5, "seed": 77, "model_path": "1/2"}
    case = CASES["parity"]()
    made = redact(replace(case, ref=replace(case.ref, settings={**kept, **hidden})))
    assert made.ref.settings == {**kept, **dict.fromkeys(hidden, "left-out")}


def test_a_digest_leaves_a_mark() -> None:
    """That the weights were hashed is told, and once more redacted it still is; a diff takes the mark for no digest."""
    case = CASES["parity"]()
    hashed = replace(
        case, ref=replace(case.ref, weights_sha256="ab" * 32), cand=replace(case.cand, weights_sha256="")
    )
    made = redact(hashed)
    assert (made.ref.weights_sha256, made.cand.weights_sha256) == ("left out", "")
    assert made.ref.digest == ""
    assert to_json(redact(made)) == to_json(made)
    assert "ab" * 6 not in "".join(rendered(made).values())
    named = replace(
        hashed, ref=replace(hashed.ref, model=made.ref.model), cand=replace(case.cand, model=made.cand.model)
    )
    assert diff(named, made).sites
