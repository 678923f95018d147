"""What a manifest says, from what the engine and its model process told and what was committed."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import safetensors
import torch

from . import __version__, selfcheck, stack, stage, weights
from .protocol import SHIMS_ENV, EngineInfo, ProbeError
from .schema import SCHEMA, CaptureManifest, CaptureSpec, Check, NormInfo, canonical_sha256
from .writer import Committed, file_sha256


@dataclass(frozen=True)
class Setup:
    """One loaded engine as the capture sees it."""

    info: EngineInfo
    model_config: dict[str, Any]
    settings: dict[str, Any]
    environment: dict[str, str]
    reference: selfcheck.Reference
    expected: tuple[str, ...]  # the site keys every prompt must have

    @property
    def digest(self) -> str:
        """Differs where a resumed capture met another version, setting or machine."""
        return canonical_sha256([self.info.version, self.settings, self.environment])


def read_setup(spec: CaptureSpec, out: Path, info: EngineInfo) -> Setup:
    """What is known once `info` and the model process's files in `out` exist. Raises ProbeError E306."""
    facts = stack.load_facts(out)
    model_config = info.model_config or weights.model_config(spec.model)
    embedding = stack.load_embedding(out) or {}
    eps = info.norm_eps if info.norm_eps is not None else facts.get("norm_eps", 0.0)
    reference = selfcheck.Reference(
        num_layers=info.num_layers,
        norm_h=stack.load_norm(out),
        norm_eps=float(eps),
        norm_plus_one=bool(info.norm_plus_one or facts.get("norm_plus_one", False)),
        embedding_ids=embedding.get("token_ids"),
        embedding_nh=embedding.get("rows"),
        multipliers=weights.embedding_multipliers(model_config, info.hidden_size),
        native_labels=info.native_labels,
    )
    return Setup(
        info,
        model_config,
        _settings(spec, info),
        _environment(info),
        reference,
        _expected(spec, info, facts.get("moe_layers")),
    )


def build(spec: CaptureSpec, out: Path, setup: Setup, done: Sequence[Committed]) -> CaptureManifest:
    """The manifest of the committed prompts. Raises ProbeError E305 when their self-check fails."""
    figures = [committed.figures for committed in done]
    checks = selfcheck.judge(figures, setup.reference, setup.info.hidden_size) if done else ()
    refuse_failed(checks)
    digest, unhashed = weights.weights_sha256(spec.model)
    warnings = [*setup.info.warnings, *selfcheck.warnings(figures), *([unhashed] if unhashed else [])]
    if len({figure["setup"] for figure in figures}) > 1:
        warnings.append("prompts were captured under more than one set-up: the capture was resumed elsewhere")
    return CaptureManifest(
        schema=SCHEMA,
        engine=spec.engine,
        engine_version=setup.info.version,
        model=spec.model,
        revision=spec.revision,
        architecture=setup.info.architecture,
        weights_sha256=digest,
        num_layers=setup.info.num_layers,
        hidden_size=setup.info.hidden_size,
        dtype=setup.info.dtype,
        settings={**setup.settings, "padded_rows": sum(figure["padded"] for figure in figures)},
        environment=setup.environment,
        native_labels=dict(setup.info.native_labels),
        prompts=tuple(committed.prompt for committed in done),
        shards=tuple(shard for committed in done for shard in committed.shards),
        spec_sha256=spec.sha256(),
        status="complete",
        checks=checks,
        norm=_norm(out, setup.reference),
        model_config=setup.model_config,
        warnings=tuple(warnings),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def refuse_failed(checks: Sequence[Check]) -> None:
    """Raise ProbeError E305 naming each failed check with its numbers."""
    if failed := [check for check in checks if not check.passed]:
        text = "; ".join(
            f"{c.name}: {c.detail} (measured {c.value:.3g}, limit {c.limit:.3g})" for c in failed
        )
        raise ProbeError(
            "E305",
            f"self-check failed: {text}",
            "the probe misreads this engine or model; what it has is no capture",
        )


def _expected(spec: CaptureSpec, info: EngineInfo, moe: Sequence[int] | None) -> tuple[str, ...]:
    keys: list[str] = []
    if spec.mechanism in ("hooks", "both"):
        keys += [k for k in stack.expand(spec.sites, info.num_layers, moe) if k != "prompt_logprobs"]
    if spec.mechanism in ("native", "both"):
        keys += [k for k in info.native_labels if k.startswith("slot.")]
    return tuple(keys)


def _settings(spec: CaptureSpec, info: EngineInfo) -> dict[str, Any]:
    return {
        **info.settings,
        "mechanism": spec.mechanism,
        "native_ids": list(spec.native_ids),
        "batch": spec.batch,
        "generate": spec.generate,
        "engine_args": spec.engine_args,
        "shims": [name for name in os.environ.get(SHIMS_ENV, "").split(",") if name],
    }


def _environment(info: EngineInfo) -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "safetensors": safetensors.__version__,
        "hsprobe": __version__,
        "hsprobe_sha256": stage.digest(),
        **info.environment,
    }


def _norm(out: Path, reference: selfcheck.Reference) -> NormInfo | None:
    if reference.norm_h is None:
        return None
    digest = file_sha256(out / stack.NORM_FILE)
    return NormInfo(stack.NORM_FILE, reference.norm_eps, reference.norm_plus_one, digest)
