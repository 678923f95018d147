"""hsparity selfcheck: is the captured last state the one behind the engine's own log-probabilities?"""

from __future__ import annotations

import shlex
import sys
import textwrap
from typing import TYPE_CHECKING

import click

from ..errors import ExitCode
from .grouped import GroupedCommand, color_option, grouped_option
from .output import console_options, echo_json, open_outputs, write_file

if TYPE_CHECKING:
    from ..report.base import Options
    from ..selfcheck.result import SelfCheck

WHAT, RESULT, OUTPUT = "What to check", "Result", "Output"
EXIT_CODES = {"passed": ExitCode.PARITY, "failed": ExitCode.DIVERGED, "inconclusive": ExitCode.INCONCLUSIVE}
STYLES = {"passed": "green", "failed": "red", "inconclusive": "yellow"}
TOKENS, FEW = 256, 6


@click.command(cls=GroupedCommand)
@click.argument("capture")
@grouped_option(
    WHAT,
    "--model",
    default="",
    metavar="PATH",
    help="Checkpoint to read: a folder, a bundled model, or a hub model in the hub's cache.  "
    "[default: the one the capture names]",
)
@grouped_option(
    WHAT,
    "--tokens",
    type=click.IntRange(min=1),
    default=TOKENS,
    metavar="N",
    help=f"Check at most N tokens, spread over all prompts.  [default: {TOKENS}]",
)
@grouped_option(
    RESULT, "--json", "json_", metavar="FILE", help="Write the whole result; '-' for standard output."
)
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Show every site and reading.")
@color_option
def selfcheck(
    capture: str, model: str, tokens: int, json_: str | None, quiet: bool, verbose: bool, color: str
) -> int:
    """Check the last state of one CAPTURE, without a second engine.

    The captured last state goes through the checkpoint's final norm and lm_head; the result
    must be the log-probabilities that the engine itself gave for the prompt. They are in
    captures made with --sites prompt_logprobs. Of the checkpoint only the norm and the
    lm_head are read, and nothing is downloaded.

    \b
    Examples:
      hsparity capture vllm --model M --sites prompt_logprobs -o captures/vllm
      hsparity selfcheck captures/vllm
      hsparity selfcheck captures/vllm --model /models/M --json -

    \b
    Exit status:
      0  passed        boundary L and final_norm are what they are said to be
      1  failed        one of them is not
      2  usage         the command, the capture or the checkpoint is wrong
      3  inconclusive  two readings fit alike, or too few tokens
    """
    from ..capture.read import open_source
    from ..selfcheck.checking import check
    from .output import tell

    outputs = open_outputs(json=json_)
    source = open_source(capture)
    try:
        result = check(source, model, tokens, progress=tell if sys.stderr.isatty() else None)
        source.verify()
    finally:
        source.close()
    options = console_options(color, quiet=quiet, verbose=verbose)
    target = outputs.get("json")
    if target == "-":
        echo_json(result.to_json(indent=1))
    else:
        click.echo(render(result, options, model), color=options.color)
        if target:
            _write(target, result)
    return int(EXIT_CODES[result.verdict.value])


def _write(path: str, result: SelfCheck) -> None:
    write_file(path, result.to_json(indent=1) + "\n")


def render(result: SelfCheck, options: Options, model: str = "") -> str:
    """The report as text at `options.width` columns."""
    from ..report.spelling import clean, to_ascii

    word = result.verdict.value.upper()
    lines = [f"{word}  {clean(result.headline)}"]
    if not options.quiet:
        lines = [*_wrapped(lines[0], options.width), *_body(result, options, model)]
    lines = lines if options.unicode else [to_ascii(line) for line in lines]
    if options.color:
        lines[0] = click.style(word, fg=STYLES[result.verdict.value]) + lines[0].removeprefix(word)
    return "\n".join(lines)


def _body(result: SelfCheck, options: Options, model: str) -> list[str]:
    from ..report.spelling import clean

    facts = (
        f"{result.tokens} tokens of {result.prompts} prompt{'s' * (result.prompts != 1)} by {result.engine} "
        f"{result.engine_version}; {result.head} of {result.checkpoint}"
    )
    lines = _wrapped(clean(facts), options.width)
    lines += ["", "|log p recomputed - log p by the engine|, median over tokens, in nats"]
    lines += _table(result, options)
    for claim in result.claims:
        beaten = claim.runner_up
        words = f"{claim.site} as {claim.reading}: {claim.verdict.value}, {claim.reason}"
        if beaten is not None and not claim.repeats:
            words += (
                f"; runner-up {beaten.site} as {beaten.reading}, {claim.margin:.2g}× the error, "
                f"worse at {claim.wins:.0%} of tokens"
            )
        lines += _wrapped(clean(words), options.width)
    for label, said in (("also", result.also), ("note", result.notes), ("fix", result.fix)):
        lines += [""] if said else []
        for each in said:
            lines += _wrapped(f"{label:<4} {clean(each)}", options.width, "     ")
    return [*lines, *_next(result, model)]


def _table(result: SelfCheck, options: Options) -> list[str]:
    from ..report.columns import Column, table
    from ..report.spelling import error, percent, ratio

    claimed = {(c.site, c.reading) for c in result.claims}
    best = result.table if options.verbose else result.table[:FEW]
    rows = [*best, *(f for f in result.table[len(best) :] if (f.site, f.reading) in claimed)]
    columns = (
        Column("site", tuple(f.site for f in rows), left=True),
        Column("read as", tuple(f.reading for f in rows), left=True),
        Column("error", tuple(error(f.error) for f in rows)),
        Column("floor", tuple(error(f.floor) for f in rows), rank=2),
        Column("× floor", tuple(ratio(f.ratio) if f.floor == f.floor else "-" for f in rows), rank=1),
        Column("top-1", tuple(percent(f.top1) if f.top1 == f.top1 else "-" for f in rows), rank=3),
        Column(
            "", tuple("claimed" if (f.site, f.reading) in claimed else "" for f in rows), rank=4, left=True
        ),
    )
    lines = [line.plain for line in table(columns, options.width)]
    hidden = len(result.table) - len(rows)
    return [*lines, *([f"{hidden} more rows: -v"] if hidden else []), ""]


def _next(result: SelfCheck, model: str) -> list[str]:
    capture = shlex.quote(result.capture)
    given = f" --model {shlex.quote(model)}" if model else ""
    if result.verdict.value == "failed":
        command = "hsparity explain HS221"
    elif result.verdict.value == "inconclusive":
        command = f"hsparity selfcheck {capture}{given} --tokens {4 * max(result.tokens, TOKENS)} -v"
    else:
        command = f"hsparity compare {capture} CAND"
    return ["", f"next {command}"]


def _wrapped(text: str, width: int, rest: str = "") -> list[str]:
    return textwrap.wrap(
        text, max(width, 20), subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    ) or [""]


COMMAND = selfcheck
