"""Rotary embedding of a head's attention: frequencies by Transformers' own rules, applied in either order of channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from hsparity.errors import HsparityError

DEFAULT = "default"
# Names that say how positions of images are laid out; in text all their parts are the token's position.
TEXT_DEFAULT = ("", "mrope", DEFAULT)


class Rotary:
    """cos and sin by position for the first `dims` channels of a head [.., dims]."""

    def __init__(self, layer: Mapping[str, Any], dims: int, interleaved: bool, spelled: str) -> None:
        """`layer` is a decoder layer's config, `dims` the rotated channels. Raises E268 for a rule that Transformers does
        not have, and where it is not installed."""
        self.dims, self.interleaved = dims, interleaved
        self._embedding = _embedding(layer, dims, spelled)

    def table(self, positions_n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin, float32 [n, dims], scaled as the rule says."""
        shape = torch.empty(0, dtype=torch.float32, device=positions_n.device)
        cos, sin = self._embedding(shape, positions_n[None])
        return cos[0], sin[0]

    def turn(self, states_hnd: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """`states_hnd` with its first `dims` channels turned, in float32, returned in its own dtype.

        Channels pair i with i + dims/2, or 2i with 2i + 1 where interleaved; the latter leave in the former's order, which
        no product of a query and a key sees.
        """
        cos_nd, sin_nd = table
        turned, rest = states_hnd[..., : self.dims].float(), states_hnd[..., self.dims :]
        if self.interleaved:
            turned = torch.cat((turned[..., 0::2], turned[..., 1::2]), -1)
        one, other = turned.chunk(2, -1)
        turned = turned * cos_nd + torch.cat((-other, one), -1) * sin_nd
        return torch.cat((turned.to(states_hnd.dtype), rest), -1)


def rules(layer: Mapping[str, Any]) -> tuple[str, float, dict[str, Any]]:
    """(type, theta, the rest) of a config's rope, from rope_parameters or rope_theta and rope_scaling."""
    held = layer.get("rope_parameters") or layer.get("rope_scaling") or {}
    kinds = layer.get("layer_types") or ["full_attention"]
    if isinstance(held.get(kinds[0]), dict):  # one rope per kind of layer
        held = held[kinds[0]]
    rest = {k: v for k, v in held.items() if k not in ("rope_type", "type", "rope_theta")}
    kind = str(held.get("rope_type") or held.get("type") or "")
    theta = held.get("rope_theta") or layer.get("rope_theta") or 10000.0
    return (DEFAULT if kind in TEXT_DEFAULT else kind), float(theta), rest


def mscale_squared(layer: Mapping[str, Any]) -> float:
    """What YaRN multiplies DeepSeek's attention scores by: (0.1 mscale_all_dim ln(factor) + 1)^2; 1 without it.

    As modeling_deepseek.py of DeepSeek-V3 does, and both engines.
    """
    kind, _theta, rest = rules(layer)
    every, factor = float(rest.get("mscale_all_dim") or 0), float(rest.get("factor") or 1)
    if kind == DEFAULT or factor <= 1:
        return 1.0
    return (0.1 * every * math.log(factor) + 1.0) ** 2


def rotated(layer: Mapping[str, Any], head_dim: int) -> int:
    """Channels of a head that are turned: all, but for a partial_rotary_factor."""
    part = layer.get("partial_rotary_factor") or rules(layer)[2].get("partial_rotary_factor") or 1.0
    return int(head_dim * float(part))


def _embedding(layer: Mapping[str, Any], dims: int, spelled: str) -> Any:
    kind, theta, rest = rules(layer)
    rest.pop("partial_rotary_factor", None)
    try:
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
        from transformers.utils import logging
    except ImportError as error:
        raise HsparityError(
            "E268", "running a draft head needs transformers", (str(error),), "pip install 'hsparity[hf]'"
        ) from error
    before = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns of a factor that the lengths do not give; engines take the factor
    try:
        config = LlamaConfig(
            hidden_size=dims,
            num_attention_heads=1,
            head_dim=dims,
            max_position_embeddings=int(layer.get("max_position_embeddings") or 2048),
            rope_theta=theta,
            rope_scaling=None if kind == DEFAULT else {**rest, "rope_type": kind},
        )
        return LlamaRotaryEmbedding(config)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HsparityError(
            "E268",
            f"{spelled}: Transformers builds no rotary embedding of type {kind}",
            (f"config.json  rope type {kind}, theta {theta:g}, {rest}", f"{type(error).__name__}: {error}"),
            "state in rope_parameters (or rope_scaling) what the head was trained with",
        ) from error
    finally:
        logging.set_verbosity(before)
