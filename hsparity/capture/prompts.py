"""Prompt files: JSONL with text, chat messages or token ids, tokenised once and by us."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path
from typing import Any

from hsprobe.schema import CaptureManifest, PromptSpec, token_ids_sha256

from ..engines import resolve
from ..engines.child import clean_environment
from ..errors import HsparityError
from . import checkpoint

SHIPPED = Path(__file__).parent.parent / "data" / "prompts.jsonl"
ID_KEYS = ("prompt_token_ids", "token_ids", "input_ids")
MEASUREMENT = "hsparity.measurement/1"
CHILD = Path(__file__).parent / "tokenise_child.py"


@dataclass(frozen=True)
class Item:
    """One line of a prompts file. Exactly one of text, messages and token_ids is set."""

    id: str
    line: int
    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    token_ids: tuple[int, ...] = ()


def load(
    file: Path | None,
    model: str,
    *,
    engine: str = "hf",
    limit: int | None = None,
    max_tokens: int | None = None,
    revision: str = "",
    trust_remote_code: bool = False,
) -> tuple[PromptSpec, ...]:
    """The prompts of a file (the shipped English set when None), as token ids.

    A folder is a capture or a dataset, whose tokens are taken; a record of `hsparity drafter measure` gives its prompts with
    the text written after them. Lines of a file are {"id", "text"}, {"id", "messages"},
    {"id", "token_ids"} (or prompt_token_ids, input_ids), a
    string, or a list of ids; in a .txt file every line that is not blank is a prompt. `engine` names the
    interpreter that tokenises when hsparity's own has no transformers. `limit` keeps the first prompts,
    `max_tokens` the first ids of each. Raises E105 with the line number.
    """
    source = file or SHIPPED
    items = parse(source)[:limit]
    raw = [i for i in items if not i.token_ids]
    done = {}
    if raw:
        done = _tokenise(source, raw, model=model, engine=engine, revision=revision, trust=trust_remote_code)
    shape = checkpoint.read_shape(model, revision)
    made = []
    for item in items:
        text, ids = done.get(item.id, (item.text, item.token_ids))
        if not ids:
            raise _bad(source, item.line, "no tokens")
        if shape and shape.vocab_size and max(ids) >= shape.vocab_size:
            raise _bad(
                source,
                item.line,
                f"token id {max(ids)} is not in the model's vocabulary of {shape.vocab_size}",
            )
        made.append(PromptSpec(item.id, ids[:max_tokens], (), text))
    return tuple(made)


def parse(file: Path) -> list[Item]:
    """The lines of a prompts file, or the samples of a capture or dataset as token ids. Raises E105, E2xx."""
    if file.is_dir():
        return _samples(file)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise HsparityError(
            "E105", f"cannot read prompts from {file}", (why,), "name a JSONL file with --prompts"
        ) from error
    plain = file.suffix == ".txt"
    if not plain and (texts := _measured(lines)):
        return texts
    items: list[Item] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        item = _item(file, number, line, plain, f"p{len(items)}")
        if item.id in seen:
            raise _bad(file, number, f"id {item.id!r} was used in line {seen[item.id]}")
        seen[item.id] = number
        items.append(item)
    if not items:
        raise HsparityError(
            "E105", f"no prompts in {file}", help='a line is {"id": "a", "text": "Once upon a time"}'
        )
    return items


def is_record(file: Path) -> bool:
    """Whether a file is a record of `hsparity drafter measure`."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("schema") == MEASUREMENT


def _measured(lines: Sequence[str]) -> list[Item]:
    """The whole texts, answers included, of a record of `hsparity drafter measure`; none where the file is no such record."""
    try:
        said = json.loads("\n".join(lines))
        if said["schema"] != MEASUREMENT:
            return []
        texts = [(p["id"], (*p["prompt"], *p["generated"])) for p in said["prompts"]]
    except (ValueError, KeyError, TypeError):
        return []
    return [Item(str(name), number, token_ids=ids) for number, (name, ids) in enumerate(texts, 1)]


def _samples(folder: Path) -> list[Item]:
    """What a folder of states was computed from: the same tokens for another engine."""
    from .foreign import open_dataset
    from .readers.base import read_sample

    dataset = open_dataset(folder, str(folder))
    items = []
    for number, record in enumerate(dataset.records(), 1):
        try:
            ids = read_sample(dataset, record).token_ids
        except HsparityError:
            continue  # audit counts the damaged ones
        if ids is not None and len(ids):
            items.append(Item(record.id, number, token_ids=tuple(int(i) for i in ids)))
    if not items:
        raise HsparityError(
            "E105", f"no sample of {folder} holds token ids", help=f"hsparity inspect {folder}"
        )
    return items


def _item(file: Path, number: int, line: str, plain: bool, name: str) -> Item:
    if plain:
        return Item(name, number, text=line)
    try:
        said = json.loads(line)
    except ValueError as error:
        raise _bad(file, number, f"not JSON: {error}") from None
    if isinstance(said, str):
        said = {"text": said}
    elif isinstance(said, list):
        said = {"token_ids": said}
    elif not isinstance(said, dict):
        raise _bad(file, number, f"neither an object, a string nor a list: {line.strip()[:40]}")
    given = [key for key in ("text", "messages", *ID_KEYS) if key in said]
    if len(given) != 1:
        why = f"{' and '.join(given)} exclude each other" if given else "no text, messages or token_ids"
        raise _bad(file, number, why)
    key, value = given[0], said[given[0]]
    name = str(said.get("id", name))
    if key == "text" and isinstance(value, str) and value:
        return Item(name, number, text=value)
    if key == "messages" and _are_messages(value):
        return Item(name, number, messages=tuple(value))
    if (
        key in ID_KEYS
        and isinstance(value, list)
        and value
        and all(type(t) is int and 0 <= t < 2**31 for t in value)
    ):
        return Item(name, number, token_ids=tuple(value))
    wanted = {"text": "a string that is not empty", "messages": "a list of {role, content}"}
    raise _bad(file, number, f"{key} is not {wanted.get(key, 'a list of token ids')}")


def _are_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in value)
    )


def _bad(file: Path, line: int, why: str) -> HsparityError:
    return HsparityError(
        "E105",
        f"bad prompt in {file} line {line}: {why}",
        help='a line is {"id": "a", "text": "…"}; instead of text: "messages": […] or "token_ids": [1, 2]',
    )


def _tokenise(
    file: Path, items: Sequence[Item], *, model: str, engine: str, revision: str, trust: bool
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Prompt id -> (text, ids). In a child: transformers takes seconds to import and may be absent here."""
    python = Path(sys.executable)
    if util.find_spec("transformers") is None:
        python = resolve(engine).python
    asked = {
        "model": str(Path(model).expanduser()) if checkpoint.is_local(model) else model,
        "revision": revision,
        "trust_remote_code": trust,
        "items": [{"messages": list(i.messages)} if i.messages else {"text": i.text} for i in items],
    }
    offline = {"HF_HUB_OFFLINE": "1"} if checkpoint.is_local(model) else {}
    done = subprocess.run(
        [str(python), str(CHILD)],
        input=json.dumps(asked),
        env=clean_environment(offline),
        capture_output=True,
        text=True,
        check=False,
    )
    answer = [line for line in done.stdout.splitlines() if line.startswith("hsparity-answer ")]
    if not answer:
        tail = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise HsparityError(
            "E105",
            f"cannot tokenise prompts for {model}",
            tail,
            "check the model's name, or give token ids: they need no tokenizer",
        )
    made: dict[str, tuple[str, tuple[int, ...]]] = {}
    for item, said in zip(items, json.loads(answer[-1].partition(" ")[2]), strict=True):
        if "error" in said:
            raise _bad(file, item.line, said["error"])
        made[item.id] = (said["text"], tuple(said["token_ids"]))
    return made


def continued(prompts: Sequence[PromptSpec], manifest: CaptureManifest, named: str) -> tuple[PromptSpec, ...]:
    """The prompts with another capture's generated tokens to be forced after them.

    Raises E203 when that capture is of other prompts or generated nothing.
    """
    known = {p.id: p for p in manifest.prompts}
    forced = []
    for prompt in prompts:
        other = known.get(prompt.id)
        why = ""
        if other is None:
            why = "it has no such prompt"
        elif not other.generated:
            why = "it generated nothing there"
        elif other.token_ids_sha256 != token_ids_sha256((*prompt.token_ids, *other.generated[:-1])):
            why = "it starts from other tokens"
        if other is None or why:
            raise HsparityError(
                "E203",
                f"cannot continue prompt {prompt.id!r} as {named} did",
                (why,),
                "use the same --prompts, --limit and --max-tokens, and a capture made with --generate",
            )
        forced.append(replace(prompt, forced=other.generated))
    return tuple(forced)
