"""What a replay says for and against the causes: active evidence, as every layer was run again on its own input."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hsparity.diagnose.facts import Facts
from hsparity.diagnose.weighing import FIT, Hypothesis
from hsparity.model import Verdict
from hsparity.replay.result import Added

PROOF, DISPROOF = 5.0, 4.0
MOST = 0.7  # share of layers that are "all of them"
GAIN = 0.05
NEARLY_ALL, HARDLY_ANY = 0.9, 0.1  # share of a squared error that one part of it has to be, or may be
# What a router does beside its weights.
LOADED = (
    "e_score_correction_bias, the scoring function, limits on groups, the normalisation of the chosen scores"
)
ATTENTION = ("HS503", "HS504", "HS505", "HS507", "HS510", "HS511", "HS517")
WEIGHTS = ("HS501", "HS516")


def weigh_replay(f: Facts, found: Sequence[Hypothesis]) -> None:
    """Add what the replay of the accused side shows to every hypothesis."""
    if f.replay is None or f.side == "pair":
        return
    layers = f.replay.of(f.one)
    if not layers:
        return
    by_code = {h.code: h for h in found}
    if _other_router(f, by_code):
        return
    beyond = _beyond(layers)
    if not beyond:
        _own_at_floor(f, by_code, layers)
        return
    parts = {part: _beyond(f.replay.of(f.one, part)) for part in ("attention", "mlp", "router")}
    known = {part: bool(f.replay.of(f.one, part)) for part in parts}
    if len(beyond) == 1 and len(layers) > 2:
        _reopened(by_code, "HS516", f"replay: layer {beyond[0].layer} alone adds error ({_word(beyond[0])})")
        _disproof(
            by_code, ("HS501", "HS502", "HS507", "HS512"), "replay: all layers but one are at the floor"
        )
        return
    if known["attention"] and known["mlp"]:
        _by_part(f, by_code, layers, parts["attention"], parts["mlp"])


def _other_router(f: Facts, found: dict[str, Hypothesis]) -> bool:
    """Whether tokens were given experts by margins that the router's rounding does not explain, on a sound input."""
    assert f.replay is not None
    attention = {a.layer for a in _beyond(f.replay.of(f.one, "attention"))}
    routers = [a for a in _beyond(f.replay.of(f.one, "router")) if a.experts_wide > 0]
    if not routers or any(a.layer in attention for a in routers):
        return False
    most = max(a.experts_wide for a in routers)
    text = f"replay: {len(routers)} routers chose otherwise than the checkpoint says, for up to {most} tokens"
    _disproof(found, ("HS508", "HS501", "HS502", *ATTENTION), f"{text} by more than rounding explains")
    h = found["HS516"]
    # What spoke against it is how the linear layers of one layer would show, at every token and at no other layer.
    h.points, h.against = max(0.0, h.points), []
    h.headline = "the router's weights, bias or scoring are not the checkpoint's"
    h.rival = "choices that rounding tipped, whose margins are narrow"
    _reopened(found, "HS516", f"{text} by more than rounding explains")
    if f.same_weights:
        h.headline = "the router is not run as the checkpoint says: the weight files are equal, what is read from them is not"
        h.reasons.append(
            f"left where the files are equal: {LOADED}, in the engine's config and in how it loads them"
        )
    return True


def _by_part(
    f: Facts, found: dict[str, Hypothesis], layers: Sequence[Added], attention: list[Added], mlp: list[Added]
) -> None:
    count = len(layers)
    moe = [a for a in mlp if a.kind == "moe"]
    if attention and not mlp:
        text = f"replay: attention adds error in {len(attention)} of {count} layers ({_word(attention[0])}), no MLP does"
        _disproof(found, ("HS502", "HS508", "HS509", "HS512"), text)
        if len(attention) > 1:
            _disproof(found, ("HS516",), text)
        _one_of(found, (*ATTENTION, *WEIGHTS), text)
    elif moe and len(moe) == len(mlp) and not attention:
        text = (
            f"replay: experts add error in {len(moe)} of {count} layers ({_word(moe[0])}), attention does not"
        )
        _disproof(found, (*ATTENTION, "HS512", "HS502"), text)
        scaled = [a for a in moe if abs(a.gain - 1.0) > GAIN]
        if len(scaled) >= MOST * len(moe):
            _proof(found, "HS509", f"{text}; their output is {scaled[0].gain:.2f} of what it should be")
        elif all(a.experts_differ >= 0 for a in moe):
            _disproof(found, ("HS508",), f"{text}, on tokens whose experts are the same")
        elif "HS508" in found:
            found["HS508"].plus(1.0, text)
    elif len(attention) >= MOST * count and len(mlp) >= MOST * count:
        _everywhere(f, found, f"replay: attention and MLP add error in every layer ({_word(attention[0])})")


def _everywhere(f: Facts, found: dict[str, Hypothesis], text: str) -> None:
    """Every linear layer of the side is off on the weights of its own checkpoint: then it is what they are fed or how
    they compute, and how much of the error the weights are is what the other side's say."""
    scheme, weights = f.mine.scheme, _weights_share(f)
    text = f"{text}, on {f.one}'s own weights"
    kept = ("HS503",) if f.mine.narrow_kv else ()
    _disproof(found, [code for code in (*ATTENTION, "HS508", "HS509", "HS516") if code not in kept], text)
    if scheme is None:
        _one_of(found, ("HS501", "HS512", "HS513"), text)
        return
    if weights is not None:
        text = f"{text}; {weights:.0%} of the squared error is gone with them in place of the other side's"
    if weights is not None and weights >= NEARLY_ALL:
        left = "the kernel's" if scheme.activations is False else "the inputs' or the kernel's"
        _proof(found, "HS501", f"{text}: what is left is {left} (gain {_gain(f):.3f})")
        if scheme.activations is not False and "HS502" in found:
            found["HS502"].minus(DISPROOF, text)
        return
    _disproof(found, ("HS512",), text)
    if weights is not None and weights <= HARDLY_ANY:
        _disproof(found, ("HS501",), text)
    if scheme.activations is True:
        _one_of(found, ("HS501", "HS502"), text)
        return
    # Where no inputs are said to be rounded, what is left may be the kernel's: that settles neither.
    for code in ("HS502", "HS501") if weights is not None else ("HS502",):
        if code in found and not found[code].veto:
            found[code].plus(PROOF - 1.0, text)


def _weights_share(f: Facts) -> float | None:
    """Share of the squared error against the other side's weights that the side's own take away, over layers; None
    where the two checkpoints differ in more than weights, or are one."""
    assert f.replay is not None
    own = {a.layer: a.error.p50 for a in f.replay.of(f.one)}
    other = {a.layer: a.error.p50 for a in f.replay.of(f.one, weights="other")}
    gone = [1.0 - (own[k] / other[k]) ** 2 for k in own if other.get(k, 0.0) > 0]
    return None if f.config or not gone else max(0.0, float(median(gone)))


def _gain(f: Facts) -> float:
    assert f.replay is not None
    return float(median(a.gain for a in f.replay.of(f.one)))


def _own_at_floor(f: Facts, found: dict[str, Hypothesis], layers: Sequence[Added]) -> None:
    """Every layer does what its own checkpoint says: then it is the checkpoint, or the router that tips over."""
    assert f.replay is not None
    own = "weights and config" if f.config else "weights"
    text = f"replay: all {len(layers)} layers do what {f.one}'s own {own} say"
    flips = sum(max(0, a.experts_differ) for a in (*f.replay.of(f.one), *f.replay.of(f.one, "router")))
    other = _beyond(f.replay.of(f.one, weights="other"))
    known = ("HS502", "HS503", "HS505", "HS507", "HS509", "HS511", "HS512", "HS517")
    _disproof(found, [code for code in known if code in found and not found[code].stated], text)
    more = f"{text}, and {len(other)} are beyond the floor with the other side's" if other else text
    if f.same_weights:
        _disproof(found, WEIGHTS, f"both sides ran the same weights (sha256 {f.mine.weights[:16]})")
    if f.config:
        _by_config(f, found, more, bool(other))
    elif other and not f.same_weights:
        _reopened(found, "HS516" if len(other) == 1 else "HS501", f"{more} weights")
    elif flips:
        _proof(found, "HS508", f"{text}; experts were chosen otherwise {flips} times")
    elif "weights" in f.differing:
        _proof(found, "HS501", text, 2.0)


def _by_config(f: Facts, found: dict[str, Hypothesis], text: str, apart: bool) -> None:
    """The checkpoints differ in their configs: which of weights and config it is, equal weights say."""
    stated = [h for h in found.values() if h.stated and not h.veto]
    alone = len(stated) == 1 and set(stated[0].stated) == set(f.config)
    if f.same_weights and apart and alone:
        _proof(found, stated[0].code, f"{text}, which differ in nothing else")
        return
    for h in stated:
        h.plus(1.0, text)


def _beyond(entries: Sequence[Added]) -> list[Added]:
    return [a for a in entries if a.verdict is Verdict.DIVERGED]


def _word(added: Added) -> str:
    return f"layer {added.layer}: {added.ratio:.2g}× its floor"


def _one_of(found: dict[str, Hypothesis], codes: Sequence[str], text: str) -> None:
    """The replay speaks for a group of causes. What is left of it when all others are ruled out is proved; several that
    are left stay in the order that other evidence gave them."""
    left = [h for h in found.values() if not h.veto and (h.code in codes or h.points >= FIT)]
    for h in left:
        if h.code in codes and h.points > 0:
            h.active = len(left) == 1
            h.plus(PROOF - 1.0, text)


def _proof(found: dict[str, Hypothesis], code: str, text: str, points: float = PROOF) -> None:
    """Settles a cause that nothing rules out."""
    h = found.get(code)
    if h is not None and not h.veto:
        h.active = True
        h.plus(points, text)


def _reopened(found: dict[str, Hypothesis], code: str, text: str) -> None:
    """Settles a cause also against what position or place said: the replay looked at every layer on its own."""
    if code in found:
        found[code].veto = ""
    _proof(found, code, text)


def _disproof(found: dict[str, Hypothesis], codes: Sequence[str], text: str) -> None:
    for code in codes:
        if code in found:
            found[code].out(text)
