"""What a knob is: the part of a capture's spec that it owns, and the places it can be put."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hsprobe.schema import CaptureSpec

SPEC_FIELDS = (
    "dtype",
    "batch",
    "mechanism",
    "native_ids",
    "sites",
    "model",
    "revision",
    "prompts",
    "generate",
)


@dataclass(frozen=True, slots=True)
class Slice:
    """The values of what a knob owns; what is absent is left to the engine."""

    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Value:
    """One place of a knob. `name` is what `Knob.level` reads off a capture that stands there."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # beside the knob's own
    # Coarser than the others: worth copying from the other side, never worth turning to.
    coarse: bool = False
    make: str = ""  # "twin", "clone", "pad", "whole": a spec that has to be worked out, see variants.py


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing about an engine that can be set and that may move a hidden state."""

    engine: str
    name: str  # shared by the engines that have such a knob: "kv-dtype"
    cause: str  # the name of the cause when it is to blame
    title: str  # "the KV cache's dtype"
    how: str  # "engine_args" | "env" | "dtype" | "batch" | "mechanism" | "model" | "prompts"
    proof: str  # how a manifest shows that it was applied: a name in proofs.PROOFS
    setting: str = ""  # the key of manifest.settings that says where it stands
    args: tuple[str, ...] = ()  # engine arguments that it owns
    env: tuple[str, ...] = ()  # environment variables that it owns
    fields: tuple[str, ...] = ()  # fields of the spec that it owns
    values: tuple[Value, ...] = ()
    needs: tuple[str, ...] = ()  # names in available.NEEDS
    versions: tuple[str, str] = ("", "")  # lowest and highest release that has it; "" is open
    cost: float = 1.0  # how long a capture takes, over one of the default settings
    likely: float = 0.5  # how often it is what people find, of 1: what is likely is tried first
    precision: bool = False  # changes how numbers are rounded: the clone rule holds (see rules.py)

    def slice(self, spec: CaptureSpec) -> Slice:
        """What `spec` says of this knob."""
        return Slice(
            {k: spec.engine_args[k] for k in self.args if k in spec.engine_args},
            {k: spec.env[k] for k in self.env if k in spec.env},
            {k: getattr(spec, k) for k in self.fields},
        )

    def put(self, spec: CaptureSpec, part: Slice | Value) -> CaptureSpec:
        """`spec` with this knob at `part`."""
        args = {k: v for k, v in spec.engine_args.items() if k not in self.args} | dict(part.args)
        env = {k: v for k, v in spec.env.items() if k not in self.env} | dict(part.env)
        return replace(spec, engine_args=args, env=env, **dict(part.fields))

    def at(self, name: str) -> Value | None:
        """The place called `name`."""
        return next((v for v in self.values if v.name == name), None)

    def spelled(self, part: Slice) -> str:
        """What a spec says of it, in words: `default` when it says nothing."""
        said = [f"{k}={v}" for k, v in (*part.args.items(), *part.env.items())]
        shown = ("dtype", "batch", "mechanism", "generate")
        said += [f"{v}" for k, v in part.fields.items() if k in shown]
        said += [str(part.fields["model"]).rstrip("/").rpartition("/")[2]] if "model" in part.fields else []
        return ", ".join(said) or "default"


def same(one: Slice, other: Slice) -> bool:
    """Whether two specs say the same of a knob."""
    return (dict(one.args), dict(one.env), dict(one.fields)) == (
        dict(other.args),
        dict(other.env),
        dict(other.fields),
    )
