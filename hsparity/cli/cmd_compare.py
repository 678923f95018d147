"""hsparity compare: the headline command."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..errors import HsparityError
from .drafter_cost import pricing
from .gating import FAIL_ON, conclude, judged, wanted
from .grouped import GroupedCommand, color_option, grouped_option
from .output import console_options, tell, write_reports
from .report_options import Reports, report_options

if TYPE_CHECKING:
    from ..capture.importing import Wish
    from ..model import Comparison
    from .drafter_cost import Price

WHAT, EQUAL, ENGINES, OUTPUT = (
    "What to compare",
    "What counts as equal",
    "Running engines",
    "Output",
)


@click.command(cls=GroupedCommand)
@click.argument("ref", required=False)
@click.argument("cand", required=False)
@grouped_option(
    WHAT,
    "--layers",
    metavar="LIST",
    help=(
        "Layers that decide the verdict: 2,30,58 or 0-60:5 or eagle3 or all. Layer N is the "
        "output of decoder layer N, boundary N+1.  [default: all]"
    ),
)
@grouped_option(
    WHAT,
    "--boundaries",
    metavar="LIST",
    help=(
        "The same in canonical numbers: boundary r is the residual stream after r layers. Excludes --layers."
    ),
)
@grouped_option(
    WHAT,
    "--offset",
    type=int,
    default=0,
    metavar="N",
    help=(
        "Compare reference layer L with candidate layer L-N. The search for an offset always "
        "runs; only this flag changes the verdict.  [default: 0]"
    ),
)
@grouped_option(
    WHAT, "--tokens", metavar="SLICE", help="all, prefill, decode, or a slice such as 0:128.  [default: all]"
)
@grouped_option(
    WHAT,
    "--slots",
    metavar="LIST",
    help=(
        "What the places of states in files of another format are, as far as you know: "
        "2,30,58,last. See hsparity import --help."
    ),
)
@grouped_option(
    EQUAL,
    "--floor",
    "floors",
    multiple=True,
    metavar="DIR",
    help=(
        "Captures that the differences are measured against: Transformers in fp32 and in "
        "bf16, or a repeat of one side. May be given twice, or name a folder that holds them;"
        " none leaves them out.  [default: what hsparity floor left beside a side]"
    ),
)
@grouped_option(
    EQUAL,
    "--tol",
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help=("Largest relative L2 error of any token to accept, in place of a floor. Excludes --floor."),
)
@grouped_option(
    WHAT,
    "--replay",
    is_flag=True,
    help="Replay every layer in float32 from the checkpoint too, and weigh what each adds in the diagnosis.",
)
@grouped_option(
    WHAT,
    "--draft",
    metavar="DRAFT",
    help="Say in the headline what the difference costs this EAGLE-3 head. See hsparity drafter.",
)
@report_options
@grouped_option(
    ENGINES,
    "--model",
    metavar="M",
    help=("Model for sides that are engines. A folder, a hub name, or tiny:deepseek-v3."),
)
@grouped_option(
    ENGINES,
    "--prompts",
    metavar="FILE",
    help=("Prompts for sides that are engines (JSONL).  [default: a small English set]"),
)
@grouped_option(
    ENGINES,
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Take the first N prompts or samples, for sides that are engines or files.",
)
@grouped_option(
    ENGINES,
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Cut every prompt to N tokens, for sides that are engines.",
)
@grouped_option(
    ENGINES,
    "--no-capture",
    is_flag=True,
    help="Fail rather than start an engine for a side that has no capture.",
)
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Show every layer, and the engines' own logs.")
@color_option
@grouped_option(EQUAL, "--fail-on", metavar="LIST", help=f"{FAIL_ON}  [default: diverged,inconclusive]")
def compare(
    ref: str | None,
    cand: str | None,
    layers: str | None,
    boundaries: str | None,
    offset: int,
    tokens: str | None,
    slots: str | None,
    floors: tuple[str, ...],
    tol: float | None,
    replay: bool,
    draft: str | None,
    reports: Reports,
    model: str | None,
    prompts: str | None,
    limit: int | None,
    max_tokens: int | None,
    no_capture: bool,
    quiet: bool,
    verbose: bool,
    color: str,
    fail_on: str | None,
) -> int:
    """Compare hidden states of REF and CAND and say what differs.

    Each side is a capture folder, files in another format (docs/formats.md), or an engine to run:
    hf, vllm, sglang. Left out, both are read from hsparity.toml.

    \b
    Examples:
      hsparity compare --layers 2,30,58
      hsparity compare captures/hf captures/vllm --layers eagle3 --html out.html
      hsparity compare captures/vllm captures/sglang --floor captures/hf-fp32 --floor captures/hf-bf16
      hsparity compare captures/hf captures/vllm --json - | jq .findings

    \b
    Exit status:
      0  parity        every compared layer lies within the floor
      1  diverged      at least one does not
      2  usage         the command, the config or a capture is wrong
      3  inconclusive  nothing could be compared, or nothing says what is noise
      4  engine        an engine failed while capturing

    With --fail-on or a [gate] in hsparity.toml, the gate says what is 0, 1 and 3.
    """
    if layers and boundaries:
        raise HsparityError(
            "E103",
            "--layers and --boundaries exclude each other",
            (f"--layers {layers}", f"--boundaries {boundaries}"),
            "layer N is boundary N+1; give one of the two",
        )
    gate = wanted(fail_on)
    outputs = reports.open()
    from ..capture import sides, slotnames
    from ..capture.importing import Wish
    from ..query import Query, one_measure

    names = slotnames.parse(slots)
    Query(tol=tol)  # a bad --tol ends here, before an engine is started
    one_measure(tol, floors)
    price = pricing(draft, model or "", tokens or "")
    chosen = sides.resolve_pair(
        ref,
        cand,
        floors=floors,
        model=model,
        prompts=prompts,
        allow_capture=not no_capture,
        verbose=verbose,
        layers=layers,
        boundaries=boundaries,
        tokens=tokens,
        limit=limit,
        max_tokens=max_tokens,
    )
    result = replace(
        _compare(chosen, offset, tol, Wish(names, limit=limit), replay, price),
        command=("hsparity", *sys.argv[1:]),
    )
    shown = reports.shown(result)
    passed = judged(shown, gate)
    write_reports(shown, outputs, console_options(color, quiet=quiet, verbose=verbose, gate=passed))
    return conclude(shown, passed)


def _compare(
    chosen: Any, offset: int, tol: float | None, wish: Wish, replay: bool, price: Price | None
) -> Comparison:
    from ..capture.read import open_source
    from ..compare import Query
    from ..compare import compare as compare_sources
    from ..model import Verdict
    from ..yardstick import find_floors
    from .progress import Progress

    query = Query(chosen.layers, chosen.boundaries, offset, chosen.tokens, tol)
    ref, cand = open_source(chosen.ref, wish=wish), open_source(chosen.cand, wish=wish)
    floors = [source for path in chosen.floors for source in find_floors(path)]
    added = None
    if replay:
        from ..replay.replaying import replay as run

        try:
            with Progress("replay") as progress:
                added = run(ref, cand, progress=progress)
        except HsparityError as error:
            # The comparison needs no replay: what it finds is not lost for want of one.
            tell(f"not replayed: {error.render()}")
    with Progress("comparing") as progress:
        found = compare_sources(ref, cand, floors, query, progress, added)
    cost = price(ref, cand, floors) if price else None
    if cost is None:
        return found
    if cost.verdict is Verdict.DIVERGED and found.verdict is not Verdict.DIVERGED:
        # The sites asked for agree, and the draft is fed others.
        text = "The states compared agree, but not those that the sides feed the draft"
        return replace(found, verdict=Verdict.DIVERGED, headline=text, cost=cost)
    return replace(found, cost=cost)


COMMAND = compare
