"""A draft served by a real engine: what is asked of it, and the record of what it accepted."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hsparity.capture import checkpoint, launch, specs
from hsparity.drafter.draft import SPECULATORS, TOP, Draft, weights_sha256
from hsparity.drafter.measurement import MeasuredPrompt, Measurement, Step
from hsparity.engines import Interpreter, facts, resolve
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureSpec, PromptSpec

SERVING = ("vllm", "sglang")


@dataclass(frozen=True, slots=True)
class Asked:
    """One measurement as a user words it. `ids`: None for the config's own, () for none, else in their place."""

    engine: str  # may name a release: "vllm@0.31.0"
    model: str
    generate: int = 64
    k: int = 3
    ids: tuple[int, ...] | None = None
    dtype: str = "bfloat16"
    revision: str = ""
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


def check(draft: Draft, asked: Asked) -> None:
    """Raise before any work: E290 for an engine that serves no draft, E291 for ids that the draft has no place for."""
    name, _ = facts.split_side(asked.engine)
    if name not in SERVING:
        raise HsparityError(
            "E290",
            f"{facts.facts(name).title} serves no EAGLE-3 draft",
            help="--engine vllm or --engine sglang",
        )
    if asked.ids and len(asked.ids) != draft.slots:
        raise HsparityError(
            "E291",
            f"--ids names {len(asked.ids)} layers, and this draft takes {draft.slots}",
            (f"fc.weight is {' x '.join(str(n) for n in draft.fc_shape)}",),
            f"give {draft.slots} ids, or --ids default for the engine's own",
        )


def measure(draft: Draft, asked: Asked, prompts: Sequence[PromptSpec], verbose: bool = False) -> Measurement:
    """Serve `draft` on `prompts`. The draft's folder is never changed: other ids go into a copy of its config.

    Raises E290, E291, E292 (no prompt got as far as a draft), and what launch.run_measure raises; then the engine's log
    is kept where the error says.
    """
    check(draft, asked)
    interpreter = resolve(asked.engine)
    work = Path(tempfile.mkdtemp(prefix="hsparity-measure-"))
    try:
        record = _measured(draft, asked, prompts, interpreter, work, verbose)
    except HsparityError:
        raise  # it names the engine's log, which lies there
    except BaseException:
        shutil.rmtree(work)
        raise
    shutil.rmtree(work)
    return record


def _measured(
    draft: Draft,
    asked: Asked,
    prompts: Sequence[PromptSpec],
    interpreter: Interpreter,
    work: Path,
    verbose: bool,
) -> Measurement:
    folder, ids = served(draft, asked.ids, work / "draft")
    spec = CaptureSpec(
        engine=interpreter.engine,
        model=asked.model,
        prompts=tuple(prompts),
        sites=(),
        mechanism="drafts",
        generate=asked.generate,
        dtype=specs.DTYPES.get(asked.dtype, asked.dtype),
        revision=asked.revision,
        engine_args=dict(asked.engine_args),
        env=dict(asked.env),
        draft=str(folder.absolute()),
        draft_steps=asked.k,
        stop_ids=stop_ids(asked.model, asked.revision),
    )
    said = json.loads(launch.run_measure(spec, work, interpreter, draft.spelled, verbose).read_text())
    if not any(prompt["steps"] for prompt in said["prompts"]):
        raise HsparityError(
            "E292",
            "no prompt got as far as a draft",
            ("every text ended with its first token, which no draft makes",),
            f"give other prompts, or more of them; the engine's whole log: {work / launch.LOG}",
        )
    return _record(draft, asked, ids, spec, said)


def served(draft: Draft, ids: tuple[int, ...] | None, copy: Path) -> tuple[Path, tuple[int, ...] | None]:
    """The folder that an engine is to read, and the ids in its config: the draft's own, or `copy` with other ids.

    The copy's weights are links. Ids are written where vLLM and SGLang both look: in eagle_config, and for speculators
    beside it, whose own conversion reads them there. None leaves the draft as it is, () takes its ids out.
    """
    if ids is None:
        return draft.folder, draft.ids
    config = with_ids(draft.config, ids, draft.layout == SPECULATORS)
    copy.mkdir(parents=True)
    for path in draft.folder.iterdir():
        if path.name != "config.json":
            (copy / path.name).symlink_to(path.resolve())
    (copy / "config.json").write_text(json.dumps(config, indent=1))
    return copy, ids or None


def with_ids(config: Mapping[str, Any], ids: tuple[int, ...], speculators: bool) -> dict[str, Any]:
    """A draft's config with these ids in place of all that it held; () for none."""
    made = {key: value for key, value in config.items() if key != TOP}
    nested = made.get("eagle_config")
    if isinstance(nested, dict):
        made["eagle_config"] = {key: value for key, value in nested.items() if key != TOP}
    if ids and speculators:
        made[TOP] = list(ids)
    elif ids:
        made["eagle_config"] = {**(made.get("eagle_config") or {}), TOP: list(ids)}
    return made


def stop_ids(model: str, revision: str = "") -> tuple[int, ...]:
    """The tokens that end a text, as a server takes them: generation_config.json's, else config.json's, else none."""
    config = checkpoint.config_file(model, revision)
    for path in (config.with_name("generation_config.json"), config) if config else ():
        try:
            said = json.loads(path.read_text()).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        found = said if isinstance(said, list) else [said]
        if numbers := tuple(n for n in found if isinstance(n, int) and not isinstance(n, bool)):
            return numbers
    return ()


def _record(
    draft: Draft, asked: Asked, ids: tuple[int, ...] | None, spec: CaptureSpec, said: Mapping[str, Any]
) -> Measurement:
    settings, told = said["settings"], said["draft"]
    return Measurement(
        engine=spec.engine,
        version=said["version"],
        model=asked.model,
        revision=asked.revision,
        draft=draft.spelled,
        draft_sha256=weights_sha256(draft),
        k=int(told["steps"]),
        generate=spec.generate,
        stop_ids=spec.stop_ids,
        dtype=spec.dtype,
        ids=ids,
        ids_asked="config" if asked.ids is None else "given" if asked.ids else "default",
        aux_layers=tuple(told["aux_layers"]),
        draft_class=told["class"],
        runner=str(settings.get("model_runner") or told["proposer"]).rpartition(".")[2],
        attention_backend=str(settings["attention_backend"]),
        stand_ins=tuple(told["stand_ins"]),
        prompts=tuple(_prompt(p) for p in said["prompts"]),
        settings=settings,
        engine_args=dict(asked.engine_args),
        env=dict(asked.env),
        environment=said["environment"],
        warnings=tuple(said["warnings"]),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=asked.command,
    )


def _prompt(raw: Mapping[str, Any]) -> MeasuredPrompt:
    steps = tuple(Step(first, tuple(drafted), taken, bonus) for first, drafted, taken, bonus in raw["steps"])
    return MeasuredPrompt(raw["id"], tuple(raw["prompt"]), tuple(raw["generated"]), steps, raw["counters"])
