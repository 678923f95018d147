"""HS103."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hsparity.causes.base import listed

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding, SlotMatch


class NativeIds:
    """
    ## What it is
    What an id list really means in an engine, found from the states it handed over: `ids 2,4,6 landed on
    boundaries 3,5,7`. A note for one side; a divergence when both sides were given the same ids and they
    landed on different boundaries: one draft config, two meanings.
    ## Why it happens
    `eagle_aux_hidden_state_layer_ids` has no agreed meaning. vLLM takes id k as the input of layer k,
    SGLang's Llama-type models add one, SGLang's DeepSeek adds one only when the first id is 1.
    ## How it shows
    The same draft accepts fewer tokens on one engine (8 to 12 % less in a measured case), with no error
    anywhere.
    ## Fix
    Give each engine the ids that land on the boundaries the draft was trained on; the report lists them for
    both directions: trained on one engine's states and run on the other, and back.
    """

    code, name = "HS103", "native-ids"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        if odd := _of_no_layer(evidence):
            words = "; ".join(
                f"{m.cand} is none of the {who}'s own boundaries (nearest {m.best} at {m.error:.2g})"
                for who, m in odd[:4]
            )
            fix = {"any": "capture again: what the engine hands over is not a state of any of its layers"}
            return Finding(
                self.code, self.name, words, slots=tuple(m.cand for _, m in odd), fix=fix, structural=True
            )
        landed = {side: _landing(evidence, side) for side in ("ref", "cand")}
        lines = [_line(evidence.side(s).manifest, found) for s, found in landed.items() if found]
        if not lines:
            return None
        ref, cand = landed["ref"], landed["cand"]
        same_ids = ref and cand and [i for i, _ in ref] == [i for i, _ in cand]
        parted = bool(same_ids) and [m.best for _, m in ref] != [m.best for _, m in cand]
        proved = all(m.proved for found in landed.values() for _, m in found)
        if not parted:
            sites = tuple(m.cand for found in landed.values() for _, m in found)
            return Finding(
                self.code, self.name, lines[0], slots=sites, evidence=tuple(lines[1:]), severity="note"
            )
        ids, left, right = ([i for i, _ in ref], *([m.best for _, m in found] for found in (ref, cand)))
        engines = (evidence.ref.manifest.engine, evidence.cand.manifest.engine)
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"one draft config, two meanings: ids {listed(ids)} are boundaries "
            f"{listed(left)} in {engines[0]}, {listed(right)} in {engines[1]}",
            slots=tuple(m.cand for _, m in cand),
            evidence=tuple(lines),
            fix=_fix(evidence, ids, left, right),
            structural=proved,
        )


def _of_no_layer(evidence: Evidence) -> list[tuple[str, SlotMatch]]:
    """Slots far from every boundary of their own side, which its hooks hold: (reference or candidate, match)."""
    from hsparity.locate import CLOSE

    sides = {"ref self": "reference", "cand self": "candidate"}
    return [(sides[m.side], m) for m in evidence.alignment.slots if m.side in sides and m.error > CLOSE]


def _fix(evidence: Evidence, ids: list[int], left: list[int], right: list[int]) -> dict[str, str]:
    """Both directions: the draft was trained on one side's states and is to run on the other."""
    from hsparity.conventions import FAMILIES, draft_config

    ref, cand = evidence.ref.manifest, evidence.cand.manifest
    fix = {"any": "a draft needs the boundaries it was trained on, so write the ids that give them"}
    for trained, runs, boundaries in ((ref, cand, left), (cand, ref, right)):
        # One engine in two versions: the table of rules knows one version of each, so it cannot answer.
        if trained.engine != runs.engine and any(f.engine == runs.engine for f in FAMILIES):
            ((_, answer),) = draft_config(
                tuple(boundaries), evidence.num_layers, (runs.engine,), runs.architecture
            ).items()
            fix[runs.engine] = (
                f"write {answer.replace('  (', ' (')} for a draft trained on {trained.engine}'s states "
                f"with ids {listed(ids)}, boundaries {listed(boundaries)}"
            )
    return fix


def _landing(evidence: Evidence, side: str) -> list[tuple[int, SlotMatch]]:
    """(id, match) of each slot of a side whose native ids are known, by its own boundaries where it has
    them."""
    manifest = evidence.side(side).manifest
    ids: Any = manifest.settings.get("native_ids") or []
    slots = sorted({m.cand for m in evidence.alignment.slots if m.cand.startswith("slot.")})
    # Engines hand slots over in layer order, whatever the order of the list.
    ids = sorted(set(ids)) if isinstance(ids, list) else []
    for name in (f"{side} self", side, f"{side} on floor"):
        found = {m.cand: m for m in evidence.alignment.slots if m.side == name and m.cand in slots}
        if found and len(found) == len(ids):
            return list(zip(ids, (found[key] for key in sorted(found)), strict=True))
    return []


def _line(manifest: Any, found: list[tuple[int, SlotMatch]]) -> str:
    ids, places = listed([i for i, _ in found]), listed([m.best for _, m in found])
    worst = min((m.margin for _, m in found), default=0.0)
    margin = f"margin {10**worst:.2g}×" + ("" if all(m.proved for _, m in found) else ", not proved")
    who = f"{manifest.engine} {manifest.engine_version}".strip()
    who += f" ({manifest.architecture})" if manifest.architecture else ""
    return f"in {who} ids {ids} landed on boundaries {places} ({margin})"


CAUSE = NativeIds()
