"""`assert_parity`: hsparity compare as an assertion of a test.

from hsparity.testing import assert_parity

def test_engines_agree():
    assert_parity("captures/vllm", "captures/sglang", layers="2,30,58", floor=["captures/hf-fp32", "captures/hf-bf16"])
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hsparity.folders import Folder
    from hsparity.gate import Gate
    from hsparity.model import Comparison

__all__ = ["assert_parity"]

PASSED = ("gate: passed",)


def assert_parity(
    ref: Comparison | Folder,
    cand: Folder | None = None,
    *,
    fail_on: str | Iterable[str] | None = None,
    max_ratio: float | Mapping[Any, float] | None = None,
    max_rel_l2: float | Mapping[Any, float] | None = None,
    max_lost: float | None = None,
    min_tokens: int | None = None,
    **options: Any,
) -> Comparison:
    """Compare two captures, or judge a Comparison, and fail unless the gate passes: at anything but parity, where no other is
    set.

    `options` are those of `hsparity.compare`. The others are the keys of [gate] in hsparity.toml, whose own values hold for
    what is left out. Returns the comparison. Raises AssertionError with the terminal report, its fix and the gate's reasons;
    HsparityError where the captures or the arguments are wrong.
    """
    __tracebackhide__ = True
    from hsparity.gate import judge

    given = {
        "max_ratio": max_ratio,
        "max_rel_l2": max_rel_l2,
        "max_lost": max_lost,
        "min_tokens": min_tokens,
    }
    gate = _gate(fail_on, {key: value for key, value in given.items() if value is not None})
    comparison = _comparison(ref, cand, options)
    judged = judge(comparison, gate)
    if not judged.passed:
        # pytest's summary shows the first line alone.
        raise AssertionError("\n".join((judged.reason, _page(comparison), *judged.lines)))
    if judged.lines != PASSED:
        # What a gate lets pass is never silent.
        sys.stderr.write("".join(f"{line}\n" for line in judged.lines))
    return comparison


def _comparison(ref: Comparison | Folder, cand: Folder | None, options: Mapping[str, Any]) -> Comparison:
    __tracebackhide__ = True
    from hsparity.errors import HsparityError
    from hsparity.folders import compare
    from hsparity.model import Comparison

    _known(options)
    if not isinstance(ref, Comparison):
        if cand is None:
            raise TypeError("assert_parity needs a Comparison, or two captures")
        try:
            return compare(ref, cand, **options)
        except HsparityError as error:
            # Where in hsparity it was noticed helps no caller.
            raise error.with_traceback(None) from None
    if cand is not None or options:
        names = ", ".join((["cand"] if cand is not None else []) + list(options))
        raise TypeError(f"a Comparison is judged as it was made: {names} cannot be changed")
    return ref


def _known(options: Mapping[str, Any]) -> None:
    """Raises TypeError for an argument that neither this nor `hsparity.compare` has, and names the nearest."""
    __tracebackhide__ = True
    from hsparity.folders import compare

    known = [
        name
        for function in (compare, assert_parity)
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY
    ]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            said = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise TypeError(f"assert_parity has no argument {name}: {said}")


def _gate(fail_on: str | Iterable[str] | None, limits: dict[str, Any]) -> Gate:
    __tracebackhide__ = True
    from dataclasses import replace

    from hsparity.config import load, read_gate
    from hsparity.gate import Gate, open_gate

    opened = open_gate(fail_on, load(), "fail_on") or Gate()
    read = read_gate(
        {key: dict(v) if isinstance(v, Mapping) else v for key, v in limits.items()}, "assert_parity"
    )
    return replace(opened, **{key: getattr(read, key) for key in limits})


def _page(comparison: Comparison) -> str:
    from hsparity.report import Options, reporters

    return reporters()["terminal"].render(comparison, Options()).rstrip()
