"""Do sparse per-token jumps between two runs of a mixture-of-experts model come from tokens sent to other experts?

Axes: N tokens, E experts, K chosen experts. A layer's step is boundary k + 1 less boundary k.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from tests.engines.conftest import manifest, site

JUMP = 5.0  # a step's error over the layer's median, from which on it is called a jump


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One mixture-of-experts layer of a run against the float32 run."""

    index: int
    error_n: torch.Tensor  # |step - float32's step| / |float32's step|
    flipped_n: torch.Tensor  # other experts than float32 at this layer
    before_n: torch.Tensor  # other experts than float32 at a layer before
    reached_n: torch.Tensor  # a token that it attends to had other experts at a layer before
    margin_n: torch.Tensor  # float32's score of its last chosen expert less that of the best one left out
    noise_n: torch.Tensor  # the largest change of a score on any expert of the token

    @property
    def jumped_n(self) -> torch.Tensor:
        """Tokens whose step is JUMP times further off than the median token's."""
        return self.error_n > JUMP * self.error_n.median()


@dataclass(frozen=True, slots=True)
class Tally:
    """Token-layers of a run, by whether the step jumped and whether the experts differ."""

    tokens: int  # token-layers in all
    jumped: int
    flipped: int
    jumped_flipped: int  # other experts at the very layer
    jumped_before: int  # the same experts here, others at a layer before: the stream was displaced already
    jumped_reached: int  # the same experts here and before, but a token before it in the prompt had others
    jumped_clean: int  # none of these
    clean: int  # token-layers that no flip reaches
    worst_clean: float  # the largest error among them over the layer's median
    fresh: int  # flips of tokens whose experts agreed at every layer before
    fresh_noise: float  # their median score change over that of the unflipped tokens
    fresh_margin: float  # their median margin over the median margin of all tokens


def layers(run: Path, exact: Path, bias_le: dict[int, torch.Tensor]) -> list[Layer]:
    """Every routed layer of `run` against `exact`, the float32 capture of the same tokens, sites included.

    `bias_le` is each layer's e_score_correction_bias [E]; the score is sigmoid(logit) + bias.
    """
    found: list[Layer] = []
    prompts = manifest(exact).prompts
    names, lengths = tuple(p.id for p in prompts), [p.rows for p in prompts]
    before_n = torch.zeros(sum(lengths), dtype=torch.bool)
    for index, bias_e in sorted(bias_le.items()):
        step_nh, true_nh = (
            site(folder, f"boundary.{index + 1:03d}", names) - site(folder, f"boundary.{index:03d}", names)
            for folder in (run, exact)
        )
        chosen_nk, wanted_nk = (site(f, f"experts.{index:03d}", names).sort(1).values for f in (run, exact))
        score_ne, exact_ne = (
            site(folder, f"router_logits.{index:03d}", names).sigmoid() + bias_e for folder in (run, exact)
        )
        ranked_ne = exact_ne.sort(1, descending=True).values
        count = chosen_nk.shape[1]
        flipped_n = (chosen_nk != wanted_nk).any(1)
        found.append(
            Layer(
                index,
                (step_nh - true_nh).norm(dim=1) / true_nh.norm(dim=1),
                flipped_n,
                before_n.clone(),
                torch.cat([part.cummax(0).values for part in before_n.int().split(lengths)]).bool(),
                ranked_ne[:, count - 1] - ranked_ne[:, count],
                (score_ne - exact_ne).abs().amax(1),
            )
        )
        before_n |= flipped_n
    return found


def tally(found: list[Layer]) -> Tally:
    """The layers' tokens counted together."""
    jumped, flipped, before, reached = (
        torch.cat([getattr(layer, name) for layer in found])
        for name in ("jumped_n", "flipped_n", "before_n", "reached_n")
    )
    over = torch.cat([layer.error_n / layer.error_n.median() for layer in found])
    # Noise and margins are measured in the layer's own medians: scores differ in scale between layers.
    noise = torch.cat([x.noise_n / x.noise_n[~x.flipped_n & ~x.reached_n].median() for x in found])
    margin = torch.cat([layer.margin_n / layer.margin_n.median() for layer in found])
    clean, fresh = ~flipped & ~reached, flipped & ~before
    return Tally(
        tokens=len(jumped),
        jumped=int(jumped.sum()),
        flipped=int(flipped.sum()),
        jumped_flipped=int((jumped & flipped).sum()),
        jumped_before=int((jumped & ~flipped & before).sum()),
        jumped_reached=int((jumped & ~flipped & ~before & reached).sum()),
        jumped_clean=int((jumped & clean).sum()),
        clean=int(clean.sum()),
        worst_clean=float(over[clean].max()),
        fresh=int(fresh.sum()),
        fresh_noise=float(noise[fresh].median()),
        fresh_margin=float(margin[fresh].median()),
    )
