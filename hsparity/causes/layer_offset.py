"""HS101."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import listed

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.locate import Located
    from hsparity.model import Finding, SlotMatch
    from hsparity.pairing import SitePair


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
    Write the ids that mean the wanted boundaries in that engine and family; the report lists them. To see the
    rest of the comparison without the shift: `hsparity compare … --offset N`. The verdict stays DIVERGED
    until the captures agree as claimed: a shift that aligns perfectly is still a divergence.
    """

    code, name = "HS101", "layer-offset"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        cross = [f for f in evidence.located if f.ruler in ("ref", "cand") and f.ruler != f.side]
        if not cross:
            return None
        main, testable = cross[0], evidence.alignment.offset_testable
        if not testable:
            return None
        moved = _moved(evidence, main)
        if not moved:
            words = f"every site fits the boundary it is said to be best ({len(main.fits)} tested)"
            return Finding(self.code, self.name, words, 0.0, ruled_out=True)
        proved = all(m.proved for m, _ in moved) or sum(m.proved for m, _ in moved) * 2 > len(moved)
        explained = evidence.explain(self.code, _undone(evidence, main, {m.cand: s for m, s in moved}))
        shifts = sorted({s for _, s in moved})
        wanted = {site for p in evidence.pairs if p.requested for site in (p.ref, p.cand)}
        if not proved and (explained is None or explained < 0.5):
            words = f"{moved[0][0].cand} fits another boundary slightly better, which proves nothing"
            return Finding(self.code, self.name, words, explained, ruled_out=True)
        return Finding(
            code=self.code,
            name=self.name,
            headline=_headline(main, moved, shifts, evidence.query.offset),
            explained=explained,
            sites=tuple(m.cand for m, _ in moved),
            evidence=_evidence(evidence, sorted(moved, key=lambda m: m[0].cand not in wanted)),
            fix=_fix(evidence),
            rival=_rival(moved),
            confirm=_confirm(evidence, shifts),
            structural=proved,
        )


def _moved(evidence: Evidence, main: Located) -> list[tuple[SlotMatch, int]]:
    """Matches that lie elsewhere than claimed, with the shift ref boundary - cand boundary beyond the offset
    asked for."""
    from hsparity.locate import expected

    known = {m.cand: m for m in evidence.alignment.slots if m.side == main.name}
    sign = 1 if main.side == "cand" else -1
    found = []
    for fit in main.fits:
        claimed = expected(main, fit, evidence.query.offset)
        if claimed is None or fit.located.normed or fit.best.key == "final_norm" or fit.best.normed:
            continue
        shift = sign * ((fit.best.number or 0) - claimed)
        # The claimed boundary must itself be on the ruler, or a rival at the edge would always win.
        if shift and fit.margin == fit.margin:
            found.append((known[fit.located.key], shift))
    claims = [f for f in main.fits if f.located.number is not None]
    slots_only = all(f.located.key.startswith("slot.") for f in claims)
    plain = [(m, s) for m, s in found if m.proved]
    # A boundary list is shifted as a whole; a lone unproved misfit in it is a near tie, not an offset.
    return found if slots_only or len(plain) * 2 > len(claims) else plain


def _undone(evidence: Evidence, main: Located, shifts: dict[str, int]) -> list[SitePair | None]:
    from dataclasses import replace

    from hsparity.pairing import boundaries_of

    common = max(set(shifts.values()), key=list(shifts.values()).count)
    held = boundaries_of(evidence.ref if main.ruler == "ref" else evidence.cand)
    out: list[SitePair | None] = []
    for pair in evidence.pairs:
        if pair.boundary is None:
            out.append(None)
            continue
        site = pair.cand if main.ruler == "ref" else pair.ref
        shift = shifts.get(site, 0 if site.startswith("slot.") else common)
        if main.ruler == "ref":
            target = held.get(pair.boundary + shift)
            moved = (
                replace(pair, ref=target, boundary=pair.boundary + shift, floor_site=target)
                if target
                else None
            )
        else:
            target = held.get(pair.boundary - evidence.query.offset - shift)
            moved = replace(pair, cand=target) if target else None
        out.append(moved)
    return out


def _headline(main: Located, moved: list[tuple[SlotMatch, int]], shifts: list[int], asked: int) -> str:
    if len(shifts) == 1:
        held = "candidate layer N holds what the reference calls layer"
        claimed = f", not {_layer(asked)} as --offset {asked} says" if asked else ""
        return f"{held} {_layer(asked + shifts[0])}{claimed}"
    places = ", ".join(f"{m.cand} holds boundary {m.best}, not {m.best - s}" for m, s in moved[:4])
    return (
        f"{len(moved)} sites hold other boundaries than claimed: {places}" if main.side == "cand" else places
    )


def _layer(shift: int) -> str:
    return f"N{shift:+d}" if shift else "N"


def _evidence(evidence: Evidence, moved: list[tuple[SlotMatch, int]]) -> tuple[str, ...]:
    a = evidence.alignment
    lines = [
        f"{m.cand}: boundary {m.best} at {m.error:.2g}, "
        f"next best boundary {m.runner_up} at {m.runner_up_error:.2g}" + ("" if m.proved else " (not proved)")
        for m, _ in moved[:4]
    ]
    total = min(len(a.ref_boundaries), len(a.cand_boundaries))
    if a.offset:
        lines.insert(0, f"ridge at {a.offset:+d} on {a.rows_agreeing} of {total} rows")
    if not evidence.has_floor:
        lines.append("no floor: the excess is measured over the error that is left when the shift is undone")
    return tuple(lines)


def _fix(evidence: Evidence) -> dict[str, str]:
    from hsparity.conventions import draft_config

    wanted = evidence.pairing.requested
    engines = tuple(dict.fromkeys((evidence.ref.manifest.engine, evidence.cand.manifest.engine)))
    if not 0 < len(wanted) <= 8:
        return {"any": "capture with the ids shifted back, or read the capture with --offset"}
    fix = draft_config(wanted, evidence.num_layers, engines, evidence.cand.manifest.architecture)
    return {"any": f"for boundaries {listed(wanted)} write", **fix}


def _rival(moved: list[tuple[SlotMatch, int]]) -> str:
    m = min((m for m, _ in moved), key=lambda m: m.margin)
    return f"boundary {m.runner_up}, {10**m.margin:.2g}× farther ({m.cand})"


def _confirm(evidence: Evidence, shifts: list[int]) -> tuple[str, ...]:
    if len(shifts) != 1:
        return ()
    total = evidence.query.offset + shifts[0]
    q = evidence.query
    return (f"hsparity compare {evidence.ref.path} {evidence.cand.path} {q.spelled} --offset {total}",)


CAUSE = LayerOffset()
