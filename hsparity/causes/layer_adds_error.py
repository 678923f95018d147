"""HS307."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hsparity.causes.base import listed

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class LayerAddsError:
    """
    ## What it is
    Replayed in fp32 from its checkpoint on the input that was captured, a layer does not give the output that was
    captured: it adds more error on this side than its dtype costs.
    ## Why it happens
    Another weight, scale, rotation, mask or norm than the checkpoint and its config say, quantised arithmetic, or a
    kernel that cuts where it should round.
    ## How it shows
    The layer, or its attention, MLP or router, stands above the limit over the same layer in the capture's dtype. Error
    that earlier layers made is part of the input and is not counted. One wrong layer may move the stream by less than all
    layers' rounding together: the states then lie within their floor, and are wrong all the same.
    ## Fix
    Look at that layer on that side: what the replay names is the part, HS5xx say what may be wrong with it.
    """

    code, name = "HS307", "layer-adds-error"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding, Verdict
        from hsparity.replay.sentences import guilt

        replay = evidence.replay
        if replay is None or replay.verdict is not Verdict.DIVERGED:
            return None
        beyond = [a for a in replay.added if a.weights == "own" and a.verdict is Verdict.DIVERGED]
        layers = sorted({a.layer for a in beyond})
        sides = {"ref": "the reference", "cand": "the candidate"}
        # Where states are beyond the floor anyway, it says where that begins, and is no second cause.
        alone = not evidence.slots.diverged()
        paths = " ".join(shlex.quote(path) for path in (evidence.ref.path, evidence.cand.path))
        return Finding(
            code=self.code,
            name=self.name,
            headline=guilt(replay, sides),
            slots=tuple(f"boundary.{k + 1:03d}" for k in layers),
            tokens=max((a.tokens for a in beyond), default=0),
            evidence=tuple(f"{sides[a.side]}, layer {a.layer}, {a.part}: {a.reason}" for a in beyond[:6]),
            rival="error that earlier layers passed on: it is part of what the layer was fed, and cancels",
            fix={"any": f"look at the weights and settings of layer {listed(layers)} on that side"}
            if alone
            else {},
            confirm=(f"hsparity replay {paths} --layers {','.join(map(str, layers[:8]))} -v",),
            severity="cause" if alone else "note",
            structural=alone,
        )


CAUSE = LayerAddsError()
