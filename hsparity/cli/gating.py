"""From a result to the exit code of a command: by its verdict, or by the gate that --fail-on or hsparity.toml sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import EXIT_CODES, tell

if TYPE_CHECKING:
    from ..gate import Gate, GateResult
    from ..model import Comparison

FAIL_ON = (
    "What fails the command, as a comma list: diverged, inconclusive, a finding (HS101, HS1xx, layer-offset), or "
    "never. Limits stand in hsparity.toml (docs/ci.md)."
)


def wanted(fail_on: str | None) -> Gate | None:
    """The gate of --fail-on and hsparity.toml; None where neither sets one. Raises E103, E104, E107."""
    from ..config import load
    from ..gate import open_gate

    return open_gate(fail_on, load())


def judged(result: Comparison, gate: Gate | None) -> GateResult | None:
    """What the gate says of the result; None without one."""
    if gate is None:
        return None
    from ..gate import judge

    return judge(result, gate)


def conclude(result: Comparison, gate: GateResult | None) -> int:
    """The exit code; the gate's lines go to stderr, after everything else."""
    if gate is None:
        return int(EXIT_CODES[result.verdict.value])
    for line in gate.lines:
        tell(line)
    return int(gate.exit_code)
