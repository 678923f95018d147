"""hsparity diff: what changed between two comparisons, and whether anything got worse."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ExitCode, HsparityError
from .grouped import GroupedCommand, color_option, grouped_option
from .output import console_options, open_outputs, tell, tell_reports, write_file, write_texts
from .saved import comparison

if TYPE_CHECKING:
    from ..diffing.result import Diff
    from ..model import Comparison

REPORTS, BASELINE, OUTPUT = "Reports", "A rolling baseline", "Output"


@click.command(cls=GroupedCommand)
@click.argument("old")
@click.argument("new")
@grouped_option(REPORTS, "--html", metavar="FILE", help="Write a one-file HTML page.")
@grouped_option(REPORTS, "--json", "json_", metavar="FILE", help="Write the whole diff; '-' for stdout.")
@grouped_option(REPORTS, "--markdown", metavar="FILE", help="Write a summary to paste into an issue.")
@grouped_option(
    BASELINE,
    "--update",
    is_flag=True,
    help="Replace OLD by NEW when nothing got worse and NEW asks for no less (exit 0), else leave it.",
)
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Show every site and every setting.")
@color_option
def diff(**given: Any) -> int:
    """Say what changed from one comparison to the next.

    OLD and NEW are files that hsparity compare --json or --html wrote, of one model, typically
    before and after an engine's release; one of them may be '-', standard input. Numbers are held
    against one another only where both were measured alike. Needs neither the captures nor torch.

    \b
    Examples:
      hsparity diff baseline.json tonight.json
      hsparity diff baseline.json tonight.json --html diff.html --update

    \b
    Exit status:
      0  nothing got worse
      1  worse        a new cause, a verdict that fell, or a site beyond its interval
      2  usage        a file is no comparison, or the two have nothing in common
      3  cannot tell  other tokens, another floor, sites that are no longer compared; with --update
                      also a NEW that asks for fewer layers than OLD
    """
    old, new = given["old"], given["new"]
    if "-" in (old, new) and (old == new or given["update"]):
        why = "standard input can be read once" if old == new else "--update needs two files"
        raise HsparityError("E103", why, (f"old  {old}", f"new  {new}"), "hsparity diff OLD.json NEW.json")
    if given["update"] and old.lower().endswith((".html", ".htm")):
        raise HsparityError(
            "E103",
            "--update writes JSON, and OLD is called as a page is",
            (f"old  {old}", f"new  {new}"),
            f"hsparity report {old} --json {Path(old).with_suffix('.json')}, and name that as OLD",
        )
    outputs = open_outputs(html=given["html"], json=given["json_"], markdown=given["markdown"])
    for name, path in outputs.items():
        if path != "-" and any(
            p != "-" and os.path.realpath(path) == os.path.realpath(p) for p in (old, new)
        ):
            raise HsparityError(
                "E103", f"--{name} would overwrite what is read", (path,), "name another file"
            )
    then, now = comparison(old), comparison(new)
    from ..diffing.diff import diff as made

    result = made(then, now, (old, new), ("hsparity", *sys.argv[1:]))
    options = console_options(given["color"], quiet=given["quiet"], verbose=given["verbose"])
    write_texts(outputs, lambda name: _text(result, name, options), options)
    tell_reports(outputs)
    if given["update"]:
        return _update((old, then), (new, now), result.exit_code)
    return result.exit_code


def _text(result: Diff, name: str, options: Any) -> str:
    if name == "json":
        return result.to_json(indent=1) + "\n"
    if name == "html":
        from ..diffing.page import render as as_html

        return as_html(result)
    if name == "markdown":
        from ..diffing.issue import render as as_markdown

        return as_markdown(result)
    from ..diffing.terminal import render

    return render(result, options)


def _update(old: tuple[str, Comparison], new: tuple[str, Comparison], code: ExitCode) -> ExitCode:
    """Put NEW in OLD's place, as JSON, whole or not at all, and say what became of it. Raises E106."""
    from ..diffing.matching import no_longer_asked

    (name, then), (source, now) = old, new
    if code is not ExitCode.PARITY:
        tell(f"{name} is left as it was")
        return code
    lost = no_longer_asked(then, now)
    if lost:
        tell(f"{name} is left as it was: {source} was not asked for {', '.join(lost)}, which {name} was")
        return ExitCode.INCONCLUSIVE
    write_file(name, _as_json(source, now))
    tell(f"{name} is now {source}")
    return code


def _as_json(path: str, found: Comparison) -> str:
    """The file as it is, or the result in the page that it is."""
    from ..model import to_json

    try:
        text = Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise HsparityError("E213", f"cannot read {path}", (str(reason),)) from error
    return to_json(found) + "\n" if text.lstrip("\ufeff \t\r\n").startswith("<") else text


COMMAND = diff
