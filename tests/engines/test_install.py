"""The managed environments that the engine tests run in: installed by our own code, whole, found again."""

from __future__ import annotations

import time

import pytest

from hsparity.engines import ask, environments, facts, install, locks, machine, resolve

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("selector", ["vllm", "sglang", "vllm==0.31.0", "speculators"])
def test_installed(selector: str) -> None:
    """An environment holds exactly the pins of its lock, and a second install costs nothing."""
    lock = locks.choose(selector, machine.device())
    install.install(lock)
    started = time.monotonic()
    made = install.install(lock)
    assert time.monotonic() - started < 2
    assert (made.state, made.facts["version"]) == ("complete", lock.version)
    found = resolve(selector)
    assert (found.python, found.origin, found.version) == (made.python, "managed", lock.version)
    held = {
        path.name.removesuffix(".dist-info").lower().replace("_", "-")
        for path in made.folder.glob("lib/python*/site-packages/*.dist-info")
    }
    wanted = {pin.lower().replace("_", "-").replace("==", "-") for pin in lock.pins}
    # pip itself is there as well.
    assert wanted <= held
    assert {name.rpartition("-")[0] for name in held - wanted} <= {"pip", "setuptools"}


def test_release_beside_the_newest() -> None:
    """vllm@0.31.0 and vllm are two environments; each resolves to its own."""
    newest, older = resolve("vllm"), resolve("vllm@0.31.0")
    assert newest.python != older.python
    assert (newest.engine, older.engine) == ("vllm", "vllm")
    assert facts.release(older.version) < facts.release(newest.version)


def test_stub_only_where_needed() -> None:
    """On a machine without a driver SGLang imports its kernels through the stub, and not without it."""
    if machine.has_driver():
        pytest.skip("this machine has a driver")
    found, known = resolve("sglang"), facts.facts("sglang")
    assert found.shims == ("libcuda-stub", "mla-absorb")
    assert ask.ask(found.python, known, importing=True, env=found.env, timeout=300).error == ()
    bare = {**found.env, "LD_LIBRARY_PATH": ""}
    assert any(
        "libcuda" in line
        for line in ask.ask(found.python, known, importing=True, env=bare, timeout=300).error
    )


def test_environments_are_kept() -> None:
    """Nothing in the cache of this machine is left interrupted by these tests."""
    states = {e.folder.name: e.state for e in environments.all_environments()}
    assert "interrupted" not in states.values(), states
