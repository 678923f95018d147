"""From a head's own token ids to the target's: d2t as differences or as ids, told apart by t2d."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hsparity.errors import HsparityError

OFFSET, ABSOLUTE, IDENTITY = "offset", "absolute", "identity"


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Target ids that a head drafts, and how its d2t says so."""

    target_ids: torch.Tensor  # int64 [draft vocab]
    reading: str  # OFFSET | ABSOLUTE | IDENTITY: no map, the first ids
    draftable: torch.Tensor  # bool [vocab]


def read_vocabulary(
    d2t: torch.Tensor | None, t2d: torch.Tensor | None, draft_vocab: int, vocab: int, spelled: str
) -> Vocabulary:
    """The map of a head with `draft_vocab` tokens onto `vocab` of the target.

    Both engines add d2t to the draft id. A list of ids is seen by t2d, the mask of draftable target ids; without a t2d
    by differences that lead out of the vocabulary, or twice to one token, where the numbers as ids do not. Raises E264
    for a map of another length, E265 for ids outside the target's vocabulary, E266 where t2d contradicts both readings.
    """
    _lengths(d2t, t2d, draft_vocab, vocab, spelled)
    own = torch.arange(draft_vocab)
    readings = {IDENTITY: own} if d2t is None else {OFFSET: own + d2t.long(), ABSOLUTE: d2t.long()}
    if t2d is not None:
        fitting = [name for name, ids in readings.items() if _marked(ids, t2d)]
    else:
        inside = [name for name, ids in readings.items() if _inside(ids, vocab)]
        fitting = [name for name in inside if len(readings[name].unique()) == draft_vocab] or inside
    if not fitting:
        raise (
            _outside(next(iter(readings.items())), vocab, spelled)
            if t2d is None
            else _contradicted(readings, t2d, spelled)
        )
    ids = readings[fitting[0]]
    return Vocabulary(ids, fitting[0], torch.zeros(vocab, dtype=torch.bool).index_fill(0, ids, True))


def _inside(ids: torch.Tensor, vocab: int) -> bool:
    """Whether all of these are tokens of the target."""
    return not len(ids) or (bool(ids.min() >= 0) and bool(ids.max() < vocab))


def _marked(ids: torch.Tensor, t2d: torch.Tensor) -> bool:
    """Whether t2d marks these tokens and no other."""
    return bool(torch.equal(ids.unique(), t2d.nonzero().flatten()))


def _lengths(
    d2t: torch.Tensor | None, t2d: torch.Tensor | None, draft_vocab: int, vocab: int, spelled: str
) -> None:
    for name, map_, wanted, what in (
        ("d2t", d2t, draft_vocab, "tokens of the head"),
        ("t2d", t2d, vocab, "tokens of the target"),
    ):
        if map_ is not None and tuple(map_.shape) != (wanted,):
            notes = (f"{name}     {list(map_.shape)}", f"wanted  [{wanted}]  {what}")
            fix = f"export {name} again from the map that the head was trained with"
            raise HsparityError(
                "E264", f"{spelled}: {name} has another length than the vocabulary", notes, fix
            )


def _outside(reading: tuple[str, torch.Tensor], vocab: int, spelled: str) -> HsparityError:
    name, ids = reading
    odd = ((ids < 0) | (ids >= vocab)).nonzero().flatten()
    first = f"draft id {int(odd[0])} -> {int(ids[odd[0]])} ({len(odd)} outside)"
    notes = (f"d2t as {name:8s}  {first}", f"target's tokens   0..{vocab - 1}")
    return HsparityError(
        "E265",
        f"{spelled} drafts tokens that the target does not have",
        notes,
        "write d2t as target id minus draft id, from the map that the head was trained with",
    )


def _contradicted(readings: dict[str, torch.Tensor], t2d: torch.Tensor, spelled: str) -> HsparityError:
    marked = t2d.nonzero().flatten()
    notes = [f"t2d marks        {len(marked)} tokens, {_some(marked)}"]
    notes += [f"d2t as {name:9s} {len(ids.unique())} tokens, {_some(ids)}" for name, ids in readings.items()]
    if IDENTITY in readings:
        notes[1] = f"without d2t      {len(readings[IDENTITY])} tokens, {_some(readings[IDENTITY])}"
    return HsparityError(
        "E266",
        f"{spelled}: d2t and t2d name different tokens",
        tuple(notes),
        "export both again from the map that the head was trained with: d2t = target id - draft id, t2d[target id] = true",
    )


def _some(ids: torch.Tensor) -> str:
    return ", ".join(map(str, ids[:4].tolist())) + " …"
