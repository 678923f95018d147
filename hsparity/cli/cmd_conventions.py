"""hsparity conventions: what a layer id means in each engine and trainer."""

from __future__ import annotations

import difflib
import json
import textwrap
from typing import TYPE_CHECKING, Any

import click

from ..errors import HsparityError

if TYPE_CHECKING:
    from ..conventions import Answer

WIDTH = 100
SCHEMA = "hsparity.conventions/1"
# Stands for L where it is not known: numbers up to it are taken, and none of them is the last boundary.
MOST_LAYERS = 10_000
NAMED = ("all", "eagle3", "eagle3-speculators")

INTRODUCTION = (
    "What a layer id means, by tool, version and model family. Boundary r is the residual stream after r layers, L the "
    "number of layers. This is a prior, read in the sources named here or run; the data of a comparison overrule it, "
    "and finding HS107 says where they disagree."
)


@click.command()
@click.option("--engine", metavar="E", help="One engine or trainer: vllm, sglang, hf, speculators, ...")
@click.option("--version", metavar="V", help="Its version, such as 0.5.23.")
@click.option(
    "--arch", metavar="A", help="The model's class, or its model_type: DeepseekV3ForCausalLM, llama."
)
@click.option("--layers", metavar="LIST", help="Decoder layers to translate: 2,30,58 or 0-60:5.")
@click.option(
    "--boundaries", metavar="LIST", help="The same as boundaries: layer N's output is boundary N+1."
)
@click.option("--num-layers", metavar="L", type=click.IntRange(min=1), help="The model's number of layers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def conventions(
    engine: str | None,
    version: str | None,
    arch: str | None,
    layers: str | None,
    boundaries: str | None,
    *,
    num_layers: int | None,
    as_json: bool,
) -> None:
    """Print what a layer id means in each engine and trainer, and what to write for given layers.

    \b
    Examples:
      hsparity conventions --engine sglang --version 0.5.23
      hsparity conventions --arch DeepseekV3ForCausalLM --layers 2,30,58 --num-layers 61
    """
    from ..conventions import answers

    name = _engine(engine)
    _check_version(name, version)
    wanted = _boundaries(layers, boundaries, num_layers)
    found = answers(name, version or "", arch or "")
    if as_json:
        asked = {
            "engine": name or None,
            "version": version,
            "architecture": arch,
            "boundaries": None if wanted is None else list(wanted),
            "num_layers": num_layers,
        }
        rows = [_record(a, wanted, num_layers) for a in found]
        click.echo(
            json.dumps({"schema": SCHEMA, "asked": asked, "rules": rows}, indent=2, ensure_ascii=False)
        )
        return
    click.echo("\n".join(_page(found, wanted, num_layers)))


def _engine(typed: str | None) -> str:
    """The engine's name in the table, "" for all. Raises E107."""
    from ..conventions import ALIASES, engines

    if typed is None:
        return ""
    name = ALIASES.get(typed.lower(), typed.lower())
    if name in engines():
        return name
    near = difflib.get_close_matches(name, engines(), 2, 0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(engines())}"
    raise HsparityError("E107", f"no engine or trainer is called {typed!r}", help=hint)


def _check_version(engine: str, version: str | None) -> None:
    from ..conventions import parse_version

    if version is not None and not engine:
        raise click.UsageError("--version needs --engine: it is that engine's version")
    if version is not None and parse_version(version) is None:
        raise click.BadParameter(f"{version!r} does not begin with a number", param_hint="--version")


def _boundaries(layers: str | None, boundaries: str | None, num_layers: int | None) -> tuple[int, ...] | None:
    """The boundaries asked for, None when no list is given. Raises E102 and E103."""
    from ..capture.selection import select

    if not layers and not boundaries:
        return None
    text = layers or boundaries or ""
    parts = {part.strip().lower() for part in text.split(",")}
    if num_layers is None and (named := parts & set(NAMED)):
        option = "--layers" if layers else "--boundaries"
        message = f"bad {option} {text!r}: {min(named)} needs the number of layers"
        raise HsparityError("E102", message, help="add --num-layers, or write numbers")
    return select(layers, boundaries, num_layers or MOST_LAYERS)


def _page(found: tuple[Answer, ...], wanted: tuple[int, ...] | None, num_layers: int | None) -> list[str]:
    lines = textwrap.wrap(INTRODUCTION, WIDTH)
    for engine in dict.fromkeys(a.rule.engine for a in found):
        lines += ["", engine]
        for answer in (a for a in found if a.rule.engine == engine):
            lines += _rule(answer, num_layers)
    if not found:
        lines += ["", "No row holds for this."]
    return lines if wanted is None else [*lines, "", *_translation(found, wanted, num_layers)]


def _rule(answer: Answer, num_layers: int | None) -> list[str]:
    from ..conventions import concrete

    rule = answer.rule
    default = rule.default if num_layers is None else concrete(rule.default, num_layers)
    facts = (("last", rule.last), ("order", rule.order), ("default", default))
    texts = [
        "; ".join([rule.rule, *(f"{k}: {v}" for k, v in facts if v != "-")]),
        *([rule.note] if rule.note else []),
        f"{_evidence(rule.run)}: {rule.source}",
        *answer.doubts,
    ]
    head = f"  {rule.setting} | {_span(answer)} | {rule.models}"
    out = textwrap.wrap(head, WIDTH, subsequent_indent="      ")
    for text in texts:
        out += textwrap.wrap(
            text, WIDTH, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
        )
    return out


def _translation(found: tuple[Answer, ...], wanted: tuple[int, ...], num_layers: int | None) -> list[str]:
    from ..conventions import sentence

    outputs = tuple(b - 1 for b in wanted if b)
    head = f"What to write for {_counted('boundary', 'boundaries', wanted)}"
    if outputs:
        head += f" ({_counted('the output of layer', 'the outputs of layers', outputs)})"
    lines = textwrap.wrap(f"{head}:", WIDTH)
    if num_layers is None:
        lines.append("(without --num-layers none of them is taken to be the last)")
    for answer in found:
        text = f"{_who(answer)}: {sentence(answer, wanted, num_layers)}"
        text += " (not checked, see above)" if answer.doubts else ""
        lines += textwrap.wrap(
            text, WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False
        )
    return lines


def _who(answer: Answer) -> str:
    rule = answer.rule
    words = f"{rule.label.split(',')[0].split(' ')[0]} {_span(answer)}"
    models = rule.models.split(":")[0].split(", ")
    few = ", ".join(models if len(models) <= 4 else [*models[:2], f"{len(models) - 2} more"])
    return words if not rule.families else f"{words}, {few}"


def _counted(one: str, many: str, numbers: tuple[int, ...]) -> str:
    return f"{one if len(numbers) == 1 else many} {','.join(str(n) for n in numbers)}"


def _evidence(run: str) -> str:
    return f"read, and run with {run}" if run else "read"


def _span(answer: Answer) -> str:
    rule = answer.rule
    if not rule.since:
        return rule.read_at
    return rule.since if rule.since == rule.until else f"{rule.since} to {rule.until}"


def _record(answer: Answer, wanted: tuple[int, ...] | None, num_layers: int | None) -> dict[str, Any]:
    from ..conventions import sentence

    rule = answer.rule
    record: dict[str, Any] = {
        "engine": rule.engine,
        "label": rule.label,
        "setting": rule.setting,
        "models": rule.models,
        "versions": {
            "since": rule.since or None,
            "until": rule.until or None,
            "read_at": rule.read_at or None,
        },
        "rule": rule.rule,
        "last": rule.last,
        "order": rule.order,
        "default": rule.default,
        "note": rule.note,
        "evidence": _evidence(rule.run),
        "source": rule.source,
        "not_checked": list(answer.doubts),
    }
    if wanted is not None:
        written = rule.numbering.write(wanted, num_layers)
        ids = None if written.ids is None else list(written.ids)
        record["write"] = {"ids": ids, "text": sentence(answer, wanted, num_layers)}
    return record


COMMAND = conventions
