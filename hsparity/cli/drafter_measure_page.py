"""The page that `hsparity drafter measure` prints."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from .plain_page import entry, framed, wrapped

if TYPE_CHECKING:
    from ..drafter.measurement import Counts, Measurement
    from ..report.base import Options

TITLES = {"vllm": "vLLM", "sglang": "SGLang"}


def render(record: Measurement, options: Options) -> str:
    """The record as text at `options.width` columns."""
    from ..drafter.measurement import counts

    counted = counts(record)
    word = "MEASURED"
    headline = f"{word}  {_headline(record, counted)}"
    lines = [headline]
    if not options.quiet:
        lines = [*_what(record, options), "", *wrapped(headline, options.width, ""), ""]
        lines += [*_positions(record, counted, options.width), ""]
        if options.verbose:
            lines += [*_prompts(record, options.width), ""]
        lines += _notes(record, options)
    return framed(word, lines, "cyan", options)


def _headline(record: Measurement, counted: Counts) -> str:
    from ..report.spelling import count

    low, high = counted.intervals()[0]
    between = f" ({low:.2f} to {high:.2f})" if isfinite(low) else ""
    over = f", over {count(len(record.stand_ins), 'stand-in')} of hsparity's" if record.stand_ins else ""
    return (
        f"accept length {counted.accept_length:.2f}{between} of {record.k + 1} in {TITLES[record.engine]} "
        f"{record.version}{over}"
    )


def _what(record: Measurement, options: Options) -> list[str]:
    from ..report.spelling import count

    written = sum(len(p.generated) for p in record.prompts)
    steps = sum(len(p.steps) for p in record.prompts)
    lines = entry(
        "draft", f"{record.draft}  ({record.draft_class}, weights {record.draft_sha256[:12]})", options
    )
    lines += entry("target", f"{record.model}  ({record.dtype})", options)
    lines += entry(
        "engine",
        f"{TITLES[record.engine]} {record.version}, {record.runner}, attention {record.attention_backend}; greedy "
        f"(temperature 0), one prompt at a time, a chain of {record.k} drafts a step",
        options,
    )
    lines += entry("ids", _ids(record), options)
    lines += entry(
        "text",
        f"{count(len(record.prompts), 'prompt')}, {count(written, 'token')} written in {count(steps, 'step')}",
        options,
    )
    return lines


def _ids(record: Measurement) -> str:
    layers = ",".join(str(i) for i in record.aux_layers)
    source = {
        "config": "the draft's config",
        "given": "--ids, in a copy of its config",
        "default": "--ids default",
    }
    asked = ",".join(str(i) for i in record.ids) if record.ids else "none"
    return f"{asked}  ({source[record.ids_asked]}); the running target hands over {layers} in the engine's own numbers"


def _positions(record: Measurement, counted: Counts, width: int) -> list[str]:
    from ..report.columns import Column, table
    from ..report.spelling import percent

    figures, bounds, k = counted.figures(), counted.intervals(), record.k
    rows = range(1, k + 1)

    def between(i: int) -> str:
        low, high = bounds[i]
        return f"{percent(low)} to {percent(high)}" if isfinite(low) else "-"

    columns = [
        Column("position", tuple(str(j) for j in rows)),
        Column("accepted", tuple(percent(figures[j]) for j in rows)),
        Column("95% interval", tuple(between(j) for j in rows), rank=1),
        Column("steps", tuple(f"{n} of {counted.drafts}" for n in counted.accepted_per_position), rank=3),
        Column("given the one before", tuple(percent(figures[k + j]) for j in rows), rank=1),
        Column("95% interval", tuple(between(k + j) for j in rows), rank=2),
    ]
    return [line.plain for line in table(columns, width)]


def _prompts(record: Measurement, width: int) -> list[str]:
    from ..drafter.measurement import Counts, counts
    from ..report.columns import Column, table
    from ..report.spelling import clean, percent

    counted = counts(record)
    alone = [
        Counts(counted.steps_p[i : i + 1], counted.accepted_pk[i : i + 1]) for i in range(len(record.prompts))
    ]
    columns = [
        Column("prompt", tuple(clean(p.id) for p in record.prompts), left=True),
        Column("written", tuple(str(len(p.generated)) for p in record.prompts), rank=2),
        Column("steps", tuple(str(c.drafts) for c in alone)),
        Column("accept length", tuple(f"{c.accept_length:.2f}" if c.drafts else "-" for c in alone)),
    ]
    columns += [
        Column(f"at {j + 1}", tuple(percent(float(c.figures()[1 + j])) for c in alone), rank=1)
        for j in range(record.k)
    ]
    return [line.plain for line in table(columns, width)]


def _notes(record: Measurement, options: Options) -> list[str]:
    from ..drafter.measurement import COUNTED, SGLANG_LENGTH, disagreements

    lines: list[str] = []
    if record.stand_ins:
        lines += entry(
            "stand-ins",
            "SGLang lacks these on this machine, and hsparity's own Python stands in: "
            f"{', '.join(record.stand_ins)}. Scheduler, workers, models and the draft loop are SGLang's. The figures "
            "test this draft with these layers; they are not SGLang's own behaviour on a CPU",
            options,
        )
    more = f". {SGLANG_LENGTH}" if record.engine == "sglang" else ""
    lines += entry("counted", COUNTED + more, options)
    agree = (
        "no"
        if disagreements(record)
        else "yes: the recorded steps are those that the engine counted, prompt by prompt"
    )
    lines += entry("agrees", agree, options)
    lines += entry(
        "interval", "bootstrap over prompts; one text's steps are not independent of one another", options
    )
    for warning in record.warnings:
        lines += entry("warning", warning, options)
    return lines
