"""Responses of SGLang's /generate and Engine.generate with return_hidden_states, saved as JSON or JSON lines.

`meta_info.hidden_states` is a list: first the rows of the prefill, a list [rows, W], then one list [W] for each decode
step, for the token that went in. W is the hidden size, or a multiple of it where auxiliary states were asked for. Only
the rows of the last prefill chunk come back, and none for a cached prefix; `meta_info.prompt_tokens` gives them away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.readers import json_lines, listing, parts
from hsparity.capture.readers.base import (
    AUX,
    LAST,
    Dataset,
    Reader,
    Record,
    Said,
    Sample,
    Slot,
    guarded,
    wrong,
)
from hsparity.capture.readers.look import TRIED, Look
from hsparity.capture.shards import INT32_MAX
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    import torch

NAME = "sglang-response"
FILES = r"(.*/)?[^/]+\.jsonl?"
STATES = "hidden_states"
HEAD_BYTES = 1 << 20  # what is read of a file to recognise it
EVIDENCE = (re.compile(rb'"meta_info"\s*:\s*\{'), re.compile(rb'"hidden_states"\s*:\s*\[\s*\['))
PROMPT_KEYS = ("input_ids", "prompt_token_ids", "prompt_ids")
OUTPUT_KEYS = ("output_ids", "output_token_ids")


class SglangResponse(Dataset):
    """See the module's docstring. `claimed`: how many aux slots the user names; they lie side by side in a row."""

    format = NAME
    claimed: int | None = None

    def __init__(self, path: Path, spelled: str) -> None:
        super().__init__(path, spelled)
        self._whole = parts.Kept(json_lines.parse)
        self._lines = parts.Kept(json_lines.line_starts)

    def said(self) -> Said:
        unknown = ["layer ids", "whether a row is one state or several side by side", "model", "version"]
        if self.claimed is not None:
            unknown.remove("whether a row is one state or several side by side")
        if not self.claimed:
            unknown.insert(0, "whether the state is normed")
        return Said(
            producer="sglang",
            unknown=tuple(unknown),
            notes=(
                *listing.passed_over(self.look, FILES),
                "without auxiliary states SGLang hands over the state after the final norm, by its convention; with them, "
                "the auxiliary states alone",
                "numbers that are all exact in bfloat16 are kept as bfloat16, others as float32",
                "a response holds no prompt ids unless its writer added input_ids, or asked for the prompt's logprobs",
            ),
        )

    def records(self) -> Sequence[Record]:
        return self._records

    @cached_property
    def _records(self) -> tuple[Record, ...]:
        return listing.several(self.look, FILES, self._count)

    def _count(self, path: Path) -> int:
        """How many responses a file holds; 1 for one that cannot be read, so that reading it says why."""
        try:
            with guarded(path):
                if starts := self._lines.get(path):
                    return len(starts)
                content = self._whole.get(path) if json_lines.first_byte(path) == b"[" else None
                return max(len(content), 1) if isinstance(content, list) else 1
        except HsparityError:
            return 1

    def read(self, record: Record) -> Sample:
        entry = parts.table(record, self._entry(record), ("meta_info",))
        meta = parts.table(record, entry["meta_info"], (STATES,))
        rows = _rows(record, meta[STATES], meta)
        ids, prompt, warnings = _tokens(record, entry, meta, rows)
        values = _exact(rows.values)
        kept = slice(0, len(values))
        if ids is not None and len(ids) < int(rows.positions[-1]) + 1:
            kept = slice(0, int(np.searchsorted(rows.positions, len(ids))))
            warnings.append(
                f"{len(values) - kept.stop} rows are left out: the ids of their tokens are not here"
            )
        if kept.stop == 0:
            raise wrong(
                record, "no row whose token is known", "output ids beside the prompt's", "prompt ids alone"
            )
        positions = rows.positions[kept]
        states = parts.streams(record, values[kept], STATES, count=self.claimed or 1)
        labels = [f"{STATES}[:, {i}]" for i in range(len(states))] if len(states) > 1 else [STATES]
        role = LAST if self.claimed == 0 else AUX
        return parts.Placed(
            None if ids is None else ids[: int(positions[-1]) + 1],
            states,
            positions=None if positions[0] == 0 else positions,
            prefill=prompt,
            warnings=tuple(warnings),
            places=tuple(Slot(label, role) for label in labels),
        )

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        return parts.places(sample)

    def _entry(self, record: Record) -> Any:
        if starts := self._lines.get(record.path):
            with record.path.open("rb") as file:
                file.seek(starts[record.part])
                return json_lines.loads(record.path, file.readline())
        content = self._whole.get(record.path)
        if not isinstance(content, list):
            return content
        if not record.part < len(content):
            raise wrong(record, "no response", "a list of responses", parts.shape_of(content))
        return content[record.part]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a response, in order of position."""

    values: NDArray[np.float32]  # [R, W]
    positions: NDArray[np.int64]  # [R]
    prefill: int  # how many of them are the prompt's
    warnings: tuple[str, ...]


def _rows(record: Record, states: Any, meta: Mapping[str, Any]) -> _Rows:
    """Raises E216 for what is no list of rows, and where nothing tells their positions."""
    if not isinstance(states, list) or not states:
        raise wrong(record, STATES, "a list of rows", parts.shape_of(states) if states else "an empty list")
    blocks = [_block(record, i, each) for i, each in enumerate(states)]
    if len(widths := {b.shape[1] for b in blocks}) > 1:
        raise wrong(record, STATES, "rows of one width", f"widths {', '.join(map(str, sorted(widths)))}")
    nested = [isinstance(each[0], list) for each in states]
    if any(nested[1:]):
        raise wrong(record, STATES, "one block of prefill rows, the first", f"{sum(nested)} blocks")
    total, prefill = sum(map(len, blocks)), len(blocks[0]) if nested[0] else 0
    prompt, made = _number(record, meta, "prompt_tokens"), _number(record, meta, "completion_tokens")
    warnings: list[str] = []
    if not prefill:  # mode "last": the newest row alone, or one for each step
        if prompt is None or made is None or total > made:
            raise wrong(
                record,
                "nothing tells the rows' positions",
                "prompt_tokens and completion_tokens",
                "single rows alone",
            )
        first = prompt + made - 1 - total
        prefill = max(0, prompt - first)
        warnings.append("the prefill's rows are not here: the response holds last rows alone")
    elif prompt is None:
        first = 0
        warnings.append("meta_info has no prompt_tokens: the rows are laid from position 0 on")
    else:
        first = prompt - prefill
        if first < 0:
            raise wrong(record, STATES, f"at most {prompt} prefill rows, one a prompt token", f"{prefill}")
        if first:
            warnings.append(_why_short(first, prompt, _number(record, meta, "cached_tokens")))
    positions = np.arange(first, first + total, dtype=np.int64)
    return _Rows(np.concatenate(blocks), positions, prefill, tuple(warnings))


def _why_short(first: int, prompt: int, cached: int | None) -> str:
    short = (
        f"the first {first} of {prompt} prompt tokens have no row; the rest are laid at the end of the prompt"
    )
    if cached == first:
        return f"{short}: {cached} tokens came from the prefix cache"
    beside = f", {cached} of them cached" if cached else ""
    return f"{short}: only the last prefill chunk comes back{beside}"


def _block(record: Record, place: int, rows: Any) -> NDArray[np.float32]:
    """One entry, [rows, W]. JSON's null stands for NaN. Raises E216."""
    name = f"{STATES}[{place}]"
    if not isinstance(rows, list) or not rows:
        raise wrong(record, name, "rows of numbers", parts.shape_of(rows) if rows else "an empty list")
    try:
        plain = np.asarray(rows)
        if plain.dtype.kind not in "ifO":
            raise ValueError(plain.dtype)
        found = plain.astype(np.float32)
    except (ValueError, TypeError, OverflowError):
        raise wrong(record, name, "rows of numbers of one width", _what(rows)) from None
    if found.ndim == 1:
        found = found[None]
    if found.ndim != 2 or not found.shape[1]:
        raise wrong(record, name, "[rows, width] or [width]", str(list(found.shape)))
    return found


def _what(rows: list[Any]) -> str:
    if all(isinstance(row, list) for row in rows):
        widths = sorted({len(row) for row in rows})
        return f"{len(rows)} rows of {', '.join(map(str, widths[:4]))} values"
    return f"{len(rows)} values, {', '.join(sorted({type(v).__name__ for v in rows}))}"


def _exact(values: NDArray[np.float32]) -> torch.Tensor:
    """As bfloat16 where every value is exact in it, else float32."""
    import torch

    full = torch.from_numpy(values)
    short = full.to(torch.bfloat16)
    same = torch.equal(short.to(torch.float32).nan_to_num(nan=0.0), full.nan_to_num(nan=0.0))
    return short if same else full


def _tokens(
    record: Record, entry: Mapping[str, Any], meta: Mapping[str, Any], rows: _Rows
) -> tuple[NDArray[np.int64] | None, int | None, list[str]]:
    """The ids of prompt and output, None without the prompt's; how many are the prompt's; warnings. Raises E216."""
    warnings = list(rows.warnings)
    asked = entry.get("request")
    scopes = [entry, meta, *([asked] if isinstance(asked, Mapping) else [])]
    count = _number(record, meta, "prompt_tokens")
    prompt = _ids(record, scopes, PROMPT_KEYS)
    if prompt is None:
        prompt = _logged(record, meta, "input_token_logprobs")
        if prompt is not None and len(prompt) != count:
            prompt = None  # logprob_start_len asked for a part of the prompt
    if prompt is None:
        warnings.append("no prompt ids: the response's writer did not keep them")
        return None, None, warnings
    if count is not None and len(prompt) != count:
        raise wrong(
            record, "the prompt ids are of another prompt", f"{count} (prompt_tokens)", f"{len(prompt)}"
        )
    if count is None and len(prompt) != rows.prefill:
        raise wrong(
            record, "another number of prefill rows", f"{len(prompt)}, one a prompt id", f"{rows.prefill}"
        )
    output = _ids(record, scopes, OUTPUT_KEYS)
    if output is None:
        output = _logged(record, meta, "output_token_logprobs")
    ids = prompt if output is None else np.concatenate((prompt, output))
    return ids, len(prompt), warnings


def _ids(
    record: Record, scopes: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> NDArray[np.int64] | None:
    for scope in scopes:
        for key in keys:
            if isinstance(scope.get(key), list):
                return parts.integers(record, scope[key], key)
    return None


def _logged(record: Record, meta: Mapping[str, Any], key: str) -> NDArray[np.int64] | None:
    """The ids of a list of (logprob, id, text)."""
    listed = meta.get(key)
    if not isinstance(listed, list) or not all(isinstance(e, list) and len(e) > 1 for e in listed):
        return None
    return parts.integers(record, [e[1] for e in listed], key) if listed else None


def _number(record: Record, meta: Mapping[str, Any], key: str) -> int | None:
    """A count that a response tells; None where it tells none. Raises E216 for one that no response has."""
    value = meta.get(key)
    if type(value) is int and value > INT32_MAX:
        raise wrong(record, key, f"at most {INT32_MAX}", f"{value:.6g}" if value < 1 << 900 else "more")
    return value if type(value) is int and value >= 0 else None


def _heads(look: Look) -> Iterator[bytes]:
    for name in look.matching(FILES)[:TRIED]:
        try:
            with look.file(name).open("rb") as file:
                yield file.read(HEAD_BYTES)
        except OSError:
            continue


def _recognise(look: Look) -> str | None:
    # By the head alone: the rows of one response can be a gigabyte of digits.
    if any(all(pattern.search(head) for pattern in EVIDENCE) for head in _heads(look)):
        return f"JSON with meta_info.{STATES}, a list of rows"
    return None


READER = Reader(NAME, "SGLang responses", _recognise, SglangResponse)
