"""From a pickle file that its reader trusts to one that holds data alone: what hsparity then opens without running code.

Runs where the file was written, since opening it imports the classes in it. Kept: tensors, numbers, text, None, lists,
tuples and dicts of them; NumPy arrays as tensors, dict-likes (ModelOutput, BatchEncoding) as dicts, named tuples as
tuples, dataclasses as dicts. Everything else is dropped, with a line that says where it was.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import torch

from .protocol import ProbeError

SUFFIXES = (".pt", ".ckpt", ".ckpt.gz")
BESIDE = (".json",)  # what the files of a folder are read with
MOST = 50_000_000  # values that a file may unfold to
Say = Callable[[str], None]
WARNING = "warning: opening a pickle file runs the code in it; convert only what you trust"


class Dropped:
    """Stands for a value that is no data."""


DROPPED = Dropped()


def convert(source: Path, target: Path, say: Say) -> int:
    """Convert a file, or every .pt, .ckpt and .ckpt.gz of a folder by the same names; the number of failures.

    Never overwrites. Raises ProbeError E202 (no such path), E106 (something is in the way) and, for a single file, E206
    (damaged) and E217 (its classes cannot be imported here).
    """
    if not source.exists():
        raise ProbeError("E202", f"no such path: {source}")
    say(WARNING)
    if not source.is_dir():
        if not source.is_file():
            raise ProbeError("E202", f"{source} is neither a file nor a folder")
        if target.is_dir():
            target = target / source.name
        _refuse_existing(target)
        _file(source, target, say)
        return 0
    here, there = source.resolve(), target.resolve()
    if here == there or here in there.parents:
        raise ProbeError("E106", f"{target} lies inside {source}", "name another folder")
    if (target.exists() or target.is_symlink()) and not target.is_dir():
        raise ProbeError("E106", f"{target} is no folder", "name another folder")
    names = sorted(_names(source))
    found = [name for name in names if name.endswith(SUFFIXES)]
    done = failed = 0
    for name in found:
        try:
            _refuse_existing(target / name)
            _file(source / name, target / name, say)
            done += 1
        except ProbeError as error:
            failed += 1
            say(f"{name}: {error.code}: {error.message}")
    beside = [name for name in names if name.endswith(BESIDE)]
    for name in beside:
        if not (target / name).exists():
            try:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, target / name)
            except OSError as error:
                failed += 1
                say(f"{name}: E106: it cannot be copied: {error}")
    say(f"{done} of {len(found)} files converted, {len(beside)} JSON files beside them copied")
    left = len(names) - len(found) - len(beside)
    if left:
        say(f"{left} other files left where they are")
    return failed


def _names(folder: Path) -> Iterator[str]:
    """Files, and links that lead nowhere, by name below the folder; pipes, sockets and devices are left alone."""
    for root, _, files in os.walk(folder):
        paths = (Path(root) / file for file in files)
        yield from (str(path.relative_to(folder)) for path in paths if path.is_file() or not path.exists())


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise ProbeError("E106", f"{path} is there already", "name another path; nothing is overwritten")


def _file(source: Path, target: Path, say: Say) -> None:
    dropped: list[str] = []
    try:
        data = reduced(_bounded(source, _load(source)), dropped.append)
    except ProbeError:
        raise
    except RecursionError as error:
        raise ProbeError("E216", f"{source} nests too deeply to be converted") from error
    except Exception as error:  # a sparse tensor, a class whose attributes raise
        raise ProbeError("E216", f"{source} cannot be converted: {type(error).__name__}: {error}") from error
    for line in dropped:
        say(f"{source.name}: dropped {line}")
    if data is DROPPED:
        raise ProbeError("E216", f"{source} holds no data")
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _opened(temporary, "wb", target.suffix == ".gz") as file:
            torch.save(data, file)
        _refuse_existing(target)
        os.replace(temporary, target)
    except OSError as error:
        raise ProbeError("E106", f"{target} cannot be written: {error}", "name another path") from error
    except ProbeError:
        raise
    except Exception as error:  # a tensor that torch opens and cannot save
        raise ProbeError("E216", f"{source} cannot be saved: {type(error).__name__}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _load(path: Path) -> Any:
    packed = path.suffix == ".gz"
    try:
        with _opened(path, "rb", packed) as file:
            try:
                return torch.load(file, map_location="cpu", weights_only=False)
            except (pickle.UnpicklingError, RuntimeError) as error:
                # pickle.dump wrote it, not torch.save.
                if "magic number" not in str(error):
                    raise
                file.seek(0)
                return pickle.load(file)
    except (ImportError, AttributeError) as error:
        why = f"{path} holds a class that cannot be imported here: {error}"
        raise ProbeError("E217", why, "run this in the environment that wrote the file") from error
    # Whatever its classes raise as they are made, an exit too: it is their code that runs here.
    except (Exception, SystemExit, GeneratorExit) as error:
        raise ProbeError("E206", f"{path} cannot be opened: {type(error).__name__}: {error}") from error


def _opened(path: Path, mode: str, packed: bool) -> Any:
    return gzip.open(path, mode) if packed else path.open(mode)


def _bounded(source: Path, value: Any) -> Any:
    """The value, after counting what it holds, once for each place that holds it. Raises ProbeError E216.

    A few bytes can name a list a thousand times in the next, and so on: what would be written has no end.
    """
    counts: dict[int, int] = {}

    def count(each: Any, above: frozenset[int]) -> int:
        if not isinstance(each, (list, tuple, Mapping)) or id(each) in above:
            return 1
        if id(each) not in counts:
            inside = each.values() if isinstance(each, Mapping) else each
            counts[id(each)] = 1 + sum(count(part, above | {id(each)}) for part in inside)
        return counts[id(each)]

    if (total := count(value, frozenset())) > MOST:
        raise ProbeError("E216", f"{source} unfolds to {total:.3g} values", "no file of states holds as many")
    return value


def reduced(value: Any, drop: Callable[[str], None], where: str = "it", above: tuple[int, ...] = ()) -> Any:
    """The data in a value, or DROPPED; `drop` is told what was left out and where."""
    plain = _single(value)
    if plain is not None or value is None:
        return plain
    if id(value) in above:
        drop(f"{where}: it holds itself")
        return DROPPED
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        return _table(value.items(), drop, where, inside)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = (
            (f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if hasattr(value, f.name)
        )
        return _table(named, drop, where, inside)
    if isinstance(value, (list, tuple)):
        parts = [reduced(part, drop, f"{where}[{i}]", inside) for i, part in enumerate(value)]
        # None keeps the others in their places.
        kept = [None if part is DROPPED else part for part in parts]
        return kept if isinstance(value, list) else tuple(kept)
    if _is_numpy(value):
        return _array(value, drop, where)
    drop(f"{where}: {type(value).__module__}.{type(value).__qualname__}")
    return DROPPED


def _table(items: Any, drop: Callable[[str], None], where: str, inside: tuple[int, ...]) -> dict[Any, Any]:
    found = {}
    for key, value in items:
        name = _single(key)
        if name is None or isinstance(name, torch.Tensor):
            drop(f"{where}[{key!r}]: a key that is no text and no number")
            continue
        part = reduced(value, drop, f"{where}[{name!r}]", inside)
        if part is not DROPPED:
            found[name] = part
    return found


def _single(value: Any) -> Any:
    """A value that holds no others, of a plain type; None for anything else."""
    if isinstance(value, torch.Tensor):
        return value.detach().as_subclass(torch.Tensor)
    if isinstance(value, bool):
        return value
    # A subclass (an enumeration, an id with methods) is its value.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (torch.dtype, torch.device, PurePath)):
        return str(value)
    return None


def _is_numpy(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "numpy" and hasattr(value, "dtype")


def _array(value: Any, drop: Callable[[str], None], where: str) -> Any:
    """A NumPy array as a tensor, a scalar as a number, text as lists."""
    kind = value.dtype.kind
    if kind == "O" or value.dtype.names:
        drop(f"{where}: a NumPy array of objects, {list(value.shape)}")
        return DROPPED
    if kind in "US":
        return value.tolist()
    if not value.shape:
        return value.item()
    try:
        # A copy: torch takes neither another machine's byte order nor negative steps.
        return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C"))
    except (TypeError, ValueError) as error:
        drop(f"{where}: a NumPy array of {value.dtype}: {error}")
        return DROPPED
