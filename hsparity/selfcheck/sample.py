"""Which tokens are checked: a stratified sample of those whose state and log-probability are both there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.capture.shards import read_header, read_into
from hsparity.capture.source import Source
from hsparity.errors import HsparityError
from hsprobe.schema import Site

POSITIVE = 0.01  # no log-probability is above 0 by more than rounding
VALUES, IDS = "prompt_logprobs", "prompt_logprob_ids"


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """N tokens: their states at every site that could be the last, and what the engine said of the next token."""

    states_snh: dict[str, torch.Tensor]  # site -> [N, H] in the dtype on disk
    next_n: torch.Tensor  # int64 [N]: the prompt's own next token
    logprob_n: torch.Tensor  # float64 [N]: its log-probability by the engine
    top_n: torch.Tensor  # int64 [N]: the engine's most likely token; -1 where the ids do not say
    prompts: int  # prompts that the tokens come from


def last_sites(source: Source) -> tuple[str, ...]:
    """The sites of a capture that could be the last state: boundaries L and L-1, final_norm, every slot."""
    layers = source.manifest.num_layers
    wanted = {Site("boundary", layers).key, Site("boundary", max(layers - 1, 0)).key, "final_norm"}
    return tuple(key for key in source.sites() if key in wanted or Site.parse(key).kind == "slot")


def draw(source: Source, tokens: int) -> Sample:
    """At most `tokens` tokens, spread evenly over all prompts and positions that can be checked.

    Raises E210 when the capture lacks log-probabilities or every site that could be the last state, E206 when
    the ids beside the log-probabilities are not the prompt's.
    """
    sites = last_sites(source)
    _require(source, sites)
    places = [(p.id, row, position) for p in source.prompts for row, position in _usable(source, p.id, sites)]
    if not places:
        raise HsparityError(
            "E210",
            f"{source.path}: no token has both a state and a log-probability",
            ("rows that were never computed, or prompts of one token",),
            "capture again without a prefix cache, with prompts of a few tokens",
        )
    picked = np.unique(np.linspace(0, len(places) - 1, min(tokens, len(places))).round().astype(np.int64))
    chosen: dict[str, list[tuple[int, int]]] = {}
    for i in picked:
        prompt, row, position = places[i]
        chosen.setdefault(prompt, []).append((row, position))
    states: dict[str, list[torch.Tensor]] = {site: [] for site in sites}
    said: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for prompt, pairs in chosen.items():
        rows = np.array([row for row, _ in pairs], np.int64)
        for site in sites:
            states[site].append(source.rows(prompt, site, rows))
        said.append(_said(source, prompt, np.array([position for _, position in pairs], np.int64)))
    next_n, logprob_n, top_n = (torch.cat(parts) for parts in zip(*said, strict=True))
    return Sample({s: torch.cat(parts) for s, parts in states.items()}, next_n, logprob_n, top_n, len(chosen))


def _require(source: Source, sites: tuple[str, ...]) -> None:
    asked = "hsparity capture ENGINE … --sites prompt_logprobs -o DIR"
    if VALUES not in source.sites():
        notes = ("they are the engine's own word on its next token, which the last state must reproduce",)
        raise HsparityError("E210", f"{source.path} holds no prompt log-probabilities", notes, asked)
    if not sites:
        layers = source.manifest.num_layers
        notes = (f"one of boundary {layers}, boundary {layers - 1}, final_norm or a native slot is needed",)
        raise HsparityError("E210", f"{source.path} holds no site that could be the last state", notes, asked)


def _usable(source: Source, prompt: str, sites: tuple[str, ...]) -> list[tuple[int, int]]:
    """(row, position) of the tokens of a prompt whose next token the engine rated."""
    values = source.span(prompt, VALUES)
    if values is None or any(source.span(prompt, site) is None for site in sites):
        return []
    return [(i, int(p)) for i, p in enumerate(source.positions(prompt)) if p < values.rows]


def _said(
    source: Source, prompt: str, positions: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    span = source.span(prompt, VALUES)
    assert span is not None
    stored = read_header(span.path).get(IDS)
    shape = (span.rows, span.width)
    if (
        stored is None
        or stored.dtype != "I32"
        or stored.shape != shape
        or span.dtype != "F32"
        or not span.width
    ):
        raise HsparityError("E206", f"{span.path}: {VALUES} needs {IDS}, int32 {list(shape)}")
    values = np.empty(shape, "<f4")
    read_into(span, [(0, span.rows, 0)], values.data.cast("B"))
    ids = np.fromfile(span.path, "<i4", int(np.prod(shape)), offset=stored.offset).reshape(shape)
    if (lost := int((~np.isfinite(values[:, 0])).sum())) > span.rows / 2:
        message = f"{span.path}: {lost} of {span.rows} {VALUES} are not finite"
        raise HsparityError("E206", message, help="capture again with --sites prompt_logprobs")
    if values.max(initial=-1.0) > POSITIVE:
        raise HsparityError(
            "E206",
            f"{span.path}: {VALUES} reach {values.max():.3g}: these are logits, not log-probabilities",
            help="capture again with --sites prompt_logprobs, leaving logprobs_mode at its default",
        )
    following = source.token_ids(prompt)[1 : span.rows + 1]
    if not np.array_equal(ids[:, 0], following):
        raise HsparityError("E206", f"{span.path}: {IDS} are not the ids of prompt {prompt}, one token on")
    picked, rated = ids[positions].astype(np.int64), values[positions].astype(np.float64)
    top = picked[np.arange(len(picked)), rated.argmax(1)] if span.width > 1 else np.full(len(picked), -1)
    return torch.from_numpy(picked[:, 0].copy()), torch.from_numpy(rated[:, 0].copy()), torch.from_numpy(top)
