"""Causes that touch every token: quantised weights and activations, one layer's weights, norms, the dtype."""

from __future__ import annotations

from hsparity.capture.shards import HALF_ULP
from hsparity.diagnose.common import (
    captured,
    from_first_layer,
    needs_first_off,
    one_layer,
    setting,
    start_words,
    states,
    times,
)
from hsparity.diagnose.facts import FLAT, Facts
from hsparity.diagnose.weighing import Hypothesis
from hsparity.yardstick import PLAUSIBLE

EVERY = 0.98
SCALED = 0.5  # cosine of error and update: the branch is another size of the same
CUT = 0.95  # gain of a layer: rounding toward zero takes a per cent or two
COARSE_BITS = 5  # weights of fewer bits stand at ten times the floor and more


def quantised_weights(f: Facts) -> Hypothesis:
    h = Hypothesis("HS501", "quantised-weights", f"{captured(f)}'s weights are quantised")
    scheme = f.mine.scheme
    if _unquantised(f, h):
        return h
    needs_first_off(f, h)
    if scheme is not None and scheme != f.other.scheme:
        setting(f, h, "quantisation", 2.5, f"{captured(f)} runs {scheme}")
        if scheme.activations is False:
            h.plus(1.0, "its scheme quantises weights only")
        _size(f, h)
    elif scheme is not None:
        h.minus(1.0, f"both sides run {scheme}")
    elif "weights" in f.differing:
        h.plus(2.0, "the weight files differ, and neither side says that it is quantised")
    _everywhere(f, h)
    h.rival = "quantised activations, where the scheme has them; other weights than those meant"
    return h


def quantised_activations(f: Facts) -> Hypothesis:
    h = Hypothesis(
        "HS502", "quantised-activations", f"{captured(f)} quantises the inputs of its linear layers"
    )
    scheme = f.mine.scheme
    if _unquantised(f, h):
        return h
    if scheme is None:
        h.out(f"{captured(f)} says of no scheme that it runs", quiet=True)
        return h
    if scheme.activations is False:
        h.out(f"{captured(f)}'s scheme, {scheme}, leaves activations alone")
    needs_first_off(f, h)
    if scheme != f.other.scheme:
        setting(f, h, "quantisation", 2.5, f"{captured(f)} runs {scheme}")
        _size(f, h)
    else:
        h.minus(1.0, f"both sides run {scheme}")
    _everywhere(f, h)
    h.rival = "the quantised weights of the same scheme: only their dequantised twin tells the two apart"
    return h


def layer_weights(f: Facts) -> Hypothesis:
    where = "one layer" if f.layer is None else f"layer {f.layer}"
    h = Hypothesis("HS516", "layer-weights", f"the weights of {where} are not the other side's")
    needs_first_off(f, h, 0.5)
    if f.equal_until is not None and f.hit_n.mean() < EVERY:
        h.minus(3.0, f"{f.hit_n.mean():.0%} of tokens differ behind it: wrong weights move every token")
    elif f.equal_until is None and f.few:
        h.minus(2.0, f"{times(f.ratio)} the floor at the median: wrong weights move every token")
    if f.start == "later":
        h.plus(2.5, f"{start_words(f)}: no layer before {f.layer} shows it")
        h.points += 1.0 * (f.equal_until is not None)
    elif f.start == "experts":
        h.minus(0.5, f"{start_words(f)}: it is the first layer with experts")
    if one_layer(f):
        h.plus(1.5, f"layer {f.layer} adds {times(f.spike or 0)} what later layers add")
    elif f.spike is not None:
        h.minus(1.5, f"layer {f.layer} adds no more than later layers ({times(f.spike)})")
    if f.entry is not None and abs(f.entry.coherence) >= SCALED:
        h.minus(2.0, f"its update is scaled, not scattered (coherence {f.entry.coherence:+.2f})")
    if f.mine.scheme is not None:
        h.minus(0.5, f"{captured(f)} runs {f.mine.scheme}, in every layer")
    h.rival = "a kernel or setting of that layer alone (attention or MLP kind): replay tells its parts apart"
    return h


def norm_rounding(f: Facts) -> Hypothesis:
    h = Hypothesis("HS512", "norm-rounding", "a norm computes otherwise: its epsilon, or how it rounds")
    needs_first_off(f, h, 0.5)
    states(f, h, "norm eps")
    entry = f.entry
    if f.few:
        h.minus(1.0, f"{times(f.ratio)} the floor at the median: a norm moves every token")
    if entry is not None and entry.by_norm is not None:
        if entry.by_norm.high < -FLAT:
            h.plus(2.0, f"tokens of small norm are off most (rank correlation {entry.by_norm.value:.2f})")
        elif entry.by_norm.low > -FLAT:
            h.minus(0.5, f"a token's norm makes no difference (rank correlation {entry.by_norm.value:.2f})")
    if entry is not None and abs(entry.coherence) >= SCALED:
        points = 3.0 if f.start == "first" else 1.0
        h.plus(
            points,
            f"the update is scaled, not scattered (coherence {entry.coherence:+.2f}, gain {entry.gain:.3f})",
        )
    if f.start in ("later", "experts"):
        h.minus(1.5, f"{start_words(f)}: norms are in every layer")
    if f.mine.scheme is not None:
        h.minus(1.0, f"{captured(f)} runs {f.mine.scheme}")
    if f.mine.narrow_kv and not f.other.narrow_kv:
        h.minus(
            1.5, f"{captured(f)}'s cache is {f.mine.kv}, which scales attention's output where values are cut"
        )
    h.rival = "a scale on a branch, or other weights in the first layer"
    return h


def dtype_rounding(f: Facts) -> Hypothesis:
    h = Hypothesis("HS513", "dtype-rounding", f"the sides compute in {f.mine.dtype} and {f.other.dtype}")
    entry = f.entry
    if f.mine.dtype == f.other.dtype:
        if entry is None or entry.coherence > -SCALED or not CUT < entry.gain < 1.0:
            h.out(f"both sides computed in {f.mine.dtype}")
            return h
        h.headline = f"{captured(f)}'s kernels round toward zero"
        text = f"the update comes out smaller than it is (gain {entry.gain:.3f}, coherence {entry.coherence:+.2f})"
        h.plus(2.5, f"{text}: values are cut, not rounded")
        if f.mine.scheme is not None and f.mine.scheme != f.other.scheme:
            h.plus(2.0, f"{captured(f)} runs kernels of its own for {f.mine.scheme}")
        if one_layer(f):
            h.minus(1.0, f"layer {f.layer} adds {times(f.spike or 0)} what later layers add")
        needs_first_off(f, h, 0.5)
        h.rival = "a norm's epsilon, which fades as the stream grows"
        return h
    setting(f, h, "dtype", 2.0, f"{captured(f)} ran in {f.mine.dtype}, the other side in {f.other.dtype}")
    coarse = max(HALF_ULP.get(r.dtype, 0.0) for r in (f.mine, f.other))
    pairs = [
        (p.boundary, d.metrics["rel_l2"].p50)
        for p, d in zip(f.evidence.pairs, f.evidence.deltas, strict=True)
        if p.boundary and d.metrics
    ]
    beyond = [r for r, error in pairs if error > PLAUSIBLE * coarse * (r + 1) ** 0.5]
    if pairs and not beyond:
        h.plus(1.5, "no boundary differs by more than that rounding explains")
    elif beyond:
        h.minus(2.0, f"boundary {beyond[0]} differs by more than that rounding explains")
    h.rival = "any other setting that differs between the two runs"
    return h


def _unquantised(f: Facts, h: Hypothesis) -> bool:
    """Rules quantisation out where both sides ran the same files and no scheme."""
    if f.mine.scheme is None and f.other.scheme is None and f.same_weights:
        h.out("both sides ran the same unquantised weights")
    elif f.mine.scheme is None and f.other.scheme is not None and f.side != "pair":
        h.out(f"it is {captured(f)} that is beyond the floor, and the other side that is quantised")
    return bool(h.veto)


def _everywhere(f: Facts, h: Hypothesis) -> None:
    """Quantisation is in every layer, at every token and position."""
    if f.few:
        h.minus(2.0, f"{times(f.ratio)} the floor at the median: quantisation moves every token")
    from_first_layer(f, h, 1.0, 0.5 if f.start == "experts" else 2.0)
    if f.spike is not None and not one_layer(f):
        h.plus(0.5, f"every layer adds the same (the first {times(f.spike)} later ones)")
    elif f.spike is not None:
        h.minus(1.5, f"layer {f.layer} adds {times(f.spike)} what later layers add")
    if f.entry is not None and abs(f.entry.coherence) >= SCALED:
        h.minus(2.0, f"the update is scaled, not scattered (coherence {f.entry.coherence:+.2f})")
    if f.falls or f.grows:
        value = f.growth.value if f.growth else 0.0
        h.minus(1.0, f"the error depends on position (rank correlation {value:.2f})")


def _size(f: Facts, h: Hypothesis) -> None:
    scheme = f.mine.scheme
    if scheme is None or not scheme.bits or f.profile is None or f.few:
        return
    if scheme.bits < COARSE_BITS:
        if f.ratio >= 6.0:
            h.plus(1.0, f"{times(f.ratio)} the floor is what {scheme.bits}-bit weights cost")
        else:
            h.minus(2.5, f"{times(f.ratio)} the floor is little for {scheme.bits}-bit weights")
    elif 1.2 <= f.ratio <= 15.0:
        h.plus(0.5, f"{times(f.ratio)} the floor is what {scheme.bits} bits cost")
    else:
        h.minus(1.0, f"{times(f.ratio)} the floor is much for {scheme.bits} bits")


ALL = (quantised_weights, quantised_activations, layer_weights, norm_rounding, dtype_rounding)
