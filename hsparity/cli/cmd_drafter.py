"""hsparity drafter: what drift costs a draft head in accepted tokens."""

from __future__ import annotations

import click

from .drafter_check import check
from .drafter_cost import cost
from .drafter_measure import measure


class WithDefault(click.Group):
    """`drafter DRAFT REF CAND` is `drafter cost DRAFT REF CAND`: the question that most people come with."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["cost", *args]
        return super().parse_args(ctx, args)


@click.group(cls=WithDefault)
def drafter() -> None:
    """Say what a difference costs an EAGLE-3 draft head.

    \b
      hsparity drafter DRAFT REF CAND                          accepted tokens on both sides' states
      hsparity drafter check DRAFT --engine sglang --model M   the head against the engine, before any run
      hsparity drafter measure DRAFT --engine vllm --model M   the engine's own speculative decoding
    """


for command in (cost, check, measure):
    drafter.add_command(command)

COMMAND = drafter
