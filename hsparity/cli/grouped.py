"""A click command whose options stand under headings in --help."""

from __future__ import annotations

from typing import Any

import click


class GroupedCommand(click.Command):
    """Options made by `grouped_option(heading, ...)` are listed under that heading, the others under Options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                groups.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading in sorted(groups, key=lambda h: h == "Options"):
            with formatter.section(heading):
                formatter.write_dl(groups[heading])


class _HeadedOption(click.Option):
    def __init__(self, *args: Any, heading: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading


def grouped_option(heading: str, *declarations: str, **attributes: Any) -> Any:
    """`click.option` under a heading."""
    return click.option(*declarations, cls=_HeadedOption, heading=heading, **attributes)


color_option = grouped_option(
    "Output",
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="NO_COLOR is honoured too.  [default: auto]",
)
