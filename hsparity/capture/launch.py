"""Run the probe under an engine's interpreter: stage it, start it, relay it, and say what a failure means."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from hsprobe import stage
from hsprobe.protocol import MEASURED_FILE, OUT_ENV, SHIMS_ENV, SPEC_ENV
from hsprobe.schema import CaptureManifest, CaptureSpec

from ..engines import Interpreter, facts, machine
from ..engines.child import clean_environment, tied
from ..errors import HsparityError
from . import checkpoint, estimate
from .relay import Relay, log_tail

LOG = "engine.log"
GRACE = 10.0  # seconds an engine gets to end its own processes before they are killed
# Engines load plugins from an allow-list when one is set.
ALLOW_LISTS = ("VLLM_PLUGINS", "SGLANG_PLUGINS")
# Of these the probe itself is sure, whether or not its plugin was ever loaded.
CERTAIN = ("E106", "E107", "E204", "E205", "E206", "E305", "E306", "E307", "E309")


def run_capture(spec: CaptureSpec, out: Path, interpreter: Interpreter, verbose: bool = False) -> Path:
    """Make the capture that `spec` describes in `out`, or finish one begun there, and return `out`.

    Raises E106 (not writable), E204 (begun with another spec), E205 (does not fit), E302 (the probe never
    started), E303 (the engine died), and what the probe itself reports.
    """
    relay = Relay(str(out), len(spec.prompts))
    if is_complete(out, spec):
        relay.say("already complete")
        return out
    _refuse_changed(out, spec)
    done = _open_folder(out)
    size = estimate.check_disk(spec, out, done)
    if warning := facts.untried(interpreter.engine, interpreter.version):
        relay.say(f"warning: {warning}")
    title = f"{facts.facts(interpreter.engine).title} {interpreter.version}"
    about = f", about {machine.gigabytes(size[0])} of {machine.gigabytes(size[1])} free" if size else ""
    relay.say(f"{title} ({interpreter.origin}, {interpreter.device}), {len(spec.prompts)} prompts{about}")
    if done:
        relay.say(f"resuming: {done} of {len(spec.prompts)} prompts are done and kept")
    proof = "" if spec.mechanism == "none" else "manifest.json"
    _start("capture", spec, out, interpreter, relay, proof=proof, verbose=verbose)
    relay.say("complete")
    return out


def run_measure(
    spec: CaptureSpec, out: Path, interpreter: Interpreter, label: str, verbose: bool = False
) -> Path:
    """Serve `spec.draft` in `spec.engine`, working in the folder `out`, and return the file of what it accepted.

    `label` is what progress lines begin with. Raises as `run_capture` does.
    """
    relay = Relay(label, len(spec.prompts))
    _open_folder(out)
    if warning := facts.untried(interpreter.engine, interpreter.version):
        relay.say(f"warning: {warning}")
    title = f"{facts.facts(interpreter.engine).title} {interpreter.version}"
    relay.say(f"{title} ({interpreter.origin}, {interpreter.device}), {len(spec.prompts)} prompts")
    _start("measure", spec, out, interpreter, relay, proof=MEASURED_FILE, verbose=verbose)
    return out / MEASURED_FILE


def _start(
    command: str,
    spec: CaptureSpec,
    out: Path,
    interpreter: Interpreter,
    relay: Relay,
    *,
    proof: str,
    verbose: bool,
) -> None:
    """Run one of the probe's commands to its end. `proof` is the file that a success leaves in `out`."""
    with tempfile.TemporaryDirectory(prefix="hsparity-") as scratch:
        staged = stage.stage(Path(scratch) / "probe")
        spec_file = Path(scratch) / "spec.json"
        spec_file.write_text(spec.to_json())
        environment = child_environment(spec, out, interpreter, staged, spec_file)
        words = [str(interpreter.python), "-m", "hsprobe", command]
        words += ["--spec", str(spec_file), "--out", str(out)]
        begin, code = _run(words, environment, out, relay, verbose)
    _judge(spec, out, code, begin, proof)


def is_complete(out: Path, spec: CaptureSpec) -> bool:
    """True when `out` holds the finished capture of exactly this spec."""
    try:
        manifest = CaptureManifest.from_json((out / "manifest.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return manifest.status == "complete" and manifest.spec_sha256 == spec.sha256()


def _refuse_changed(out: Path, spec: CaptureSpec) -> None:
    """Refuse what the probe would refuse, before an engine is started for it."""
    try:
        before = CaptureSpec.from_json((out / "spec.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return
    if before.sha256() == spec.sha256():
        return
    old, new = asdict(before), asdict(spec)
    changed = [key for key in new if old[key] != new[key]]
    notes = [
        f"{key}: {_short(old[key])} there, {_short(new[key])} now" for key in changed if key != "prompts"
    ]
    if "prompts" in changed:
        notes.append(f"prompts: {len(before.prompts)} there, {len(spec.prompts)} now, of other tokens or ids")
    raise HsparityError(
        "E204", f"{out} was begun with another spec", notes, "capture into another folder, or remove this one"
    )


def _short(value: object) -> str:
    text = f"{len(value)} of them" if isinstance(value, (list, tuple)) and len(value) > 6 else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def child_environment(
    spec: CaptureSpec, out: Path, interpreter: Interpreter, staged: Path, spec_file: Path
) -> dict[str, str]:
    """The environment of the engine's process and of every process it starts."""
    env = clean_environment(interpreter.env) | spec.env
    # The probe's folder first; what the user's shell gives an engine stays behind it.
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(staged), env.get("PYTHONPATH"))))
    # Engines call tools that lie beside their interpreter, such as ninja.
    env["PATH"] = os.pathsep.join(filter(None, (str(interpreter.python.parent), env.get("PATH"))))
    env[SPEC_ENV], env[OUT_ENV] = str(spec_file), str(out.absolute())
    shims = dict.fromkeys([*interpreter.shims, *filter(None, env.get(SHIMS_ENV, "").split(","))])
    env[SHIMS_ENV] = ",".join(shims)
    for name in ALLOW_LISTS:
        if name in env and stage.PACKAGE.name not in env[name].split(","):
            env[name] = ",".join(filter(None, (env[name], stage.PACKAGE.name)))
    if checkpoint.is_local(spec.model):
        env["HF_HUB_OFFLINE"] = "1"
    return env


def _open_folder(out: Path) -> int:
    """Make `out` and leave it without the marks of an earlier run; how many prompts its journal holds."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (out / LOG).open("ab"):
            pass
        for name in ("probe.started", "probe.error"):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (28, 122):  # no space, quota
            raise _full(out) from error
        raise HsparityError(
            "E106",
            f"cannot write {out}",
            (f"{type(error).__name__}: {error.strerror}",),
            "name a folder you may write to with -o",
        ) from error
    journal = out / "journal.jsonl"
    return journal.read_bytes().count(b"\n") if journal.is_file() else 0


def _full(out: Path) -> HsparityError:
    return HsparityError(
        "E205",
        f"the disk of {out} is full",
        help="free some and type the same command: finished prompts are kept",
    )


def _run(
    command: list[str], environment: dict[str, str], out: Path, relay: Relay, verbose: bool
) -> tuple[int, int]:
    """Run to the end: where this run's log begins, and the exit code. The engine leaves no process behind."""
    with (out / LOG).open("ab", buffering=0) as log:
        begin = log.tell()
        child = subprocess.Popen(
            tied(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if verbose else log,
            start_new_session=True,
        )
        readers = [threading.Thread(target=_follow, args=(child.stdout, log, relay), daemon=True)]
        if verbose:
            readers.append(threading.Thread(target=_copy, args=(child.stderr, log), daemon=True))
        for reader in readers:
            reader.start()
        with _terminable():
            try:
                code = child.wait()
            finally:
                end_group(child)
        # Ends with the group: nobody else holds the pipe.
        for reader in readers:
            reader.join(timeout=GRACE)
    return begin, code


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends this process as Ctrl-C does, so that the engine's processes are ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(stream: IO[bytes], log: IO[bytes], relay: Relay) -> None:
    with stream:
        for raw in stream:
            if not relay.event(raw.decode(errors="replace")):
                log.write(raw)


def _copy(stream: IO[bytes], log: IO[bytes]) -> None:
    with stream:
        for raw in stream:
            log.write(raw)
            sys.stderr.write(raw.decode(errors="replace"))


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End the child's process group: asked first, killed after GRACE seconds. Safe when it has ended."""
    try:
        os.killpg(child.pid, signal.SIGTERM)
        if child.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()


def _judge(spec: CaptureSpec, out: Path, code: int, begin: int, proof: str) -> None:
    """Return when the run succeeded; else raise what it means."""
    log = out / LOG
    error = _probe_error(out)
    if error is None and code and machine.free_bytes(out) < 2**20:
        raise _full(out)  # too full even to say so
    if code == 0 and error is None and (not proof or (out / proof).is_file()):
        return
    notes = log_tail(log, begin)
    where = f"the engine's whole log: {log}"
    if error is not None and error[0] in CERTAIN:
        raise HsparityError(error[0], error[1], help=error[2] or where)
    title = facts.facts(spec.engine).title
    if _injected(spec.engine) and not (out / "probe.started").exists():
        raise HsparityError("E302", f"the probe never started inside {title}", notes, where)
    if error is not None:
        raise HsparityError(error[0], error[1], notes, "\n".join(filter(None, (error[2], where))))
    raise HsparityError("E303", f"{title} died: {describe_exit(code)}", notes, where)


def describe_exit(code: int) -> str:
    """`exit code 1`, or the signal's name and what it usually means."""
    number = -code if code < 0 else code - 128
    if code > 128 or code < 0:
        try:
            name = signal.Signals(number).name
        except ValueError:
            return f"exit code {code}"
        hint = ", which often means that memory ran out" if number == signal.SIGKILL else ""
        return f"{name}{hint}"
    return f"exit code {code}"


def _injected(engine: str) -> bool:
    return bool(stage.plugin_group(stage.PACKAGE / "engines" / f"{engine}_engine.py"))


def _probe_error(out: Path) -> tuple[str, str, str] | None:
    try:
        said = json.loads((out / "probe.error").read_text())
        return str(said["code"]), str(said["message"]), str(said.get("help", ""))
    except (OSError, ValueError, KeyError, TypeError):
        return None
