"""hsparity inspect: what a path is, in ten lines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import HsparityError

if TYPE_CHECKING:
    from ..capture.readers.base import Dataset, Record

TRIED, SLOTS = 3, 6  # samples that are opened, slots that are named


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--format", "format_", metavar="NAME", help="Read PATH as this format.  [default: by its content]"
)
def inspect(path: Path, format_: str | None) -> None:
    """Say what PATH is: a capture, a saved result or its page, or files in a format that is read.

    Reads manifests, headers and one sample; checks no hashes.
    """
    if not path.exists():
        raise HsparityError("E202", f"no such path: {path}")
    from ..capture.readers.base import guarded

    with guarded(path):
        lines = describe(path, format_)
    for line in lines:
        click.echo(line)


def describe(path: Path, format_: str | None = None) -> list[str]:
    """About ten lines on a folder or a file. Raises what reading a file that cannot be opened safely raises."""
    if format_:
        return _foreign(path, format_)
    if path.is_file():
        return _file(path)
    if not path.is_dir():
        return [f"{path}: unknown, neither a file nor a folder; a pipe, a socket or a device is not read"]
    if (path / "manifest.json").is_file():
        return _capture(path)
    if (path / "plain.json").is_file():
        return _plain(path)
    if any((path / name).exists() for name in ("journal.jsonl", "spec.json", "probe.started")):
        return _unfinished(path)
    inside = sorted(p.parent.name for p in path.glob("*/manifest.json"))
    if inside:
        return [f"{path}: a folder with {len(inside)} captures", *(f"  {name}" for name in inside[:8])]
    if found := _foreign(path):
        return found
    names = sorted(p.name for p in path.iterdir())
    return [f"{path}: unknown, a folder with {len(names)} entries", *(f"  {name}" for name in names[:8])]


def _capture(path: Path) -> list[str]:
    from hsprobe.schema import SCHEMA

    from ..capture import specs
    from ..capture.readers.base import guarded

    try:
        with guarded(path):
            manifest = specs.read_manifest(path)
    except HsparityError as error:
        return [
            f"{path}: a manifest.json that is not of a capture",
            *error.notes,
            *_keys(path / "manifest.json"),
        ]
    newer = "" if manifest.schema == SCHEMA else f" (this hsparity reads {SCHEMA})"
    sites = sorted({site for shard in manifest.shards for site in shard.sites})
    passed = sum(check.passed for check in manifest.checks)
    size = sum(shard.bytes for shard in manifest.shards)
    tokens = sum(p.tokens for p in manifest.prompts)
    missing = sum(p.tokens - p.rows for p in manifest.prompts)
    decoded = sum(p.tokens - p.prefill for p in manifest.prompts)
    shims = manifest.settings.get("shims") or []
    return [
        f"{path}: a {manifest.status} capture, {manifest.schema}{newer}",
        f"  engine    {manifest.engine} {manifest.engine_version}, {manifest.settings.get('mode', '?')}, "
        f"{manifest.settings.get('mechanism', '?')}{', shims ' + ' '.join(shims) if shims else ''}",
        f"  model     {manifest.model}  ({manifest.architecture})",
        f"  shape     {manifest.num_layers} layers, hidden size {manifest.hidden_size}, {manifest.dtype}",
        f"  prompts   {len(manifest.prompts)}, {tokens} tokens ({decoded} decoded), {missing} rows missing",
        f"  sites     {len(sites)}: {_spans(sites)}",
        f"  size      {_size(size)} in {len(manifest.shards)} shards",
        f"  checks    {passed} of {len(manifest.checks)} passed",
        f"  created   {manifest.created or '?'}",
        *(f"  warning   {warning}" for warning in manifest.warnings),
    ]


def _unfinished(path: Path) -> list[str]:
    """A capture without a manifest: how far it came and how it stopped."""
    journal = path / "journal.jsonl"
    done = journal.read_bytes().count(b"\n") if journal.is_file() else 0
    spec = _json(path / "spec.json") or {}
    lines = [f"{path}: an unfinished capture, {done} of {len(_list(spec, 'prompts')) or '?'} prompts"]
    if spec:
        lines += [
            f"  engine    {spec.get('engine')}, {spec.get('dtype')}, {spec.get('mechanism')}",
            f"  model     {spec.get('model')}",
            f"  sites     {', '.join(map(str, _list(spec, 'sites')))}",
        ]
    elif (path / "spec.json").exists():
        lines.append("  damaged   spec.json cannot be read")
    if error := _json(path / "probe.error"):
        lines.append(f"  stopped   {error.get('code')}: {error.get('message')}")
    elif not (path / "probe.started").exists():
        lines.append("  stopped   before the probe started")
    if (path / "engine.log").exists():
        lines.append(f"  log       {path / 'engine.log'}")
    return [*lines, "  resume    the same hsparity capture command: finished prompts are kept"]


def _plain(path: Path) -> list[str]:
    said = _json(path / "plain.json")
    if said is None:
        return [f"{path}: damaged, a plain.json that is no JSON object"]
    model = said["model"] if isinstance(said.get("model"), dict) else {}
    slots = [str(next(iter(s.values()), "?")) if isinstance(s, dict) else "?" for s in _list(said, "slots")]
    shards = sorted(p for p in path.glob("*.safetensors") if p.is_file())
    norm = model.get("norm_weight")
    return [
        f"{path}: a folder in the plain form, {said.get('format')}",
        f"  engine    {said.get('engine', '?')} {said.get('engine_version', '')}".rstrip(),
        f"  model     {model.get('name', '?')}",
        f"  shape     {model.get('num_layers', '?')} layers, hidden size {model.get('hidden_size', '?')}",
        f"  slots     {len(slots)}: {', '.join(slots[:12])}",
        f"  prompts   {len([s for s in shards if s.name != norm])}",
        f"  size      {_size(sum(s.stat().st_size for s in shards))}",
    ]


def _file(path: Path) -> list[str]:
    from . import inspected_result

    if (page := inspected_result.describe_page(path)) is not None:
        return page
    said = _json(path)
    known = said is not None and str(said.get("schema", "")).startswith("hsparity.")
    if not known and (found := _foreign(path)):
        return found
    if path.suffix == ".safetensors":
        return [f"{path}: safetensors", *_header(path)]
    if said is None:
        return [f"{path}: unknown, {_size(path.stat().st_size)}"]
    if (result := inspected_result.describe(path, said)) is not None:
        return result
    return [f"{path}: unknown JSON", *_keys(path)]


def _foreign(path: Path, name: str | None = None) -> list[str]:
    """What a reader says of files that no probe of ours wrote; nothing where no reader knows them."""
    from ..capture import foreign
    from ..capture.readers.look import Look
    from ..capture.source import Source
    from . import suggest

    look = Look(path)
    try:
        reader, why = (foreign.named(name), "--format") if name else foreign.find(look, str(path))
    except HsparityError as error:
        # What is there and cannot be read is worth more than "unknown".
        if error.code == "E202" or path.suffix == ".safetensors":
            return []
        raise
    dataset = foreign.opened(reader, look, str(path))
    if isinstance(dataset, Source):
        return _plain(path)
    said, records = dataset.said(), dataset.records()
    size = sum(map(_bytes, {os.fspath(r.path) for r in records}))
    made = " ".join(part for part in (said.producer, said.version) if part)
    numbers = [r.index for r in records]
    span = f", numbered {numbers[0]} to {numbers[-1]}" if len(records) > 1 else ""
    first = _first_sample(dataset, records)
    return [
        f"{path}: {reader.title}, format {reader.name}",
        f"  seen by   {why}",
        f"  producer  {made or 'not said'}, model {said.model or 'not said'}",
        f"  samples   {len(records)}{span}, {_size(size)}",
        *first,
        *([f"  unknown   {'; '.join(said.unknown)}"] if said.unknown else []),
        *(f"  note      {note}" for note in said.notes[:2]),
        f"  next      {suggest.audit_command(str(path), said.model, not any('no token ids' in t for t in first))}",
    ]


def _first_sample(dataset: Dataset, records: Sequence[Record]) -> list[str]:
    """The first sample that can be read, and why those before it cannot."""
    from ..capture import slotnames
    from ..capture.readers.base import read_sample

    lines: list[str] = []
    for record in records[:TRIED]:
        try:
            sample = read_sample(dataset, record)
        except HsparityError as error:
            lines.append(f"  damaged   {record.id}: {error.message} [{error.code}]")
            continue
        rows, width = sample.states[0].shape
        ids = "no token ids" if sample.token_ids is None else f"{len(sample.token_ids)} token ids"
        mask = "no loss mask" if sample.loss_mask is None else f"loss on {int(sample.loss_mask.sum())}"
        slots = [slotnames.label(slot) for slot in dataset.slots(sample)]
        shown = ", ".join(slots[:SLOTS]) + (f" and {len(slots) - SLOTS} more" if len(slots) > SLOTS else "")
        kind = str(sample.states[0].dtype).removeprefix("torch.")
        return [
            *lines,
            f"  first     {record.id}: {ids}, {rows} rows, {mask}",
            f"  slots     {len(slots)} of {width}, {kind}: {shown}",
        ]
    return lines


def _keys(path: Path) -> list[str]:
    said = _json(path)
    return [f"  keys      {', '.join(sorted(said)[:16])}"] if said else ["  keys      none"]


def _header(path: Path) -> list[str]:
    """Tensor names, dtypes and shapes, read without any library."""
    from ..capture.shards import HEADER_LIMIT

    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(HEADER_LIMIT, os.fstat(file.fileno()).st_size - 8):
                raise ValueError(length)
            header = json.loads(file.read(length))
        tensors = sorted((k, v) for k, v in header.items() if k != "__metadata__")
        rows = [f"  {name:<24} {t['dtype']:<5} {t['shape']}" for name, t in tensors[:8]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, MemoryError, RecursionError):
        return ["  damaged: its header cannot be read"]
    return [*rows, *([f"  and {len(tensors) - 8} more"] if len(tensors) > 8 else [])]


def _json(path: Path) -> dict[str, Any] | None:
    """A small file that looks like JSON and holds an object; a file of states is not read as text."""
    from ..capture.readers.look import read_json

    try:
        if path.suffix not in (".json", ".jsonl"):
            with path.open("rb") as file:
                if file.read(1024).lstrip()[:1] not in (b"{", b"["):
                    return None
        said = read_json(path)
    except (OSError, HsparityError):
        return None
    return said if isinstance(said, dict) else None


def _list(said: dict[str, Any], key: str) -> list[Any]:
    return said[key] if isinstance(said.get(key), list) else []


def _bytes(path: str) -> int:
    """A file's size; 0 for one that is gone."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _size(count: int) -> str:
    from ..engines.machine import gigabytes

    return gigabytes(count)


def _spans(sites: list[str]) -> str:
    """boundary 0-8, final_norm: indexed kinds as ranges."""
    from ..query import span_text

    kinds: dict[str, list[int]] = {}
    for site in sites:
        kind, _, index = site.partition(".")
        kinds.setdefault(kind, []).extend([int(index)] if index else [])
    return ", ".join(f"{kind} {span_text(tuple(n))}" if n else kind for kind, n in kinds.items())


COMMAND = inspect
