"""Makes recorded/compressed_tensors.safetensors: weights stored by the compressed-tensors library, and what it reads.

    PYTHON_WITH_COMPRESSED_TENSORS tests/replay/record.py tests/replay/recorded/compressed_tensors.safetensors

Per case: "CASE.stored.*" as the library writes them, "CASE.expected" as it dequantises them with float32 scales.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch
from safetensors.torch import save_file

ROWS, COLUMNS, GROUP = 32, 64, 16  # the library reads blocks that are cut short as narrower ones


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    whole: dict[str, Any] = {"num_bits": 4, "type": "int", "symmetric": True}
    byte = whole | {"num_bits": 8}
    small = byte | {"type": "float"}
    group = {"strategy": "group", "group_size": GROUP}
    return {
        "int4-group": ("pack-quantized", whole | group),
        "int4-group-asymmetric": ("pack-quantized", whole | group | {"symmetric": False}),
        "int4-group-ordered": ("pack-quantized", whole | group | {"actorder": "group"}),
        "int4-channel": ("pack-quantized", whole | {"strategy": "channel"}),
        "int8-packed": ("pack-quantized", byte | group),
        "int8-channel": ("int-quantized", byte | {"strategy": "channel"}),
        "int8-channel-asymmetric": ("int-quantized", byte | {"strategy": "channel", "symmetric": False}),
        "fp8-channel": ("float-quantized", small | {"strategy": "channel"}),
        "fp8-tensor": ("float-quantized", small | {"strategy": "tensor"}),
        "fp8-block": ("float-quantized", small | {"strategy": "block", "block_structure": [16, 32]}),
    }


def scales(weight: torch.Tensor, args: Any, index: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points [o or blocks, groups] of the range of each part."""
    parts: list[list[torch.Tensor]]
    strategy = str(args.strategy)
    if strategy == "group":
        columns = (
            [torch.nonzero(index == g).flatten() for g in range(COLUMNS // GROUP)]
            if index is not None
            else None
        )
        columns = columns or list(torch.arange(COLUMNS).split(GROUP))
        parts = [[row[c] for c in columns] for row in weight]
    elif strategy == "block":
        tall, wide = args.block_structure
        parts = [list(band.split(wide, 1)) for band in weight.split(tall, 0)]
    else:
        parts = [[row] for row in weight] if strategy == "channel" else [[weight]]
    top = {"float": 448.0}.get(str(args.type), 2.0 ** (args.num_bits - 1) - 1)
    if args.symmetric:
        scale = torch.tensor([[float(p.abs().max()) / top for p in row] for row in parts])
        return scale, torch.zeros_like(scale)
    levels = 2.0**args.num_bits - 1
    scale = torch.tensor([[float(p.max() - p.min()) / levels for p in row] for row in parts])
    low = torch.tensor([[float(p.min()) for p in row] for row in parts])
    return scale, (-(2.0 ** (args.num_bits - 1)) - low / scale).round()


def main() -> None:
    # Not in the environment that the tests run in.
    compressors = import_module("compressed_tensors.compressors")
    quantization = import_module("compressed_tensors.quantization")

    torch.manual_seed(0)
    tensors: dict[str, torch.Tensor] = {}
    stated: dict[str, Any] = {}
    for name, (form, weights) in cases().items():
        arguments = quantization.QuantizationArgs(**weights)
        scheme = quantization.QuantizationScheme(targets=["Linear"], weights=arguments)
        weight = torch.randn(ROWS, COLUMNS) + 0.3
        index = torch.randperm(COLUMNS) // GROUP if weights.get("actorder") else None
        scale, zero = scales(weight, scheme.weights, index)
        given = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero.to(torch.int8)}
        given |= {} if index is None else {"weight_g_idx": index.to(torch.int32)}
        compressor = compressors.BaseCompressor.get_value_from_registry(form)
        stored = compressor.compress(given, scheme)
        back = compressor.decompress(stored, scheme)["weight"]
        tensors |= {f"{name}.stored.{k}": v.contiguous().clone() for k, v in stored.items()}
        tensors[f"{name}.expected"] = back.float().contiguous()
        stated[name] = {"format": form, "weights": weights}
    made = {"compressed-tensors": version("compressed-tensors"), "cases": json.dumps(stated)}
    save_file(tensors, sys.argv[1], metadata=made)


if __name__ == "__main__":
    main()
