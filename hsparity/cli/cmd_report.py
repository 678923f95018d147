"""hsparity report: render a saved result again, without captures and without torch."""

from __future__ import annotations

from dataclasses import replace

import click

from ..errors import HsparityError
from .gating import FAIL_ON, conclude, judged, wanted
from .grouped import GroupedCommand, color_option, grouped_option
from .output import console_options, write_reports
from .report_options import HEADING as REPORTS
from .report_options import Reports, report_options
from .saved import HELP, read, read_more

OUTPUT = "Output"


@click.command(cls=GroupedCommand)
@click.argument("result", required=False)
@click.argument("more", nargs=-1)
@report_options
@grouped_option(
    REPORTS,
    "--schema",
    is_flag=False,
    flag_value="comparison",
    metavar="[NAME]",
    help="Print the JSON Schema of a saved result instead: comparison, draft-cost, replay, bisect, audit …",
)
@grouped_option(OUTPUT, "--fail-on", metavar="LIST", help=f"{FAIL_ON}  [default: never]")
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Show every layer.")
@color_option
def report(
    result: str | None,
    more: tuple[str, ...],
    reports: Reports,
    schema: str | None,
    fail_on: str | None,
    quiet: bool,
    verbose: bool,
    color: str,
) -> int:
    """Show a saved comparison again.

    RESULT is a file that hsparity compare --json wrote, or hsparity drafter --json, or an HTML
    report, which carries its result; '-' reads standard input. Needs neither the captures nor
    torch. Exits 0 whatever the verdict was, unless --fail-on says what fails: then as compare
    does, by the limits in hsparity.toml too.

    MORE are results of the same two captures that go on the comparison's page: of hsparity
    bisect, replay or drafter, each made with --json.

    \b
    Examples:
      hsparity report result.json
      hsparity report result.json --html report.html --markdown issue.md
      hsparity report report.html --redact --html to-pass-on.html
      hsparity report result.json bisect.json replay.json cost.json --html review.html
      hsparity report result.json --github -
      hsparity report --schema comparison
    """
    if schema is not None:
        click.echo(_schema(schema, result), nl=False)
        return 0
    if result is None:
        raise HsparityError("E100", "a result is missing", ("hsparity report RESULT",), HELP)
    if (result, *more).count("-") > 1:
        raise HsparityError(
            "E103",
            "standard input can be read once",
            ("- is named twice",),
            "name a file for all results but one",
        )
    outputs = reports.open()
    options = console_options(color, quiet=quiet, verbose=verbose)
    gate = None if fail_on is None else wanted(fail_on)
    found = read(result)
    from ..drafter.result import DraftCost

    if not isinstance(found, DraftCost):
        from ..report.joined import joined

        shown = reports.shown(joined(found, [read_more(path) for path in more]))
        passed = judged(shown, gate)
        write_reports(shown, outputs, replace(options, gate=passed))
        return 0 if passed is None else conclude(shown, passed)
    if more:
        raise HsparityError(
            "E103",
            "a result of hsparity drafter stands alone",
            (f"beside it: {' '.join(more)}",),
            f"name the comparison first: hsparity report result.json {result} {' '.join(more)}",
        )
    if gate is not None:
        raise HsparityError(
            "E103",
            "a result of hsparity drafter has no gate",
            (f"--fail-on {fail_on}",),
            "hsparity drafter exits by its verdict; max_lost in hsparity.toml is for hsparity compare --draft",
        )
    reports.only("html", "json", of="hsparity drafter")
    from .drafter_page import publish

    publish(reports.shown(found), outputs, options)
    return 0


def _schema(name: str, result: str | None) -> str:
    """The schema called so. Raises E100 for another name, and beside a result, which it does not read."""
    from ..report.schema import schemas, text

    known = sorted(schemas())
    if result is not None or name not in known:
        wrong = f"--schema {name}" if result is None else f"--schema beside {result}"
        raise HsparityError(
            "E100", f"no schema for {wrong}", help=f"--schema takes one of {', '.join(known)}"
        )
    return text(name)


COMMAND = report
