"""A router's choice of experts, and by how much it was made: the margin between the last expert that is chosen and
the first that is not, in units of what the capture's dtype alone moves the scores by.

The scores are those that the family chooses by: the logits (softmax keeps their order), or sigmoid(logits) plus the
correction bias where there is one (DeepSeek-V3, noaux_tc), groups first where there are groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# Scores of two experts may move towards each other, and the noise is the 95th percentile of the tokens'.
NATURAL = 4.0
NOISE_QUANTILE = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One run's scores [n, E] and the experts that were chosen [n, k], ascending."""

    scores_ne: torch.Tensor
    experts_nk: torch.Tensor


@dataclass(frozen=True, slots=True)
class Router:
    """How a family turns router logits into a choice."""

    bias_e: torch.Tensor | None
    groups: int = 1
    top_groups: int = 1

    @classmethod
    def of(cls, mlp: Any, router: Any) -> Router:
        """Read from the modules of a mixture-of-experts layer."""

        def find(*names: str) -> Any:
            held = (getattr(m, n, None) for n in names for m in (router, mlp))
            return next((value for value in held if value is not None), None)

        bias = find("e_score_correction_bias")
        groups, top = find("num_group", "n_group") or 1, find("topk_group") or 1
        return cls(None if bias is None else bias.detach().float().cpu(), int(groups), int(top))

    def scores(self, logits_ne: torch.Tensor) -> torch.Tensor:
        """What the experts are ranked by, float32 [n, E]."""
        return logits_ne if self.bias_e is None else logits_ne.sigmoid() + self.bias_e

    def choose(self, scores_ne: torch.Tensor, top: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The `top` experts of each token, ascending [n, top], and the margin of the choice [n]."""
        margin_n = torch.full((len(scores_ne),), torch.inf)
        if self.groups > 1 and self.top_groups < self.groups:
            grouped = scores_ne.view(len(scores_ne), self.groups, -1)
            best = grouped.topk(2, dim=-1).values.sum(-1)
            ranked = best.sort(dim=-1, descending=True)
            # A group's score is a sum of two.
            margin_n = (ranked.values[:, self.top_groups - 1] - ranked.values[:, self.top_groups]) / 2
            kept = torch.zeros_like(best).scatter_(1, ranked.indices[:, : self.top_groups], 1.0).bool()
            scores_ne = grouped.masked_fill(~kept[..., None], -torch.inf).reshape(scores_ne.shape)
        ranked = scores_ne.sort(dim=-1, descending=True)
        if top < scores_ne.shape[1]:
            margin_n = torch.minimum(margin_n, ranked.values[:, top - 1] - ranked.values[:, top])
        return ranked.indices[:, :top].sort(dim=-1).values, margin_n


@dataclass(frozen=True, slots=True, eq=False)
class Margins:
    """Per token of one layer: the margin in units of the router's noise, and whether noise may turn the choice."""

    units_n: torch.Tensor

    @property
    def fragile_n(self) -> torch.Tensor:
        return self.units_n <= NATURAL


def margins(
    router: Router,
    logits_ne: torch.Tensor,
    floor_ne: torch.Tensor,
    experts_nk: torch.Tensor,
    rounded: torch.dtype,
) -> Margins | None:
    """The replay's margins against what rounding moves its scores by (`floor_ne`: the same logits in the capture's
    dtype). None where this rule is not the family's: its choice would differ from `experts_nk`, the module's own."""
    scores_ne = router.scores(logits_ne)
    chosen_nk, margin_n = router.choose(scores_ne, experts_nk.shape[1])
    if differ(chosen_nk, experts_nk).float().mean() > 0.01:
        return None
    # Some engines hand the logits on in the model's dtype.
    moved_ne = (router.scores(floor_ne.to(rounded).float()) - scores_ne).abs()
    noise = float(moved_ne.amax(dim=1).quantile(NOISE_QUANTILE))
    smallest = torch.finfo(torch.float32).eps * float(scores_ne.abs().max())
    return Margins(margin_n / max(noise, smallest))


def differ(one_nk: torch.Tensor, other_nk: torch.Tensor) -> torch.Tensor:
    """Which tokens chose other experts, bool [n]; the order of the experts says nothing."""
    if one_nk.shape != other_nk.shape:
        return torch.ones(len(one_nk), dtype=torch.bool)
    return (one_nk.sort(dim=-1).values != other_nk.sort(dim=-1).values).any(dim=-1)
