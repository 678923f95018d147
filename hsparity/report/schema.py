"""JSON Schema (draft 2020-12) of every saved result, made from the records that write it.

`python -m hsparity.report.schema [FOLDER]` writes them, as `make docs` does. A schema describes what `model.encode`
writes: arrays as dtype, shape and base64, a number that is not finite as null, enums by value. Keys that it does not
name are allowed, and a field with a default may be absent: a result of an older hsparity of the same major version
lacks fields that were added since.
"""

from __future__ import annotations

import ast
import collections.abc
import inspect
import io
import json
import sys
import textwrap
import tokenize
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

FOLDER = "docs/schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Each defines SCHEMA and the one record that carries it. None of them imports torch.
MODULES = (
    "hsparity.model",
    "hsparity.audit.result",
    "hsparity.drafter.checking",
    "hsparity.drafter.measurement",
    "hsparity.drafter.result",
    "hsparity.diffing.result",
    "hsparity.experiments.result",
    "hsparity.overview.result",
    "hsparity.floors.result",
    "hsparity.replay.result",
    "hsparity.selfcheck.result",
)
_PLAIN = {str: "string", int: "integer", bool: "boolean"}


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by the name of its result, in name order: "comparison", "draft-cost" and so on."""
    return dict(sorted((_short(name), _document(name, kind)) for name, kind in records()))


def text(name: str) -> str:
    """The schema of one result as the file holds it. Raises KeyError."""
    return json.dumps(schemas()[name], indent=1, ensure_ascii=False) + "\n"


def files() -> dict[str, str]:
    """Texts by file name: comparison-1.json."""
    return {
        f"{name}-{schema['title'].rpartition('/')[2]}.json": text(name) for name, schema in schemas().items()
    }


def write(folder: Path) -> list[Path]:
    """Write the schemas and return what changed. A file of an older major version is left where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    stale = {
        folder / name: made
        for name, made in files().items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != made
    }
    for path, made in stale.items():
        path.write_text(made, encoding="utf-8")
    return list(stale)


def records() -> list[tuple[str, type]]:
    """(schema string, record) of each module."""
    found: list[tuple[str, type]] = []
    for name in MODULES:
        module = import_module(name)
        own = [
            v
            for v in vars(module).values()
            if isinstance(v, type) and v.__module__ == name and is_dataclass(v)
        ]
        (record,) = (v for v in own if "schema" in {f.name for f in fields(v)})
        found.append((module.SCHEMA, record))
    return found


def _short(schema: str) -> str:
    return schema.removeprefix("hsparity.").partition("/")[0]


def _document(name: str, kind: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    root = _record(kind, made)
    # A record within another result keeps its own schema string; the root's must be this one.
    root["properties"]["schema"] = {"const": name}
    root["required"] = ["schema", *(key for key in root.get("required", ()) if key != "schema")]
    return {"$schema": DIALECT, "title": name, **root, "$defs": dict(sorted(made.items()))}


def _record(kind: Any, made: dict[str, Any]) -> dict[str, Any]:
    """An object with a property per field; the records and arrays within it go to `made`."""
    hints, notes = get_type_hints(kind), comments(kind)
    properties: dict[str, Any] = {}
    for f in fields(kind):
        properties[f.name] = _value(hints[f.name], made)
        if f.name in notes:
            properties[f.name] = {"description": notes[f.name], **properties[f.name]}
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    said = inspect.getdoc(kind) or ""
    # dataclass() writes a signature where no docstring is.
    described = {} if said.startswith(f"{kind.__name__}(") else {"description": " ".join(said.split())}
    return {
        **described,
        "type": "object",
        "properties": properties,
        **({"required": needed} if needed else {}),
    }


def _value(kind: Any, made: dict[str, Any]) -> dict[str, Any]:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind is float:
        return {"type": ["number", "null"]}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin in (Union, UnionType):
        return _optional([_value(part, made) for part in args if part is not NoneType])
    if origin is np.ndarray:
        return _array(get_args(args[1])[0], made)
    if origin is tuple:
        return _sequence(args, made)
    if origin in (dict, collections.abc.Mapping):
        return {"type": "object", "additionalProperties": _value(args[1], made)}
    if is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in made:
            made[kind.__name__] = {}  # before its fields: a record may hold its own kind
            made[kind.__name__] = _record(kind, made)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if isinstance(kind, type) and issubclass(kind, Enum):
        made[kind.__name__] = {"enum": [member.value for member in kind]}
        return {"$ref": f"#/$defs/{kind.__name__}"}
    raise TypeError(f"no schema for {kind!r}")


def _optional(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One of these, or null."""
    (part,) = parts
    if set(part) == {"type"}:
        own = part["type"] if isinstance(part["type"], list) else [part["type"]]
        return {"type": [*own, *({"null"} - set(own))]}
    return {"anyOf": [part, {"type": "null"}]} if part else {}


def _sequence(args: tuple[Any, ...], made: dict[str, Any]) -> dict[str, Any]:
    if len(args) == 2 and args[1] is Ellipsis:
        return {"type": "array", "items": _value(args[0], made)}
    places = [_value(part, made) for part in args]
    return {"type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places)}


def _array(kind: Any, made: dict[str, Any]) -> dict[str, Any]:
    """An array of one dtype, or of any floating one."""
    known = ["float16", "float32", "float64"] if get_origin(kind) is np.floating else [str(np.dtype(kind))]
    name = f"array-{known[0] if len(known) == 1 else 'float'}"
    made[name] = {
        "description": f"An array in C order: base64 of its little-endian bytes ({', '.join(known)}), and its shape.",
        "type": "object",
        "properties": {
            "dtype": {"enum": known},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "base64": {"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$"},
        },
        "required": ["dtype", "shape", "base64"],
    }
    return {"$ref": f"#/$defs/{name}"}


@cache
def comments(kind: type) -> dict[str, str]:
    """What the source says beside or above each field of a record."""
    source = textwrap.dedent(inspect.getsource(kind))
    said = {
        token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above: list[str] = []
        line = node.lineno - 1
        while line in said and said[line][1]:
            above.insert(0, said[line][0])
            line -= 1
        within = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        beside = [said[n][0] for n in within if n in said]
        if above or beside:
            found[node.target.id] = " ".join([*above, *beside])
    return found


if __name__ == "__main__":
    changed = write(Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER))
    sys.stdout.writelines(f"{path}\n" for path in changed)
