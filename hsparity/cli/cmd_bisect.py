"""hsparity bisect: turn one engine knob at a time, and say which of them makes the difference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import HsparityError
from .grouped import GroupedCommand, color_option, grouped_option
from .output import console_options, echo_json, open_outputs, tell, write_file

if TYPE_CHECKING:
    from ..experiments.bisecting import Wanted
    from ..experiments.result import Bisect

WHAT, EQUAL, OUTPUT = "What to turn", "What counts as equal", "Output"


@click.command(cls=GroupedCommand)
@click.argument("ref")
@click.argument("cand")
@grouped_option(WHAT, "--plan", is_flag=True, help="Print what would be captured and its cost, and stop.")
@grouped_option(
    WHAT, "--knobs", metavar="LIST", help="Turn these only: kv-dtype,dtype. hsparity doctor lists them."
)
@grouped_option(WHAT, "--all", "everything", is_flag=True, help="Go on after a cause is settled.")
@grouped_option(
    WHAT,
    "--tokens",
    metavar="SPAN",
    help="Measure on prefill, decode, or a slice such as 0:128.  [default: all]",
)
@grouped_option(
    EQUAL,
    "--floor",
    "floors",
    multiple=True,
    metavar="DIR",
    help="Transformers captures in fp32 and bf16, or a folder of them; none for no floor.  "
    "[default: the one beside a capture, which hsparity floor makes]",
)
@grouped_option(
    OUTPUT,
    "--cache",
    default="captures/bisect",
    metavar="DIR",
    help="Captures by setting: what is there is used again.  [default: captures/bisect]",
)
@grouped_option(OUTPUT, "--json", "json_", metavar="FILE", help="Write the whole result; '-' for stdout.")
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(
    OUTPUT, "-v", "--verbose", is_flag=True, help="Show what cannot be turned, and the engine's log."
)
@color_option
def bisect(**given: Any) -> int:
    """Say which setting of an engine makes REF and CAND differ.

    Both are captures made by hsparity. Settings that differ between them are set alike one at a
    time, the capture is made again, and what is gone of the difference is that setting's share.
    Where none differs, settings are turned away from where they stand. A setting that the engine
    ignores is called NOT APPLIED, never without effect.

    \b
    Examples:
      hsparity bisect captures/bf16 captures/fp8kv --plan
      hsparity bisect captures/bf16 captures/fp8kv --floor captures/hf-fp32 --floor captures/hf-bf16
      hsparity bisect captures/vllm captures/sglang --knobs attention-backend,chunked-prefill

    \b
    Exit status:
      0  within noise  the difference is what bf16 costs, or there is none
      1  settled       the cause is known, and it is beyond the floor
      2  usage         the command or a capture is wrong
      3  inconclusive  the cause is not settled
      4  engine        every capture failed
    """
    outputs = open_outputs(json=given["json_"])
    from ..experiments.bisecting import bisect as run

    result = run(_wanted(given), lambda text: tell(f"bisect: {text}"))
    _write(result, outputs, given)
    return result.exit_code


def _wanted(given: dict[str, Any]) -> Wanted:
    from ..capture import floorstore
    from ..experiments.bisecting import Wanted
    from ..yardstick import find_floors

    floors = [path for path in given["floors"] if path != "none"]
    if not given["floors"]:
        beside = (floorstore.beside(Path(given[side]), floorstore.REFERENCES) for side in ("ref", "cand"))
        floors = [str(path) for path in next((found for found in beside if len(found) == 2), ())]
    names = tuple(n.strip() for n in (given["knobs"] or "").split(",") if n.strip())
    if given["knobs"] is not None and not names:
        raise HsparityError("E103", "--knobs names no knob", help="--knobs kv-dtype,dtype")
    return Wanted(
        ref=given["ref"],
        cand=given["cand"],
        floors=tuple(source for path in floors for source in find_floors(Path(path))),
        knobs=names,
        everything=given["everything"],
        plan=given["plan"],
        cache=Path(given["cache"]),
        tokens=given["tokens"],
        verbose=given["verbose"],
        command=("hsparity", *sys.argv[1:]),
    )


def _write(result: Bisect, outputs: dict[str, str], given: dict[str, Any]) -> None:
    from .bisect_page import render

    options = console_options(given["color"], quiet=given["quiet"], verbose=given["verbose"])
    path = outputs.get("json")
    if path == "-":
        echo_json(result.to_json(indent=1))
        return
    click.echo(render(result, options), color=options.color)
    if path:
        write_file(path, result.to_json(indent=1) + "\n")
        tell(f"json report: {path}")


COMMAND = bisect
