"""A draft checkpoint as it lies on disk: its config, its tensors by one set of names. No weight is read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hsparity.capture import checkpoint
from hsparity.capture.shards import read_header
from hsparity.errors import HsparityError

PICKLES = ("pytorch_model.bin", "model.pt", "model.bin")
NESTED, TOP = "eagle_config.eagle_aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"
SPECULATORS, MIDLAYER, LAYERS = "speculators", "midlayer", "layers.0"

# Published heads name one tensor in several ways: EAGLE and SpecForge say midlayer, vLLM and speculators layers.0, EAGLE 3.1
# heads of Kimi-K2 number their norms low, mid, high.
RENAMED = (
    (re.compile(r"^(?:draft_model\.)?(?:model\.)?"), ""),
    (re.compile(r"^midlayer\."), "layers.0."),
    (re.compile(r"^aux_norm_low\."), "fc_norm.0."),
    (re.compile(r"^aux_norm_mid\."), "fc_norm.1."),
    (re.compile(r"^aux_norm_high\."), "fc_norm.2."),
    (re.compile(r"^draft_id_to_target_id$"), "d2t"),
)


@dataclass(frozen=True, slots=True)
class Header:
    """A tensor that is not read: its dtype as safetensors spells it ("BF16", "I64", "BOOL") and its shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """An EAGLE-3 head. `layer` is the config of its decoder layer: the config itself, or what speculators nests."""

    folder: Path
    spelled: str  # as the user typed it
    layout: str  # SPECULATORS | MIDLAYER | LAYERS: how its config and its tensors are written
    config: Mapping[str, Any]
    layer: Mapping[str, Any]
    tensors: Mapping[str, Header] = field(repr=False)  # by canonical name
    stored: Mapping[str, str] = field(repr=False)  # canonical name -> name in the file

    @property
    def architecture(self) -> str:
        named = self.config.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else ""

    @property
    def hidden_size(self) -> int:
        return self._number("hidden_size") or self.fc_shape[0]

    @property
    def target_hidden_size(self) -> int:
        return self._number("target_hidden_size") or self.hidden_size

    @property
    def vocab_size(self) -> int:
        """Tokens of the target."""
        return self._number("vocab_size")

    @property
    def draft_vocab_size(self) -> int:
        """Tokens the head can draft: rows of its lm_head, else as the config says, else all of them."""
        head = self.tensors.get("lm_head.weight")
        return head.shape[0] if head else self._number("draft_vocab_size") or self.vocab_size

    @property
    def fc_shape(self) -> tuple[int, int]:
        """(width of the head, width of all slots together); (0, 0) without fc."""
        shape = self.tensors["fc.weight"].shape if "fc.weight" in self.tensors else ()
        return (shape[0], shape[1]) if len(shape) == 2 else (0, 0)

    @property
    def slots(self) -> int:
        """How many target states the head takes, by the width of fc; by the ids, then 3, where that does not divide."""
        width, size = self.fc_shape[1], self.target_hidden_size
        if width and size and width % size == 0:
            return width // size
        return len(self.ids or ()) or 3

    @property
    def nested(self) -> Mapping[str, Any]:
        """The config's eagle_config; empty without one."""
        value = self.config.get("eagle_config")
        return value if isinstance(value, dict) else {}

    @property
    def ids_by_key(self) -> dict[str, tuple[int, ...]]:
        """The aux layer ids under each key that holds a list of whole numbers: NESTED, TOP."""
        held = {NESTED: self.nested.get(TOP), TOP: self.config.get(TOP)}
        return {key: found for key, value in held.items() if (found := _whole_numbers(value))}

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The aux layer ids, from the key that the layout's own tools write first; None where neither holds any."""
        found = self.ids_by_key
        first = TOP if self.layout == SPECULATORS else NESTED
        return found.get(first) or next(iter(found.values()), None)

    def says(self, name: str, default: Any = None) -> Any:
        """A setting from eagle_config, the config, or the layer's config, whichever has it first."""
        for place in (self.nested, self.config, self.layer):
            if place.get(name) is not None:
                return place[name]
        return default

    @property
    def is_mla(self) -> bool:
        """Whether its attention is DeepSeek's multi-head latent attention."""
        return any(".kv_b_proj." in name or ".kv_a_proj_with_mqa." in name for name in self.tensors)

    def _number(self, name: str) -> int:
        for place in (self.config, self.layer):
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return 0


def open_draft(spelled: str) -> Draft:
    """The head in a folder or of a hub name in the hub's cache. Raises E260 (not here, no config), E261 (no weights), E262
    (no EAGLE-3 head) and E206 (damaged)."""
    folder = _folder(spelled)
    config = _config(folder)
    inner = config.get("transformer_layer_config")
    tensors, stored = _headers(folder)
    layout = SPECULATORS if isinstance(inner, dict) else LAYERS
    if layout == LAYERS and any(
        name.startswith(("midlayer.", "model.midlayer.")) for name in stored.values()
    ):
        layout = MIDLAYER
    _check_types(spelled, config, inner if isinstance(inner, dict) else config)
    draft = Draft(
        folder, spelled, layout, config, inner if isinstance(inner, dict) else config, tensors, stored
    )
    if draft.fc_shape == (0, 0) or not any(n.startswith("layers.0.self_attn.") for n in tensors):
        held = ", ".join(list(stored.values())[:4])
        notes = ("an EAGLE-3 head has  fc.weight and one decoder layer", f"{spelled} has  {held} …")
        raise HsparityError(
            "E262", f"{spelled} is no EAGLE-3 head", notes, "name the draft's folder, not the target's"
        )
    return draft


def _check_types(spelled: str, config: Mapping[str, Any], layer: Mapping[str, Any]) -> None:
    """Refuse values that no reader of such a config can do anything with. Raises E260."""
    for place in (config, layer):
        for name, wanted in EXPECTED.items():
            value = place.get(name)
            if value is not None and not wanted[0](value):
                raise HsparityError(
                    "E260",
                    f"{spelled}: config.json cannot be read: {name} is no {wanted[1]}",
                    (f"config.json  {name} is {str(value)[:60]!r}", f"wanted       a {wanted[1]}"),
                    f'write "{name}" as the head was trained with',
                )


def _size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15


def _rope(value: Any) -> bool:
    """A rope's settings, or one such for each kind of layer: numbers are above 0 where they scale."""
    if not isinstance(value, dict):
        return False
    parts = [v for v in value.values() if isinstance(v, dict)] or [value]
    scales = ("rope_theta", "factor", "original_max_position_embeddings")
    return all(p.get(name) is None or _positive(p[name]) for p in parts for name in scales)


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


SIZES = (
    "hidden_size",
    "target_hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "draft_vocab_size",
)
# What a value must be, by its key, in words too; null and absent are for each reader to judge.
EXPECTED = {
    **dict.fromkeys(SIZES, (_size, "whole number above 0")),
    **dict.fromkeys(("rms_norm_eps", "rope_theta"), (_positive, "number above 0")),
    **dict.fromkeys(("rope_scaling", "rope_parameters"), (_rope, "rope's settings")),
    "layer_types": (_names, "list of names"),
}


def _folder(spelled: str) -> Path:
    local = Path(spelled).expanduser()
    if local.is_dir():
        return local
    found = None if local.is_absolute() else checkpoint.config_file(spelled)
    if found is None:
        raise HsparityError(
            "E260",
            f"no draft head at {spelled}",
            (f"looked at the folder {local} and the hub's cache",),
            "name the folder that holds its config.json and weights",
        )
    return found.parent


def _config(folder: Path) -> dict[str, Any]:
    try:
        raw = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, RecursionError) as error:
        notes = (f"{type(error).__name__}: {str(error)[:200]}",)
        raise HsparityError("E260", f"{folder} holds no readable config.json", notes, _WHOLE) from None
    if not isinstance(raw, dict):
        raise HsparityError("E260", f"{folder / 'config.json'} holds no JSON object", help=_WHOLE)
    return raw


def _headers(folder: Path) -> tuple[dict[str, Header], dict[str, str]]:
    """Headers and file names by canonical name."""
    found = {name: Header(dtype, shape) for name, dtype, shape in _stored(folder)}
    stored: dict[str, str] = {}
    for name in found:
        short = canonical(name)
        if short in stored:
            notes = (f"{stored[short]} and {name} are both {short}",)
            raise HsparityError("E262", f"{folder} holds one tensor twice", notes)
        stored[short] = name
    return {short: found[name] for short, name in stored.items()}, stored


def _stored(folder: Path) -> list[tuple[str, str, tuple[int, ...]]]:
    if pickled := pickle_file(folder):
        from hsparity.capture.readers import pickled as reader

        held = reader.load(pickled)
        if not isinstance(held, dict) or not all(
            isinstance(n, str) and hasattr(t, "dtype") and hasattr(t, "shape") for n, t in held.items()
        ):
            raise HsparityError("E206", f"{pickled} holds no tensors by name", help=_WHOLE)
        return [(n, DTYPES.get(str(t.dtype), str(t.dtype)), tuple(t.shape)) for n, t in held.items()]
    try:
        files = checkpoint.tensor_files(folder)
    except HsparityError as error:
        if error.code != "E107":
            raise
        raise HsparityError(
            "E261",
            f"{folder} holds no weights",
            ("looked for *.safetensors, " + ", ".join(PICKLES),),
            "name the folder that holds the head's weights",
        ) from None
    made = []
    for file in sorted(set(files.values())):
        made += [(n, t.dtype, tuple(t.shape)) for n, t in read_header(file).items() if n in files]
    return made


def pickle_file(folder: Path) -> Path | None:
    """The weights of a head that has them in torch's own format only."""
    if any(folder.glob("*.safetensors")):
        return None
    return next((folder / name for name in PICKLES if (folder / name).is_file()), None)


def weights_sha256(draft: Draft) -> str:
    """SHA-256 of the bytes of a draft's weight files, in the order of their names."""
    digest = hashlib.sha256()
    pickled = pickle_file(draft.folder)
    for path in [pickled] if pickled else sorted(draft.folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(2**22):
                digest.update(block)
    return digest.hexdigest()


_WHOLE = "name the folder that the trainer exported, whole"


def canonical(name: str) -> str:
    """A tensor's name as vLLM's module calls it: "midlayer.hidden_norm.weight" -> "layers.0.hidden_norm.weight"."""
    for pattern, new in RENAMED:
        name = pattern.sub(new, name)
    return name


def _whole_numbers(value: Any) -> tuple[int, ...]:
    """A list of whole numbers; empty for anything else."""
    if not isinstance(value, list | tuple) or any(
        not isinstance(v, int) or isinstance(v, bool) for v in value
    ):
        return ()
    return tuple(value)


DTYPES = {
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.bool": "BOOL",
    "torch.uint8": "U8",
    "torch.float8_e4m3fn": "F8_E4M3",
}
