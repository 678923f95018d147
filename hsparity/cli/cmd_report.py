"""hsparity report: render a saved result again, without captures and without torch."""

from __future__ import annotations

import click

from ..errors import HsparityError
from .grouped import GroupedCommand, grouped_option
from .output import console_options, open_outputs, write_reports
from .saved import read

REPORTS, OUTPUT = "Reports", "Output"


@click.command(cls=GroupedCommand)
@click.argument("result")
@grouped_option(REPORTS, "--html", metavar="FILE", help="Write a one-file HTML report.")
@grouped_option(
    REPORTS, "--json", "json_", metavar="FILE", help="Write the result again; '-' for standard output."
)
@grouped_option(REPORTS, "--markdown", metavar="FILE", help="Write a summary to paste into an issue.")
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Show every layer.")
@grouped_option(
    OUTPUT,
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="NO_COLOR is honoured too.  [default: auto]",
)
def report(
    result: str,
    html: str | None,
    json_: str | None,
    markdown: str | None,
    quiet: bool,
    verbose: bool,
    color: str,
) -> int:
    """Show a saved comparison again.

    RESULT is a file that hsparity compare --json wrote, or hsparity drafter --json; '-' reads
    standard input. Needs neither the captures nor torch. Exits 0 whatever the verdict was.

    \b
    Examples:
      hsparity report result.json
      hsparity report result.json --html report.html --markdown issue.md
    """
    outputs = open_outputs(html=html, json=json_, markdown=markdown)
    options = console_options(color, quiet=quiet, verbose=verbose)
    found = read(result)
    from ..drafter.result import DraftCost

    if not isinstance(found, DraftCost):
        write_reports(found, outputs, options)
        return 0
    if markdown:
        raise HsparityError(
            "E103",
            "a result of hsparity drafter has no Markdown summary",
            (f"--markdown {markdown}",),
            "leave --markdown out: the page on standard output can be pasted",
        )
    from .drafter_page import publish

    publish(found, outputs, options)
    return 0


COMMAND = report
