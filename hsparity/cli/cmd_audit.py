"""hsparity audit: are the states in a dataset the ones a server will feed the draft?"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import HsparityError
from .drafter_cost import pricing
from .grouped import GroupedCommand, color_option, grouped_option
from .id_list import read_ids
from .output import EXIT_CODES, console_options, echo_json, open_outputs, tell, write_file

if TYPE_CHECKING:
    from ..audit.case import Wanted
    from ..audit.result import Audit

WHAT, SERVER, FILES, EQUAL, REPORTS, OUTPUT = (
    "What to look at",
    "The server",
    "What the files do not say",
    "What counts as equal",
    "Results",
    "Output",
)


@click.command(cls=GroupedCommand)
@click.argument("dataset")
@click.argument("engine_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- KEY=VALUE...]")
@grouped_option(
    SERVER, "--engine", metavar="E", help="Run this engine on the dataset's own tokens: sglang, vllm or hf."
)
@grouped_option(
    SERVER,
    "--model",
    default="",
    metavar="M",
    help="The model whose states these are.  [default: as the files say]",
)
@grouped_option(
    SERVER,
    "--ids",
    metavar="LIST",
    help="Layer ids as the draft config gives them to the server: 2,30,58; default for the engine's own.  "
    "[default: the dataset's, where it has them]",
)
@grouped_option(
    SERVER,
    "--against",
    default="",
    metavar="DIR",
    help="A capture of every boundary, in place of running an engine.",
)
@grouped_option(
    SERVER,
    "--layers",
    metavar="LIST",
    help="What the draft is fed, where no ids say it: outputs of these layers.",
)
@grouped_option(
    SERVER,
    "--boundaries",
    metavar="LIST",
    help="The same in canonical numbers: layer N's output is boundary N+1.",
)
@grouped_option(
    SERVER,
    "--dtype",
    default="bfloat16",
    metavar="DTYPE",
    help="Compute dtype of the engine.  [default: bfloat16]",
)
@grouped_option(SERVER, "--revision", default="", metavar="REV", help="Branch, tag or commit of a hub model.")
@grouped_option(
    SERVER, "--trust-remote-code", is_flag=True, help="Let the engine run code that comes with the model."
)
@grouped_option(
    SERVER,
    "--draft",
    metavar="DRAFT",
    help="Say in the headline what the difference costs this EAGLE-3 head. See hsparity drafter.",
)
@grouped_option(
    WHAT,
    "--sample",
    type=click.IntRange(min=1),
    default=64,
    metavar="N",
    help="Samples to run, spread over lengths.  [default: 64]",
)
@grouped_option(WHAT, "--seed", type=int, default=0, metavar="N", help="Of the draw.  [default: 0]")
@grouped_option(
    WHAT,
    "--max-tokens",
    type=click.IntRange(min=1),
    default=512,
    metavar="N",
    help="Run the first N tokens of each sample.  [default: 512]",
)
@grouped_option(WHAT, "--no-scan", is_flag=True, help="Do not read the samples that are not drawn.")
@grouped_option(
    FILES,
    "--slots",
    metavar="LIST",
    help="What the places of the states are, as far as you know: 2,30,58,last. See hsparity import --help.",
)
@grouped_option(
    FILES,
    "--format",
    "format_",
    metavar="NAME",
    help="Read DATASET as this format.  [default: by its content]",
)
@grouped_option(
    EQUAL,
    "--floor",
    "floors",
    multiple=True,
    metavar="DIR",
    help="Captures to measure against, as for compare; none for no floor.  [default: Transformers in fp32 and bf16]",
)
@grouped_option(
    REPORTS,
    "--repair",
    metavar="OUT",
    help="Write the dataset put right into this new folder, where that is exact, and compare it again.",
)
@grouped_option(
    REPORTS,
    "--html",
    metavar="FILE",
    help="Write the page as one HTML file.",
)
@grouped_option(
    REPORTS, "--json", "json_", metavar="FILE", help="Write the whole result; '-' for standard output."
)
@grouped_option(
    OUTPUT,
    "--work",
    metavar="DIR",
    help="Where captures and progress are kept, so that the same command goes on.  [default: captures/audit-NAME]",
)
@grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print the verdict line only.")
@grouped_option(
    OUTPUT, "-v", "--verbose", is_flag=True, help="Show notes on the format, and the engine's own log."
)
@color_option
def audit(**given: Any) -> int:
    """Say whether DATASET holds the states a server will feed the draft.

    A sample of the dataset's own token ids is run through the serving engine (or Transformers),
    which gives every boundary; each slot of the dataset is then found among them by the data, and
    compared with what the engine feeds at that place. Without --engine or --against only the files
    are checked.

    \b
    Examples:
      hsparity audit data/ --engine sglang --model M
      hsparity audit data/ --engine vllm --model M --ids 2,30,58 --sample 16
      hsparity audit data/ --against captures/sglang --floor captures/floor
      hsparity audit data/ --engine sglang --model M --repair fixed/
      hsparity audit data/                                     the files alone

    \b
    Exit status:
      0  parity        these are the states the server feeds
      1  diverged      they are not, or the files are damaged
      2  usage         the command, the dataset or the model is wrong
      3  inconclusive  it cannot be told
      4  engine        the engine failed
    """
    outputs = open_outputs(html=given["html"], json=given["json_"])
    wanted = _wanted(given)
    from ..audit.auditing import audit as run
    from .progress import Progress

    shown: list[Progress] = []

    def progress(label: str) -> Progress:
        for each in shown:
            each.__exit__(None, None, None)
        shown.append(Progress(label))
        return shown[-1]

    try:
        result = replace(run(wanted, progress), command=("hsparity", *sys.argv[1:]))
    finally:
        for each in shown:
            each.__exit__(None, None, None)
    _write(result, outputs, given)
    return int(EXIT_CODES[result.verdict.value])


def _wanted(given: dict[str, Any]) -> Wanted:
    from ..audit.case import Wanted
    from ..capture import foreign, slotnames

    path = Path(given["dataset"])
    if not path.exists():
        raise HsparityError("E202", f"no such path: {given['dataset']}")
    if given["engine"] and given["against"]:
        notes = (f"--engine {given['engine']}", f"--against {given['against']}")
        raise HsparityError("E103", "--engine and --against exclude each other", notes, "give one of the two")
    if given["ids"] is not None and not given["engine"]:
        made = (
            f"{given['against']} feeds what it was captured with"
            if given["against"]
            else "no server is asked"
        )
        raise HsparityError(
            "E103",
            "--ids goes with --engine",
            (made,),
            "--engine E --ids LIST, or --boundaries LIST for what the draft is fed",
        )
    dataset = foreign.open_dataset(path, given["dataset"], given["format_"])
    names = slotnames.parse(given["slots"])
    dataset.claimed = slotnames.aux_count(names)
    model = given["model"] or dataset.said().model
    serving = _serving(given, model) if given["engine"] else None
    boundaries = _boundaries(given, model)
    return Wanted(
        dataset=dataset,
        work=_work(given, path),
        names=names,
        serving=serving,
        against=given["against"],
        boundaries=boundaries,
        floors=given["floors"],
        sample=given["sample"],
        seed=given["seed"],
        max_tokens=given["max_tokens"],
        scan=not given["no_scan"],
        repair=Path(given["repair"]) if given["repair"] else None,
        typed=("hsparity", *sys.argv[1:]),
        price=pricing(given["draft"], model, served=boundaries),
    )


def _serving(given: dict[str, Any], model: str) -> Any:
    from ..audit.serving import Serving
    from ..capture import specs
    from ..engines import resolve

    if not model:
        raise HsparityError(
            "E101", f"no model for {given['engine']}", help="--model M: the model whose states these are"
        )
    resolve(given["engine"])  # before anything is read: the engine is there
    return Serving(
        engine=given["engine"],
        model=specs.resolve_model(model, given["revision"]),
        typed=model,
        ids=read_ids(given["ids"]),
        dtype=given["dtype"],
        revision=given["revision"],
        trust_remote_code=given["trust_remote_code"],
        engine_args=specs.parse_engine_args(given["engine_args"]),
        verbose=given["verbose"],
    )


def _boundaries(given: dict[str, Any], model: str) -> tuple[int, ...]:
    from ..capture import checkpoint, specs
    from ..capture.read import open_source
    from ..capture.selection import select

    layers, boundaries = given["layers"], given["boundaries"]
    if not layers and not boundaries:
        return ()
    if given["against"]:
        count = open_source(given["against"], verify=False).manifest.num_layers
    else:
        shape = checkpoint.read_shape(specs.resolve_model(model)) if model else None
        count = shape.num_layers if shape else 0
    if not count:
        raise HsparityError(
            "E102", "cannot tell how many layers the model has", help="--model M, with a config.json here"
        )
    return select(layers, boundaries, count)


def _work(given: dict[str, Any], path: Path) -> Path:
    if given["work"]:
        return Path(given["work"])
    place = str(path.resolve())
    return (
        Path("captures")
        / f"audit-{path.resolve().name or 'data'}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    )


def _write(result: Audit, outputs: dict[str, str], given: dict[str, Any]) -> None:
    from .audit_page import as_html, render

    options = console_options(given["color"], quiet=given["quiet"], verbose=given["verbose"])
    if outputs.get("json") == "-":
        echo_json(result.to_json(indent=1))
    else:
        click.echo(render(result, options), color=options.color)
    texts = {
        "json": lambda: result.to_json(indent=1) + "\n",
        "html": lambda: as_html(result, options),
    }
    for name, path in outputs.items():
        if path == "-":
            continue
        write_file(path, texts[name]())
        tell(f"{name} report: {path}")


COMMAND = audit
