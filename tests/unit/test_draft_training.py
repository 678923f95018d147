"""tools/draft_model.py: training all chains of a text at once is the same as drafting each by itself."""

from __future__ import annotations

import torch
from torch.nn import functional

from tools.draft_batch import collate
from tools.draft_features import Features
from tools.draft_model import Head, Shape
from tools.draft_text import Answer

TINY = Shape(hidden=12, heads=4, kv_heads=2, head_dim=6, intermediate=10, draft_vocab=20)
STEPS = 3
PAIRS = {
    "q_proj": "self_attn.q_proj.weight",
    "k_proj": "self_attn.k_proj.weight",
    "v_proj": "self_attn.v_proj.weight",
    "o_proj": "self_attn.o_proj.weight",
}


def _head() -> Head:
    torch.manual_seed(0)
    head = Head(TINY).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return head


def _rotated(x_hd: torch.Tensor, position: int) -> torch.Tensor:
    pairs = torch.complex(*x_hd.chunk(2, -1))
    turn = position * TINY.rope_theta ** (-torch.arange(TINY.head_dim // 2) * 2 / TINY.head_dim)
    turned = pairs * torch.polar(torch.ones_like(turn), turn)
    return torch.cat([turned.real, turned.imag], -1)


def _drafted(head: Head, slots_rs: torch.Tensor, embeds_rh: torch.Tensor, start: int) -> list[torch.Tensor]:
    """Logits of STEPS drafts after row `start`, one row at a time with a cache of keys, as an engine drafts."""
    weight = dict(head.named_parameters())
    layer = {name: weight[f"midlayer.{path}"] for name, path in PAIRS.items()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.square().mean() + TINY.eps).sqrt() * weight[name]

    def row(
        hidden: torch.Tensor, position: int, cache: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> torch.Tensor:
        embed = norm(embeds_rh[position], "midlayer.input_layernorm.weight")
        wide = torch.cat([embed, norm(hidden, "midlayer.hidden_norm.weight")])
        query = _rotated((layer["q_proj"] @ wide).view(TINY.heads, -1), position)
        key = _rotated((layer["k_proj"] @ wide).view(TINY.kv_heads, -1), position)
        cache.append((key, (layer["v_proj"] @ wide).view(TINY.kv_heads, -1)))
        out = []
        for number in range(TINY.heads):
            shared = number // (TINY.heads // TINY.kv_heads)
            scores = torch.stack([query[number] @ k[shared] for k, _ in cache]) / TINY.head_dim**0.5
            out.append(sum(w * v[shared] for w, (_, v) in zip(scores.softmax(0), cache, strict=True)))
        hidden = hidden + layer["o_proj"] @ torch.cat(out)
        x = norm(hidden, "midlayer.post_attention_layernorm.weight")
        mlp = {part: weight[f"midlayer.mlp.{part}_proj.weight"] for part in ("gate", "up", "down")}
        return hidden + mlp["down"] @ (functional.silu(mlp["gate"] @ x) * (mlp["up"] @ x))

    cache: list[tuple[torch.Tensor, torch.Tensor]] = []
    for position in range(start + 1):
        hidden = row(weight["fc.weight"] @ slots_rs[position], position, cache)
    logits = []
    for step in range(STEPS):
        if step:
            hidden = row(hidden, start + step, cache)
        logits.append(weight["lm_head.weight"] @ norm(hidden, "norm.weight"))
    return logits


def test_all_chains_of_a_batch_are_what_each_drafts_alone() -> None:
    """The logits of every step and start row equal a row-by-row chain, with and without padding on the left."""
    head, first = _head(), 3
    slots, embeds = torch.randn(2, 9, 36).double(), torch.randn(2, 9, 12).double()
    real = torch.ones(2, 9, dtype=torch.bool)
    real[1, :2] = False  # the second answer's prompt is two rows shorter
    at_once = head(slots, embeds, real, first, STEPS)
    for answer, padding in ((0, 0), (1, 2)):
        for start in range(first, 9 - STEPS + 1):
            alone = _drafted(head, slots[answer, padding:], embeds[answer, padding:], start - padding)
            for step, logits in enumerate(alone):
                got = at_once[step][answer, start - first]
                torch.testing.assert_close(got, logits, rtol=1e-5, atol=1e-5)  # rotary angles are f32


def test_a_row_is_given_the_next_token_and_names_the_one_after() -> None:
    """A batch lines up states, the tokens after them and the states that decide the drafts."""
    answers = (Answer("a", "t", [5, 6, 7], [8, 9, 10, 11]), Answer("b", "t", [1, 2], [3, 4, 5]))
    state = torch.arange(12.0)[:, None].expand(12, 2).bfloat16()
    features = Features(answers, (0, 7), {"2": state, "normed": state}, {"normed": torch.arange(12)})
    batch = collate(features, [0, 1], ["2"], "normed")
    assert batch.first == 2
    assert batch.tokens.tolist() == [[6, 7, 8, 9, 10], [0, 2, 3, 4, 0]]
    assert batch.truth.tolist() == [[7, 8, 9, 10, 11], [0, 3, 4, 5, 0]]
    assert batch.slots[..., 0].tolist() == [[0, 1, 2, 3, 4], [0, 7, 8, 9, 0]]
    assert batch.real.tolist() == [[True] * 5, [False, True, True, True, False]]
    assert batch.greedy.tolist() == [[3, 4, 5], [9, 10, 0]]
    assert torch.equal(batch.taught[..., 0], batch.greedy.float())
