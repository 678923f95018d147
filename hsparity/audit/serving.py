"""The captures an audit measures against: the serving engine's, and the floor's, on the sampled tokens themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hsparity.capture import checkpoint, launch, specs
from hsparity.capture.relay import Relay
from hsparity.capture.specs import Wanted
from hsparity.engines import Interpreter
from hsparity.engines import resolve as find_interpreter
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest, PromptSpec

DTYPES = ("float32", "bfloat16")  # of the floor


@dataclass(frozen=True, slots=True)
class Serving:
    """How the engine is to be run. `ids` as a draft config gives them; None: its default."""

    engine: str
    model: str
    typed: str = ""  # the model as the user names it
    ids: tuple[int, ...] | None = None
    dtype: str = "bfloat16"
    revision: str = ""
    trust_remote_code: bool = False
    engine_args: dict[str, Any] = field(default_factory=dict)
    verbose: bool = False

    @property
    def wanted(self) -> Wanted:
        own = self.engine.replace("==", "@").partition("@")[0]
        native = own != "hf"
        return Wanted(
            engine=self.engine,
            model=self.model,
            mechanism="both" if native else "hooks",
            native_ids=self.ids or () if native else (),
            dtype=self.dtype,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            engine_args=self.engine_args,
        )


def check_model(serving: Serving, width: int, top: int, dataset: str) -> None:
    """Refuse what cannot be the dataset's model, before an engine starts. Raises E208, E105."""
    shape = checkpoint.read_shape(serving.model, serving.revision)
    if shape is None:
        return
    if shape.hidden_size != width:
        notes = (
            f"dataset  {dataset}  hidden size {width}",
            f"model    {serving.model}  hidden size {shape.hidden_size}",
        )
        raise HsparityError(
            "E208",
            "the dataset is of another model",
            notes,
            "name the model whose states these are: --model M",
        )
    if shape.vocab_size and top >= shape.vocab_size:
        notes = (f"largest id  {top}", f"vocabulary  {shape.vocab_size}")
        raise HsparityError(
            "E105",
            "the dataset's token ids lie outside the model's vocabulary",
            notes,
            "name the model they are ids of",
        )


def run(serving: Serving, prompts: Sequence[PromptSpec], work: Path) -> Path:
    """The serving engine's capture of these prompts, made now or found in `work`. Raises E3xx."""
    return _made(serving.wanted, prompts, work, serving.verbose)


def floor(serving: Serving, prompts: Sequence[PromptSpec], work: Path) -> list[Path]:
    """Transformers in fp32 and in bf16 on the same prompts; none where it is not installed."""
    try:
        find_interpreter("hf")
    except HsparityError:
        Relay("floor", 0).say("none: Transformers is not installed (pip install 'hsparity[hf]')")
        return []
    return [
        _made(
            Wanted(
                engine="hf",
                model=serving.model,
                dtype=dtype,
                revision=serving.revision,
                trust_remote_code=serving.trust_remote_code,
            ),
            prompts,
            work,
            serving.verbose,
        )
        for dtype in DTYPES
    ]


def _made(wanted: Wanted, prompts: Sequence[PromptSpec], work: Path, verbose: bool) -> Path:
    spec = specs.build(wanted, prompts)
    interpreter: Interpreter = find_interpreter(wanted.engine)
    key = json.dumps([spec.sha256(), interpreter.version, interpreter.device])
    name = f"{wanted.name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    return launch.run_capture(spec, work / name, interpreter, verbose)


def prompts_of(manifest: CaptureManifest, ids: dict[str, tuple[int, ...]]) -> tuple[PromptSpec, ...]:
    """The imported samples as prompts: every token is fed as part of the prompt."""
    return tuple(PromptSpec(p.id, ids[p.id]) for p in manifest.prompts)
