"""Everything a slot could be: each boundary of the ruler raw, normed, normed twice, with its branches alone or
missing; and the measured error of every slot against every entry.

Products of matrices make the shortlist; the errors that are reported are summed from differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.align.layers import SINK
from hsparity.align.tokens import PromptRows
from hsparity.capture.source import Source
from hsparity.metrics.kernel import Norm
from hsparity.pairing import boundaries_of
from hsparity.solve.forms import Form, normed, site
from hsparity.stream import pool_map
from hsprobe.schema import Site

Tokens = Sequence[tuple[PromptRows, NDArray[np.int64]]]
Table = NDArray[np.float32]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One hypothesis. `kind` is the name of the finding it would be; "" is the boundary as it stands."""

    kind: str
    number: int
    form: Form
    words: str
    scalable: bool = True  # whether a constant gain on it is another hypothesis (a normed state has its own)


def entries(source: Source, norm: Norm | None, plus_one: bool) -> list[Entry]:
    """The dictionary that the ruler's boundaries, branches and final norm allow."""
    held, last = boundaries_of(source), source.manifest.num_layers
    sites = set(source.sites())
    found = [Entry("", k, site(key), f"boundary {k}") for k, key in held.items()]
    if norm:
        other = Norm(norm.scale + (-1.0 if plus_one else 1.0), norm.eps)
        odd = "scales by w" if plus_one else "scales by 1 + w"
        for k, key in held.items():
            name = f"boundary {k}"
            forms = (
                ("final-norm-applied", normed(key, norm), f"{name} after the final norm"),
                ("final-norm-twice", normed(key, norm, norm), f"{name} after the final norm, twice"),
                ("final-norm-applied", normed(key, other), f"{name} after a final norm that {odd}"),
            )
            found += [Entry(kind, k, form, words, False) for kind, form, words in forms]
    if "final_norm" in sites and last not in held:
        found.append(Entry("final-norm-applied", last, site("final_norm"), "the final norm's output", False))
        if norm:
            twice = normed("final_norm", norm)
            found.append(
                Entry("final-norm-twice", last, twice, "the final norm's output, normed again", False)
            )
    for k, key in held.items():
        below = held.get(k - 1)
        if below:
            form = Form(((key, 1.0), (below, -1.0)))
            found.append(Entry("residual-missing", k, form, f"the update of layer {k - 1} alone"))
        found += _branches(k, key, sites)
    return found


def _branches(k: int, key: str, sites: set[str]) -> list[Entry]:
    found = []
    hidden, residual = Site("hidden", k).key, Site("residual", k).key
    if hidden in sites:
        found.append(Entry("residual-missing", k, site(hidden), f"boundary {k} without its residual"))
    if residual in sites:
        found.append(Entry("mid-layer", k, site(residual), f"the residual of boundary {k} alone"))
    attn, mlp = Site("attn_out", k).key, Site("mlp_out", k).key
    above = Site("boundary", k + 1).key
    if mlp in sites:
        found.append(Entry("residual-missing", k + 1, site(mlp), f"the MLP output of layer {k} alone"))
    if attn in sites:
        found.append(Entry("branch-only", k + 1, site(attn), f"the attention output of layer {k} alone"))
    words = f"boundary {k} plus the attention output of layer {k}"
    if attn in sites:
        found.append(Entry("mid-layer", k + 1, Form(((key, 1.0), (attn, 1.0))), words))
    elif mlp in sites and above in sites:
        found.append(Entry("mid-layer", k + 1, Form(((above, 1.0), (mlp, -1.0))), words))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Figures of every token, entry and slot: <c, d>, |d|^2, |c|^2 with the search's channels masked."""

    dot_nes: Table
    entry_ne: Table
    slot_ns: Table

    @property
    def tokens(self) -> int:
        return len(self.slot_ns)

    def gain_nes(self) -> Table:
        """Per token the coefficient of the entry that fits the slot best."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gains: Table = self.dot_nes / self.entry_ne[:, :, None]
        return gains

    def errors_nes(self, gain_es: Table | float = 1.0) -> Table:
        """|c / g - d| / |d| per token: exact to about 3e-4, enough to choose what is measured exactly."""
        with np.errstate(divide="ignore", invalid="ignore"):
            square = (
                self.slot_ns[:, None, :] / gain_es**2 - 2 * self.dot_nes / gain_es + self.entry_ne[:, :, None]
            )
            errors: Table = np.sqrt(np.maximum(square, 0.0) / self.entry_ne[:, :, None])
        return errors


class Bench:
    """Reads the sampled rows of the sides and forms tensors of them, a few rows at a time, on all cores."""

    def __init__(self, sources: Sequence[Source], tokens: Tokens, mask: NDArray[np.int64]) -> None:
        self.sources, self.tokens = sources, tokens
        self.mask = torch.from_numpy(mask)

    def each(self, work: Callable[[int], Result | None]) -> list[Result]:
        """What `work` makes of every task, in their order; None's are left out."""
        found: list[Result | None] = [None] * len(self.tokens)

        def one(task: int) -> None:
            found[task] = work(task)

        pool_map(one, range(len(self.tokens)))
        return [f for f in found if f is not None]

    def maker(self, which: int, task: int) -> Callable[[Form], torch.Tensor | None] | None:
        """Makes float32 [n, H] of one task's rows, reading every site once; None when the source lacks one of
        the rows. What it makes may be what it holds: not to be changed."""
        prompt, places = self.tokens[task]
        rows = prompt.rows[which][places]
        name = prompt.prompts[which]
        if not name or (rows < 0).any():
            return None
        source = self.sources[which]
        held: dict[str, torch.Tensor | None] = {}

        def read(key: str) -> torch.Tensor | None:
            if key not in held:
                span = source.span(name, key)
                held[key] = None if span is None else source.rows(name, key, rows).float()
            return held[key]

        return lambda form: form.make(read, name, rows)

    def rows(self, which: int, task: int, forms: Sequence[Form], masked: bool = True) -> torch.Tensor | None:
        """Float32 [n, forms, H] of one task's rows; None when the source lacks one of the rows, NaN where it
        lacks a site."""
        make = self.maker(which, task)
        if make is None:
            return None
        out = torch.empty(len(self.tokens[task][1]), len(forms), self.sources[which].manifest.hidden_size)
        for i, form in enumerate(forms):
            made = make(form)
            out[:, i] = torch.nan if made is None else made
        return out.index_fill_(2, self.mask, 0.0) if masked else out

    def whole(self, which: int, forms: Sequence[Form], masked: bool = True, limit: int = 0) -> torch.Tensor:
        """Float32 [N, forms, H] of all sampled rows that the source holds; of about `limit` of them, evenly
        spread, when given."""
        step = max(1, -(-sum(len(places) for _, places in self.tokens) // limit)) if limit else 1
        known = self.each(lambda t: self.rows(which, t, forms, masked) if t % step == 0 else None)
        width = self.sources[which].manifest.hidden_size
        return torch.cat(known) if known else torch.empty(0, len(forms), width)

    def measure(self, ruler: int, dictionary: Sequence[Form], side: int, slots: Sequence[Form]) -> Measured:
        """Every slot of `side` against every entry of the ruler: sums of sites, or sites with norms."""
        products = Products(dictionary, self.mask)

        def work(task: int) -> tuple[Table, Table, Table] | None:
            left = self.rows(ruler, task, [site(key) for key in products.keys], masked=False)
            right = self.rows(side, task, slots)
            return None if left is None or right is None else products.of(left, right)

        known = self.each(work)
        if not known:
            empty = np.zeros((0, len(dictionary), len(slots)), np.float32)
            return Measured(empty, empty[:, :, 0] if len(slots) else empty.sum(2), empty[:, 0])
        return Measured(*(np.concatenate([p[i] for p in known]) for i in range(3)))

    def errors(self, ruler: int, side: int, pairs: Sequence[tuple[Form, Form]]) -> list[NDArray[np.float64]]:
        """|c - d| / |d| per sampled token for every (entry, slot), summed from differences; NaN for sinks and
        where rows are missing."""

        def work(task: int) -> NDArray[np.float64]:
            found = np.full((len(pairs), len(self.tokens[task][1]), 2), np.nan)
            left, right = self.maker(ruler, task), self.maker(side, task)
            for i, (entry, slot) in enumerate(pairs):
                mine = left(entry) if left else None
                theirs = right(slot) if right else None
                if mine is None or theirs is None:
                    continue
                mine = mine.index_fill(1, self.mask, 0.0)
                size = torch.linalg.vector_norm(mine, dim=1)
                apart = torch.linalg.vector_norm(theirs.index_fill(1, self.mask, 0.0).sub_(mine), dim=1)
                found[i] = torch.stack((apart / size, size), 1).double().numpy()
            return found

        parts = self.each(work)
        values = np.concatenate(parts, 1) if parts else np.zeros((len(pairs), 0, 2))
        return [_without_sinks(errors, sizes) for errors, sizes in values.transpose(0, 2, 1)]


def _without_sinks(errors: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    known = sizes[np.isfinite(sizes)]
    if len(known):
        with np.errstate(invalid="ignore"):
            errors[sizes > SINK * np.median(known)] = np.nan
    errors[~np.isfinite(errors)] = np.nan
    return errors


class Products:
    """<c, d>, |d|^2 and |c|^2 of entries d and slots c, from products of the sites that the entries are made
    of: an RMSNorm is a number per row times a weight per channel, so no entry is made."""

    def __init__(self, dictionary: Sequence[Form], mask: torch.Tensor) -> None:
        self.mask, self.dictionary = mask, dictionary
        self.keys = tuple(dict.fromkeys(key for form in dictionary for key in form.sites))
        place = {key: i for i, key in enumerate(self.keys)}
        self.sums: list[tuple[int, list[tuple[int, float]]]] = []  # entry -> (site, coefficient)s
        self.normed: dict[tuple[int, ...], tuple[tuple[Norm, ...], list[int], list[int]]] = {}
        for e, form in enumerate(dictionary):
            if form.norms:
                # Entries with the same norms: their numbers and sites.
                group = self.normed.setdefault(tuple(map(id, form.norms)), (form.norms, [], []))
                group[1].append(e)
                group[2].append(place[form.sites[0]])
            else:
                self.sums.append((e, [(place[key], share) for key, share in form.parts]))

    def of(self, left_nsh: torch.Tensor, right_nth: torch.Tensor) -> tuple[Table, Table, Table]:
        """Of the sites' rows, unmasked and changed here, and the slots', masked."""
        count, width = len(left_nsh), left_nsh.shape[2]
        dot = torch.empty(count, len(self.dictionary), right_nth.shape[1])
        size = torch.empty(count, len(self.dictionary))
        square = left_nsh.square()
        scales = {key: self._scales(norms, square, width) for key, (norms, _, _) in self.normed.items()}
        square.index_fill_(2, self.mask, 0.0)
        left_nsh.index_fill_(2, self.mask, 0.0)
        for key, (_, entries_, sites) in self.normed.items():
            row_ns, weight = scales[key]
            product = torch.bmm(left_nsh, (right_nth * weight).transpose(1, 2)) * row_ns[:, :, None]
            dot[:, entries_] = product[:, sites]
            size[:, entries_] = ((square @ weight.square()) * row_ns.square())[:, sites]
        plain = torch.bmm(left_nsh, right_nth.transpose(1, 2))
        plain_size = square.sum(2)
        for e, parts in self.sums:
            sites, share = [s for s, _ in parts], torch.tensor([share for _, share in parts])
            dot[:, e] = torch.einsum("nst,s->nt", plain[:, sites], share)
            if len(parts) == 1:
                size[:, e] = plain_size[:, sites[0]] * share.square()
            else:
                size[:, e] = torch.einsum("nsh,s->nh", left_nsh[:, sites], share).square().sum(1)
        return dot.numpy(), size.numpy(), right_nth.square().sum(2).numpy()

    @staticmethod
    def _scales(
        norms: Sequence[Norm], square_nsh: torch.Tensor, width: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The number per row [n, S] and the weight per channel [H] that the norms one after another come to."""
        row_ns, weight = torch.ones(square_nsh.shape[:2]), torch.ones(width)
        for norm in norms:
            mean = (square_nsh @ weight.square()) * row_ns.square() / width
            row_ns, weight = row_ns * (mean + norm.eps).rsqrt(), weight * norm.scale
        return row_ns, weight
