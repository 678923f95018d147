"""Dequantisation by the published rules, in float32. A weight is [o, i]: out features by in features.

Kernels and compressed-tensors itself round q * scale to the scale's dtype (bfloat16); here the product is exact, so
that what is stored is separated from how an engine multiplies it out.

* compressed-tensors (vllm-project/compressed-tensors, `compressors/` and `quantization/lifecycle/forward.py`): weight
  = (q - zero_point) * scale, scales per tensor, output channel, group of input columns or block of both. In
  pack-quantized files q + 2^(bits - 1) is packed along the columns, a group's zero point likewise along the rows;
  weight_g_idx names each column's group.
* fp8 (DeepSeek-V3's published weights, `inference/kernel.py: weight_dequant`): weight = q * weight_scale_inv of its
  block; the name says inverse, the rule multiplies. Without blocks: q * weight_scale.
* GPTQ (AutoGPTQ/GPTQModel, `qlinear_torch`): weight[o, i] = (q[i, o] - zero[g, o]) * scale[g, o] with g = g_idx[i];
  zero points are stored minus one, except under checkpoint_format gptq_v2.
* AWQ (AutoAWQ, `WQLinear_GEMM`): weight[o, i] = (q[i, o] - zero[g, o]) * scale[g, o], words in the order 0 2 4 6 1 3
  5 7.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hsparity.weights.packing import awq_columns, unpack_columns, unpack_rows

Parts = Mapping[str, torch.Tensor]


def spread(
    scale: torch.Tensor, rows: int, columns: int, block: tuple[int, int] | None = None
) -> torch.Tensor:
    """Scales (or zero points) per weight [o, i] from ones per tensor, channel, group or block, expanded.

    Raises ValueError for a shape that fits none of them.
    """
    if scale.numel() == 1:
        return scale.reshape(1, 1).expand(rows, columns)
    if scale.dim() == 1 and len(scale) == rows:
        return scale[:, None].expand(rows, columns)
    if scale.dim() != 2:
        raise ValueError(f"scales {list(scale.shape)} for a weight [{rows}, {columns}]")
    if block is not None:
        tall, wide = block
        if tuple(scale.shape) != (-(-rows // tall), -(-columns // wide)):
            raise ValueError(
                f"scales {list(scale.shape)} for a weight [{rows}, {columns}] in blocks {tall} x {wide}"
            )
        return scale.repeat_interleave(tall, 0)[:rows].repeat_interleave(wide, 1)[:, :columns]
    groups = scale.shape[1]
    if scale.shape[0] != rows or columns % groups:
        raise ValueError(f"scales {list(scale.shape)} for a weight [{rows}, {columns}]")
    return scale.repeat_interleave(columns // groups, 1)


def pack_quantized(parts: Parts, bits: int, symmetric: bool) -> torch.Tensor:
    """compressed-tensors pack-quantized: float32 [o, i] of `weight_packed`, `weight_scale`, `weight_shape` and, where
    they are there, `weight_zero_point` and `weight_g_idx`. Raises ValueError for parts that do not fit each other."""
    rows, columns = (int(n) for n in parts["weight_shape"].tolist())
    half = 1 << (bits - 1)
    weight = unpack_columns(parts["weight_packed"], bits, columns).float() - half
    if tuple(weight.shape) != (rows, columns):
        raise ValueError(f"packed words hold {list(weight.shape)}, weight_shape says [{rows}, {columns}]")
    scale, zero = parts["weight_scale"], None
    if not symmetric:
        zero = parts["weight_zero_point"]
        if zero.dtype == torch.int32:
            zero = unpack_rows(zero.reshape(-1, scale.shape[-1]), bits, rows) - half
    return _times(weight, scale, zero, parts.get("weight_g_idx"), None)


def scaled(parts: Parts, block: tuple[int, int] | None = None, scale: str = "weight_scale") -> torch.Tensor:
    """Stored int8 or float8 `weight` times its scales, float32 [o, i]; a `weight_zero_point` is taken off before, and
    `weight_g_idx` followed. Raises ValueError for scales that do not fit."""
    weight = parts["weight"].float()
    return _times(weight, parts[scale], parts.get("weight_zero_point"), parts.get("weight_g_idx"), block)


def _times(
    weight: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor | None,
    index: torch.Tensor | None,
    block: tuple[int, int] | None,
) -> torch.Tensor:
    """(weight - zero) * scale, in place. An index of -1 everywhere is how a checkpoint says that it has none."""
    rows, columns = weight.shape

    def per_weight(values: torch.Tensor) -> torch.Tensor:
        if index is not None and bool((index >= 0).all()):
            return values.float()[:, index.long()]
        return spread(values.float(), rows, columns, block)

    if zero is not None:
        weight = weight.sub_(per_weight(zero))
    return weight.mul_(per_weight(scale))


def gptq(parts: Parts, bits: int, minus_one: bool) -> torch.Tensor:
    """GPTQ: float32 [o, i] of `qweight` int32 [i * bits / 32, o], `qzeros`, `scales` [g, o] and `g_idx` [i]."""
    scales_go = parts["scales"].float()
    groups, rows = scales_go.shape
    columns = parts["qweight"].shape[0] * 32 // bits
    zeros_go = (unpack_columns(parts["qzeros"], bits, rows) + int(minus_one)).float()
    index = parts.get("g_idx")
    group_i = (
        torch.arange(columns, device=scales_go.device) // (columns // groups)
        if index is None
        else index.long()
    )
    values_io = unpack_rows(parts["qweight"], bits, columns).float()
    return ((values_io - zeros_go[group_i]) * scales_go[group_i]).t().contiguous()


def awq(parts: Parts) -> torch.Tensor:
    """AWQ's gemm layout: float32 [o, i] of `qweight` int32 [i, o / 8], `qzeros` [g, o / 8] and `scales` [g, o]."""
    scales_go = parts["scales"].float()
    groups, rows = scales_go.shape
    columns = parts["qweight"].shape[0]
    group_i = torch.arange(columns, device=scales_go.device) // (columns // groups)
    zeros_go = awq_columns(parts["qzeros"], rows).float()
    values_io = awq_columns(parts["qweight"], rows).float()
    return ((values_io - zeros_go[group_i]) * scales_go[group_i]).t().contiguous()
