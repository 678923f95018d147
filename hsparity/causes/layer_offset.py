"""HS101."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hsparity.causes.base import counted, listed

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.locate import Located
    from hsparity.model import Finding, SlotMatch
    from hsparity.pairing import SitePair


COMMON = 0.8  # share of the boundaries that one shift must move to be the shift of the whole list


@dataclass(frozen=True, slots=True)
class Moved:
    """A site that lies elsewhere than claimed."""

    match: SlotMatch
    claimed: int  # where the claim puts it, in the ruler's count and with the offset that was asked for
    shift: int  # ref boundary - cand boundary beyond that offset

    @property
    def site(self) -> str:
        return self.match.cand


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
    Write the ids that mean the wanted boundaries in that engine and family; the report lists them. Where all
    sites moved by one shift, `hsparity compare … --offset N` shows the rest without it; where single sites
    are named, swapped or repeated, no offset fits, and what fills those sites is at fault. The verdict stays
    DIVERGED until the captures agree as claimed: a shift that aligns perfectly is still a divergence.
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
        claims = _claims(evidence, main)
        moved = _moved(evidence, main, claims)
        if not moved:
            words = f"every site fits the boundary it is said to be best ({len(main.fits)} tested)"
            return Finding(self.code, self.name, words, 0.0, ruled_out=True)
        proved = sum(m.match.proved for m in moved) * 2 > len(moved)
        common = _common(claims, moved)
        explained = evidence.explain(self.code, _undone(evidence, main, moved, common or 0))
        wanted = {site for p in evidence.pairs if p.requested for site in (p.ref, p.cand)}
        if not proved and (explained is None or explained < 0.5):
            words = f"{moved[0].site} fits another boundary slightly better, which proves nothing"
            return Finding(self.code, self.name, words, explained, ruled_out=True)
        moved.sort(key=lambda m: m.site not in wanted)
        asked = evidence.query.offset
        return Finding(
            code=self.code,
            name=self.name,
            headline=_headline(asked, common) if common else _places(evidence, main, moved),
            explained=explained,
            slots=tuple(sorted(m.site for m in moved)),
            evidence=_evidence(evidence, moved, common),
            fix=_fix(evidence, moved, common),
            rival=_rival(moved),
            confirm=_confirm(evidence, common) if common else (),
            structural=proved,
        )


def _claims(evidence: Evidence, main: Located) -> dict[str, int]:
    """Site -> the ruler's boundary it is said to be, of every site whose claim the ruler can test."""
    from hsparity.locate import expected

    found = {}
    for fit in main.fits:
        claimed = expected(main, fit, evidence.query.offset)
        if claimed is None or fit.located.normed or fit.best.key == "final_norm" or fit.best.normed:
            continue
        # A lone boundary on the ruler has no rival and tests nothing.
        if fit.margin == fit.margin:
            found[fit.located.key] = claimed
    return found


def _moved(evidence: Evidence, main: Located, claims: dict[str, int]) -> list[Moved]:
    """The sites that lie elsewhere than claimed."""
    sign = 1 if main.side == "cand" else -1
    known = [m for m in evidence.alignment.slots if m.side == main.name and m.cand in claims]
    found = [
        Moved(m, claims[m.cand], sign * (m.best - claims[m.cand])) for m in known if m.best != claims[m.cand]
    ]
    slots_only = all(p.key.startswith("slot.") for p in main.matrix.located if p.number is not None)
    plain = [m for m in found if m.match.proved]
    # A boundary list is shifted as a whole; a lone unproved misfit in it is a near tie, not an offset.
    return found if slots_only or len(plain) * 2 > len(claims) else plain


def _common(claims: dict[str, int], moved: list[Moved]) -> int | None:
    """The one shift of the whole list: of every slot, or of nearly every boundary; None when there is
    none."""
    shifts = [m.shift for m in moved]
    most = max(set(shifts), key=lambda s: (shifts.count(s), -abs(s)))
    slots = all(site.startswith("slot.") for site in claims)
    return most if shifts.count(most) >= (1.0 if slots else COMMON) * len(claims) else None


def _undone(evidence: Evidence, main: Located, moved: list[Moved], common: int) -> list[SitePair | None]:
    """Every pair with the shift of its own site undone; `common` is that of a boundary that was not found
    elsewhere."""
    from dataclasses import replace

    from hsparity.pairing import boundaries_of

    shifts = {m.site: m.shift for m in moved}
    held = boundaries_of(evidence.ref if main.ruler == "ref" else evidence.cand)
    out: list[SitePair | None] = []
    for pair in evidence.pairs:
        if pair.boundary is None:
            out.append(None)
            continue
        site = pair.cand if main.ruler == "ref" else pair.ref
        shift = shifts.get(site, 0 if site.startswith("slot.") else common)
        if not shift:
            out.append(pair)
        elif main.ruler == "ref":
            number = pair.boundary + shift
            key = held.get(number)
            out.append(replace(pair, ref=key, boundary=number, floor_site=key) if key else None)
        else:
            target = held.get(pair.boundary - evidence.query.offset - shift)
            out.append(replace(pair, cand=target) if target else None)
    return out


def _headline(asked: int, common: int) -> str:
    held = "candidate layer N holds what the reference calls layer"
    claimed = f", not {_layer(asked)} as --offset {asked} says" if asked else ""
    return f"{held} {_layer(asked + common)}{claimed}"


def _layer(shift: int) -> str:
    return f"N{shift:+d}" if shift else "N"


def _places(evidence: Evidence, main: Located, moved: list[Moved]) -> str:
    """The moved sites by name: swapped ones, slots that repeat another, and the rest."""
    left = {m.site: m for m in moved}
    holders: dict[int, list[str]] = {}
    for match in evidence.alignment.slots:
        if match.side == main.name:
            holders.setdefault(match.best, []).append(match.cand)
    words = []
    for m in moved:
        if m.site not in left:
            continue
        del left[m.site]
        other = next(
            (o for o in left.values() if (o.claimed, o.match.best) == (m.match.best, m.claimed)), None
        )
        twins = [site for site in holders[m.match.best] if site != m.site and site not in left]
        if other:
            del left[other.site]
            words.append(f"{m.site} and {other.site} are swapped")
        elif twins and m.site.startswith("slot."):
            words.append(f"{m.site} repeats boundary {m.match.best} that {twins[0]} holds, not {m.claimed}")
        else:
            words.append(f"{m.site} holds boundary {m.match.best}, not {m.claimed}")
    whose = "the candidate's" if main.side == "cand" else "the reference's"
    more = f", and {counted(len(words) - 4, 'more site')}" if len(words) > 4 else ""
    return f"{whose} {', '.join(words[:4])}{more}"


def _evidence(evidence: Evidence, moved: list[Moved], common: int | None) -> tuple[str, ...]:
    a = evidence.alignment
    lines = [
        f"{m.site}: boundary {m.match.best} at {m.match.error:.2g}, "
        f"next best boundary {m.match.runner_up} at {m.match.runner_up_error:.2g}"
        + ("" if m.match.proved else " (not proved)")
        for m in moved[:4]
    ]
    total = min(len(a.ref_boundaries), len(a.cand_boundaries))
    if a.offset and common:
        lines.insert(0, f"ridge at {a.offset:+d} on {a.rows_agreeing} of {total} rows")
    if not evidence.has_floor:
        lines.append("no floor: the excess is measured over the error that is left when the shift is undone")
    return tuple(lines)


def _fix(evidence: Evidence, moved: list[Moved], common: int | None) -> dict[str, str]:
    from hsparity.conventions import draft_config

    if not common and not any(m.site.startswith("slot.") for m in moved):
        names = ", ".join(m.site for m in moved[:4]) + (" and the others" if len(moved) > 4 else "")
        return {"any": f"no offset fits: look at what fills {names}, and capture again"}
    wanted = evidence.pairing.requested
    engines = tuple(dict.fromkeys((evidence.ref.manifest.engine, evidence.cand.manifest.engine)))
    if not 0 < len(wanted) <= 8:
        read = ", or read the capture with --offset" if common else ""
        return {"any": f"capture with the ids that mean the wanted boundaries{read}"}
    fix = draft_config(wanted, evidence.num_layers, engines, evidence.cand.manifest.architecture)
    return {"any": f"for boundaries {listed(wanted)} write", **fix}


def _rival(moved: list[Moved]) -> str:
    m = min((m.match for m in moved), key=lambda m: m.margin)
    return f"boundary {m.runner_up}, {10**m.margin:.2g}× farther ({m.cand})"


def _confirm(evidence: Evidence, common: int) -> tuple[str, ...]:
    q = evidence.query
    total = q.offset + common
    return (f"hsparity compare {evidence.ref.path} {evidence.cand.path} {q.spelled} --offset {total}",)


CAUSE = LayerOffset()
