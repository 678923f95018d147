"""Reading `manifest.json`: everything in it is checked once, so that nothing later trips over its types."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePosixPath
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from hsparity.capture.shards import DTYPE_NAMES, HELP
from hsparity.errors import HsparityError
from hsprobe.schema import SCHEMA, CaptureManifest, Site


def read_manifest(file: Path, spelled: str) -> CaptureManifest:
    """The manifest of a capture.

    Raises E201 (another schema), E202 (unreadable, or not a manifest) and E206 (a value that no capture has).
    """
    try:
        text = file.read_text(encoding="utf-8")
        raw = json.loads(text)
        schema = raw["schema"] if isinstance(raw, dict) else SCHEMA
        if schema != SCHEMA:
            raise _other_schema(schema, spelled)
        manifest = CaptureManifest.from_json(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise HsparityError("E202", f"not a capture manifest: {file}", (what,), "capture it again") from None
    for where, expected, found in _faults(manifest):
        notes = (f"expected  {expected}", f"found     {json.dumps(found, default=str)[:60]}")
        raise HsparityError("E206", f"damaged manifest: {file}, {where}", notes, HELP)
    return manifest


def _other_schema(schema: object, spelled: str) -> HsparityError:
    name, _, major = str(schema).partition("/")
    newer = name == SCHEMA.partition("/")[0] and major.isdigit()
    return HsparityError(
        "E201",
        f"{spelled} is written in a schema that this hsparity does not read",
        (f"found     {str(schema)[:60]}", f"expected  {SCHEMA}"),
        "install the hsparity that made it (pip install -U hsparity)"
        if newer
        else "check what wrote the folder",
    )


Fault = tuple[str, str, object]  # where, what is expected there, what is found


def _faults(manifest: CaptureManifest) -> Iterator[Fault]:
    yield from _mistyped(CaptureManifest, manifest, "")
    counted = Counter(prompt.id for prompt in manifest.prompts)
    if repeated := [name for name, times in counted.items() if times > 1]:
        yield "prompts", "each id once", repeated[0]
    if manifest.dtype not in DTYPE_NAMES.values():
        yield "dtype", " or ".join(DTYPE_NAMES.values()), manifest.dtype
    for name in ("num_layers", "hidden_size"):
        # Files of states do not say how many layers the model has.
        least = 0 if name == "num_layers" and manifest.settings.get("mechanism") == "file" else 1
        if getattr(manifest, name) < least:
            yield name, "a positive integer", getattr(manifest, name)
    for prompt in manifest.prompts:
        if not 0 <= prompt.rows <= prompt.tokens:
            yield f"prompts, {prompt.id}.rows", f"0 to {prompt.tokens} (its tokens)", prompt.rows
    for shard in manifest.shards:
        if shard.prompt not in counted:
            yield f"shards, {shard.path}.prompt", "an id of prompts", shard.prompt
        if unknown := [key for key in shard.sites if not _is_site(key)]:
            yield f"shards, {shard.path}.sites", "site keys such as boundary.003", unknown[0]
    yield from _names(manifest)
    if manifest.norm and not 0 <= manifest.norm.eps <= 1:
        yield "norm.eps", "a number from 0 to 1", manifest.norm.eps
    if fault := native_ids_fault(manifest.settings):
        yield fault


def _names(manifest: CaptureManifest) -> Iterator[Fault]:
    names = [*(shard.path for shard in manifest.shards), *([manifest.norm.file] if manifest.norm else [])]
    yield from (("a file name", "a file inside the folder", name) for name in names if not lies_inside(name))


def lies_inside(name: str) -> bool:
    """Whether a name that a file holds leads to a place below the file's own folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


def native_ids_fault(settings: Mapping[str, Any]) -> Fault | None:
    """What is wrong with `settings.native_ids`; nothing when they are integers, or left out."""
    ids = settings.get("native_ids")
    if ids is None or (isinstance(ids, list) and all(type(i) is int for i in ids)):
        return None
    return "settings.native_ids", "a list of integers", ids


def _is_site(key: str) -> bool:
    try:
        return bool(Site.parse(key))
    except ValueError:
        return False


def _mistyped(kind: Any, value: Any, where: str) -> Iterator[Fault]:
    """Values that are not what the records of `hsprobe.schema` declare."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin is UnionType:
        if value is not None:
            yield from _mistyped(args[0], value, where)
    elif is_dataclass(kind):
        hints = get_type_hints(kind)
        for field in fields(kind):
            yield from _mistyped(hints[field.name], getattr(value, field.name), f"{where}{field.name}.")
    elif origin is tuple:
        kinds = args[:1] * len(value) if args[-1] is Ellipsis else args
        for i, (inner, item) in enumerate(zip(kinds, value, strict=True)):
            yield from _mistyped(inner, item, f"{where}{i}.")
    elif origin is dict and isinstance(value, dict):
        for key, item in value.items():
            yield from _mistyped(args[1], item, f"{where}{key}.")
    else:
        plain: Any = (int, float) if kind is float else origin or kind
        # JSON's true is an int to Python.
        if not isinstance(value, plain) or (isinstance(value, bool) and kind is not bool):
            yield where.rstrip("."), _WORDS[origin or kind], value


_WORDS = {str: "text", int: "an integer", float: "a number", bool: "true or false", dict: "an object"}
