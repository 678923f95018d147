"""What to say and what to do: the headline, the sentence on numbering, the ids to write, the next command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.audit.integrity import SERIOUS
from hsparity.audit.result import Group, Integrity, Reading, Repair, Server
from hsparity.capture.readers.base import LAST
from hsparity.conventions import Answer, answers, draft_config, sentence
from hsparity.model import Verdict

if TYPE_CHECKING:
    from hsparity.audit.case import Wanted


def shift_of(readings: Sequence[Reading], server: Server) -> int | None:
    """Server's boundary less the dataset's, where it is one number for every auxiliary slot and the slots are read."""
    held = [r.boundary for r in readings if r.role != LAST]
    if None in held or len(held) != len(server.feeds) or not held:
        return None
    shifts = {fed - have for fed, have in zip(server.feeds, held, strict=True) if have is not None}
    return shifts.pop() if len(shifts) == 1 else None


def headline(group: Group, server: Server, others: Sequence[Group], why_not: str, model: str) -> str:
    """One sentence on the main group; what changes within the dataset comes first. `model`: whose states the files say
    they are."""
    comparison = group.comparison
    assert comparison is not None
    shift = shift_of(group.readings, server)
    feeds = "the draft is to get" if server.named else f"{server.engine} feeds"
    if since := next((g.since for g in (group, *others) if g.since), ""):
        return f"From {since} on the dataset is of another make: its slots hold other states than before."
    if shift:
        held = listed([r.boundary for r in group.readings if r.role != LAST])
        way = "earlier" if shift < 0 else "later"
        many = "one layer" if abs(shift) == 1 else f"{abs(shift)} layers"
        return (
            f"{many[:1].upper()}{many[1:]} {way}: {feeds} boundaries {listed(server.feeds)}, "
            f"the dataset holds {held}. This is your cause."
        )
    if refuted := [r for r in group.readings if r.refuted]:
        words = "; ".join(f"{r.slot} is said to be {r.said} and holds {r.holds}" for r in refuted[:3])
        return f"{words}."
    if comparison.verdict is Verdict.PARITY and not others:
        if why_not:
            held = ", ".join(r.holds for r in group.readings)
            return f"The states are {server.engine}'s ({held}), but {why_not}."
        return f"These are the states {_whose(server)}: boundaries {listed(server.feeds)}, within {_yard(comparison.floor.kind)}."
    lead = next((f for f in comparison.findings if f.severity == "cause" and not f.ruled_out), None)
    wrong = [r for r in group.readings if r.right is False and r.role != LAST and r.holds]
    if wrong and lead is not None and lead.code == "HS101":
        words = "; ".join(f"{r.slot} holds {r.holds} where {feeds} {r.server}" for r in wrong[:3])
        return f"{words}. This is your cause."
    if (lead is None or not lead.structural) and not any(r.holds for r in group.readings):
        said = (
            f": the files say {model}"
            if model and model.rstrip("/").split("/")[-1] not in server.model
            else ""
        )
        return f"No slot is a state of any layer of {server.model}{said}."
    if why_not and lead is None:
        return f"{why_not[:1].upper()}{why_not[1:]}."
    if lead is not None:
        return f"{lead.headline[:1].upper()}{lead.headline[1:].rstrip('.')}."
    if comparison.verdict is Verdict.PARITY:
        count = sum(len(o.samples) for o in others)
        return f"{count} of the sampled samples hold other states than the rest."
    if comparison.floor.kind == "none" and all(r.right for r in group.readings if r.right is not None):
        return f"The right tensors (boundaries {listed(server.feeds)}); their numbers are not judged without a floor."
    return comparison.headline


def _whose(server: Server) -> str:
    if server.named:
        return "named"
    if server.ids:
        return f"{server.engine} feeds the draft"
    return f"{server.engine} feeds a draft whose config gives no ids"


def _yard(kind: str) -> str:
    return "bit equality" if kind == "none" else "the noise floor"


def numbering(readings: Sequence[Reading], ids: Sequence[int], server: Server, producer: str) -> str:
    """How both sides' ids and boundaries relate; "" where one side has no ids, or its slots are not read."""
    held = [r.boundary for r in readings if r.role != LAST]
    if server.named and server.slots and server.slots != server.feeds:
        return f"boundaries {listed(server.feeds)} were named; the server's own slots are boundaries {listed(server.slots)}"
    if server.named or not ids or not server.ids or None in held or len(held) != len(ids) or not server.feeds:
        return ""
    mine, theirs = listed(ids), listed(server.ids)
    have, fed = listed(held), listed(server.feeds)
    who = producer or "the dataset"
    if list(held) == list(server.feeds):
        if mine == theirs:
            return f"same ids, same tensors: {mine} are boundaries {have} to {who} and to {server.engine}"
        return (
            f"same tensors, different numbering: {mine} to {who} and {theirs} to {server.engine} are both boundaries {have}: "
            "not your cause"
        )
    if mine == theirs:
        return f"same ids, different tensors: {mine} are boundaries {have} to {who}, boundaries {fed} to {server.engine}"
    return f"ids {mine} are boundaries {have} to {who}, ids {theirs} are boundaries {fed} to {server.engine}"


def ids_for(boundaries: Sequence[int], server: Server) -> tuple[int, ...] | None:
    """The ids that make this server feed these boundaries, by its rule where the data agree with it, else by the shift
    that was seen; None where neither tells."""
    wanted = tuple(boundaries)
    if list(wanted) != sorted(set(wanted)):  # engines hand them over ascending, each once
        return None
    if (known := _rule(server)) is not None:
        return known.rule.numbering.write(wanted, server.num_layers).ids
    shift = _added(server)
    return None if shift is None else tuple(b - shift for b in wanted)


def _rule(server: Server) -> Answer | None:
    """The rule of this engine, version and architecture that the data agree with."""
    for answer in answers(server.engine, server.version, server.architecture):
        numbering = answer.rule.numbering
        if answer.rule.native and (
            not server.ids or numbering.read(server.ids, server.num_layers) == server.feeds
        ):
            return answer
    return None


def _added(server: Server) -> int | None:
    """What the server adds to every id, as seen."""
    shifts = {fed - given for fed, given in zip(server.feeds, server.ids, strict=False)}
    return shifts.pop() if len(shifts) == 1 and len(server.ids) == len(server.feeds) else None


def _reads(boundaries: Sequence[int], server: Server) -> str:
    """How this server reads the ids that are advised for boundaries."""
    if (known := _rule(server)) is not None:
        text = sentence(known, tuple(boundaries), server.num_layers)
        return text if known.rule.rule in text else f"{text}; {known.rule.rule}"
    shift = _added(server)
    return f"by the data it adds {shift} to every id, against the rule of its version"


def fixes(group: Group, server: Server, trainer: str) -> list[str]:
    """What to write where: on the server for this dataset, or in the trainer for this server."""
    held = [r.boundary for r in group.readings if r.role != LAST]
    lines: list[str] = []
    wrong = [r for r in group.readings if r.right is False and r.role != LAST]
    if wrong and None not in held:
        kept = [b for b in held if b is not None]
        ids = ids_for(kept, server) if all(b <= server.num_layers for b in kept) else None
        if ids is not None:
            lines.append(
                f"for a draft trained on this dataset: write ids {','.join(map(str, ids))} for {server.engine} "
                f"{server.version} ({_reads(kept, server)})"
            )
        else:
            lines.append(f"no id list makes {server.engine} {server.version} feed boundaries {listed(kept)}")
        if server.feeds:
            lines.append(
                f"or make the dataset again with boundaries {listed(server.feeds)}{_trainer(server, trainer)}"
            )
    if group.comparison is not None:
        for finding in group.comparison.findings:
            if finding.severity == "cause" and not finding.ruled_out and finding.code != "HS101":
                lines += [
                    f"{finding.code} {finding.name}: {text}"
                    for who, text in finding.fix.items()
                    if who == "any"
                ]
    return lines


def _trainer(server: Server, trainer: str) -> str:
    if not trainer:
        return ""
    # To 0.3 and 0.4 a list names the verifier's last state as well; later releases add it.
    old = trainer.startswith(("speculators 0.3", "speculators 0.4"))
    wanted = (*server.feeds, server.num_layers) if old else server.feeds
    told = draft_config(wanted, server.num_layers, (), server.architecture, trainer).get(trainer, "")
    return f": {trainer} {told}" if told else ""


def integrity_headline(integrity: Integrity, serious: bool) -> tuple[Verdict, str]:
    """The answer where no engine was asked."""
    if serious:
        worst = next(t for t in integrity.troubles if t.kind in SERIOUS)
        return Verdict.DIVERGED, f"{worst.count} of {integrity.samples:,} samples: {worst.text}."
    if integrity.change:
        return (
            Verdict.INCONCLUSIVE,
            f"From {integrity.change} on another make, or other texts; an engine settles which.",
        )
    state = "Nothing is damaged" if integrity.troubles else "The files are whole"
    return Verdict.PARITY, f"{state}: {integrity.samples:,} samples. Whose states they are was not asked."


def next_commands(wanted: Wanted, group: Group, server: Server, mended: Repair | None) -> list[str]:
    """What to type now: repair where that is possible, the server's ids tried, the whole comparison read."""

    def again(*more: str) -> str:
        """What was typed, with an option set anew."""
        words = list(wanted.typed) or ["hsparity", "audit", wanted.dataset.spelled]
        if more[0] in words:
            at = words.index(more[0])
            del words[at : at + 2]
        end = words.index("--") if "--" in words else len(words)  # the engine's own arguments stay last
        return shlex.join([*words[:end], *more, *words[end:]])

    held = [r.boundary for r in group.readings if r.role != LAST]
    known = [b for b in held if b is not None]
    if mended is not None and mended.out:
        words = [mended.out if word == wanted.dataset.spelled else word for word in wanted.typed]
        at = words.index("--repair") if "--repair" in words else len(words)
        return [shlex.join([*words[:at], *words[at + 2 :]])] if words else []
    lines = []
    if not server.feeds:
        # What was found is not filled in: it could only come out as PARITY.
        native = wanted.serving is not None and not wanted.serving.engine.startswith("hf")
        lines.append(again("--ids", "IDS") if native else again("--boundaries", "LIST"))
    if mended is not None and mended.possible:
        lines.append(again("--repair", "repaired/"))
    wrong = any(r.right is False for r in group.readings if r.role != LAST)
    if wrong and wanted.serving is not None and not server.named and len(known) == len(held):
        ids = ids_for(known, server)
        if ids is not None:
            lines.append(again("--ids", ",".join(map(str, ids))))
    causes = [] if group.comparison is None else group.comparison.findings
    lead = next((f for f in causes if f.severity == "cause" and not f.ruled_out), None)
    return lines or ([f"hsparity explain {lead.code}"] if lead else [])


def listed(numbers: Sequence[int | None]) -> str:
    return ", ".join(str(n) for n in numbers)
