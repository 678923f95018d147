"""hsparity replay: which decoder layers add error, on which side, by which part."""

from __future__ import annotations

import sys
from dataclasses import replace as changed
from typing import TYPE_CHECKING

import click

from ..errors import HsparityError
from .grouped import GroupedCommand, color_option, grouped_option
from .output import EXIT_CODES, console_options, echo_json, open_outputs, write_file

if TYPE_CHECKING:
    from ..capture.source import Source
    from ..replay.result import Replay

WHAT, RESULT, OUTPUT = "What to replay", "Result", "Output"


@click.command(cls=GroupedCommand)
@click.argument("ref")
@click.argument("cand", required=False)
@grouped_option(
    WHAT,
    "--model",
    default="",
    metavar="PATH",
    help="Checkpoint to replay from: a folder, a bundled model, or a hub model in the hub's cache.  "
    "[default: the one each capture names]",
)
@grouped_option(
    WHAT, "--cand-model", default="", metavar="PATH", help="The candidate's, where it is another one."
)
@grouped_option(
    WHAT,
    "--layers",
    metavar="LIST",
    help="Decoder layers to replay: 2,30,58 or 0-60:5 or all.  [default: all that lie between two captured boundaries]",
)
@grouped_option(
    WHAT,
    "--boundaries",
    metavar="LIST",
    help="The layers that these boundaries come out of: boundary r is layer r-1's output. Excludes --layers.",
)
@grouped_option(
    WHAT,
    "--tokens",
    type=click.IntRange(min=1),
    default=4096,
    metavar="N",
    help="Replay whole prompts of at most N tokens together.  [default: 4096]",
)
@grouped_option(
    WHAT, "--device", default="", metavar="DEVICE", help="cpu or cuda.  [default: the GPU where there is one]"
)
@grouped_option(
    RESULT, "--json", "json_", metavar="FILE", help="Write the whole result; '-' for standard output."
)
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Give the reason of every verdict.")
@color_option
def replay(
    ref: str,
    cand: str | None,
    model: str,
    cand_model: str,
    layers: str | None,
    boundaries: str | None,
    tokens: int,
    device: str,
    json_: str | None,
    quiet: bool,
    verbose: bool,
    color: str,
) -> int:
    """Replay decoder layers one at a time, and say which of them add error.

    Each layer is run in float32 from the checkpoint on the input that REF (and CAND) captured, and
    its output is held against the captured one: the difference is what this layer adds on this engine,
    whatever came before it. The floor is the same layer in the capture's dtype. Only one layer's
    weights are read at a time; quantised ones are dequantised by their published rule.

    Captures that hold attn_out.*, mlp_out.*, router_logits.* and experts.* as well are told apart by
    part. Where the sides ran different checkpoints, each is replayed with the other's too.

    \b
    Examples:
      hsparity replay captures/vllm captures/sglang
      hsparity replay captures/vllm --layers 30-40 --model /models/M
      hsparity replay captures/bf16 captures/w4a16 --json -

    \b
    Exit status:
      0  within        no layer adds more than its dtype costs
      1  diverged      a layer adds more, on the side named
      2  usage         the command, a capture or a checkpoint is wrong
      3  inconclusive  too few tokens to settle it
    """
    from ..capture.read import open_source
    from ..replay.replaying import replay as run
    from .progress import Progress

    outputs = open_outputs(json=json_)
    sides = [open_source(path) for path in (ref, cand) if path]
    try:
        chosen = _chosen(sides[0], layers, boundaries)
        with Progress("replay") as progress:
            result = run(
                sides[0],
                sides[1] if cand else None,
                model=model,
                cand_model=cand_model,
                layers=chosen,
                tokens=tokens,
                device=device,
                progress=progress,
            )
        for side in sides:
            side.verify()
    finally:
        for side in sides:
            side.close()
    _show(changed(result, command=tuple(sys.argv[1:])), outputs, color, quiet, verbose)
    return int(EXIT_CODES[result.verdict.value])


def _chosen(ref: Source, layers: str | None, boundaries: str | None) -> tuple[int, ...] | None:
    """0-based layers; None for all that can be replayed."""
    if (not layers and not boundaries) or (layers or boundaries or "").strip().lower() == "all":
        return None
    from ..capture.selection import select

    chosen = tuple(r - 1 for r in select(layers, boundaries, ref.manifest.num_layers) if r > 0)
    if not chosen:
        raise HsparityError(
            "E102",
            "boundary 0 is the embedding: no layer makes it",
            help="--boundaries 1 is the first layer's output",
        )
    return chosen


def _show(result: Replay, outputs: dict[str, str], color: str, quiet: bool, verbose: bool) -> None:
    from .replay_page import render

    target = outputs.get("json")
    if target == "-":
        echo_json(result.to_json(indent=1))
        return
    options = console_options(color, quiet=quiet, verbose=verbose)
    click.echo(render(result, options), color=options.color)
    if target:
        write_file(target, result.to_json(indent=1) + "\n")


COMMAND = replay
