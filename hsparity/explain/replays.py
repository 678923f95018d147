"""E230 to E239: replaying decoder layers from a checkpoint. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E230",
        "no-layer-to-replay",
        "No decoder layer has both its input and its output in the capture.",
        "Layer k is replayed from boundary k, and what comes out is held against boundary k + 1. A capture of a "
        "draft's three layers holds no two neighbours.",
        "Capture with --sites 'boundary.*'. With attn_out.*, mlp_out.*, router_logits.* and experts.* besides, the "
        "replay says which part of a layer adds the error.",
    ),
    entry(
        "E231",
        "unknown-quantisation",
        "The checkpoint's weights are stored in a way whose rule is not known here.",
        "A wrong rule gives weights that look right and are not, so none is guessed. Known are compressed-tensors "
        "(pack-quantized, int-quantized, float-quantized, naive-quantized, dense; per tensor, channel, group or block), "
        "fp8 (per tensor or in blocks), GPTQ with 2, 4 or 8 bits, AWQ gemm with 4, and what is not quantised. Weights "
        "under a transform, and integers or float8 without scales beside them, are refused too.",
        "Name a checkpoint of the same weights in one of these forms with --model PATH.",
    ),
    entry(
        "E232",
        "tensor-absent",
        "A tensor that the replay of a layer needs is not in the checkpoint.",
        "An incomplete download, a folder that holds an adapter only, or a layer number that the model does not have.",
        "Name the folder of the whole checkpoint with --model PATH.",
    ),
    entry(
        "E233",
        "no-such-layer-class",
        "Transformers builds no decoder layer of this model, or builds one that the checkpoint's tensors do not fit.",
        "The replay runs the family's own Transformers class. A family that needs remote code, or is newer than the "
        "installed Transformers, has none; remote code is not run.",
        "Install a Transformers that has the family. compare and bisect work without a replay.",
    ),
    entry(
        "E234",
        "no-whole-prompt",
        "No prompt of the capture has a row for every position from 0 on.",
        "A token attends to all that came before it, so a layer is replayed on whole prompts only. Prefix caching "
        "leaves out the rows that it found in its cache.",
        "Capture with prefix caching off and every row kept, which is what hsparity capture does by default.",
    ),
    entry(
        "E235",
        "twin-refused",
        "The folder for the dequantised checkpoint holds something else.",
        "A dequantised checkpoint is continued where it stopped, but only when it is made from the same files.",
        "Name another folder, or remove this one.",
    ),
    entry(
        "E236",
        "no-state-to-replay",
        "The captured input of a layer holds NaN or Inf, or nothing but zeros.",
        "What follows from such a state says nothing of the layer that it is fed to. An overflow in float16, a row that "
        "was never written, a damaged dump.",
        "hsparity compare says at which boundary and which tokens it begins (HS303). --layers replays the layers before.",
    ),
)
