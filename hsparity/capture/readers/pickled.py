"""Opening files that torch.save wrote, without running what they hold: weights only, gzip with a bound."""

from __future__ import annotations

import gzip
import pickle
import re
import shlex
import tempfile
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

from hsparity.capture.readers.base import is_regular
from hsparity.errors import HsparityError

# Deflate makes floats at most a few times smaller; what grows more than this is no file of states.
BOMB_RATIO = 100
BOMB_BYTES = 64 << 20
CHUNK = 8 << 20


def load(path: Path) -> Any:
    """What a .pt, .ckpt or .ckpt.gz file holds; tensors of an uncompressed one stay on disk until they are read.

    Raises E206 (empty, cut short, not such a file), E216 (unpacks to more than any file of states) and E217 (opening it
    would run code).
    """
    import torch

    try:
        size = path.stat().st_size
        if not is_regular(path):
            raise HsparityError("E206", f"{path} is no regular file", help=_AGAIN)
        if size == 0:
            raise HsparityError("E206", f"{path} is empty (0 bytes)", help=_AGAIN)
        with warnings.catch_warnings():
            # torch warns of its own deprecated storages in old files.
            warnings.simplefilter("ignore")
            if path.suffix == ".gz":
                with _unpacked(path) as plain:
                    _is_stored(path, plain)
                    plain.seek(0)
                    return torch.load(plain, map_location="cpu", weights_only=True)
            with path.open("rb") as file:
                mapped = _is_stored(path, file)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except HsparityError:
        raise
    except pickle.UnpicklingError as error:
        if named := re.search(r"(?:GLOBAL|Unsupported global:? GLOBAL|Unsupported class) (\S+)", str(error)):
            raise would_run_code(path, named[1]) from None
        raise _damaged(path, error) from None
    except OSError as error:
        raise HsparityError("E206", f"cannot read {path}", (str(error)[:200],), _AGAIN) from None
    except Exception as error:  # whatever the unpickler trips over in a file that is garbled
        raise _damaged(path, error) from None


def would_run_code(path: Path, what: str) -> HsparityError:
    """E217, with the command that keeps the tensors and drops the rest."""
    safe = path.with_name(path.name.partition(".")[0] + ".safe.pt")
    command = shlex.join(["python", "-m", "hsprobe", "convert", str(path), str(safe)])
    return HsparityError(
        "E217",
        f"{path} cannot be opened safely",
        (f"it holds {what.rstrip('.,')}, which is more than tensors, numbers and text",),
        f"where you trust the file, in the environment that wrote it, keep what is data:\nPYTHONPATH=probes {command}",
    )


def _is_stored(path: Path, file: IO[bytes]) -> bool:
    """Whether a file is a zip as torch.save writes it, each member as it is, which can be mapped.

    One that was packed again by another program is unpacked as it is read, so far as a file of states may grow. Raises
    E216 beyond that.
    """
    if file.read(4) != b"PK\x03\x04":
        return False
    with zipfile.ZipFile(file) as held:
        members = held.infolist()
    if all(member.compress_type == zipfile.ZIP_STORED for member in members):
        return True
    if sum(member.file_size for member in members) > (limit := _most(path)):
        raise _grows(path, limit)
    return False


def _most(path: Path) -> int:
    """How many bytes a packed file may hold."""
    return max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size)


def _grows(path: Path, limit: int) -> HsparityError:
    notes = (f"packed    {path.stat().st_size} bytes", f"unpacked  more than {limit}")
    return HsparityError("E216", f"{path} unpacks to more than any file of states does", notes)


def _unpacked(path: Path) -> IO[bytes]:
    """A .gz as a temporary file, as large as a file of states may be. Raises E206, E216."""
    limit = _most(path)
    out = tempfile.TemporaryFile()  # noqa: SIM115  (closed by the caller, or below)
    try:
        with gzip.open(path, "rb") as packed:
            done = 0
            while chunk := packed.read(CHUNK):
                done += len(chunk)
                if done > limit:
                    raise _grows(path, limit)
                out.write(chunk)
    except (OSError, EOFError, zlib.error) as error:
        out.close()
        raise _damaged(path, error) from None
    except BaseException:
        out.close()
        raise
    out.seek(0)
    return out


def _damaged(path: Path, error: BaseException) -> HsparityError:
    first = str(error).strip().splitlines()
    why = f"{type(error).__name__}: {first[0][:160]}" if first else type(error).__name__
    return HsparityError("E206", f"{path} is damaged, or no file that torch.save wrote", (why,), _AGAIN)


_AGAIN = "copy the file again (rsync -c), or make it again"
