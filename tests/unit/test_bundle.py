"""hsparity doctor --bundle: what a bug report needs, and nothing that its owner would not want to send."""

from __future__ import annotations

import json
import os
import re
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hsparity.cli.bundle import environment
from hsparity.cli.bundled_capture import members
from hsparity.cli.main import invoke
from hsparity.cli.scrub import Scrub, scrubbing
from hsparity.drafter.result import DraftCost
from hsparity.model import Comparison, encode, to_json
from hsparity.report.redact import redact
from hsparity.report.schema import records
from tests.causes.streams import capture
from tests.golden.cases import CASES
from tests.hostile.records import filled
from tests.unit.drafter.records import COSTS
from tests.unit.test_report_redact import LEAKS, stuffed

PROMPT = "The merger with Initech closes on Friday.\nNobody knows."
SECRETS = {
    "hf": "hf_AbCdEfGhIjKlMnOpQrSt",
    "api": "0f9d8c7b6a5e4f3d",
    "password": "correct horse battery",
    "elsewhere": "zanzibar-4711",
    "value": "plainlookingword",
    "bearer": "dGhpcyBpcyBhIHNlY3JldA",
}
LOG = [
    f"INFO loading with hf_token='{SECRETS['hf']}' for engine",
    f'{{"api_key": "{SECRETS["api"]}", "max_tokens": 128}}',
    f'password="{SECRETS["password"]}" next=1',
    f"Authorization: Bearer {SECRETS['bearer']}",
    f"GET https://me:{SECRETS['api']}@models.example.org/x",
    f"the value {SECRETS['value']} came from the environment",
    "worker on gpubox17.corp.example at 10.1.2.3:8000 by ada.l",
    "File /home/grace/secretproject/x.py",
    f"Received request 1: prompt: {PROMPT!r}, params: x",
    PROMPT,
    "prompt_token_ids=[101, 2023, 2003, 1037, 3231]",
    "\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    '{"inputs": "plainletterinputs"}',
    "[1] INFO The merger with Initech closes on Friday.",
    "vllm serve --api-key plainletterkey --max-model-len 12",
    "PASSWORD plainletterpass; db_pwd=plainletterpwd; passphrase: plainletterphrase",
    "curl -u plainletteruser:plainletter http://x",
    "max_num_batched_tokens=8192 tokenizer='gpt2' special=1",
]

SCRUB = scrubbing(
    ["/data/people/grace"], "grace", "gpubox17.corp.example", {"SOME_TOKEN": "zanzibar", "N_TOKENS": "123456"}
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a home, a user, a host and an environment that hold secrets."""
    home = tmp_path / "homes" / "ada.l"
    work = home / "runs"
    work.mkdir(parents=True)
    for name, value in {
        "HOME": str(home),
        "LOGNAME": "ada.l",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "VLLM_API_KEY": SECRETS["api"],
        "VLLM_ATTENTION_BACKEND": f"FLASH {home}/x",
        "WANDB_PASSWORD": SECRETS["value"],
        "UNRELATED": SECRETS["elsewhere"],
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("socket.gethostname", lambda: "gpubox17.corp.example")
    monkeypatch.chdir(work)
    return work


def made(work: Path, *arguments: str) -> dict[str, str]:
    """The texts of a new bundle."""
    assert invoke(["doctor", "--bundle", "bug.zip", *arguments]) == 0
    with zipfile.ZipFile(work / "bug.zip") as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def planted(work: Path) -> Path:
    """A whole capture with states, prompts and a telling log."""
    folder = work / "cap"
    capture(1, count=2, length=8).write(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["prompts"][0] |= {"text": PROMPT, "id": "initech-merger", "generated": [7, 8, 9]}
    manifest["prompts"][0] |= {
        "generated_text": "Initech again",
        "output": "Initech",
        "extra": {"prompt": "Initech"},
    }
    manifest["settings"]["credentials_json"] = {"private": "plainletterjson", "ids": [{"number": 90125}]}
    manifest["shards"][0]["prompt"] = "initech-merger"
    manifest["checks"] = [
        {
            "name": "rows",
            "passed": False,
            "detail": "worst row 3, prompt 'initech-merger'",
            "value": 1,
            "limit": 0,
        }
    ]
    manifest["warnings"] = ["engine: serving with plainletterjson"]
    manifest["model"] = str(work / "models" / "m")
    manifest["settings"]["engine_args"] = {"hf_token": SECRETS["hf"], "max_tokens": 5, "load": f"{PROMPT}"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "engine.log").write_text("\n".join(["old line"] * 500 + LOG))
    return folder


def test_nothing_secret_is_in_any_member(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted in the environment, the config, a manifest and a log: no secret, prompt, name or home is in the bundle."""
    (place / "hsparity.toml").write_text(
        f'model = "{place}/m"\nprompts = "{place}/p.jsonl"\ntokens = "all"\n[ref.engine_args]\nmax_tokens = 8\n'
        f'hf_token = """\n{SECRETS["hf"]}\n{SECRETS["password"]}"""\n'
    )
    texts = made(place, str(planted(place)))
    whole = "\n".join([*texts, *texts.values(), capsys.readouterr().out])
    for secret in (
        *SECRETS.values(),
        "Initech",
        "initech",
        "Nobody knows",
        "2023",
        "gpubox17",
        "ada.l",
        "grace",
        "plainletter",
        "90125",
    ):
        assert secret not in whole, secret
    assert str(place.parent) not in whole
    assert "\x1b" not in whole
    assert json.loads(texts["hsparity.toml.json"]) == {
        "model": "~/runs/m",
        "prompts": "~/runs/p.jsonl",
        "tokens": "all",
        "ref": {"engine_args": {"max_tokens": 8, "hf_token": "[hidden]"}},
    }


def test_what_helps_is_still_there(place: Path) -> None:
    """Versions, settings, checks, the end of the log, and how much lies in the folder."""
    texts = made(place, str(planted(place)))
    assert next(iter(texts)) == "README.txt"
    log = texts["capture-1/engine.log.txt"].splitlines()
    assert len(log) == 200
    assert log[-1] == "max_num_batched_tokens=8192 tokenizer='gpt2' special=1"
    assert "FAILED  rows: 1 of 0; worst row 3, prompt 'prompt-1'" in texts["capture-1/self-check.txt"]
    manifest = json.loads(texts["capture-1/manifest.json"])
    assert (manifest["model"], manifest["number of prompts"]) == ("~/runs/models/m", 2)
    assert manifest["prompts"][0]["id"] == manifest["shards"][0]["prompt"] == "prompt-1"
    assert manifest["settings"]["engine_args"]["max_tokens"] == 5
    versions = json.loads(texts["versions.json"])
    assert {"hsparity", "numpy", "torch"} <= set(versions["packages"])
    assert {"hf", "vllm", "sglang"} <= set(versions["engines"])
    assert json.loads(texts["environment.json"])["VLLM_ATTENTION_BACKEND"] == "FLASH ~/x"
    assert "Transformers" in texts["doctor.txt"]
    assert "*.safetensors" in texts["capture-1/files.txt"]
    assert not [text for text in texts.values() if len(text) > 1_000_000]


def test_prompts_are_there_when_they_are_asked_for(place: Path) -> None:
    """--with-prompts leaves them in, and still no secret."""
    texts = made(place, str(planted(place)), "--with-prompts")
    assert json.loads(texts["capture-1/manifest.json"])["prompts"][0]["text"] == PROMPT
    assert "initech-merger" in texts["capture-1/self-check.txt"]
    assert not [s for s in SECRETS.values() if s in "".join(texts.values())]


def test_a_result_is_redacted(place: Path) -> None:
    """It can still be read back, without prompts and paths; as it was with --with-prompts, but for secrets."""
    found = CASES["offset"]()
    (place / "r.json").write_text(to_json(found))
    texts = made(place, "r.json")
    assert json.loads(texts["result-1/result.json"]) == json.loads(to_json(redact(found)))
    (place / "bug.zip").unlink()
    assert json.loads(made(place, "r.json", "--with-prompts")["result-1/result.json"]) == json.loads(
        to_json(found)
    )


@pytest.mark.parametrize("schema", [name for name, _ in records()])
def test_every_saved_result_is_taken(schema: str, place: Path) -> None:
    """Stuffed with secrets in every string, of every kind: it is in the bundle under its schema, and none of them is."""
    kind = dict(records())[schema]
    value = (
        CASES["offset"]()
        if kind is Comparison
        else COSTS["cost-real"]()
        if kind is DraftCost
        else filled(kind, "words")
    )
    said = {**encode(stuffed(value)), "schema": schema}
    if schema.startswith("hsparity.measurement"):
        said["prompts"] = [{"id": "ticket-90125", "prompt": [48879], "generated": [48879], "steps": [
            {"first": 1, "drafted": [48879], "accepted": 1, "bonus": 48879}], "counters": {"x": 1}}]  # fmt: skip
    (place / "r.json").write_text(json.dumps(said), encoding="utf-8")
    texts = made(place, "r.json")
    shown = json.loads(texts["result-1/result.json"])
    assert (shown["schema"], shown["redacted"]) == (schema, True)
    found = LEAKS.search("\n".join(texts.values()))
    assert not found, found
    assert re.search(r"(?m)^  result-1/result\.json: an? ", texts["README.txt"])


def test_figures_and_own_words_of_other_results_stay(place: Path) -> None:
    """Of a replay: the layers, their ratios and verdicts; of a bisection: the knobs."""
    for name in ("replay", "bisect"):
        kind = dict(records())[f"hsparity.{name}/1"]
        said = {**encode(filled(kind, "words")), "schema": f"hsparity.{name}/1"}
        if name == "bisect":
            said["experiments"][0]["turned"] = ["cand kv-dtype: fp8 -> auto"]
            said["next"] = ["hsparity bisect captures/acme captures/b --knobs dtype"]
        else:
            said |= {"ref": "mine", "cand": "yours", "headline": "layer 3 of mine adds error"}
        (place / f"{name}.json").write_text(json.dumps(said), encoding="utf-8")
    texts = made(place, "replay.json", "bisect.json")
    shown = json.loads(texts["result-1/result.json"])
    assert (shown["ref"], shown["cand"], shown["headline"]) == ("REF", "CAND", "layer 3 of REF adds error")
    assert shown["added"][0]["ratio"] == 1.0
    shown = json.loads(texts["result-2/result.json"])
    assert shown["experiments"][0]["turned"] == ["cand kv-dtype: fp8 -> auto"]
    assert shown["next"] == ["hsparity bisect FILE FILE --knobs dtype"]
    assert "  result-1/result.json: a replay\n  result-2/result.json: a bisection\n" in texts["README.txt"]


def test_a_result_that_cannot_be_redacted_is_left_out(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged one costs the bundle nothing else, and both lists say so."""
    (place / "bad.json").write_text('{"schema": "hsparity.comparison/1", "headline": "acme"}')
    (place / "good.json").write_text(to_json(CASES["offset"]()))
    texts = made(place, "bad.json", "good.json")
    assert "result-1/result.json" in texts
    assert "result-2/result.json" not in texts
    line = "path 1, a comparison that cannot be redacted: "
    assert f"left out: {line}" in capsys.readouterr().out
    assert f"Left out\n  {line}" in texts["README.txt"]
    assert "acme" not in "".join(texts.values())


def test_names_in_the_list_have_their_folders(place: Path) -> None:
    texts = made(place, str(planted(place)))
    inside = texts["README.txt"].partition("Inside\n")[2].partition("\n\n")[0]
    assert [line.split(":")[0].strip() for line in inside.splitlines()] == list(texts)


def test_the_same_facts_make_the_same_bytes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No clock and no order of a folder is in it; every file is listed with its size."""
    folder = planted(place)
    texts = made(place, str(folder))
    first = (place / "bug.zip").read_bytes()
    shown = capsys.readouterr().out
    (place / "bug.zip").unlink()
    again = made(place, str(folder))
    assert {k: v for k, v in texts.items() if k != "doctor.txt"} == {
        k: v
        for k, v in again.items()
        if k != "doctor.txt"  # the doctor tells the free disk
    }
    assert texts["doctor.txt"] != again["doctor.txt"] or (place / "bug.zip").read_bytes() == first
    for name, text in texts.items():
        assert re.search(rf"(?m)^  {re.escape(name)} +{len(text.encode()):,} B ", shown), name
    assert "Not inside\n  hidden states" in shown


def test_an_existing_file_is_left_as_it_is(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E106, before any work; a dangling link counts, and so does a name that is no zip's."""
    (place / "bug.zip").write_text("mine")
    (place / "link.zip").symlink_to("nowhere")
    for name, words in (("bug.zip", "exists"), ("link.zip", "exists"), ("result.json", "is not called one")):
        assert invoke(["doctor", "--bundle", name]) == 2
        assert (err := capsys.readouterr().err).startswith("error[E106]")
        assert words in err
    assert (place / "bug.zip").read_text() == "mine"
    assert not (place / "nowhere").exists()


@pytest.mark.parametrize(
    "part", ["a", "key", 'key="\\"', "a.", "a@", "eyJ-", "a://", "key ", "key\n", "-u a", "[1,2,"]
)
def test_a_log_of_one_line_is_shown_in_a_moment(part: str) -> None:
    """Half a megabyte of any of them in less than five seconds, where squared time took hours."""
    start = time.process_time()
    SCRUB.text(part * (500_000 // len(part)))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "hostile", ["deep", "wide", "text", "numbers", "list", "link", "pipe", "folder", "wrong", "nul"]
)
def test_a_hostile_capture_does_not_break_it(hostile: str, place: Path) -> None:
    """Whatever a manifest and a log are, there is a bundle, small, and the link's target is not in it."""
    folder = place / "cap"
    folder.mkdir()
    (place / "private").write_text('{"schema": "the private file"}')
    (folder / "engine.log").write_bytes(b"\x00\xff\x1b[2J" * 200_000 + b"\nlast\n")
    manifest = folder / "manifest.json"
    contents: dict[str, Any] = {
        "deep": "[" * 100_000,
        "wide": json.dumps({str(i): "x" * 50 for i in range(50_000)}),
        "text": json.dumps({"model": "\x1b[31m\u202e\x00" + "y" * 10_000_000}),
        "numbers": '{"num_layers": ' + "9" * 10_000 + "}",
        "list": json.dumps([1, 2, 3]),
        "wrong": json.dumps(
            {"prompts": {"id": 3}, "shards": "x", "checks": [1, {"detail": ["a"]}], "settings": None}
        ),
        "nul": "\x00" * 100,
    }
    if hostile in contents:
        manifest.write_text(contents[hostile])
    elif hostile == "link":
        manifest.symlink_to(place / "private")
    elif hostile == "pipe":
        os.mkfifo(manifest)
    else:
        manifest.mkdir()
    texts = members(folder, SCRUB, with_prompts=False)
    assert {"manifest.json", "manifest.txt"} & set(texts)
    assert sum(len(text) for text in texts.values()) < 2_000_000
    assert "the private file" not in "".join(texts.values())
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", "".join(texts.values()))
    assert texts["engine.log.txt"].endswith("last\n")


def test_a_path_that_is_nothing_of_ours_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E202 for a folder, E213 for a file, and no bundle is left."""
    (place / "empty").mkdir()
    (place / "x.json").write_text("{}")
    for name, code in (("empty", "E202"), ("x.json", "E213"), ("none.json", "E213")):
        assert invoke(["doctor", "--bundle", "bug.zip", name]) == 2
        assert f"error[{code}]" in capsys.readouterr().err
    assert invoke(["doctor", "x.json"]) == 2
    assert "error[E100]: PATHS and --with-prompts are for" in capsys.readouterr().err
    assert not (place / "bug.zip").exists()


def test_a_config_that_is_not_toml_is_told_and_not_shown(place: Path) -> None:
    """The reason names the line; the line itself may hold a secret."""
    (place / "hsparity.toml").write_text(f"[ref]\ntoken = {SECRETS['value']}\n")
    text = made(place)["hsparity.toml.txt"]
    assert "E104" in text
    assert "line 2" in text
    assert SECRETS["value"] not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/people/grace/x /data/people/grace2/y", "~/x /data/people/grace2/y"),
        ("/home/alan/m /Users/alan/m C:\\Users\\alan\\m", "~/m ~/m ~\\m"),
        ("zanzibar 123456", "[hidden] 123456"),
        ("on gpubox17: ok, GPUBOX17.corp.example", "on HOST: ok, HOST"),
        ("grace@gpubox17", "USER@HOST"),
        (
            "--hf-token abcdef-1 --max-tokens 5 --tokens all",
            "--hf-token [hidden] --max-tokens 5 --tokens all",
        ),
        ("token = sk-abcdefghijklmnop1234", "token = [hidden]"),
        ("num_key_value_heads=8 keys: 3", "num_key_value_heads=8 keys: 3"),
        ("a layer's key states and value states", "a layer's key states and value states"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "[hidden]"),
        ("torch 2.13.0 cublas 12.8.4.1 at 10.0.0.7", "torch 2.13.0 cublas 12.8.4.1 at ADDRESS"),
        ("vllm@0.31.0  ada@box.example.org", "vllm@0.31.0  ADDRESS"),
        ("me@93.184.10.13 sglang@0.5.1.post2", "ADDRESS sglang@0.5.1.post2"),
        ("\x1b[31mred\u202e", "\\x1b[31mred\\u202e"),
    ],
)
def test_scrubbed_text(text: str, shown: str) -> None:
    """Secrets, homes, users, hosts and addresses go; versions, settings and sentences stay."""
    assert SCRUB.text(text) == shown


def test_only_listed_variables_are_told() -> None:
    """By name or prefix; the value under a secret's name is hidden."""
    environ = {
        "VLLM_API_KEY": "abc",
        "SGLANG_X": "1",
        "HSPARITY_Y": "2",
        "HF_HUB_OFFLINE": "1",
        "PATH": "/",
        "HF_TOKEN": "t",
    }
    assert environment(environ, Scrub(())) == {
        "HF_HUB_OFFLINE": "1", "HSPARITY_Y": "2", "SGLANG_X": "1", "VLLM_API_KEY": "[hidden]",
    }  # fmt: skip
