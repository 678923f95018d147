"""Which format a path is in: by its content, or as --format says."""

from __future__ import annotations

import difflib
from pathlib import Path

from hsparity import registry
from hsparity.capture.readers.base import Dataset, Reader, guarded
from hsparity.capture.readers.look import Look
from hsparity.capture.source import Source
from hsparity.errors import HsparityError


def open_foreign(path: Path, spelled: str, name: str | None = None) -> Dataset | Source:
    """What `path` holds, ready to be read. `name` is a format's, in place of looking.

    Raises E202 (nothing that is known), E219 (two formats in one folder) and what the reader raises; E217 where the only
    files there cannot be opened safely.
    """
    look = Look(path)
    reader = named(name) if name else find(look, spelled)[0]
    return opened(reader, look, spelled)


def opened(reader: Reader, look: Look, spelled: str) -> Dataset | Source:
    """What the reader makes of a path, which is not listed again."""
    with guarded(look.path):
        found = reader.open(look.path, spelled)
    if isinstance(found, Dataset):
        found.look = look
    return found


def open_dataset(path: Path, spelled: str, name: str | None = None) -> Dataset:
    """As `open_foreign`, for what takes samples: a plain folder or a capture of ours counts as one too."""
    from hsparity.capture.read import open_source
    from hsparity.capture.sourced import SourceDataset

    if name is None and (path / "manifest.json").is_file():
        return SourceDataset(open_source(path))
    found = open_foreign(path, spelled, name)
    return SourceDataset(found) if isinstance(found, Source) else found


def named(name: str) -> Reader:
    """The reader of a format's name. Raises E107."""
    readers = registry.readers()
    if name in readers:
        return readers[name]
    near = difflib.get_close_matches(name, readers, n=1)
    notes = (f"formats: {', '.join(readers)}",)
    raise HsparityError("E107", f"unknown format {name!r}", notes, f"did you mean {near[0]}?" if near else "")


def find(look: Look, spelled: str) -> tuple[Reader, str]:
    """The reader that recognises a path, and by what. Raises E202, E206, E217, E219."""
    found = [(r, why) for r in registry.readers().values() if (why := r.evidence(look))]
    if len(found) == 1:
        return found[0]
    if found:
        notes = [f"{reader.name:<20}  {why}" for reader, why in found]
        help_text = f"name the folder of one of them, or say which: --format {found[0][0].name}"
        raise HsparityError("E219", f"{spelled} holds files of {len(found)} formats", notes, help_text)
    if look.problems:
        raise look.problems[0]
    names = look.names
    notes = [f"it holds {len(names)} files, such as {', '.join(names[:3])}"] if names else ["it is empty"]
    raise HsparityError(
        "E202",
        f"not a capture, nor a format that is known: {spelled}",
        notes,
        "docs/formats.md lists what is read; --format NAME skips the looking",
    )
