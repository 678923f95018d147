"""Each rule of dequantisation against tensors worked out by hand."""

from __future__ import annotations

import pytest
import torch

from hsparity.weights import rules
from hsparity.weights.packing import awq_columns, unpack_columns, unpack_rows


def words(*values: int) -> torch.Tensor:
    """int32 words from their unsigned values."""
    return torch.tensor([v - (1 << 32) if v >= 1 << 31 else v for v in values], dtype=torch.int32)


def test_the_lowest_bits_come_first() -> None:
    """0x76543210 holds 0 to 7, and a word with its top bit set is no negative number."""
    packed = words(0x76543210, 0xFEDCBA98).view(1, 2)
    assert unpack_columns(packed, 4, 16).tolist() == [list(range(16))]
    assert unpack_rows(packed.t(), 4, 16).flatten().tolist() == list(range(16))
    assert unpack_columns(words(0x04030201).view(1, 1), 8, 3).tolist() == [[1, 2, 3]]


def test_awq_words_are_interleaved() -> None:
    """Columns 0 to 7 lie at places 0 4 1 5 2 6 3 7: AutoAWQ packs them in the order 0 2 4 6 1 3 5 7."""
    word = sum(column << (4 * place) for place, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)))
    assert awq_columns(words(word).view(1, 1), 8).tolist() == [list(range(8))]


def test_pack_quantized_symmetric_groups() -> None:
    """Two groups of four: (stored - 8) times the group's scale."""
    parts = {
        "weight_packed": words(0xFB840876).view(1, 1),
        "weight_scale": torch.tensor([[0.5, 2.0]], dtype=torch.bfloat16),
        "weight_shape": torch.tensor([1, 8]),
    }
    expected = [[-1.0, -0.5, 0.0, -4.0, -8.0, 0.0, 6.0, 14.0]]
    assert rules.pack_quantized(parts, 4, symmetric=True).tolist() == expected


def test_pack_quantized_takes_a_zero_point_off() -> None:
    """Zero points are packed along the rows, offset by 8 as the weights are."""
    parts = {
        "weight_packed": words(0x88888888, 0xFFFFFFFF).view(2, 1),
        "weight_scale": torch.tensor([[1.0], [0.25]]),
        "weight_shape": torch.tensor([2, 8]),
        "weight_zero_point": words(0x00000068).view(1, 1),  # row 0: 8 - 8 = 0, row 1: 6 - 8 = -2
    }
    weight = rules.pack_quantized(parts, 4, symmetric=False)
    assert weight.tolist() == [[0.0] * 8, [(7 + 2) * 0.25] * 8]


def test_pack_quantized_follows_the_order_of_activations() -> None:
    """weight_g_idx names each column's group."""
    parts = {
        "weight_packed": words(0x99999999).view(1, 1),
        "weight_scale": torch.tensor([[1.0, 3.0]]),
        "weight_shape": torch.tensor([1, 8]),
        "weight_g_idx": torch.tensor([1, 0, 1, 0, 0, 0, 1, 1], dtype=torch.int32),
    }
    expected = [[3.0, 1.0, 3.0, 1.0, 1.0, 1.0, 3.0, 3.0]]
    assert rules.pack_quantized(parts, 4, symmetric=True).tolist() == expected
    # -1 everywhere is how a checkpoint without an order says so.
    unordered = parts | {"weight_g_idx": torch.full((8,), -1, dtype=torch.int32)}
    assert rules.pack_quantized(unordered, 4, symmetric=True).tolist() == [[1.0] * 4 + [3.0] * 4]


def test_int8_and_float8_scales() -> None:
    """Per channel, per tensor, and in blocks whose last ones are cut short."""
    int8 = {
        "weight": torch.tensor([[2, -3], [5, 7]], dtype=torch.int8),
        "weight_scale": torch.tensor([[0.5], [2.0]]),
    }
    assert rules.scaled(int8).tolist() == [[1.0, -1.5], [10.0, 14.0]]
    stored = torch.tensor([[1.0, 2.0, 4.0]] * 3).to(torch.float8_e4m3fn)
    tensor = {"weight": stored, "weight_scale": torch.tensor(0.5)}
    assert rules.scaled(tensor).tolist() == [[0.5, 1.0, 2.0]] * 3
    block = {"weight": stored, "weight_scale_inv": torch.tensor([[1.0, 10.0], [3.0, 100.0]])}
    found = rules.scaled(block, (2, 2), "weight_scale_inv")
    assert found.tolist() == [[1.0, 2.0, 40.0], [1.0, 2.0, 40.0], [3.0, 6.0, 400.0]]


def test_gptq_stores_its_zero_points_less_one() -> None:
    """[in, out] words; the v2 format stores them as they are."""
    parts = {
        "qweight": words(0x87654321, 0xFFFFFFFF).view(1, 2),
        "qzeros": words(0x00000077).view(1, 1),
        "scales": torch.tensor([[1.0, 0.5]], dtype=torch.float16),
        "g_idx": torch.zeros(8, dtype=torch.int32),
    }
    first = [float(v - 8) for v in range(1, 9)]
    assert rules.gptq(parts, 4, minus_one=True).tolist() == [first, [3.5] * 8]
    assert rules.gptq(parts, 4, minus_one=False)[0].tolist() == [v + 1 for v in first]


def test_awq_is_out_by_in() -> None:
    """Eight output columns of one input, each with its own zero point and scale."""
    parts = {
        "qweight": words(0x66666666).view(1, 1),
        "qzeros": words(0x22222222).view(1, 1),
        "scales": torch.arange(1.0, 9.0)[None],
    }
    assert rules.awq(parts).tolist() == [[4.0 * s] for s in range(1, 9)]


@pytest.mark.parametrize("scale", [torch.ones(3), torch.ones(2, 3), torch.ones(1, 2, 2)])
def test_scales_that_fit_no_layout_are_refused(scale: torch.Tensor) -> None:
    """A weight [2, 4] has no three of anything."""
    with pytest.raises(ValueError, match="scales"):
        rules.spread(scale, 2, 4)
