"""How large a capture will be, before anything is started."""

from __future__ import annotations

from pathlib import Path

from hsprobe.schema import CaptureSpec

from ..engines import machine
from ..errors import HsparityError
from . import checkpoint

BYTES = {"float32": 4, "float": 4}  # every other dtype takes two
MARGIN = 1.05  # headers, manifest, log
# Sites per wildcard, in a model of L layers; sites that are not H wide are small beside these.
WILDCARDS = {"boundary": 1, "hidden": 0, "residual": 0, "attn_out": 0, "mlp_out": 0}


def capture_bytes(spec: CaptureSpec, shape: checkpoint.Shape) -> tuple[int, int]:
    """Bytes of the finished capture, and at the peak: a batch lies in the spool and in its shards at once."""
    width = shape.hidden_size * BYTES.get(spec.dtype, 2)
    sites = 0
    if spec.mechanism in ("hooks", "both"):
        for key in spec.sites:
            kind, _, index = key.partition(".")
            sites += shape.num_layers + WILDCARDS.get(kind, 0) if index == "*" else 1
    if spec.mechanism in ("native", "both"):
        sites += len(spec.native_ids) or 3
    tokens = [len(p.token_ids) + max(spec.generate - 1, 0) for p in spec.prompts]
    batch = sum(sorted(tokens)[-max(spec.batch, 1) :])
    total = int(sum(tokens) * sites * width * MARGIN)
    return total, total + batch * sites * width


def check_disk(spec: CaptureSpec, out: Path, done: int) -> tuple[int, int] | None:
    """(bytes of the capture, free bytes), or None where the model's shape is not known yet.

    `done` prompts are written already. Raises E205 when what is left does not fit.
    """
    shape = checkpoint.read_shape(spec.model, spec.revision)
    if shape is None:
        return None
    total, peak = capture_bytes(spec, shape)
    need = peak - total * done // max(len(spec.prompts), 1)
    free = machine.free_bytes(out)
    if free < need:
        raise HsparityError(
            "E205",
            f"not enough disk for this capture in {out}",
            (f"needed  {machine.gigabytes(need)}", f"free    {machine.gigabytes(free)}"),
            "ask for fewer boundaries (--layers 2,30,58) or prompts (--limit 8), or another folder (-o)",
        )
    return total, free
