"""The demo on the real engines: install what is missing, build the models, capture."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import models
from ..engines import resolve
from ..errors import HsparityError
from .plan import SCENES, Scene, Take
from .show import CAPTURES, make_way

ENGINES = ("vllm", "sglang")


@dataclass(frozen=True)
class Step:
    title: str
    seconds: float  # on a 2-core CPU
    run: Callable[[], object]


def capture_all(folder: Path, *, recorded: bool = False, verbose: bool = False) -> None:
    """Make every capture of the demo in `folder`/captures; stderr says what is done and how long is left.

    `recorded` makes the short ones that ship. Raises HsparityError E1xx to E3xx.
    """
    steps = [*_install_steps(), *_capture_steps(folder, recorded, verbose)]
    begun, planned = time.monotonic(), 0.0
    for number, step in enumerate(steps, 1):
        elapsed = time.monotonic() - begun
        left = sum(s.seconds for s in steps[number - 1 :])
        # A slow machine stays slow: scale what is left by how the steps so far went.
        left *= min(max(elapsed / planned, 0.5), 10.0) if planned else 1.0
        _say(f"[{number}/{len(steps)}] {step.title}  (about {_clock(left)} left)")
        step.run()
        planned += step.seconds
    _say(f"captured in {_clock(time.monotonic() - begun)}")


def _install_steps() -> list[Step]:
    from ..engines import install, locks, machine

    steps = []
    for engine in ENGINES:
        try:
            resolve(engine)
        except HsparityError as error:
            if error.code != "E301":
                raise
            lock = locks.choose(engine, machine.device())
            size = f"{lock.gigabytes:g} GB"
            steps.append(
                Step(
                    f"installing {lock.name} {lock.version}, {size}",
                    lock.seconds,
                    _bind(install.install, lock),
                )
            )
    return steps


def _capture_steps(folder: Path, recorded: bool, verbose: bool) -> list[Step]:
    steps = []
    for scene in SCENES:
        steps.append(Step(f"building {scene.model}", 1, _bind(models.path, scene.model)))
        for take in scene.takes:
            what = f"capturing {scene.model} with {take.engine}, {take.dtype}"
            what += f", draft layer ids {','.join(map(str, take.native_ids))}" if take.native_ids else ""
            steps.append(Step(what, take.seconds, _bind(_capture, folder, scene, take, recorded, verbose)))
    return steps


def _capture(folder: Path, scene: Scene, take: Take, recorded: bool, verbose: bool) -> None:
    from ..capture.launch import run_capture

    make_way(folder, take.name)
    spec = scene.spec(take, str(models.path(scene.model)), recorded=recorded)
    run_capture(spec, folder / CAPTURES / take.name, resolve(take.engine), verbose)


def _bind(function: Callable[..., object], *args: object) -> Callable[[], object]:
    return lambda: function(*args)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _clock(seconds: float) -> str:
    whole = int(seconds + 0.5)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
