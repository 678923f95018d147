"""hsparity.toml: the two sides, the prompts and the layers, so that `hsparity compare` is complete as typed.

    model = "models/kimi-k2"            # a folder, a hub name, or a bundled model such as "tiny:deepseek-v3"
    prompts = "prompts.jsonl"           # left out: the small English set that ships
    layers = "2,30,58"                  # or: boundaries = "3,31,59"
    tokens = "all"                      # all, prefill, decode, or 0:128
    generate = 8                        # tokens to decode; the second side is given the first one's
    batch = 1
    captures = "captures"               # where captures that are made go

    [ref]
    engine = "vllm"                     # hf, vllm, sglang, or a release: "vllm@0.31.0"
    dtype = "bfloat16"

    [ref.engine_args]                   # handed to the engine as they are
    max_model_len = 4096

    [cand]
    engine = "sglang"
    mechanism = "both"                  # hooks, native, both
    native_ids = [2, 30, 58]            # exactly as a draft config gives them
    sites = ["final_norm"]              # beside the boundaries

    [floor]
    captures = ["captures/hf-fp32", "captures/hf-bf16"]
    # or: make = true                   # capture both with Transformers; the default when a side is an engine

    [gate]                              # what fails the command; without it, the verdict does (docs/ci.md)
    fail_on = ["diverged", "inconclusive"]
    max_ratio = { all = 1.5, "58" = 3.0 }   # largest median error over the floor: one number, or by layer
    max_rel_l2 = 0.1                    # largest error of any token: one number, or by layer
    max_lost = 0.05                     # accepted draft tokens a step that the head of --draft may lose
    min_tokens = 500                    # fewest tokens compared

A side is an engine or a capture (`capture = "captures/vllm-bf16"`). Paths are relative to the file.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from .errors import HsparityError

FILE = "hsparity.toml"
MECHANISMS = ("hooks", "native", "both")
EVERY_SITE = "all"
PLACE = re.compile(rf"[0-9]{{1,9}}|[a-z_]+\.[0-9]{{3,9}}|final_norm|{EVERY_SITE}")


@dataclass(frozen=True)
class SideConfig:
    """One side: an engine with its settings, or a capture that exists."""

    engine: str = ""
    capture: str = ""
    dtype: str = "bfloat16"
    mechanism: str = "hooks"
    native_ids: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()
    revision: str = ""
    trust_remote_code: bool = False
    engine_args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FloorConfig:
    """What differences are measured against: captures, or whether to make them (None: as needed)."""

    captures: tuple[str, ...] = ()
    make: bool | None = None


@dataclass(frozen=True)
class GateConfig:
    """What fails a build: outcomes or findings by name, and limits. A limit by site is keyed by layer number, by the key of
    a site ("final_norm", "boundary.000"), or by "all" for the others."""

    fail_on: tuple[str, ...] = ("diverged", "inconclusive")
    max_ratio: dict[str, float] = field(default_factory=dict)
    max_rel_l2: dict[str, float] = field(default_factory=dict)
    max_lost: float | None = None
    min_tokens: int | None = None


@dataclass(frozen=True)
class Config:
    """The whole file. Without one, a Config holds what the command line said."""

    model: str = ""
    prompts: str = ""
    layers: str | None = None
    boundaries: str | None = None
    tokens: str = "all"
    generate: int = 0
    batch: int = 1
    limit: int | None = None
    max_tokens: int | None = None
    captures: str = "captures"
    ref: SideConfig = field(default_factory=SideConfig)
    cand: SideConfig = field(default_factory=SideConfig)
    floor: FloorConfig = field(default_factory=FloorConfig)
    gate: GateConfig | None = None  # None: no such table
    path: Path | None = None  # the file read; paths in it are relative to its folder

    @property
    def folder(self) -> Path:
        return self.path.parent if self.path else Path()

    def relative(self, name: str) -> Path:
        """A path as the file means it."""
        return self.folder / Path(name).expanduser()


def load(path: Path = Path(FILE)) -> Config | None:
    """The config in `path`, or None when there is no such file. Raises E104 naming the key that is wrong."""
    said = tables(path)
    return None if said is None else read(said, path)


def tables(path: Path = Path(FILE)) -> dict[str, Any] | None:
    """What the file says, whatever its keys, or None when there is no such file. Raises E104 when it is not TOML."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HsparityError("E104", f"cannot read {path}", (str(error.strerror),)) from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HsparityError("E104", f"{path} is not TOML", (str(error),)) from error


def read(said: dict[str, Any], path: Path | None = None) -> Config:
    """A Config from the file's tables. Raises E104."""
    reader = _Reader(str(path or FILE))
    top = reader.table(said, "", Config, skip=("path",))
    for name in ("layers", "boundaries"):
        if isinstance(said.get(name), list):
            top[name] = ",".join(str(part) for part in reader.numbers(said[name], name))
    if top.get("layers") is not None and top.get("boundaries") is not None:
        raise reader.bad("layers and boundaries exclude each other", "layer N is boundary N+1; keep one")
    for name in ("ref", "cand"):
        top[name] = reader.side(said.get(name, {}), name)
    floor = reader.table(said.get("floor", {}), "floor", FloorConfig)
    top["floor"] = FloorConfig(**floor)
    if top["floor"].captures and top["floor"].make:
        raise reader.bad("[floor] captures and make exclude each other", "keep one")
    top["gate"] = reader.gate(said["gate"]) if "gate" in said else None
    return Config(**{**top, "path": path})


def read_gate(said: dict[str, Any], name: str) -> GateConfig:
    """A gate from the keys of its table, given by `name`. Raises E104."""
    return _Reader(name).gate(said)


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name

    def bad(self, what: str, help_text: str = "") -> HsparityError:
        return HsparityError("E104", f"{self.name}: {what}", help=help_text)

    def table(self, said: Any, table: str, kind: type, skip: tuple[str, ...] = ()) -> dict[str, Any]:
        """The values of a table, each of the type its field declares; nested tables are left out."""
        where = f"[{table}] " if table else ""
        if not isinstance(said, dict):
            raise self.bad(f"{table} is not a table")
        known = {f.name: str(f.type) for f in fields(kind) if f.name not in skip}
        made: dict[str, Any] = {}
        for key, value in said.items():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                raise self.bad(
                    f"{where}unknown key {key!r}",
                    f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}",
                )
            declared = known[key]
            if "Config" in declared or declared.startswith("dict"):
                continue
            made[key] = self.value(value, declared, f"{where}{key}")
        return made

    def value(self, value: Any, declared: str, where: str) -> Any:
        if declared == "tuple[int, ...]":
            return self.numbers(value, where)
        if declared == "tuple[str, ...]":
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                raise self.bad(f"{where} is not a list of strings")
            return tuple(value)
        if "float" in declared:
            return self.amount(value, where)
        if "int" in declared:
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
                raise self.bad(f"{where} is not a number")
            return int(value)
        if "bool" in declared:
            if not isinstance(value, bool):
                raise self.bad(f"{where} is neither true nor false")
            return value
        if isinstance(value, list) and where in ("layers", "boundaries"):
            return value
        if not isinstance(value, str):
            raise self.bad(f"{where} is not a string")
        return value

    def numbers(self, value: Any, where: str) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(type(v) is int and v >= 0 for v in value):
            raise self.bad(f"{where} is not a list of numbers")
        return tuple(value)

    def gate(self, said: Any) -> GateConfig:
        made = self.table(said, "gate", GateConfig)
        if made.get("fail_on") == ():
            raise self.bad("[gate] fail_on is empty", 'to let everything pass: fail_on = ["never"]')
        for name in ("max_ratio", "max_rel_l2"):
            if name in said:
                made[name] = self.limits(said[name], f"[gate] {name}")
        return GateConfig(**made)

    def limits(self, value: Any, where: str) -> dict[str, float]:
        """A limit for all sites, or one for each of several."""
        given = value if isinstance(value, dict) else {EVERY_SITE: value}
        spelled: dict[str, Any] = {}
        limits: dict[str, float] = {}
        for said, limit in given.items():
            key = self.place(said, where)
            if key in spelled:
                raise self.bad(f"{where}: {spelled[key]!r} and {said!r} are one place", "keep one of the two")
            spelled[key], limits[key] = said, self.amount(limit, where)
        return limits

    def place(self, key: Any, where: str) -> str:
        """The key of a limit as it is held; in Python a layer may be a number."""
        text = str(int(key)) if isinstance(key, Integral) and not isinstance(key, bool) else key
        if not isinstance(text, str) or not PLACE.fullmatch(text):
            raise self.bad(
                f"{where}: {key!r} is no layer",
                "a layer number, all, or a site such as final_norm or boundary.000",
            )
        name, dot, number = text.rpartition(".")
        if dot:
            return f"{name}.{int(number):03d}"
        return str(int(number)) if number.isdigit() else text

    def amount(self, value: Any, where: str) -> float:
        number = math.nan
        # In Python a limit may be of NumPy's types.
        if isinstance(value, Real) and not isinstance(value, bool):
            with suppress(OverflowError):
                number = float(value)
        if not 0 <= number < math.inf:
            raise self.bad(f"{where} is not a number of 0 or more")
        return number

    def side(self, said: Any, name: str) -> SideConfig:
        made = self.table(said, name, SideConfig)
        arguments = said.get("engine_args", {})
        if not isinstance(arguments, dict):
            raise self.bad(f"[{name}] engine_args is not a table")
        side = SideConfig(**made, engine_args=arguments)
        if side.engine and side.capture:
            raise self.bad(f"[{name}] engine and capture exclude each other", "a side is one of the two")
        if side.mechanism not in MECHANISMS:
            raise self.bad(
                f"[{name}] unknown mechanism {side.mechanism!r}", f"known: {', '.join(MECHANISMS)}"
            )
        return side
