"""HS101."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import compare_command, counted, listed
from hsparity.causes.moved import Moved, Places, lines, places, proved, rival

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


# Whose --layer-ids this project's first users had trained with.
TRAINER = "speculators 0.4.0"


class LayerOffset:
    """
    ## What it is
    A state that was said to be the output of one decoder layer is the output of another, usually the one
    before or after. Each site of one side is compared with every boundary of the other; this finding names
    those that fit another boundary than the claimed one. It is proved when the best fit lies at the noise
    floor (without a floor: within 3 %) and at least ten times closer than the next best.
    ## Why it happens
    Engines number layers differently. vLLM's auxiliary id k is the stream that enters layer k (boundary k);
    SGLang adds one to every id for Llama-type models, and for DeepSeek only when the first id is 1;
    speculators 0.3 and 0.4, SpecForge and ModelOpt mean the output of layer k (boundary k + 1). One draft
    config read by two of them feeds the draft different layers.
    ## How it shows
    At equal indices the states look drifted at every depth (cosine 0.9 to 0.98, since neighbouring boundaries
    are nearly parallel). The pair-error matrix has its valley beside the diagonal, one to two decades deep.
    ## Fix
    Write the ids that mean the wanted boundaries in that engine and family; the report lists up to eight. Where all
    sites moved by one shift, `hsparity compare … --offset N` shows the rest without it; where single sites
    are named, no offset fits, and what fills those sites is at fault. Exchanged sites are HS105, a site that
    holds what another holds is HS106. The verdict stays
    DIVERGED until the captures agree as claimed: a shift that aligns perfectly is still a divergence.
    """

    code, name = "HS101", "layer-offset"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        known = places(evidence)
        if known is None or (evidence.pairing.uneven and not known.claims):
            return _on_floor(evidence, self) or _unasked(evidence, self)
        if not known.moved:
            words = f"every site fits the boundary it is said to be best ({len(known.main.fits)} tested)"
            return Finding(self.code, self.name, words, 0.0, ruled_out=True)
        moved, common = list(known.shifted), known.common
        if not moved:
            return None
        plain = proved(moved)
        explained = known.explain(self.code, moved, common or 0)
        evidence.shares[self.code] = explained
        wanted = {site for p in evidence.pairs if p.requested for site in (p.ref, p.cand)}
        if not plain and (explained is None or explained < 0.5):
            words = f"{moved[0].site} fits another boundary slightly better, which proves nothing"
            return Finding(self.code, self.name, words, explained, ruled_out=True)
        moved.sort(key=lambda m: m.site not in wanted)
        return Finding(
            code=self.code,
            name=self.name,
            headline=_headline(evidence.query.offset, common) if common else _single(known, moved),
            explained=explained,
            slots=tuple(sorted(m.site for m in moved)),
            evidence=_evidence(evidence.slots, moved, common),
            fix=_fix(evidence, moved, common),
            rival=rival(moved),
            confirm=_confirm(evidence, known, common),
            tokens=evidence.rows.tokens,
            structural=plain,
        )


def _on_floor(evidence: Evidence, cause: LayerOffset) -> Finding | None:
    """Neither side holds the neighbours: both were read on the floor's boundaries, which says whose slot it
    is."""
    from hsparity.causes.reading import line
    from hsparity.model import Finding

    solution = evidence.slots.solution
    sides = (("the candidate's", solution.places), ("the reference's", solution.ref_places))
    found = [
        (who, r)
        for who, group in sides
        for r in group.values()
        if r.at_floor and not r.kind and not r.as_claimed
    ]
    found = [(who, r) for who, r in found if r.slot.claimed is not None]
    if not found or not solution.ref_places:
        return None
    words = [f"{who} {r.slot.key} holds boundary {r.number}, not {r.slot.claimed}" for who, r in found]
    return Finding(
        code=cause.code,
        name=cause.name,
        headline=", ".join(words[:4]),
        slots=tuple(r.slot.key for _, r in found),
        evidence=(
            *(line(r) for _, r in found[:4]),
            "read on the floor's boundaries: neither side holds the neighbours",
        ),
        fix=_fix(evidence, [], 1),
        rival=found[0][1].rival,
        structural=all(r.proved for _, r in found),
    )


def _unasked(evidence: Evidence, cause: LayerOffset) -> Finding | None:
    """Slots that are missing leave no claim on the others; what they hold may still be what nobody asked for."""
    from hsparity.model import Finding

    slots = evidence.slots
    asked = slots.query.chosen_boundaries(slots.num_layers)
    placed = {
        m.cand: m
        for m in slots.alignment.slots
        if m.proved and "floor" not in m.side and "self" not in m.side
    }
    landed = [placed[p.cand] for p in slots.pairs if p.landed and p.cand in placed]
    odd = [m for m in landed if asked is not None and m.best not in asked and m.best <= slots.num_layers]
    if not odd:
        return None
    return Finding(
        code=cause.code,
        name=cause.name,
        headline=", ".join(f"{m.cand} holds boundary {m.best}" for m in odd[:4])
        + ", which was not asked for",
        slots=tuple(m.cand for m in odd),
        evidence=tuple(
            f"{m.cand}: boundary {m.best} at {m.error:.2g}, next best {m.runner_up} at {m.runner_up_error:.2g}"
            for m in odd[:4]
        ),
        fix=_fix(evidence, [], 1),
        rival=f"boundary {odd[0].runner_up}",
        structural=True,
    )


def _headline(asked: int, common: int) -> str:
    held = "candidate layer N holds what the reference calls layer"
    claimed = f", not {_layer(asked)} as --offset {asked} says" if asked else ""
    return f"{held} {_layer(asked + common)}{claimed}"


def _layer(shift: int) -> str:
    return f"N{shift:+d}" if shift else "N"


def _single(known: Places, moved: list[Moved]) -> str:
    words = [f"{m.site} holds boundary {m.match.best}, not {m.claimed}" for m in moved]
    more = f", and {counted(len(words) - 4, 'more site')}" if len(words) > 4 else ""
    return f"{known.side} {', '.join(words[:4])}{more}"


def _evidence(evidence: Evidence, moved: list[Moved], common: int | None) -> tuple[str, ...]:
    a = evidence.alignment
    found = lines(moved)
    total = min(len(a.ref_boundaries), len(a.cand_boundaries))
    if a.offset and common:
        found.insert(0, f"ridge at {a.offset:+d} on {a.rows_agreeing} of {total} rows")
    if not evidence.has_floor:
        found.append("no floor: the excess is measured over the error that is left when the shift is undone")
    return tuple(found)


def _fix(evidence: Evidence, moved: list[Moved], common: int | None) -> dict[str, str]:
    from hsparity.conventions import draft_config

    if not common and not any(m.site.startswith("slot.") for m in moved):
        names = ", ".join(m.site for m in moved[:4]) + (" and the others" if len(moved) > 4 else "")
        return {"any": f"no offset fits: look at what fills {names}, and capture again"}
    wanted = evidence.pairing.requested
    engines = tuple(dict.fromkeys((evidence.ref.manifest.engine, evidence.cand.manifest.engine)))
    if not 0 < len(wanted) <= 8:
        steps = (
            f"the candidate numbers its sites {abs(common)} too {'low' if common > 0 else 'high'}: "
            if common
            else ""
        )
        read = f", or compare with --offset {evidence.query.offset + common:+d}" if common else ""
        hooks = "with hooks, the output of layer N is boundary N+1; with ids, write those that mean the wanted boundaries"
        return {"any": f"{steps}{hooks}{read}"}
    fix = draft_config(wanted, evidence.num_layers, engines, evidence.cand.manifest.architecture, TRAINER)
    return {"any": f"for boundaries {listed(wanted)} write", **fix}


def _confirm(evidence: Evidence, known: Places, common: int | None) -> tuple[str, ...]:
    """With what was claimed put right the sides are at parity, if that was all."""
    q, asked = evidence.query, evidence.pairing.requested
    if not common:
        return (compare_command(evidence, f"{q.spelled} -v"),)
    if known.claims and all(site.startswith("slot.") for site in known.claims):
        sign = 1 if known.main.side == "cand" else -1
        there = [r + sign * common for r in asked]
        return (
            (compare_command(evidence, f"--boundaries {','.join(map(str, there))}"),)
            if there and min(there) >= 0
            else ()
        )
    return (compare_command(evidence, f"{q.spelled} --offset {q.offset + common}"),)


CAUSE = LayerOffset()
