"""hsparity doctor --bundle: the attachment of a bug report, one zip of texts that its owner can read before it is sent."""

from __future__ import annotations

import io
import json
import os
import platform
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HsparityError
from .output import unwritable
from .saved import read, read_any
from .saved_kinds import kind_of
from .scrub import HIDDEN, is_secret, surely_secret

if TYPE_CHECKING:
    from .scrub import Scrub

# Variables that change what an engine or hsparity computes. No other one is looked at.
VARIABLES = ("HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES")
PREFIXES = ("VLLM_", "SGLANG_", "HSPARITY_")
PACKAGES = (
    "hsparity", "numpy", "torch", "safetensors", "transformers", "click", "rich", "jinja2", "markdown-it-py", "speculators",
    "pyarrow",
)  # fmt: skip
_EPOCH = (1980, 1, 1, 0, 0, 0)
_INSIDE = {
    "README.txt": "this page",
    "doctor.txt": "what hsparity doctor says",
    "versions.json": "hsparity, Python, packages, platform; engines with versions and shims",
    "environment.json": f"variables that steer engines: {', '.join((*VARIABLES, *(p + '*' for p in PREFIXES)))}",
    "hsparity.toml.json": "hsparity.toml of this folder",
    "hsparity.toml.txt": "why hsparity.toml of this folder cannot be read",
    "files.txt": "how much lies in the capture",
    "manifest.json": "the capture's manifest, of prompts and shards the first 50",
    "manifest.txt": "why there is no manifest",
    "self-check.txt": "the capture's self-check",
    "engine.log.txt": "the last 200 lines of the engine's log",
    "probe.error.txt": "why the capture stopped",
}
_NOT_INSIDE = (
    "hidden states, weights, or any other tensor",
    "values of other environment variables; values under names of tokens, keys, secrets and passwords",
    "the home folder, the user's and the host's name: ~, USER, HOST",
)
_PROMPTS = "prompts and token ids; of results also paths and names of models"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Texts by their names in the zip, what each is, and one line for each path that is left out."""

    texts: dict[str, str]
    told: dict[str, str]
    left_out: tuple[str, ...]


def members(paths: Sequence[str], doctor: str, scrub: Scrub, with_prompts: bool) -> Bundle:
    """What the bundle holds. Raises E202 and E213 for a path that is no capture and no saved result."""
    made = {
        "doctor.txt": scrub.text(doctor),
        "versions.json": _shown(scrub.value(versions())),
        "environment.json": _shown(environment(os.environ, scrub)),
        **_config(scrub),
    }
    told: dict[str, str] = {}
    left_out: list[str] = []
    results = captures = 0
    for place, path in enumerate(paths, 1):
        if Path(path).is_dir():
            from .bundled_capture import members as capture_members

            captures += 1
            for name, text in capture_members(Path(path), scrub, with_prompts).items():
                made[f"capture-{captures}/{name}"] = text
        else:
            found = read_any(path)
            kind = kind_of(found["schema"])
            assert kind is not None  # else it was not read
            try:
                text = _result(path, found, scrub, with_prompts)
            # What is damaged fails wherever its first odd value is met, and must not be shown as it is.
            except (HsparityError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                why = error.notes[0] if isinstance(error, HsparityError) and error.notes else str(error)
                left_out.append(scrub.text(f"path {place}, {kind.words} that cannot be redacted: {why}"))
                continue
            results += 1
            made[f"result-{results}/result.json"] = text
            told[f"result-{results}/result.json"] = kind.words
    names = ["README.txt", *sorted(made)]
    told = {name: told.get(name) or _INSIDE[name.rpartition("/")[2]] for name in names}
    made["README.txt"] = _readme(told, left_out, with_prompts)
    return Bundle({name: made[name] for name in names}, told, tuple(left_out))


def write(target: str, texts: Mapping[str, str]) -> int:
    """Write the zip and return its size; the same texts make the same bytes. Raises E106, also when the file exists."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, text.encode("utf-8", "backslashreplace"))
    check(target)
    try:
        with open(target, "xb") as file:
            file.write(held.getvalue())
    except OSError as error:
        raise unwritable(target, error) from error
    return len(held.getvalue())


def check(target: str) -> None:
    """Raises E106 for a file that exists or is no zip by its name."""
    if not target.endswith(".zip"):
        raise HsparityError(
            "E106",
            f"a bundle is a zip file, and this is not called one: {target}",
            help="hsparity doctor --bundle bug.zip",
        )
    if os.path.lexists(target):
        raise HsparityError(
            "E106", f"{target} exists, and is left as it is", help="name another file, or remove it first"
        )


def contents(target: str, size: int, bundle: Bundle, with_prompts: bool) -> list[str]:
    """What is inside, file by file, and what is not."""
    texts = bundle.texts
    width = max(len(name) for name in texts)
    lines = [f"{target}  {_bytes(size)}, {len(texts)} files"]
    for name, text in texts.items():
        bytes_ = _bytes(len(text.encode("utf-8", "backslashreplace")))
        lines.append(f"  {name:<{width}}  {bytes_:>9}  {bundle.told[name]}")
    lines += [f"left out: {line}" for line in bundle.left_out]
    lines += ["Not inside", *(f"  {line}" for line in _outside(with_prompts))]
    if with_prompts:
        lines.append("Inside, as --with-prompts asks: prompts and token ids")
    return [*lines, f"Read it before you send it: unzip -p {target} | less"]


def versions() -> dict[str, Any]:
    """What runs here, from package metadata: nothing is imported."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "packages": found,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "machine": platform.machine(),
        "engines": _engines(),
    }


def environment(environ: Mapping[str, str], scrub: Scrub) -> dict[str, str]:
    """The variables that are told, by name; the value of one with a secret's name is hidden."""
    told = sorted(k for k in environ if k in VARIABLES or k.startswith(PREFIXES))
    return {k: HIDDEN if is_secret(k) else scrub.text(environ[k]) for k in told}


def _engines() -> dict[str, Any]:
    from ..engines import ask, facts, resolve

    found: dict[str, Any] = {}
    for name in facts.ENGINES:
        try:
            here = resolve(name)
        except HsparityError as error:
            found[name] = error.message
            continue
        answer = ask.ask(here.python, facts.facts(name))
        found[name] = {
            "version": here.version,
            "python": answer.python,
            "packages": dict(answer.versions or {}),
            "origin": here.origin,
            "device": here.device,
            "shims": list(here.shims),
            "error": list(answer.error),
        }
    return found


def _config(scrub: Scrub) -> dict[str, str]:
    """hsparity.toml as data, so that a value that goes over several lines is hidden whole."""
    from ..config import FILE, tables

    try:
        said = tables()
    except HsparityError as error:
        return {f"{FILE}.txt": scrub.text(error.render()) + "\n"}
    return {} if said is None else {f"{FILE}.json": _shown(scrub.value(said))}


def _result(path: str, found: dict[str, Any], scrub: Scrub, with_prompts: bool) -> str:
    if not with_prompts:
        found = _redacted(path, found)
    return json.dumps(_scrubbed(found, scrub), sort_keys=True) + "\n"


def _redacted(path: str, found: dict[str, Any]) -> dict[str, Any]:
    """The result as JSON without prompts, paths and names; by its record where it has one that is redacted."""
    from ..drafter import result as drafts
    from ..model import SCHEMA, encode

    if found["schema"] in (SCHEMA, drafts.SCHEMA):
        from ..report.redact import redact

        made: dict[str, Any] = encode(redact(read(path)))
        return made
    from ..report.scrubbed import scrubbed

    return scrubbed(found)


def _scrubbed(value: Any, scrub: Scrub, name: str = "") -> Any:
    """A result that can still be read back: strings are scrubbed, arrays left alone, a secret's name holds for all below it."""
    if isinstance(value, dict):
        if "shape" in value and "dtype" in value:
            return value
        return {
            scrub.text(k): _scrubbed(v, scrub, name if surely_secret(name) else k) for k, v in value.items()
        }
    if isinstance(value, list):
        return [_scrubbed(v, scrub, name) for v in value]
    return scrub.value(value, name) if isinstance(value, str) else value


def _outside(with_prompts: bool) -> tuple[str, ...]:
    return _NOT_INSIDE if with_prompts else (*_NOT_INSIDE, _PROMPTS)


def _readme(told: Mapping[str, str], left_out: Sequence[str], with_prompts: bool) -> str:
    lines = ["Made by hsparity doctor --bundle, to be attached to a bug report.", "", "Inside"]
    lines += [f"  {name}: {words}" for name, words in told.items()]
    lines += ["", "Left out", *(f"  {line}" for line in left_out)] if left_out else []
    lines += ["", "Not inside", *(f"  {line}" for line in _outside(with_prompts))]
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


def _bytes(count: int) -> str:
    return f"{count:,} B" if count < 10_000 else f"{count / 1000:,.0f} kB"
