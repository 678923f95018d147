"""hsparity floor: what a capture's differences can be measured against, captured and measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ExitCode, HsparityError
from .grouped import GroupedCommand, grouped_option
from .output import open_outputs, write_file

if TYPE_CHECKING:
    from ..floors.result import FloorReport, Noise, Part

WHAT, RESULT, OUTPUT = "What to capture", "Result", "Output"
FEW = 6  # sites of a kind that are shown unless all are asked for


@click.command(cls=GroupedCommand)
@click.argument("capture")
@grouped_option(
    WHAT,
    "--only",
    metavar="LIST",
    help="fp32, bf16, repeat, batch, prefill-decode (prefilled and decoded), chunked.  "
    "[default: all that apply]",
)
@grouped_option(
    WHAT, "--plan", is_flag=True, help="Say what would be captured and what it costs; start nothing."
)
@grouped_option(
    RESULT, "--json", "json_", metavar="FILE", help="Write every figure; '-' for standard output."
)
@grouped_option(
    OUTPUT, "-v", "--verbose", is_flag=True, help="Show every boundary, and the engines' own logs."
)
def floor(capture: str, only: str | None, plan: bool, json_: str | None, verbose: bool) -> int:
    """Capture and measure the noise floor of CAPTURE.

    What is missing is captured into CAPTURE.floor, where hsparity compare finds it: the same tokens by
    Transformers in fp32 and bf16, and by the capture's own engine again, in another batch shape, with its
    decoded tokens as prompt, with prompt tokens decoded, in other chunks. fp32 and bf16 that lie beside the
    capture already are used as they are. What an engine cannot do or ignores is said.

    \b
    Examples:
      hsparity floor captures/vllm --plan
      hsparity floor captures/vllm
      hsparity floor captures/vllm --only fp32,bf16
      hsparity floor captures/vllm --json - | jq .noises

    \b
    Exit status:
      0  made          what applies is there
      2  usage         the command or the capture is wrong, or nothing could be made
      3  inconclusive  a kind that --only names could not be made
    """
    chosen = _chosen(only)
    outputs = open_outputs(json=json_)
    from ..capture.relay import Relay
    from ..floors import making
    from ..floors.base import open_base
    from ..floors.result import to_json

    base = open_base(Path(capture))
    parts = making.plan(base, chosen)
    if plan:
        found = making.blank(base, parts)
    else:
        say = Relay("floor", 0).say
        made = making.make(base, parts, say, verbose)
        from ..floors import measuring

        found = measuring.report(base, made, say)
    if outputs:
        _write(outputs["json"], to_json(found))
    if outputs.get("json") != "-":
        page = (
            _plan_lines(parts)
            if plan
            else [*_part_lines(found), "", *_table(found, verbose), "", *_closing(found)]
        )
        click.echo("\n".join(page))
    # What was asked for by name and is not there must not read as done.
    lacking = only is not None and not plan and any(not part.path for part in found.parts)
    return int(ExitCode.INCONCLUSIVE if lacking else ExitCode.PARITY)


def _chosen(only: str | None) -> tuple[str, ...]:
    from ..capture.floorstore import KINDS

    if only is None:
        return KINDS
    groups = {"prefill-decode": ("prefilled", "decoded"), **{k: (k,) for k in KINDS}}
    words = [word.strip() for word in only.split(",") if word.strip()]
    if not words or (unknown := [word for word in words if word not in groups]):
        raise HsparityError(
            "E252",
            f"no such floor: {', '.join(unknown) if words else 'nothing is named'}",
            (f"kinds: {', '.join(groups)}",),
            "leave --only out to make all that apply",
        )
    return tuple(kind for word in words for kind in groups[word])


def _plan_lines(parts: tuple[Part, ...]) -> list[str]:
    from ..engines.machine import gigabytes
    from ..engines.progress import clock

    lines, size, seconds, unknown = [], 0, 0.0, 0
    for part in parts:
        if part.state == "planned":
            time = "" if math.isnan(part.seconds) else f", about {clock(part.seconds)}"
            lines.append(f"{part.kind:<10} capture  {part.what}, {gigabytes(part.bytes)}{time}")
            size += part.bytes
            unknown += math.isnan(part.seconds)
            seconds += 0.0 if math.isnan(part.seconds) else part.seconds
        elif part.path:
            lines.append(f"{part.kind:<10} there    {part.path}")
        else:
            lines.append(f"{part.kind:<10} -        {part.reason}")
    todo = sum(part.state == "planned" for part in parts)
    if not todo:
        return [*lines, "nothing to capture"]
    rest = f", and {unknown} by Transformers that nothing tells the time of" if unknown else ""
    known = f", about {clock(seconds)}" if seconds else ""
    return [*lines, f"{todo} to capture: {gigabytes(size)}{known}{rest}"]


def _part_lines(found: FloorReport) -> list[str]:
    lines = [f"floor of {found.capture} ({found.engine})"]
    for part in found.parts:
        what = f"{part.state:<7}{part.path}  {part.what}" if part.path else f"none   {part.reason}"
        lines.append(f"  {part.kind:<10} {what}")
    return lines


TITLES = {
    "e0": "e0: what bf16 alone costs, Transformers bf16 to fp32",
    "capture": "this capture to Transformers fp32; over e0",
    "repeat": "the same run again; over √2 e0",
    "batch": "another batch shape; over √2 e0",
    "prefilled": "its decoded tokens given as prompt; over √2 e0",
    "decoded": "its prompt's last tokens decoded; over √2 e0",
    "chunked": "prefill in other chunks; over √2 e0",
}


def _table(found: FloorReport, verbose: bool) -> list[str]:
    lines: list[str] = []
    for kind, title in TITLES.items():
        for rows in dict.fromkeys(n.rows for n in found.of(kind)):
            noises = [n for n in found.of(kind) if n.rows == rows]
            lines += [*([""] if lines else []), *_section(kind, title, rows, noises, verbose)]
    return lines or ["nothing could be measured"]


def _section(kind: str, title: str, rows: str, noises: list[Noise], verbose: bool) -> list[str]:
    head = (
        f"{title}; {rows} rows, {noises[0].tokens} tokens"
        if rows != "all"
        else (f"{title}; {noises[0].tokens} tokens")
    )
    if all(n.bit_equal == n.tokens for n in noises):
        return [head, f"  bit-equal at all {len(noises)} sites"]
    shown = noises if verbose or len(noises) <= FEW else _spread(noises)
    names = ("median", "p95", "p99", "max", *(["ratio"] if kind != "e0" else []))
    lines = [head, f"  {'site':<14}" + "".join(f"{name:>10}" for name in names)]
    for n in shown:
        figures = [f"{value:.2g}" for value in (n.median, n.p95, n.p99, n.largest)]
        figures += [] if kind == "e0" else ["-" if math.isnan(n.over) else f"{n.over:.2f}×"]
        equal = f"  {n.bit_equal} bit-equal" if n.bit_equal else ""
        lines.append(f"  {n.site:<14}" + "".join(f"{text:>10}" for text in figures) + equal)
    if len(shown) < len(noises):
        lines.append(f"  and {len(noises) - len(shown)} more sites: -v")
    return lines


def _spread(noises: list[Noise]) -> list[Noise]:
    """The first, the last, and some between."""
    places = sorted({round(i * (len(noises) - 1) / (FEW - 1)) for i in range(FEW)})
    return [noises[i] for i in places]


def _closing(found: FloorReport) -> list[str]:
    missing = [part.kind for part in found.parts if not part.path]
    said = f"; there is none of: {', '.join(missing)}" if missing else ""
    return [f"hsparity compare finds it in {found.store}{said}"]


def _write(path: str, text: str) -> None:
    if path == "-":
        click.echo(text)
        return
    write_file(path, text)


COMMAND = floor
