"""Prompt files and what is asked of a capture: read, refused with line numbers, written out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hsparity import models
from hsparity.capture import prompts, specs
from hsparity.capture.selection import select
from hsparity.capture.specs import Wanted
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest, Prompt, PromptSpec, token_ids_sha256


def write(tmp_path: Path, *lines: str, name: str = "prompts.jsonl") -> Path:
    file = tmp_path / name
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A checkpoint folder with a config and nothing else: token ids need no tokenizer."""
    folder = tmp_path / "model"
    folder.mkdir()
    text = {"num_hidden_layers": 8, "hidden_size": 16, "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps({"text_config": text}))
    return str(folder)


def code_of(call: object, *arguments: object, **options: object) -> HsparityError:
    assert callable(call)
    with pytest.raises(HsparityError) as caught:
        call(*arguments, **options)
    return caught.value


def test_forms(tmp_path: Path) -> None:
    """Every documented form of a line is read; blank lines do not count."""
    file = write(
        tmp_path,
        '{"id": "a", "text": "one"}',
        "",
        '{"id": 7, "prompt_token_ids": [1, 2]}',
        '{"token_ids": [3]}',
        '{"input_ids": [4]}',
        '"two"',
        "[5, 6]",
        '{"messages": [{"role": "user", "content": "hi"}]}',
    )
    found = prompts.parse(file)
    assert [i.id for i in found] == ["a", "7", "p2", "p3", "p4", "p5", "p6"]
    assert [i.token_ids for i in found] == [(), (1, 2), (3,), (4,), (), (5, 6), ()]
    assert [i.text for i in found if i.text] == ["one", "two"]
    assert found[1].line == 3
    assert found[6].messages[0]["content"] == "hi"


def test_text_file(tmp_path: Path) -> None:
    """In a .txt file a line is a prompt, whatever it looks like."""
    assert [i.text for i in prompts.parse(write(tmp_path, "[1, 2]", "hello", name="p.txt"))] == [
        "[1, 2]",
        "hello",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hello", "not JSON"),
        ("3", "neither an object, a string nor a list"),
        ("{}", "no text, messages or token_ids"),
        ('{"text": "a", "token_ids": [1]}', "text and token_ids exclude each other"),
        ('{"text": ""}', "text is not a string that is not empty"),
        ('{"messages": []}', "messages is not a list of {role, content}"),
        ('{"token_ids": [1, -2]}', "token_ids is not a list of token ids"),
        ('{"token_ids": [true]}', "token_ids is not a list of token ids"),
        ("[]", "token_ids is not a list of token ids"),
        ('{"id": "first", "text": "again"}', "id 'first' was used in line 1"),
    ],
)
def test_bad_lines(tmp_path: Path, line: str, words: str) -> None:
    """A bad line is E105 with its number and what is wrong with it."""
    error = code_of(prompts.parse, write(tmp_path, '{"id": "first", "text": "x"}', line))
    assert error.code == "E105"
    assert "line 2" in error.message
    assert words in error.message


def test_unreadable(tmp_path: Path) -> None:
    """A file that is missing, empty or not UTF-8 is E105."""
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
    for file in (tmp_path / "none.jsonl", write(tmp_path, ""), tmp_path / "latin.jsonl"):
        assert code_of(prompts.parse, file).code == "E105"


def test_load_token_ids(tmp_path: Path, model: str) -> None:
    """Ids are taken as they are, cut to max_tokens, the first `limit` prompts; no tokenizer is needed."""
    file = write(tmp_path, "[1, 2, 3]", "[4, 5, 6]", "[7]")
    found = prompts.load(file, model, limit=2, max_tokens=2)
    assert found == (PromptSpec("p0", (1, 2)), PromptSpec("p1", (4, 5)))


def test_vocabulary(tmp_path: Path, model: str) -> None:
    """An id that the model does not have is refused here, not in a kernel."""
    error = code_of(prompts.load, write(tmp_path, "[1]", "[100]"), model)
    assert error.code == "E105"
    assert "line 2" in error.message


def test_shipped_set() -> None:
    """Sixteen English prompts ship, of varied length, code, a list, numbers and chat among them."""
    items = prompts.parse(prompts.SHIPPED)
    assert len(items) == 16
    assert sum(bool(i.messages) for i in items) == 2
    lengths = [len(i.text) for i in items if i.text]
    assert min(lengths) < 300
    assert max(lengths) > 800


def test_tokenise(tmp_path: Path) -> None:
    """Text and chat are tokenised by the model's own tokenizer, in a child."""
    file = write(tmp_path, '"Water boils."', '{"messages": [{"role": "user", "content": "Why?"}]}')
    found = prompts.load(file, str(models.path("tiny:llama")))
    assert [p.id for p in found] == ["p0", "p1"]
    assert all(len(p.token_ids) > 1 for p in found)
    assert found[0].text == "Water boils."


def test_no_tokenizer(tmp_path: Path, model: str) -> None:
    """A model without a tokenizer is a coded error that says ids would do."""
    error = code_of(prompts.load, write(tmp_path, '"text"'), model)
    assert error.code == "E105"
    assert "token ids" in error.help


@pytest.mark.parametrize(
    ("layers", "boundaries", "expected"),
    [
        ("2,5", None, (3, 6)),
        (None, "2,5", (2, 5)),
        ("0-6:3", None, (1, 4, 7)),
        (None, "0-2,7", (0, 1, 2, 7)),
        ("all", None, tuple(range(1, 9))),
        (None, None, tuple(range(9))),
        ("eagle3", None, (2, 4, 5)),
        (None, "eagle3", (2, 4, 5)),
        ("eagle3-speculators", None, (3, 5, 6)),
        ("5, 2,2", None, (3, 6)),
    ],
)
def test_select(layers: str | None, boundaries: str | None, expected: tuple[int, ...]) -> None:
    """Layer N is boundary N+1; the named triples are boundaries under both options."""
    assert select(layers, boundaries, 8) == expected


@pytest.mark.parametrize("text", ["8", "x", "", "3-1", "1-5:0", "-1", "2,,3", "1-9"])
def test_select_refuses(text: str) -> None:
    """Anything unreadable or outside the model is E102."""
    assert code_of(select, text or ",", None, 8).code == "E102"


def test_spec(model: str) -> None:
    """Layers become boundary keys, the final norm comes along, extra kinds take every layer."""
    wanted = Wanted("vllm@0.31.0", model, layers="2", sites=("attn_out", "mlp_out.1"), dtype="fp32")
    spec = specs.build(wanted, (PromptSpec("a", (1, 2), (3, 4)),))
    assert spec.sites == ("boundary.003", "final_norm", "attn_out.*", "mlp_out.001")
    assert (spec.engine, spec.dtype, spec.generate) == ("vllm", "float32", 2)
    assert spec.prompts[0].forced == (3, 4)
    assert specs.build(Wanted("hf", model), ()).sites == ("boundary.*", "final_norm")


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Wanted("hf", "m", mechanism="native"), "E306"),
        (Wanted("vllm", "m", native_ids=(2,)), "E103"),
        (Wanted("vllm", "m", mechanism="native", layers="2"), "E103"),
        (Wanted("vlm", "m"), "E107"),
        (Wanted("vllm", "m", sites=("attn_ot",)), "E107"),
        (Wanted("vllm", "/nowhere", layers="2"), "E102"),
    ],
)
def test_spec_refuses(wanted: Wanted, code: str) -> None:
    """What cannot be is refused before an engine starts."""
    assert code_of(specs.build, wanted, ()).code == code


def test_engine_arguments() -> None:
    """All spellings are read; values are JSON where they parse."""
    words = ["a=1", "--max-model-len", "64", "--flag", "--b=true", "c=[1, 2]", "--name", "x=y", "off=False"]
    assert specs.parse_engine_args(words) == {
        "a": 1,
        "max_model_len": 64,
        "flag": True,
        "b": True,
        "c": [1, 2],
        "name": "x=y",
        "off": False,
    }
    assert code_of(specs.parse_engine_args, ["plain"]).code == "E103"


def manifest_of(ids: tuple[int, ...], generated: tuple[int, ...]) -> CaptureManifest:
    fed = (*ids, *generated[:-1])
    prompt = Prompt("a", len(fed), len(ids), len(fed), (), token_ids_sha256(fed), generated)
    return CaptureManifest(
        "hsparity.capture/1",
        "hf",
        "5",
        "m",
        "",
        "X",
        "",
        8,
        16,
        "bfloat16",
        {},
        {},
        {},
        (prompt,),
        (),
        "",
        "complete",
    )


def test_continuation() -> None:
    """Another capture's generated tokens are forced where it starts from the same tokens, else refused."""
    manifest = manifest_of((1, 2), (7, 8, 9))
    assert prompts.continued([PromptSpec("a", (1, 2))], manifest, "x")[0].forced == (7, 8, 9)
    for prompt in (PromptSpec("a", (1, 3)), PromptSpec("b", (1, 2))):
        assert code_of(prompts.continued, [prompt], manifest, "x").code == "E203"
    assert code_of(prompts.continued, [PromptSpec("a", (1, 2))], manifest_of((1, 2), ()), "x").code == "E203"


def test_models(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a config and a path that is not there are refused; a hub name is left to the hub."""
    monkeypatch.chdir(tmp_path)
    for name in specs.OFFLINE:
        monkeypatch.delenv(name, raising=False)
    assert specs.resolve_model(model) == model
    assert specs.resolve_model("org/model") == "org/model"
    assert code_of(specs.resolve_model, str(tmp_path)).code == "E107"
    assert code_of(specs.resolve_model, "./nowhere").code == "E107"
    assert code_of(specs.resolve_model, "model/nowhere").message == "no such model: model/nowhere"
    assert code_of(specs.resolve_model, "smolm2").help == "did you mean smollm2?"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert code_of(specs.resolve_model, "org/model").code == "E107"


def test_no_such_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub name that leads nowhere is an unknown model, not bad prompts."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    error = code_of(specs.tokenised, Wanted("hf", "org/nowhere"), write(tmp_path, '"text"'))
    assert (error.code, error.message) == ("E107", "no such model: org/nowhere")
