"""hsparity drafter measure: a real engine's own speculative decoding with the draft."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import HsparityError
from .env_list import read_environment
from .grouped import GroupedCommand, color_option, grouped_option
from .id_list import read_ids
from .output import console_options, open_outputs, tell, write_texts

if TYPE_CHECKING:
    from ..drafter.measurement import Measurement

ENGINE, PROMPTS, HEAD, OUTPUT = "Engine", "Prompts", "The head", "Output"
CONTEXT = {"ignore_unknown_options": False, "allow_interspersed_args": True}


@click.command(cls=GroupedCommand, context_settings=CONTEXT)
@click.argument("draft")
@click.argument("engine_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- KEY=VALUE...]")
@grouped_option(
    ENGINE, "--engine", required=True, metavar="E", help="vllm or sglang, or a release: vllm@0.31.0."
)
@grouped_option(
    ENGINE,
    "--model",
    required=True,
    metavar="M",
    help="The target: a checkpoint folder, hub name, or a bundled model such as smollm2.",
)
@grouped_option(
    ENGINE,
    "--dtype",
    default="bfloat16",
    metavar="DTYPE",
    help="Compute dtype: bfloat16, float16 or float32.  [default: bfloat16]",
)
@grouped_option(ENGINE, "--revision", default="", metavar="REV", help="Branch, tag or commit of a hub model.")
@grouped_option(
    ENGINE,
    "--env",
    "env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set this in the engine's processes; may be given several times.",
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
    "--ids",
    metavar="LIST",
    help="Layer ids in a copy of the draft's config, instead of its own: 2,15,27; default takes them out.",
)
@grouped_option(
    PROMPTS,
    "--prompts",
    metavar="FILE",
    help="JSONL: text, chat messages or token ids; .txt, a prompt a line; or a dataset or capture, for its tokens.  "
    "[default: a small English set]",
)
@grouped_option(PROMPTS, "--limit", type=click.IntRange(min=1), metavar="N", help="Take the first N prompts.")
@grouped_option(
    PROMPTS, "--max-tokens", type=click.IntRange(min=1), metavar="N", help="Cut every prompt to N tokens."
)
@grouped_option(
    PROMPTS,
    "--generate",
    type=click.IntRange(min=2),
    default=64,
    metavar="N",
    help="Tokens to write after each prompt, at most.  [default: 64]",
)
@grouped_option(
    OUTPUT,
    "-o",
    "--output",
    "--json",
    "output",
    metavar="FILE",
    help="Write the record: every step of every prompt, the engine's counters, its settings; '-' for standard output.",
)
@grouped_option(OUTPUT, "--html", metavar="FILE", help="Write the page as one HTML file.")
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the headline only.")
@grouped_option(
    OUTPUT, "-v", "--verbose", is_flag=True, help="Show every prompt, and the engine's own log as well."
)
@color_option
def measure(**given: Any) -> int:
    """Serve DRAFT, an EAGLE-3 head, in a real engine, and say what it accepts at each position.

    Greedy (temperature 0), one prompt at a time, one chain of K drafts a step. The engine runs in its own interpreter, as for
    hsparity capture; what follows -- goes to it. Figures of two runs may be compared only where both wrote the same text:
    acceptance depends on the text more than on most faults.

    On a CPU without its kernels SGLang runs over stand-ins of ours in Python. The page and the record list them.

    \b
    Examples:
      hsparity drafter measure heads/mine --engine vllm --model M -o vllm.json
      hsparity drafter measure heads/mine --engine sglang --model M --ids 1,14,26 -o sglang.json
      hsparity drafter measure heads/mine --engine vllm --model M -- max_num_batched_tokens=64

    \b
    Exit status:
      0  measured
      2  the command, the head or the prompts are wrong, or engine and record disagree
      4  the engine failed
    """
    from .drafter_measure_page import render
    from .plain_page import as_page

    outputs = open_outputs(output=given["output"], html=given["html"])
    record = _run(given)
    target = outputs.get("output")
    options = console_options(given["color"], quiet=given["quiet"], verbose=given["verbose"])
    title = f"{record.engine} {record.version}: {record.draft}"
    texts = {
        "output": lambda: record.to_json() + "\n",
        "html": lambda: as_page(title, lambda wide: render(record, wide), options),
        "terminal": lambda: render(record, options),
    }
    write_texts(outputs, lambda name: texts[name](), options)
    for name, path in outputs.items():
        if path != "-":
            tell(f"{'record' if name == 'output' else name}: {path}")
    _refuse_disagreement(record, target)
    return 0


def _run(given: dict[str, Any]) -> Measurement:
    from ..capture import specs
    from ..drafter import measuring
    from ..drafter.draft import open_draft

    draft = open_draft(given["draft"])
    asked = measuring.Asked(
        engine=given["engine"],
        model=specs.resolve_model(given["model"], given["revision"]),
        generate=given["generate"],
        k=given["steps"],
        ids=read_ids(given["ids"]),
        dtype=given["dtype"],
        revision=given["revision"],
        engine_args=specs.parse_engine_args(given["engine_args"]),
        env=read_environment(given["env"]),
        command=tuple(sys.argv[1:]),
    )
    measuring.check(draft, asked)
    wanted = specs.Wanted(asked.engine, asked.model, revision=asked.revision)
    file = Path(given["prompts"]) if given["prompts"] else None
    prompts = specs.tokenised(wanted, file, given["limit"], given["max_tokens"])
    return measuring.measure(draft, asked, prompts, given["verbose"])


def _refuse_disagreement(record: Measurement, target: str | None) -> None:
    from ..drafter.measurement import disagreements

    if found := disagreements(record):
        more = (f"and {len(found) - 4} more",) if len(found) > 4 else ()
        raise HsparityError(
            "E294",
            f"the recorded steps are not those that {record.engine} counted",
            (*found[:4], *more),
            "do not quote these figures; "
            + (
                f"{target} holds the steps and the counters"
                if target
                else "-o FILE keeps the steps and the counters"
            ),
        )
