"""Which tensors a side feeds the head, slot by slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hsparity.align.tokens import PromptRows
from hsparity.audit.claims import fed as located
from hsparity.audit.claims import key_of, worded
from hsparity.capture.source import Source
from hsparity.drafter.contract import contract, default_boundaries, fed
from hsparity.drafter.draft import Draft
from hsparity.errors import HsparityError
from hsparity.metrics.kernel import Norm
from hsparity.pairing import boundaries_of, holdings, slots_of


@dataclass(frozen=True, slots=True)
class Fed:
    """Site keys of the slots in the order in which fc takes them; `numbers` are boundaries, L + 1 the normed last one, empty
    where the capture alone does not say."""

    keys: tuple[str, ...]
    numbers: tuple[int, ...]
    why: str


def feed(
    draft: Draft,
    side: str,
    source: Source,
    prompts: Sequence[PromptRows],
    norm: Norm | None,
    ids: tuple[int, ...] | None,
    boundaries: tuple[int, ...] = (),
) -> Fed:
    """What a side feeds: the boundaries or ids named (() for the engine's default), else the slots that its engine handed over,
    else the boundaries that its engine makes of the head's config.

    Raises E270 where their number is not the head's, E210 where they were not captured."""
    slots = slots_of(source)
    if boundaries:
        return _by_number(draft, side, source, boundaries, "as --boundaries says")
    if slots and ids is None:
        return _native(draft, side, source, prompts, norm, slots)
    numbers, why = _read_ids(draft, source, ids)
    return _by_number(draft, side, source, numbers, why)


def _native(
    draft: Draft,
    side: str,
    source: Source,
    prompts: Sequence[PromptRows],
    norm: Norm | None,
    slots: tuple[str, ...],
) -> Fed:
    # A dataset's last place is the verifier's last state, which no head takes.
    taken = slots[: draft.slots] if len(slots) == draft.slots + 1 and source.from_file else slots
    if len(taken) != draft.slots:
        raise _wrong_number(draft, side, source, f"{len(slots)} slots")
    numbers = located(source, prompts, norm) if boundaries_of(source) else ()
    return Fed(taken, numbers[: len(taken)], "the slots its engine handed over")


def _read_ids(draft: Draft, source: Source, ids: tuple[int, ...] | None) -> tuple[tuple[int, ...], str]:
    """The boundaries that this side's engine makes of the head's config, or of ids that stand in for those in it."""
    m, layers = source.manifest, source.manifest.num_layers
    if m.engine not in SERVING:
        taken = draft.ids if ids is None else ids
        if not taken:
            return default_boundaries(layers) or (), "the head's config holds no ids: every engine's default"
        return taken, f"ids {_listed(taken)} taken as boundaries, as vLLM counts"
    runner = str(m.settings.get("model_runner") or "").lower() if m.engine == "vllm" else ""
    said = contract(draft, m.engine, m.engine_version, runner, m.architecture, layers)
    if ids is not None:
        numbers = fed(said.rule, ids, layers) if ids else default_boundaries(layers)
        return (
            numbers or (),
            f"ids {_listed(ids) or 'left out'}, as {said.label} reads them ({said.rule.rule})",
        )
    reading = said.reading
    if reading.default:
        held = f"{said.label} reads none of its ids" if draft.ids else "the head's config holds no ids"
        return reading.boundaries or (), f"{held}: the default"
    return (
        reading.boundaries or (),
        f"ids {_listed(reading.ids or ())}, as {said.label} reads them ({said.rule.rule})",
    )


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _by_number(draft: Draft, side: str, source: Source, numbers: tuple[int, ...], why: str) -> Fed:
    layers = source.manifest.num_layers
    if len(numbers) != draft.slots:
        raise _wrong_number(draft, side, source, f"boundaries {', '.join(map(str, numbers))} ({why})")
    # Behind the normed last state, L + 1, there is nothing; the head's config may name it all the same.
    inside = [0 <= n <= layers + 1 for n in numbers]
    keys = tuple(key_of(n, layers) for n in numbers)
    held = set(source.sites())
    lacking = [n for n, k, known in zip(numbers, keys, inside, strict=True) if not known or k not in held]
    if lacking:
        shown = ", ".join(worded(n, layers) if 0 <= n <= layers + 1 else f"boundary {n}" for n in lacking)
        raise HsparityError(
            "E210",
            f"the {SIDES[side]} does not hold {shown}, which the head takes",
            (
                f"head     {draft.spelled}: {why}",
                f"{side:<4}     {source.path} holds {holdings(source)}",
            ),
            "capture again with every boundary: --boundaries all",
        )
    return Fed(keys, numbers, why)


def _wrong_number(draft: Draft, side: str, source: Source, held: str) -> HsparityError:
    return HsparityError(
        "E270",
        f"the {SIDES[side]} does not feed what the head takes",
        (
            f"head  {draft.spelled}: fc is {list(draft.fc_shape)}, {draft.slots} slots of {draft.target_hidden_size}",
            f"{side:<4}  {source.path}: {held}",
        ),
        "name the boundaries the head was trained on: --boundaries 2,15,27",
    )


SERVING = ("vllm", "sglang")
SIDES = {"ref": "reference", "cand": "candidate"}
