"""E263 to E269: loading a draft head and running it. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E263",
        "draft-lacks-tensor",
        "A tensor that the draft head needs is not in its checkpoint.",
        "Its config.json asks for a norm, a bias or a projection that the weights do not hold. Engines differ in what they "
        "do then: some refuse, some go on with what was in memory. No number that comes out of that is worth comparing.",
        "Turn the setting that the message names off in config.json when the head was trained without it, or export the "
        "head again with all of its weights.",
    ),
    entry(
        "E264",
        "draft-shape",
        "A tensor of the draft head has another shape than its config says, or it is fed states of another width.",
        "fc takes as many states as the head was trained on, each as wide as the target: with three states of a target "
        "that is 4096 wide, fc is 12288 wide. The message lines both sides up.",
        "Change the line of config.json that the message names (hidden_size, target_hidden_size, "
        "eagle_aux_hidden_state_layer_ids, head_dim), or name the checkpoint that belongs to it.",
    ),
    entry(
        "E265",
        "draft-outside-vocabulary",
        "The draft head's vocabulary leads to tokens that the target does not have.",
        "d2t holds, for each token of the head, the target's id minus the head's own id; engines add it to the head's id. "
        "A list of the target's ids themselves is read as such where t2d, or the numbers alone, leave no other reading.",
        "Write d2t again from the map that the head was trained with, and name the target it was trained for.",
    ),
    entry(
        "E266",
        "draft-maps-disagree",
        "d2t and t2d of the draft head name different tokens of the target.",
        "t2d marks the target's tokens that the head can draft. d2t fits it neither as differences nor as ids, so one of "
        "them is of another head. Without d2t, engines take the head's tokens for the target's first ones.",
        "Export both from one map: d2t[i] = target id - i, t2d[target id] = true.",
    ),
    entry(
        "E267",
        "target-cannot-lend",
        "The draft head has no embedding or no lm_head, and the target's cannot stand in for it.",
        "Most heads take the target's embedding, and some its lm_head. That needs the target's checkpoint, with a hidden "
        "size and a vocabulary that are the head's.",
        "Name the target that the head was trained for with --model PATH.",
    ),
    entry(
        "E268",
        "draft-needs-transformers",
        "The draft head's rotary embedding or activation is not known to Transformers, or it is not installed.",
        "Rotary frequencies and activations come from Transformers' own rules, so that a head runs as it was trained.",
        "Install it with pip install 'hsparity[hf]'; correct rope_parameters, rope_scaling or hidden_act in config.json.",
    ),
    entry(
        "E269",
        "draft-library-failed",
        "The speculators library could not run the head.",
        "A head in speculators' own format is run by the library's own model, in the interpreter that holds it, to check "
        "the one here. The message ends with what the library said.",
        "Run without the library, or repair its environment: hsparity engines install speculators.",
    ),
)
