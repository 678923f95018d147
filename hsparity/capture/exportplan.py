"""Which states of a capture or a dataset go into a trainer's dataset, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hsparity import registry
from hsparity.capture.importing import MECHANISM, SHOWN, Skipped, nothing_readable
from hsparity.capture.readers.base import LAST, Dataset, Record, Sample, Slot, read_sample
from hsparity.capture.selection import select
from hsparity.capture.source import Source
from hsparity.capture.sourced import SourceDataset
from hsparity.capture.writers.base import Layout, Writer
from hsparity.errors import HsparityError
from hsprobe.schema import Site

if TYPE_CHECKING:
    import torch

WORDS = {True: "after the final norm", False: "before the final norm"}
NOT_UNDONE = (
    "the norm divides each row by that row's own root mean square, and the files do not hold that number: it cannot be "
    "undone"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to hand to `exporting.export`, and how to word it.

    `slots`: indices into a sample's states, auxiliary first, then the last state. `aux` and `last` say what they are;
    `doubts` what is taken for granted.
    """

    dataset: Dataset
    slots: tuple[int, ...]
    layout: Layout
    aux: str
    last: str
    doubts: tuple[str, ...] = ()


def plan(dataset: Dataset, writer: Writer, layers: str | None = None, boundaries: str | None = None) -> Plan:
    """The states that a format takes, out of what there is.

    Of a capture the listed boundaries, or its native slots; of another dataset its auxiliary slots. Raises E102 (a list
    that cannot be taken), E103 (both lists), E210 (a state is not there, or is not normed as the format wants it).
    """
    if isinstance(dataset, SourceDataset):
        return _of_capture(dataset.source, writer, layers, boundaries)
    if layers or boundaries:
        raise HsparityError(
            "E102",
            f"{'--layers' if layers else '--boundaries'} chooses among a capture's boundaries, and {dataset.spelled} is "
            f"{dataset.format}",
            help="leave it out: every auxiliary state is exported in its order",
        )
    return _of_dataset(dataset, writer)


def _of_capture(source: Source, writer: Writer, layers: str | None, boundaries: str | None) -> Plan:
    manifest = source.manifest
    native = [key for key in source.sites() if key.startswith("slot.")]
    known: tuple[int, ...] = ()
    if layers or boundaries:
        known = _listed(source, layers, boundaries)
        aux = [Site("boundary", b).key for b in known]
        said = f"boundaries {', '.join(map(str, known))}"
    elif native:
        aux = native
        said = ", ".join(manifest.native_labels.get(key, key) for key in aux)
    else:
        raise HsparityError(
            "E102",
            f"{source.path} holds boundaries, and nothing says which of them the draft is fed",
            (f"there  {_held(source)}",),
            "--boundaries 2,30,58, --layers 1,29,57 or --layers eagle3",
        )
    doubts: tuple[str, ...] = ()
    if (last := _imported_last(source, writer, aux)) is not None:
        aux, said = aux[:-1], ", ".join(manifest.native_labels.get(key, key) for key in aux[:-1])
        dataset, end = Chosen(source, (*aux, last)), f"{manifest.native_labels.get(last, last)}"
        doubts = (_taken(manifest.settings["format"], writer.last_normed),)
    else:
        key, normed_here, end = _last(source, writer)
        dataset = Chosen(source, (*aux, key), normed_here)
    layout = Layout(manifest.model, known, manifest.num_layers, _note(source))
    return Plan(dataset, tuple(range(len(aux) + 1)), layout, said, end, doubts)


def _listed(source: Source, layers: str | None, boundaries: str | None) -> tuple[int, ...]:
    """Boundaries in ascending order. Raises E102, E103, E210."""
    layer_count = source.manifest.num_layers
    if not layer_count:
        raise HsparityError(
            "E102",
            f"{source.path} does not say how many layers its model has",
            help="import it again with --model, which tells",
        )
    known = select(layers, boundaries, layer_count)
    if layer_count in known:
        others = ",".join(str(b) for b in known if b != layer_count)
        raise HsparityError(
            "E102",
            f"boundary {layer_count} is the last state, which every format stores beside the auxiliary ones",
            help=f"leave it out of the list: --boundaries {others or '2,30,58'}",
        )
    if absent := [b for b in known if Site("boundary", b).key not in source.sites()]:
        notes = (f"asked  {', '.join(map(str, known))}", f"there  {_held(source)}")
        missing = ", ".join(map(str, absent))
        raise HsparityError(
            "E210",
            f"{source.path} does not hold boundary {missing}",
            notes,
            "choose among those, or capture again with the same list",
        )
    return known


def _last(source: Source, writer: Writer) -> tuple[str, bool, str]:
    """(site, whether the norm is to be applied here, in words). Raises E210."""
    count = source.manifest.num_layers
    raw, sites = Site("boundary", count).key, source.sites()
    has_raw = bool(count) and raw in sites
    if writer.last_normed and "final_norm" in sites:
        return "final_norm", False, f"final_norm, {WORDS[True]}"
    if writer.last_normed and has_raw and source.norm() is not None:
        return raw, True, f"boundary {count}, normed here in float32 with the capture's final norm"
    if not writer.last_normed and has_raw:
        return raw, False, f"boundary {count}, {WORDS[False]}"
    name = f"boundary {count}" if count else "the boundary behind the last layer"
    if writer.last_normed:
        what = (
            f"final_norm, nor {name}"
            if not has_raw
            else f"final_norm, nor the norm's weight to apply to {name}"
        )
        why = f"{writer.name} stores the last state {WORDS[True]}, and {source.path} holds neither {what}"
        raise HsparityError(
            "E210",
            why.replace("neither final_norm, nor", "neither final_norm nor"),
            (),
            _capture(count, True),
        )
    notes: tuple[str, ...] = ()
    if "final_norm" in sites:
        notes = (f"it holds final_norm: {NOT_UNDONE}",)
    raise HsparityError(
        "E210",
        f"{writer.name} stores the last state {WORDS[False]}, and {source.path} does not hold {name}",
        notes,
        _capture(count, False),
    )


def _capture(count: int, normed: bool) -> str:
    if normed:
        return "capture again with --sites final_norm"
    return f"capture again with boundary {count or 'L'} among --boundaries"


def _imported_last(source: Source, writer: Writer, aux: Sequence[str]) -> str | None:
    """The native slot that is the last state, of a capture that an import made; None where a site says which it is.

    Raises E210 where the format that was imported has it normed otherwise.
    """
    settings = source.manifest.settings
    origin = registry.writers().get(str(settings.get("format")))
    if (
        settings.get("mechanism") != MECHANISM
        or origin is None
        or len(aux) < 2
        or not aux[-1].startswith("slot.")
    ):
        return None
    if Site.parse(aux[-1]).index != len(source.sites()) - 1:
        return None
    _agree(origin.last_normed, writer, f"{source.path}, imported from {origin.name}")
    return aux[-1]


def _of_dataset(dataset: Dataset, writer: Writer) -> Plan:
    sample = _first(dataset)
    slots = dataset.slots(sample)
    ends = [i for i, slot in enumerate(slots) if slot.role == LAST]
    aux = [i for i, slot in enumerate(slots) if slot.role != LAST]
    if not ends or not aux:
        missing = "last" if not ends else "auxiliary"
        notes = (f"it holds  {', '.join(slot.label for slot in slots)}",)
        raise HsparityError(
            "E210", f"{dataset.spelled} has no {missing} state, and {writer.name} needs one", notes
        )
    last = slots[ends[-1]]
    normed = last.normed if last.normed is not None else dataset.last_normed
    doubts: tuple[str, ...] = ()
    if normed is None:
        doubts = (
            f"the files do not say whether the last state is normed; {writer.name} takes it {_as(writer)}",
        )
    else:
        _agree(normed, writer, f"{dataset.spelled}, in {dataset.format},")
    if last.normed is None and normed is not None:
        doubts = (_taken(dataset.format, normed),)
    said = dataset.said()
    sites = [slots[i].site for i in aux]
    known = tuple(Site.parse(s).index for s in sites if s.startswith("boundary."))
    layout = Layout(
        said.model,
        known if len(known) == len(aux) else (),
        said.num_layers or 0,
        f"{dataset.spelled}, {dataset.format}",
    )
    names = ", ".join(_label(slots[i]) for i in aux)
    return Plan(dataset, (*aux, ends[-1]), layout, names, _label(last), doubts)


def _first(dataset: Dataset) -> Sample:
    """The first sample that can be read. Raises E221."""
    skipped: list[Skipped] = []
    for record in dataset.records():
        try:
            return read_sample(dataset, record)
        except HsparityError as error:
            skipped.append(Skipped(record.id, error.code, error.message))
    raise nothing_readable(dataset, skipped[:SHOWN])


def _agree(normed: bool, writer: Writer, what: str) -> None:
    """Raises E210 where a dataset's last state is not of the kind that the format wants."""
    if normed == writer.last_normed:
        return
    why = NOT_UNDONE if normed else "its files do not hold the norm's weight; a capture of the model does"
    raise HsparityError(
        "E210",
        f"{writer.name} stores the last state {WORDS[writer.last_normed]}; {what} has it {WORDS[normed]}",
        (why,),
        "capture the model, and export that: hsparity capture ENGINE --model M",
    )


def _taken(name: object, normed: bool) -> str:
    return f"the last state is taken to be {WORDS[normed]}, as {name} stores it; the files do not say"


def _as(writer: Writer) -> str:
    return f"as one {WORDS[writer.last_normed]}"


def _label(slot: Slot) -> str:
    return slot.label + (f" (id {slot.native_id})" if slot.native_id is not None else "")


def _held(source: Source) -> str:
    """The boundaries of a capture: "0-8", "2, 4, 6"."""
    numbers = [Site.parse(key).index for key in source.sites() if key.startswith("boundary.")]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"boundaries {numbers[0]}-{numbers[-1]}"
    return f"boundaries {', '.join(map(str, numbers))}" if numbers else "no boundary"


def _note(source: Source) -> str:
    manifest = source.manifest
    words = (source.path, f"{manifest.engine} {manifest.engine_version}".strip(), manifest.created)
    return ", ".join(word for word in words if word)


class Chosen(SourceDataset):
    """Chosen sites of a capture; with `normed` the last of them after the model's final norm."""

    def __init__(self, source: Source, sites: Sequence[str], normed: bool = False) -> None:
        super().__init__(source, sites)
        self.normed = normed

    def read(self, record: Record) -> Sample:
        """Raises also E216 where this prompt lacks one of the sites."""
        if absent := [key for key in self.keys if self.source.span(record.id, key) is None]:
            raise HsparityError(
                "E216", f"it has no {', '.join(absent)}, which other prompts of the capture have"
            )
        sample = super().read(record)
        if not self.normed:
            return sample
        *aux, last = sample.states
        return replace(sample, states=(*aux, self._norm(last)))

    def _norm(self, state: torch.Tensor) -> torch.Tensor:
        """The final RMSNorm of [R, H], computed in float32 and rounded once to the state's dtype."""
        import torch

        from hsprobe.stack import rms_norm

        norm = self.source.norm()
        assert norm is not None
        weight, eps, plus_one = norm
        return rms_norm(state, torch.from_numpy(weight), eps, plus_one).to(state.dtype)
