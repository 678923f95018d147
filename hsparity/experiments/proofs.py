"""Whether a knob that was turned was applied: what the engine's own capture shows, never what it was told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hsprobe.schema import CaptureManifest, CaptureSpec

from ..capture.shards import read_integers
from ..capture.source import Source
from .knob import Knob


@dataclass(frozen=True, slots=True)
class Proof:
    """`applied` is None where the capture shows nothing either way."""

    applied: bool | None
    text: str


class Made:
    """A capture with the spec that made it."""

    def __init__(self, spec: CaptureSpec, source: Source) -> None:
        self.spec, self.source = spec, source

    @property
    def manifest(self) -> CaptureManifest:
        return self.source.manifest

    @property
    def settings(self) -> dict[str, Any]:
        return self.source.manifest.settings

    @cached_property
    def _passes(self) -> dict[str, tuple[list[int], int]]:
        """Prompt -> the passes that made its rows, and in how many of them the prompt was read."""
        found = {}
        for prompt in self.source.prompts:
            span = self.source.span(prompt.id, "steps")
            if span is None:
                continue
            step_r, position_r = read_integers(span), self.source.positions(prompt.id)
            read = len(np.unique(step_r[position_r < prompt.prefill]))
            found[prompt.id] = (sorted({int(s) for s in step_r}), read)
        return found

    @cached_property
    def passes(self) -> int:
        """The most passes that any one prompt was read in; 0 when the capture does not say."""
        return max((read for _, read in self._passes.values()), default=0)

    @cached_property
    def decoding(self) -> int:
        """Passes that made a decoded row."""
        return sum(len(steps) - read for steps, read in self._passes.values())

    @cached_property
    def together(self) -> int:
        """The most prompts that had rows in one pass."""
        counted: dict[int, int] = {}
        for steps, _ in self._passes.values():
            for step in steps:
                counted[step] = counted.get(step, 0) + 1
        return max(counted.values(), default=0)

    @cached_property
    def cached(self) -> int:
        """Prompt tokens that were taken from a cache, not computed."""
        missing = sum(
            stop - start for p in self.source.prompts for start, stop in p.missing if start < p.prefill
        )
        try:
            batches = json.loads((Path(self.source.folder) / "timing.json").read_text())["batches"]
            computed = sum(int(b["prefill_tokens"]) for b in batches)
            if sum(int(b["prompts"]) for b in batches) != len(self.source.prompts):
                return missing  # a capture that was resumed times its last run only
        except (OSError, ValueError, KeyError, TypeError):
            return missing
        return max(missing, sum(p.prefill for p in self.source.prompts) - computed)


def prove(knob: Knob, turned: Made, before: Made) -> Proof:
    """Whether `turned` shows the knob elsewhere than `before` does."""
    shown = PROOFS[knob.proof](knob, turned, before)
    for made in (turned, before):
        for name, said in sorted((made.settings.get("not_applied") or {}).items()):
            # An engine may spell what it was asked for in its own way: what changed was applied.
            if name in (*knob.args, *knob.env, *knob.fields) and shown.applied is not True:
                return Proof(False, _refusal(name, said, made.manifest.engine))
    return shown


def refused(knob: Knob, made: Made) -> bool:
    """Whether the engine says that it did not apply what this knob was set to."""
    return bool({*knob.args, *knob.env, *knob.fields} & set(made.settings.get("not_applied") or {}))


def _refusal(name: str, said: Any, engine: str) -> str:
    asked, ran = (said.get("asked"), said.get("applied")) if isinstance(said, dict) else (said, None)
    ending = f", {engine} ran with {ran}" if ran is not None else f" and {engine} has no use for it"
    return f"{name}={asked} was asked for{ending}"


def _changed(what: str, new: object, old: object) -> Proof:
    if new == old:
        return Proof(False, f"{what} stayed {_word(new)}")
    return Proof(True, f"{what} {_word(old)} -> {_word(new)}")


def _word(value: object) -> str:
    return "unset" if value in (None, "") else str(value)


def _setting(knob: Knob, turned: Made, before: Made) -> Proof:
    new, old = turned.settings.get(knob.setting), before.settings.get(knob.setting)
    if new is None and old is None:
        return Proof(None, f"no capture says its {knob.setting}")
    return _changed(knob.setting.replace("_", " "), new, old)


def _dtype(knob: Knob, turned: Made, before: Made) -> Proof:
    return _changed("dtype", turned.manifest.dtype, before.manifest.dtype)


def _weights(knob: Knob, turned: Made, before: Made) -> Proof:
    new, old = turned.manifest.weights_sha256, before.manifest.weights_sha256
    if not new or not old:
        return _changed("model", turned.manifest.model, before.manifest.model)
    return _changed("weights", f"sha256 {new[:8]}", f"sha256 {old[:8]}")


def _mechanism(knob: Knob, turned: Made, before: Made) -> Proof:
    return _changed("mechanism", turned.settings.get("mechanism"), before.settings.get("mechanism"))


def _passes(knob: Knob, turned: Made, before: Made) -> Proof:
    if not turned.passes or not before.passes:
        return Proof(None, "the captures do not say which pass made which row")
    new, old = (turned.passes, turned.decoding), (before.passes, before.decoding)
    word = f"passes per prompt: at most {turned.passes}, {before.passes} before"
    if turned.decoding != before.decoding:
        word = f"passes that decode: {turned.decoding}, {before.decoding} before"
    return Proof(new != old, word if new != old else f"still at most {turned.passes} per prompt")


def _together(knob: Knob, turned: Made, before: Made) -> Proof:
    if not turned.together or not before.together:
        return Proof(None, "the captures do not say which pass made which row")
    return _changed("prompts in one pass: at most", turned.together, before.together)


def _cached(knob: Knob, turned: Made, before: Made) -> Proof:
    if turned.cached == before.cached:
        word = "no prompt token came from the cache" if not turned.cached else "as many tokens from the cache"
        return Proof(False, f"{word}: these prompts share no prefix that it holds")
    return _changed("tokens from the cache", turned.cached, before.cached)


def _env(knob: Knob, turned: Made, before: Made) -> Proof:
    new = {k: turned.settings.get("env", {}).get(k) for k in knob.env}
    old = {k: before.settings.get("env", {}).get(k) for k in knob.env}
    if new == old:
        return Proof(False, "the engine's process did not have the variable")
    return Proof(None, "the variable was set; nothing says what the engine made of it")


def _argument(knob: Knob, turned: Made, before: Made) -> Proof:
    keys = [*knob.args, *knob.env]
    said = [k for k in keys if k in turned.settings or k in before.settings]
    if said:
        return _changed(said[0], turned.settings.get(said[0]), before.settings.get(said[0]))
    return Proof(None, f"the engine took it; no setting says what it made of {', '.join(keys)}")


PROOFS: dict[str, Callable[[Knob, Made, Made], Proof]] = {
    "setting": _setting,
    "dtype": _dtype,
    "weights": _weights,
    "mechanism": _mechanism,
    "passes": _passes,
    "together": _together,
    "cached": _cached,
    "env": _env,
    "argument": _argument,
}
