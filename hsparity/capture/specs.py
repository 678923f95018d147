"""From what a user asks for to a CaptureSpec: sites written out, prompts tokenised, a continuation forced."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hsprobe.schema import INDEXED_KINDS, SINGLE_KINDS, CaptureManifest, CaptureSpec, PromptSpec, Site

from .. import models
from ..engines import facts
from ..errors import HsparityError
from . import checkpoint, prompts
from .selection import select

DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
}
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
# Not asked for by name: they come from the native path or are the boundaries themselves.
EXTRA_KINDS = tuple(k for k in (*INDEXED_KINDS, *SINGLE_KINDS) if k not in ("boundary", "slot"))


@dataclass(frozen=True)
class Wanted:
    """One capture as a user words it. `engine` may name a release: "vllm@0.31.0"."""

    engine: str
    model: str
    layers: str | None = None
    boundaries: str | None = None
    sites: tuple[str, ...] = ()
    mechanism: str = "hooks"
    native_ids: tuple[int, ...] = ()
    generate: int = 0
    batch: int = 1
    dtype: str = "bfloat16"
    revision: str = ""
    trust_remote_code: bool = False
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The engine alone: "vllm"."""
        return facts.split_side(self.engine)[0]


def build(wanted: Wanted, given: Sequence[PromptSpec]) -> CaptureSpec:
    """The spec for prompts that are tokenised already.

    Raises E102 (layers), E103 (options that exclude each other), E107 (unknown engine or site), E306 (what
    the engine has no way to do).
    """
    name = wanted.name
    _check(wanted, name)
    sites: tuple[str, ...] = ()
    if wanted.mechanism != "native":
        sites = (*_boundaries(wanted), *_extra(wanted.sites))
    forced = max((len(p.forced) for p in given), default=0)
    generate = wanted.generate or forced
    return CaptureSpec(
        engine=name,
        model=wanted.model,
        prompts=tuple(replace(p, forced=p.forced[:generate]) for p in given),
        sites=tuple(dict.fromkeys(sites)),
        mechanism=wanted.mechanism,
        native_ids=wanted.native_ids,
        generate=generate,
        batch=wanted.batch,
        dtype=DTYPES.get(wanted.dtype, wanted.dtype),
        revision=wanted.revision,
        trust_remote_code=wanted.trust_remote_code,
        engine_args=dict(wanted.engine_args),
        env=dict(wanted.env),
    )


def tokenised(
    wanted: Wanted, file: Path | None, limit: int | None = None, max_tokens: int | None = None
) -> tuple[PromptSpec, ...]:
    """The prompts of `file` (the shipped set when None) in the model's token ids.

    Raises E105 for bad prompts, and E107 for a model that neither this machine nor the hub has.
    """
    try:
        return prompts.load(
            file,
            wanted.model,
            engine=wanted.engine,
            limit=limit,
            max_tokens=max_tokens,
            revision=wanted.revision,
            trust_remote_code=wanted.trust_remote_code,
        )
    except HsparityError as error:
        # The tokenizer's process fetches config.json first: without one there was no model to tokenise for.
        if error.message.startswith("cannot tokenise") and not checkpoint.config_file(
            wanted.model, wanted.revision
        ):
            raise _no_model(wanted.model, error.notes) from error
        raise


def resolve_model(name: str, revision: str = "") -> str:
    """A bundled model's folder (built when missing), else the name. What cannot be found is refused now.

    Raises E107 for an unknown bundled model, for a folder that does not exist or holds no config.json, and,
    offline, for a hub model that is not in the hub's cache.
    """
    model = models.resolve(name)
    inside = Path(model).parent
    looks_like_path = (
        model.startswith((".", "/", "~")) or model.count("/") > 1 or (inside != Path() and inside.is_dir())
    )
    if checkpoint.is_local(model):
        model = str(Path(model).expanduser())
        if not (Path(model) / "config.json").is_file():
            raise HsparityError(
                "E107", f"{name} holds no config.json", help="--model takes a checkpoint's folder"
            )
    elif checkpoint.config_file(model, revision) is None:
        if looks_like_path:
            raise _no_model(name, ("no such folder",))
        if "/" not in name and get_close_matches(name, models.names(), n=1, cutoff=0.7):
            raise _no_model(name, ("neither a folder here nor a bundled model",))
        if any(os.environ.get(v, "").upper() in ("1", "ON", "YES", "TRUE") for v in OFFLINE):
            raise _no_model(name, ("not a folder here, not in the hub's cache, and the hub is switched off",))
    return model


def _no_model(name: str, notes: Sequence[str]) -> HsparityError:
    near = get_close_matches(name, models.names(), n=1, cutoff=0.7)
    forms = f"a folder, a hub name such as org/model, or one of {', '.join(models.names())}"
    return HsparityError(
        "E107", f"no such model: {name}", notes, f"did you mean {near[0]}?" if near else forms
    )


def read_manifest(folder: Path) -> CaptureManifest:
    """The manifest of a finished capture. Raises E202 or E207."""
    try:
        return CaptureManifest.from_json((folder / "manifest.json").read_text())
    except FileNotFoundError:
        begun = (folder / "journal.jsonl").exists()
        code, what = ("E207", "is not finished") if begun else ("E202", "is not a capture")
        raise HsparityError(code, f"{folder} {what}", help="hsparity inspect says what a folder is") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HsparityError("E202", f"{folder} is not a capture", (str(error),)) from error


def _check(wanted: Wanted, name: str) -> None:
    if wanted.native_ids and wanted.mechanism == "hooks":
        raise HsparityError(
            "E103",
            "--native-ids needs --mechanism native or both",
            ("hooks see every layer and know no ids",),
            "--mechanism both compares what the ids give with what the layers hold",
        )
    if name == "hf" and wanted.mechanism != "hooks":
        raise HsparityError(
            "E306",
            f"Transformers has no native path: --mechanism {wanted.mechanism}",
            help="leave --mechanism out; vllm and sglang have one",
        )
    if wanted.mechanism == "native" and (wanted.layers or wanted.boundaries):
        raise HsparityError(
            "E103",
            "--layers and --boundaries choose what the hooks keep; --mechanism native has none",
            help="--mechanism both, or give the engine's own ids with --native-ids",
        )


def _boundaries(wanted: Wanted) -> tuple[str, ...]:
    shape = checkpoint.read_shape(wanted.model, wanted.revision)
    if shape is None and (wanted.layers or wanted.boundaries):
        raise HsparityError(
            "E102",
            "cannot tell how many layers the model has",
            (f"{wanted.model} has no readable config.json here",),
            "leave --layers and --boundaries out to capture every boundary",
        )
    if (wanted.layers or wanted.boundaries or "all").strip().lower() == "all":
        return ("boundary.*",)
    chosen = select(wanted.layers, wanted.boundaries, shape.num_layers if shape else 0)
    return tuple(Site("boundary", r).key for r in chosen)


def _extra(sites: Sequence[str]) -> tuple[str, ...]:
    keys = ["final_norm"]
    for text in sites:
        kind, dot, index = text.strip().partition(".")
        if kind not in EXTRA_KINDS or (dot and index != "*" and not index.isdigit()):
            near = get_close_matches(kind, EXTRA_KINDS, n=1)
            raise HsparityError(
                "E107",
                f"unknown site {text.strip()!r}",
                (f"sites: {', '.join(EXTRA_KINDS)}",),
                f"did you mean {near[0]}?" if near else "attn_out takes every layer, attn_out.3 one",
            )
        if kind in SINGLE_KINDS:
            keys.append(kind)
        else:
            keys.append(Site(kind, int(index)).key if index.isdigit() else f"{kind}.*")
    return tuple(keys)


def parse_engine_args(words: Sequence[str]) -> dict[str, Any]:
    """Engine arguments from `key=value`, `--key value`, `--key=value` and `--flag`.

    Values are JSON where they parse as such, else text. Raises E103 for a word that is none of these.
    """
    made: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.partition("=")
        if word.startswith("--"):
            key = key[2:]
            if not equals and rest and not rest[0].startswith("--"):
                value, equals = rest.pop(0), "="
        elif not equals:
            raise HsparityError(
                "E103",
                f"cannot read the engine argument {word!r}",
                help="after --: key=value, --key value, or --flag, as the engine's constructor names them",
            )
        made[key.replace("-", "_")] = _value(value) if equals else True
    return made


def _value(text: str) -> Any:
    named = {"true": True, "false": False, "none": None}
    if text.lower() in named:
        return named[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
