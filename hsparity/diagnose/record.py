"""The fingerprint as a plain record: sentences for the reports, figures for programs."""

from __future__ import annotations

import math

from hsparity.diagnose.common import SIDES, first_words, start_words, times
from hsparity.diagnose.expert_causes import flip_words
from hsparity.diagnose.facts import Facts
from hsparity.diagnose.places import UNCLEAR
from hsparity.model import Fingerprint

FLIPS = 3


def fingerprint_of(f: Facts) -> Fingerprint:
    """What was measured of the error, whatever its cause."""
    profile = f.profile
    figures: dict[str, float] = {}
    lines = list(lines_of(f))
    if profile is not None:
        later = [profile.ratio(k) for k in range(f.onset, len(profile.boundaries))]
        figures |= {"ratio": f.ratio, "ratio_last": later[-1]}
        figures["tail"] = float(profile.beyond_n(f.onset).mean())
        figures |= {"first": f.first.ratio, "later": f.first.later}
        if f.growth is not None:
            figures |= {"growth": f.growth.value, "growth_low": f.growth.low, "growth_high": f.growth.high}
        if f.entry is not None:
            figures |= {"coherence": f.entry.coherence, "gain": f.entry.gain, "shift": f.entry.shift}
            figures |= {"channels": f.entry.channels, "channels_floor": f.entry.channels_floor}
        if f.spike is not None:
            figures["spike"] = f.spike
    return Fingerprint(
        side=f.side,
        boundary=f.boundary,
        layer=f.layer,
        start=f.start,
        lines=tuple(lines),
        figures={k: v for k, v in figures.items() if math.isfinite(v)},
        boundaries=profile.boundaries if profile is not None else (),
        ratios=tuple(r.median for r in profile.ratios) if profile is not None else (),
        added=tuple((u.layer, u.error, u.floor) for u in f.updates),
    )


def lines_of(f: Facts) -> list[str]:
    """One sentence per thing that was measured."""
    lines = []
    profile = f.profile
    if profile is not None:
        whose = {**SIDES, "both": "both sides, the candidate more", "pair": "the pair"}[f.side]
        where = f", which layer {f.layer} makes" if f.layer is not None else ""
        lines.append(f"{whose}: {start_words(f)}{where}")
        share = float(profile.beyond_n(f.onset).mean())
        spread = "few tokens carry it" if f.few else "it is on most tokens"
        lines.append(f"{spread}: {share:.0%} are in the tail at boundary {f.boundary}")
        if f.first.word != UNCLEAR:
            lines.append(first_words(f))
        if f.growth is not None:
            g = f.growth
            word = "grows with" if f.grows else "falls with" if f.falls else "hardly depends on"
            if not (f.grows or f.falls) and (g.low > 0 or g.high < 0):
                word = f"{'grows' if g.low > 0 else 'falls'} a little with"
            lines.append(
                f"the error {word} position (rank correlation {g.value:.2f}, 95 % {g.low:.2f} to {g.high:.2f})"
            )
        lines += _edges(f) + _entry(f)
    lines += _equal(f) + _experts(f)
    return lines


def _edges(f: Facts) -> list[str]:
    words = {
        "pass": "rows of later prefill passes",
        "phase": "rows that one side decoded and the other did not",
        "decode": "decoded rows",
        "token": "rows from the first pad or masked token of a prompt on",
    }
    return [
        f"{words.get(e.kind, f'rows from position {e.position} on')} are off ({e.behind:.0%} in the tail), "
        f"the others are not ({e.before:.0%})"
        for e in f.edges.values()
    ]


def _entry(f: Facts) -> list[str]:
    lines = []
    if f.spike is not None:
        lines.append(f"layer {f.layer} adds {times(f.spike)} what a later layer adds")
    if f.entry is not None:
        e = f.entry
        lines.append(
            f"layer {e.layer}'s update: error {times(e.ratio)} that of bf16, gain {e.gain:.3f}, "
            f"coherence {e.coherence:+.2f}, norm {math.expm1(e.shift):+.2%}, "
            f"{e.channels:.0%} of it in 1 % of channels (bf16: {e.channels_floor:.0%})"
        )
    return lines


def _equal(f: Facts) -> list[str]:
    e = f.equality
    if e is None or not e.equal:
        return []
    lines = [f"{e.equal} of {e.tokens} tokens are equal in every bit at every boundary"]
    if e.until is not None and e.first is not None and e.until > 0:
        lines.append(f"all tokens are equal in every bit up to boundary {e.until}")
    return lines


def _experts(f: Facts) -> list[str]:
    routing = f.routing
    if routing is None:
        return []
    count = int((routing.first_n >= 0).sum())
    lines = [
        f"{count} of {len(routing.first_n)} tokens had other experts at one of {len(routing.layers)} layers"
    ]
    return lines + [flip_words(flip) for flip in routing.flips[:FLIPS]]
