"""An EAGLE-3 head as a thing that runs: its fc, its decoder layers, its lm_head, its vocabulary."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional as F

from hsparity.drafter.attention import Attention, Grouped
from hsparity.drafter.draft import Draft
from hsparity.drafter.loading import Lender, Linear, Weights, flag, rms_norm, whole
from hsparity.drafter.mla import Latent
from hsparity.drafter.vocabulary import read_vocabulary
from hsparity.errors import HsparityError


class DecoderLayer:
    """One decoder layer of a head. The first reads the token's embedding beside the state; the others the state alone."""

    def __init__(self, weights: Weights, index: int) -> None:
        """Raises E263, E264 and E268."""
        name, hidden = f"layers.{index}", weights.number("hidden_size")
        self.is_first = index == 0
        self.eps = weights.eps
        width = 2 * hidden if self.is_first else hidden
        self.attention: Attention = (Latent if weights.draft.is_mla else Grouped)(weights, index, width)
        # SGLang calls hidden_norm what vLLM and speculators call input_layernorm in layers after the first.
        before = "input_layernorm" if weights.has(f"{name}.input_layernorm.weight") else "hidden_norm"
        before = "input_layernorm" if self.is_first else before
        self.input_norm = weights.take(f"{name}.{before}.weight", (hidden,))
        self.hidden_norm = weights.take(f"{name}.hidden_norm.weight", (hidden,)) if self.is_first else None
        self.norm_before_residual = flag(weights.draft, "norm_before_residual")
        self.after_norm = weights.take(f"{name}.post_attention_layernorm.weight", (hidden,))
        # Llama 4 sizes its dense layers by a name of its own.
        inner = weights.number("intermediate_size_mlp", 0) or weights.number("intermediate_size")
        self.gate = weights.linear(f"{name}.mlp.gate_proj", inner, hidden)
        self.up = weights.linear(f"{name}.mlp.up_proj", inner, hidden)
        self.down = weights.linear(f"{name}.mlp.down_proj", hidden, inner)
        self.activation = _activation(str(weights.layer.get("hidden_act") or "silu"), weights.spelled)

    def enter(self, state_nh: torch.Tensor, embedded_nh: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(input of the attention, residual stream)."""
        if self.hidden_norm is None:
            return rms_norm(state_nh, self.input_norm, self.eps), state_nh
        normed_nh = rms_norm(state_nh, self.hidden_norm, self.eps)
        residual_nh = normed_nh if self.norm_before_residual else state_nh
        return torch.cat((rms_norm(embedded_nh, self.input_norm, self.eps), normed_nh), -1), residual_nh

    def leave(self, residual_nh: torch.Tensor, mixed_nd: torch.Tensor) -> torch.Tensor:
        """The residual stream after the layer, of what its attention mixed."""
        state_nh = residual_nh + self.attention.output(mixed_nd)
        normed_nh = rms_norm(state_nh, self.after_norm, self.eps)
        inner = self.activation(F.linear(normed_nh, *self.gate)) * F.linear(normed_nh, *self.up)
        return state_nh + F.linear(inner, *self.down)


class Head:
    """A head with its weights in memory, on the CPU."""

    def __init__(self, draft: Draft, model: Path, dtype: torch.dtype) -> None:
        weights, lender = Weights(draft, dtype), Lender(model, draft)
        self.draft, self.dtype, self.eps = draft, dtype, weights.eps
        self.hidden_size = weights.number("hidden_size")
        self.uses_fc = bool(draft.says("use_aux_hidden_state", True))
        self.target_hidden_size = draft.target_hidden_size if self.uses_fc else self.hidden_size
        self.slots = draft.slots if self.uses_fc else 1
        self.norm_output = flag(draft, "norm_output")
        self.logit_scale = float(draft.says("logit_scale", 1.0))
        self._fc, self._input_norm, self._slot_norms = self._slot_weights(weights)
        self.layers = [DecoderLayer(weights, i) for i in range(weights.number("num_hidden_layers", 1))]
        self._norm = weights.take("norm.weight", (self.hidden_size,))
        self.vocab = lender.vocab
        maps = [weights.stored(n) if weights.has(n) else None for n in ("d2t", "t2d")]
        read = read_vocabulary(maps[0], maps[1], draft.draft_vocab_size, self.vocab, draft.spelled)
        self.target_ids, self.reading, self.draftable = read.target_ids, read.reading, read.draftable
        self.lent: dict[str, torch.Tensor] = {}  # what the target lends, by the head's name for it
        self._embedding_vh = self._embedding(weights, lender)
        self._lm_head_vh = self._output(weights, lender)

    def combine(self, fed_tk: torch.Tensor) -> torch.Tensor:
        """The head's first state [T, H] of the target's states [T, slots x target hidden size]. Raises E264."""
        wanted = self.slots * self.target_hidden_size
        if fed_tk.shape[-1] != wanted:
            notes = (
                f"the head takes  {wanted} = {self.slots} x {self.target_hidden_size}",
                f"it is fed       {fed_tk.shape[-1]}",
            )
            fix = "feed as many states as its fc was trained on"
            raise HsparityError("E264", f"{self.draft.spelled} is fed states of another width", notes, fix)
        state = fed_tk.to(self.dtype)
        if self._fc is None:
            return state
        if self._input_norm is not None:
            state = rms_norm(state, self._input_norm, self.eps)
        if self._slot_norms:
            parts = state.chunk(self.slots, -1)
            normed = [rms_norm(p, n, self.eps) for p, n in zip(parts, self._slot_norms, strict=True)]
            state = torch.cat(normed, -1)
        return F.linear(state, *self._fc)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings [n, H] of target ids. Raises E267 for ids that the embedding does not have."""
        rows = len(self._embedding_vh)
        if len(token_ids) and not 0 <= int(token_ids.min()) <= int(token_ids.max()) < rows:
            notes = (f"text       token id {int(token_ids.max())}", f"embedding  {rows} tokens")
            fix = "name the target that the text was made by: --model PATH"
            raise HsparityError("E267", f"{self.draft.spelled} cannot embed the text", notes, fix)
        return F.embedding(token_ids, self._embedding_vh).to(self.dtype)

    def norm(self, state_nh: torch.Tensor) -> torch.Tensor:
        """The head's final norm, after which its lm_head reads."""
        return rms_norm(state_nh, self._norm, self.eps)

    def logits(self, hidden_nh: torch.Tensor) -> torch.Tensor:
        """Logits [n, draft vocab] of normed states [n, H], scaled as the config says."""
        return F.linear(hidden_nh.to(self.dtype), self._lm_head_vh) * self.logit_scale

    def _slot_weights(
        self, weights: Weights
    ) -> tuple[Linear | None, torch.Tensor | None, list[torch.Tensor]]:
        """fc, the norm before it, the norms of the slots; nothing of all that where the config turns the slots off."""
        if not self.uses_fc:
            return None, None, []
        draft, size = self.draft, self.target_hidden_size
        stated = whole(draft.says("num_aux_hidden_states")) or len(draft.ids or ())
        wanted = (self.hidden_size, (stated or self.slots) * size)
        if draft.fc_shape != wanted:
            why = f"{stated or self.slots} slots x {size}"
            fix = f'"eagle_aux_hidden_state_layer_ids" with {draft.fc_shape[1] // size} ids'
            if draft.fc_shape[1] % size or draft.fc_shape[0] != self.hidden_size:
                fix = '"target_hidden_size" and "hidden_size"'
            raise weights.misfit("fc.weight", draft.fc_shape, wanted, why, f"{fix} in config.json")
        width = self.slots * size
        before = weights.take("input_norm.weight", (width,)) if flag(draft, "norm_before_fc") else None
        each = range(self.slots) if flag(draft, "fc_norm", "use_aux_norm") else range(0)
        norms = [weights.take(f"fc_norm.{slot}.weight", (size,)) for slot in each]
        return weights.linear("fc", self.hidden_size, width), before, norms

    def _output(self, weights: Weights, lender: Lender) -> torch.Tensor:
        """lm_head [draft vocab, H]: the head's own, else its tied embedding's rows, else the target's."""
        size = len(self.target_ids)
        if weights.has("lm_head.weight"):
            return weights.take("lm_head.weight", (size, self.hidden_size))
        if flag(self.draft, "tie_word_embeddings"):
            return self._embedding_vh[self.target_ids].to(self.dtype)
        self.lent["lm_head.weight"] = lender.lm_head()[self.target_ids].to(self.dtype)
        return self.lent["lm_head.weight"]

    def _embedding(self, weights: Weights, lender: Lender) -> torch.Tensor:
        """The head's own embedding [V, H] as it is stored, else the target's. speculators saves NaN for one that it never
        loaded."""
        name = "embed_tokens.weight"
        own_vh = weights.stored(name) if weights.has(name) else None
        if own_vh is not None and (own_vh.ndim != 2 or own_vh.shape[1] != self.hidden_size):
            raise weights.misfit(name, tuple(own_vh.shape), (self.vocab, self.hidden_size))
        if own_vh is not None and not own_vh.isnan().any():
            return own_vh
        self.lent[name] = lender.embedding()
        return self.lent[name]


def load_head(draft: Draft, model: Path, dtype: torch.dtype = torch.float32) -> Head:
    """A head ready to run in `dtype`; what it does not hold is the target's, whose checkpoint's folder is `model`.

    Raises E263 (a tensor is absent), E264 (a shape is not the config's), E265 and E266 (d2t leads astray), E267 (the
    target cannot lend what the head lacks), E268 (rope or activation unknown) and what reading a checkpoint raises.
    """
    return Head(draft, model, dtype)


def _activation(name: str, spelled: str) -> torch.nn.Module:
    from transformers.activations import ACT2FN

    if name not in ACT2FN:
        notes = (f"config.json  hidden_act {name}",)
        raise HsparityError(
            "E268", f"{spelled}: Transformers has no activation {name}", notes, '"hidden_act": "silu"'
        )
    found: torch.nn.Module = ACT2FN[name]
    return found
