"""What a replay says for and against the causes: active evidence, as every layer was run again on its own input."""

from __future__ import annotations

from collections.abc import Sequence

from hsparity.diagnose.facts import Facts
from hsparity.diagnose.weighing import Hypothesis
from hsparity.model import Verdict
from hsparity.replay.result import Added

PROOF, DISPROOF = 5.0, 4.0
MOST = 0.7  # share of layers that are "all of them"
GAIN = 0.05
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
        _proof(by_code, "HS516", f"replay: layer {beyond[0].layer} alone adds error ({_word(beyond[0])})")
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
    _proof(found, "HS516", f"{text} by more than rounding explains")
    found["HS516"].headline = "the router's weights, bias or scoring are not the checkpoint's"
    return True


def _by_part(
    f: Facts, found: dict[str, Hypothesis], layers: Sequence[Added], attention: list[Added], mlp: list[Added]
) -> None:
    count = len(layers)
    moe = [a for a in mlp if a.kind == "moe"]
    if attention and not mlp:
        text = f"replay: attention adds error in {len(attention)} of {count} layers ({_word(attention[0])}), no MLP does"
        for code in ATTENTION:
            if code in found and found[code].points > 0 and not found[code].veto:
                _proof(found, code, text, PROOF - 1.0)
        _disproof(found, ("HS502", "HS508", "HS509", "HS512"), text)
    elif moe and len(moe) == len(mlp) and not attention:
        text = (
            f"replay: experts add error in {len(moe)} of {count} layers ({_word(moe[0])}), attention does not"
        )
        scaled = [a for a in moe if abs(a.gain - 1.0) > GAIN]
        if len(scaled) >= MOST * len(moe):
            _proof(found, "HS509", f"{text}; their output is {scaled[0].gain:.2f} of what it should be")
        else:
            _proof(found, "HS508", text, 1.0)
        _disproof(found, (*ATTENTION, "HS512", "HS502"), text)
    elif len(attention) >= MOST * count and len(mlp) >= MOST * count:
        text = f"replay: attention and MLP add error in every layer ({_word(attention[0])}), on {f.one}'s own weights"
        code = "HS502" if f.mine.scheme is not None else "HS512"
        _proof(found, code, text)
        _disproof(found, (*ATTENTION, "HS508", "HS509", *WEIGHTS), text)


def _own_at_floor(f: Facts, found: dict[str, Hypothesis], layers: Sequence[Added]) -> None:
    """Every layer does what its own weights say: then it is the weights, or the router that tips over."""
    assert f.replay is not None
    text = f"replay: all {len(layers)} layers do what {f.one}'s own weights say"
    flips = sum(max(0, a.experts_differ) for a in (*f.replay.of(f.one), *f.replay.of(f.one, "router")))
    other = _beyond(f.replay.of(f.one, weights="other"))
    _disproof(found, ("HS502", "HS503", "HS505", "HS507", "HS509", "HS511", "HS512", "HS517"), text)
    if other:
        more = f"{text}, and {len(other)} are beyond the floor with the other side's weights"
        code = "HS516" if len(other) == 1 else "HS501"
        _proof(found, code, more)
    elif flips:
        _proof(found, "HS508", f"{text}; experts were chosen otherwise {flips} times")
    elif "weights" in f.differing:
        _proof(found, "HS501", text, 2.0)


def _beyond(entries: Sequence[Added]) -> list[Added]:
    return [a for a in entries if a.verdict is Verdict.DIVERGED]


def _word(added: Added) -> str:
    return f"layer {added.layer}: {added.ratio:.2g}× its floor"


def _proof(found: dict[str, Hypothesis], code: str, text: str, points: float = PROOF) -> None:
    h = found.get(code)
    if h is not None:
        h.veto, h.active = "", True
        h.plus(points, text)


def _disproof(found: dict[str, Hypothesis], codes: Sequence[str], text: str) -> None:
    for code in codes:
        if code in found:
            found[code].out(text)
