"""hsparity import: states in any format that is read, as a capture."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..errors import HsparityError
from .grouped import GroupedCommand, grouped_option

WHAT, FORMAT, OUTPUT = "What to take", "What the files do not say", "Output"


@click.command(name="import", cls=GroupedCommand)
@click.argument("src", metavar="SRC")
@grouped_option(
    FORMAT,
    "--slots",
    metavar="LIST",
    help="What the places of the states are, as far as you know: 2,30,58,last. A number is the producer's own id, "
    "b3 is boundary 3, last-raw and last-normed say which, ? is unknown.  [default: as the files say]",
)
@grouped_option(
    FORMAT, "--format", "format_", metavar="NAME", help="Read SRC as this format.  [default: by its content]"
)
@grouped_option(
    FORMAT, "--model", default="", metavar="M", help="The model the states are of: its layer count is read."
)
@grouped_option(
    FORMAT,
    "--token-ids",
    metavar="FILE",
    help="Token ids for files that hold none: JSONL, a list a line, in the order of the samples.",
)
@grouped_option(WHAT, "--limit", type=click.IntRange(min=1), metavar="N", help="Take the first N samples.")
@grouped_option(
    WHAT, "--max-tokens", type=click.IntRange(min=1), metavar="N", help="Cut every sample to N tokens."
)
@grouped_option(
    OUTPUT,
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    help="Capture folder. One that was begun with the same options is finished.",
)
def import_(
    src: str,
    slots: str | None,
    format_: str | None,
    model: str,
    token_ids: str | None,
    limit: int | None,
    max_tokens: int | None,
    output: str,
) -> None:
    """Turn files of hidden states into a capture.

    SRC is a dataset or a file in one of the formats of docs/formats.md: speculators, SpecForge,
    vLLM's connector, SGLang, ModelOpt, TensorRT-LLM, EAGLE, Transformers. What they do not say
    stays unknown; compare then finds it in the data.

    \b
    Examples:
      hsparity import data/ -o captures/data
      hsparity import data/ --slots 2,30,58,last --limit 64 -o captures/data
      hsparity compare captures/sglang captures/data
    """
    from ..capture import foreign, importing, slotnames, specs
    from . import suggest
    from .output import tell
    from .progress import Progress

    path = Path(src)
    if not path.exists():
        raise HsparityError("E202", f"no such path: {src}")
    refuse_foreign(Path(output), src)
    dataset = foreign.open_dataset(path, src, format_)
    names = slotnames.parse(slots)
    wish = importing.Wish(
        names=names,
        model=specs.resolve_model(model) if model else "",
        limit=limit,
        max_tokens=max_tokens,
        token_ids=_token_ids(token_ids),
    )
    with Progress("reading") as progress:
        made = importing.import_dataset(dataset, Path(output), wish, progress=progress)
    manifest = made.manifest
    tokens = sum(p.tokens for p in manifest.prompts)
    click.echo(
        f"{output}: {manifest.settings['format']}, {manifest.dtype}, {len(manifest.prompts)} samples, {tokens} tokens, "
        f"{len(manifest.native_labels)} slots of {manifest.hidden_size}"
    )
    for warning in manifest.warnings:
        tell(f"warning: {warning}")
    click.echo(f"next  {suggest.audit_command(src, model or manifest.model)}")


def refuse_foreign(out: Path, source: str) -> None:
    """Raises E106 for a place inside the source, and for a folder that holds something else than a capture that was begun."""
    from ..capture import sides

    here, there = out.resolve(), Path(source).resolve()
    if here == there or there in here.parents:
        notes = (f"input   {there}", f"output  {here}")
        raise HsparityError("E106", "the output lies in the input", notes, "name another folder with -o")
    if not out.is_dir() or sides.spec_of(out) is not None:
        return
    # An import that was stopped in its first write leaves these.
    held = sorted(p.name for p in out.iterdir() if p.name != "shards" and not p.name.startswith("spec.json."))
    if held or any((out / "shards").glob("*")):
        why = f"there: {', '.join(held[:3]) or 'shards/'}"
        help_text = "name a folder that is new or empty"
        raise HsparityError("E106", f"{out} holds other files and no capture", (why,), help_text)


def _token_ids(name: str | None) -> tuple[tuple[int, ...], ...] | None:
    if name is None:
        return None
    found = []
    try:
        for number, line in enumerate(Path(name).read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            value = json.loads(line)
            value = value.get("token_ids", value.get("input_ids")) if isinstance(value, dict) else value
            if (
                not isinstance(value, list)
                or not value
                or not all(type(i) is int and 0 <= i < 2**31 for i in value)
            ):
                raise HsparityError("E105", f"{name} line {number} is no list of token ids", (line[:60],))
            found.append(tuple(value))
    except (OSError, ValueError, RecursionError) as error:
        raise HsparityError("E105", f"cannot read token ids from {name}", (str(error)[:160],)) from None
    return tuple(found)


COMMAND = import_
