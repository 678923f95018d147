"""What a site may hold, and how each reading leads from it to the lm_head's input."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hsparity.selfcheck.checkpoint import Head

RAW, NORMED, NORMED_TWICE, ENGINE_TWICE, OTHER_FORM = (
    "raw",
    "normed",
    "normed-twice",
    "norm-applied-twice",
    "other-norm-form",
)
FLAT = 1.001  # largest over smallest channel of a norm's weight that counts as one number
RMS_TOLERANCE = 0.02  # eps and the rounding of stored states move it by less


def _raw(head: Head, states_nh: torch.Tensor) -> torch.Tensor:
    return head.norm(states_nh)


def _normed(head: Head, states_nh: torch.Tensor) -> torch.Tensor:
    return states_nh


def _normed_twice(head: Head, states_nh: torch.Tensor) -> torch.Tensor:
    """One norm undone. norm(x) = g r(x), r(x) of RMS 1; norm(norm(x)) is a multiple of g g r(x), so dividing by g
    twice and rescaling to RMS 1 gives r(x) back, whatever the multiple was. A channel with g = 0 stays 0."""
    squared_h = head.gain_h.square()
    unit_nh = torch.where(
        squared_h > 0, states_nh / squared_h.clamp_min(torch.finfo(torch.float32).tiny), 0.0
    )
    rms_n1 = unit_nh.square().mean(-1, keepdim=True).sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    return unit_nh / rms_n1 * head.gain_h


def _engine_twice(head: Head, states_nh: torch.Tensor) -> torch.Tensor:
    return head.norm(head.norm(states_nh))


def _other_form(head: Head, states_nh: torch.Tensor) -> torch.Tensor:
    return head.norm(states_nh, not head.plus_one)


# Name -> (the lm_head's input float32 [n, H] from states float32 [n, H], what it means for the site).
READINGS: dict[str, tuple[Callable[[Head, torch.Tensor], torch.Tensor], str]] = {
    RAW: (_raw, "the state before the final norm"),
    NORMED: (_normed, "the state after the final norm"),
    NORMED_TWICE: (_normed_twice, "the state after the final norm was applied twice"),
    ENGINE_TWICE: (
        _engine_twice,
        "the state before two final norms: the engine norms it twice before its lm_head",
    ),
    OTHER_FORM: (_other_form, "the state before a final norm that takes its weight as {form}"),
}


def possible(reading: str, head: Head, states_nh: torch.Tensor) -> bool:
    """False when the states alone refute a reading. What a norm gave has RMS 1 once its weight is divided out; and
    where the weight is one number, norming twice is norming once, no other explanation."""
    gain_h = head.gain_h.abs()
    if reading == ENGINE_TWICE:
        return float(gain_h.max()) > FLAT * float(gain_h.min())
    if reading not in (NORMED, NORMED_TWICE) or not bool((gain_h > 0).all()):
        return True
    rms_n = (states_nh.float() / gain_h).square().mean(-1).sqrt()
    return bool((rms_n.nanmedian() - 1.0).abs() <= RMS_TOLERANCE)


def meaning(reading: str, plus_one: bool) -> str:
    """What the site holds when the reading is right."""
    return READINGS[reading][1].format(form="w, not 1 + w" if plus_one else "1 + w, not w")


def short(reading: str, plus_one: bool) -> str:
    """The same in a table's cell: the way from the site to the logits."""
    return {
        RAW: "norm, head",
        NORMED: "head",
        NORMED_TWICE: "one norm undone, head",
        ENGINE_TWICE: "norm, norm, head",
        OTHER_FORM: f"norm with {'w' if plus_one else '1 + w'}, head",
    }[reading]
