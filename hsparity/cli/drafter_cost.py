"""hsparity drafter DRAFT REF CAND."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..errors import HsparityError
from .grouped import GroupedCommand, color_option, grouped_option
from .id_list import read_ids
from .output import EXIT_CODES, console_options, open_outputs, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..capture.source import Source
    from ..drafter.result import DraftCost
    from ..model import Cost

    Price = Callable[[Source, Source, Sequence[Source]], Cost | None]

HEAD, EQUAL, REPORTS, OUTPUT = "The head", "What counts as equal", "Reports", "Output"


@click.command(cls=GroupedCommand)
@click.argument("draft")
@click.argument("ref")
@click.argument("cand")
@grouped_option(
    HEAD,
    "--model",
    default="",
    metavar="M",
    help="The target's checkpoint: its embedding and lm_head.  [default: as REF says]",
)
@grouped_option(
    HEAD,
    "--steps",
    type=click.IntRange(1, 16),
    default=3,
    metavar="K",
    help="Draft positions, in one chain.  [default: 3]",
)
@grouped_option(
    HEAD,
    "--boundaries",
    metavar="LIST",
    help="What the head was trained on, for a REF without slots of its own: 2,15,27.  [default: the ids in its config]",
)
@grouped_option(
    HEAD,
    "--layers",
    metavar="LIST",
    help="The same as outputs of layers: layer N's output is boundary N+1.",
)
@grouped_option(
    HEAD,
    "--ids",
    metavar="LIST",
    help="Ids in place of the config's, as CAND's engine is given them; default for the engine's own.",
)
@grouped_option(
    HEAD, "--tokens", metavar="SLICE", help="all, prefill, decode, or a slice such as 0:128.  [default: all]"
)
@grouped_option(
    HEAD,
    "--prompts",
    metavar="FILE",
    help="The prompts that captured texts begin with, as for capture, where whole texts were captured in one pass.",
)
@grouped_option(
    EQUAL,
    "--floor",
    "floors",
    multiple=True,
    metavar="DIR",
    help="Captures to measure against, as for compare; none leaves them out.  [default: what lies beside a side]",
)
@grouped_option(
    EQUAL,
    "--measured",
    multiple=True,
    metavar="FILE",
    help="A record of hsparity drafter measure, to lay beside the prediction. May be given twice.",
)
@grouped_option(REPORTS, "--html", metavar="FILE", help="Write the page as one HTML file.")
@grouped_option(
    REPORTS, "--json", "json_", metavar="FILE", help="Write the whole result; '-' for standard output."
)
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Show every prompt.")
@color_option
def cost(**given: Any) -> int:
    """Say what feeding CAND's states instead of REF's costs DRAFT in accepted tokens.

    DRAFT, an EAGLE-3 head, is run on both captures' states, teacher-forced on the text they share; then on CAND's with each
    finding of compare undone, so that you see which fix pays. Capture both sides with the same generated text:
    hsparity capture E --generate 64, then --continuation. What the prediction assumes: docs/drafter.md.

    \b
    Examples:
      hsparity drafter heads/mine captures/vllm captures/sglang
      hsparity drafter heads/mine captures/hf captures/sglang --ids 2,15,27 --html cost.html

    \b
    Exit status:
      0  parity        the head loses nothing beyond noise
      1  diverged      it loses accepted tokens
      2  usage         the command, the head or a capture is wrong
      3  inconclusive  too little text, or a head that drafts nothing anywhere
    """
    outputs = open_outputs(html=given["html"], json=given["json_"])
    result = _run(given)
    from .drafter_page import publish

    publish(result, outputs, console_options(given["color"], quiet=given["quiet"], verbose=given["verbose"]))
    return int(EXIT_CODES[result.verdict.value])


def _run(given: dict[str, Any]) -> DraftCost:
    from ..capture.read import open_source
    from ..capture.selection import select
    from ..capture.sides import resolve_pair
    from ..drafter.costing import Asked
    from ..drafter.costing import cost as run
    from ..drafter.draft import open_draft
    from ..yardstick import find_floors
    from .progress import Progress

    draft = open_draft(given["draft"])
    chosen = resolve_pair(given["ref"], given["cand"], floors=given["floors"], allow_capture=False)
    ref, cand = open_source(chosen.ref), open_source(chosen.cand)
    floors = [source for path in chosen.floors for source in find_floors(path)]
    asked = Asked(
        steps=given["steps"],
        model=given["model"],
        ids=read_ids(given["ids"]),
        boundaries=select(given["layers"], given["boundaries"], ref.manifest.num_layers)
        if given["layers"] or given["boundaries"]
        else (),
        tokens=given["tokens"] or "",
        measured=given["measured"],
        prompts=_prompts(given["prompts"], given["model"] or ref.manifest.model),
        command=("hsparity", *sys.argv[1:]),
    )
    with Progress("drafting") as progress:
        return run(draft, ref, cand, floors, asked, progress)


def _prompts(file: str | None, model: str) -> tuple[tuple[int, ...], ...]:
    if file is None:
        return ()
    from pathlib import Path

    from ..capture import prompts, specs
    from ..drafter import measurement

    if prompts.is_record(Path(file)):
        return tuple(p.prompt for p in measurement.Measurement.from_json(Path(file).read_text()).prompts)
    return tuple(p.token_ids for p in prompts.load(Path(file), specs.resolve_model(model, "")))


def pricing(
    spelled: str | None, model: str = "", tokens: str = "", served: tuple[int, ...] = ()
) -> Price | None:
    """What a difference costs the head named by --draft, for the headline of another command; None where none is named.

    `served`: the boundaries that the candidate feeds, where they are known. The head is opened now, before an engine is started.
    Raises E260 to E262.
    """
    if spelled is None:
        return None
    from ..drafter.draft import open_draft

    draft = open_draft(spelled)

    def price(ref: Source, cand: Source, floors: Sequence[Source]) -> Cost | None:
        from ..drafter.costing import Asked
        from ..drafter.costing import cost as run
        from ..drafter.result import summary
        from .progress import Progress

        asked = Asked(model=model or ref.manifest.model or cand.manifest.model, tokens=tokens, served=served)
        try:
            with Progress("drafting") as progress:
                return summary(run(draft, ref, cand, floors, asked, progress))
        except HsparityError as error:
            # What was found about the states is not lost for a head that does not fit them.
            tell(f"no cost: {error.render()}")
            return None

    return price
