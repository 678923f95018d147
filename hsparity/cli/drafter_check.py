"""hsparity drafter check: the static contract between a draft head, an engine and a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import ExitCode, HsparityError
from .grouped import GroupedCommand, color_option, grouped_option
from .output import console_options, open_outputs, write_texts

if TYPE_CHECKING:
    from ..drafter.checking import DraftCheck

WHERE, TRAINED, RESULT, OUTPUT = "Where it is served", "What it was trained on", "Result", "Output"
EXITS = {"ok": ExitCode.PARITY, "problems": ExitCode.DIVERGED, "unclear": ExitCode.INCONCLUSIVE}


@click.command(cls=GroupedCommand)
@click.argument("draft")
@grouped_option(
    WHERE, "--engine", required=True, metavar="E", help="vllm, sglang, or hf for the EAGLE reference."
)
@grouped_option(
    WHERE, "--engine-version", default="", metavar="V", help="[default: the newest that was read]"
)
@grouped_option(
    WHERE, "--model", default="", metavar="M", help="The target: a folder, or a model in the hub's cache."
)
@grouped_option(
    WHERE, "--algorithm", default="", metavar="A", help="The engine's flag as it is typed: EAGLE or EAGLE3."
)
@grouped_option(
    WHERE, "--runner", type=click.Choice(["v1", "v2"]), help="vLLM's model runner.  [default: either may be]"
)
@grouped_option(TRAINED, "--trained-on", metavar="LIST", help="Boundaries it was trained on: 2,16,29.")
@grouped_option(
    TRAINED,
    "--trained-by",
    default="",
    metavar="TRAINER",
    help='By whom: "speculators 0.4.0", specforge, modelopt, …',
)
@grouped_option(RESULT, "--html", metavar="FILE", help="Write the page as one HTML file.")
@grouped_option(
    RESULT, "--json", "json_", metavar="FILE", help="Write the whole result; '-' for standard output."
)
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@color_option
def check(
    draft: str,
    engine: str,
    engine_version: str,
    model: str,
    algorithm: str,
    runner: str | None,
    trained_on: str | None,
    trained_by: str,
    json_: str | None,
    html: str | None,
    quiet: bool,
    color: str,
) -> int:
    """Check a draft head's files against an engine, before anything is started.

    DRAFT is the head's folder, or a head in the hub's cache. Its config and the headers of its weights
    are held against what this engine's version reads, makes and feeds, and against the target's config.

    \b
    Examples:
      hsparity drafter check heads/kimi --engine sglang --model /models/Kimi-K2 --algorithm EAGLE3
      hsparity drafter check heads/qwen --engine vllm --engine-version 0.32.0 --runner v2
      hsparity drafter check heads/qwen --engine vllm --model Qwen/Qwen3-8B --trained-by "speculators 0.4.0"

    \b
    Exit status:
      0  ok        nothing worse than notes
      1  problems  this engine will not do what the head was made for
      2  usage     the command, the head or the target is wrong
      3  unclear   a problem, unless something says otherwise that is not in the files
    """
    from ..drafter.checking import check as run
    from ..drafter.draft import open_draft

    outputs = open_outputs(json=json_, html=html)
    result = run(
        open_draft(draft),
        engine,
        version=engine_version,
        model=model,
        algorithm=algorithm,
        runner=runner or "",
        trained_on=_boundaries(trained_on),
        trained_by=trained_by,
    )
    _show(result, outputs, color, quiet)
    return int(EXITS[result.verdict])


def _boundaries(text: str | None) -> tuple[int, ...] | None:
    """Raises E282."""
    if text is None:
        return None
    try:
        found = tuple(int(part) for part in text.replace(" ", "").split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 0:
        raise HsparityError(
            "E282", f"bad --trained-on {text!r}", help="boundaries with commas: --trained-on 2,16,29"
        )
    return found


def _show(result: DraftCheck, outputs: dict[str, str], color: str, quiet: bool) -> None:
    from .drafter_check_page import render
    from .plain_page import as_page

    options = console_options(color, quiet=quiet)
    title = f"{result.verdict}: {result.draft}"
    texts = {
        "json": lambda: result.to_json(indent=1) + "\n",
        "html": lambda: as_page(title, lambda wide: render(result, wide), options),
        "terminal": lambda: render(result, options),
    }
    write_texts(outputs, lambda name: texts[name](), options)


COMMAND = check
