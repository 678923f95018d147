"""HS102."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import counted

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding
    from hsparity.pairing import Missing


class SlotCount:
    """
    ## What it is
    A side handed over fewer layers than were asked of it, or than the other side.
    ## Why it happens
    Some models drop the last boundary without a word (vLLM's DeepSeek before 0.25, every model before 0.18;
    SGLang's Llama). Layers that live on another pipeline stage vanish. Ids are sorted and de-duplicated.
    ## How it shows
    The number of slots differs from the number of ids in the draft config. A draft then reads one slot for
    another.
    ## Fix
    Ask for boundaries that the engine can reach, use a release that captures the last one, or one pipeline
    stage.
    """

    code, name = "HS102", "slot-count"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        pairing = evidence.pairing
        lines = list(pairing.notes)
        short = pairing.uneven or bool(pairing.missing)
        for side in ("ref", "cand"):
            manifest = evidence.side(side).manifest
            ids = manifest.settings.get("native_ids") or []
            slots = [s for s in evidence.side(side).sites() if s.startswith("slot.")]
            given = len(ids) if isinstance(ids, list) else 0
            if slots and given > len(slots):
                repeated = len(set(ids)) == len(slots)
                lines.append(
                    f"{side} ({manifest.engine}) was given {counted(given, 'id')} "
                    f"and handed over {counted(len(slots), 'slot')}"
                    + (": repeated ids were dropped" if repeated else "")
                )
                short = True
        lines += [f"boundary {m.boundary} is missing in {m.side}{_why(evidence, m)}" for m in pairing.missing]
        if not lines:
            return None
        return Finding(
            code=self.code,
            name=self.name,
            headline=lines[0],
            slots=tuple(f"boundary.{m.boundary:03d}" for m in pairing.missing),
            evidence=tuple(lines[1:]),
            fix={"any": "ask for layers that the engine hands over, or capture with --mechanism hooks"}
            if short
            else {},
            severity="cause" if short else "note",
            structural=short,
        )


def _why(evidence: Evidence, missing: Missing) -> str:
    """What the place of a missing boundary in the list suggests."""
    asked = evidence.pairing.requested
    lost = sorted(m.boundary for m in evidence.pairing.missing if m.side == missing.side)
    if missing.boundary == evidence.num_layers and lost == [evidence.num_layers]:
        return ": the last one, which some models never hand over"
    if lost == sorted(asked)[: len(lost)] and len(lost) < len(asked):
        return ": the first of the list, as when they live on an earlier pipeline stage"
    return ""


CAUSE = SlotCount()
