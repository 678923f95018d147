"""(ref, cand, floors) -> Bisect: which knob makes the difference, by turning it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .. import __version__
from ..capture.checkpoint import model_types
from ..capture.source import Source
from ..compare import compare
from ..errors import HsparityError
from ..model import Comparison, SiteDelta, Verdict
from ..query import Query
from ..yardstick import assign, describe
from . import alike as first
from . import blame as blaming
from . import rules
from .alike import Alike
from .attribution import Ledger, share, wanted
from .differences import Difference, differences, toggles
from .distances import Bench, places
from .knobs import KNOBS
from .result import SCHEMA, Bisect, Blame, Blocked, Experiment, Outcome, SideFacts, Span, State
from .takes import Cache, Cost, Side
from .trial import Lab, Trial, experiment, run
from .variants import Turn

CACHE = Path("captures/bisect")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    ref: str
    cand: str
    floors: tuple[Source, ...] = ()
    knobs: tuple[str, ...] = ()  # only these; empty: all
    everything: bool = False  # go on after a cause is settled
    plan: bool = False  # say what would be done, and stop
    cache: Path = CACHE
    tokens: str | None = None
    verbose: bool = False
    command: tuple[str, ...] = ()


def bisect(wanted: Wanted, say: Callable[[str], None] = lambda text: None) -> Bisect:
    """Turn knobs until what makes the difference is known, or none is left.

    Raises E240 (a side that cannot be made again), E241 (made elsewhere), E242 (no such knob), E243 (no boundary in
    common), E301 (its engine is not here), what `compare` raises, and the first failure when every capture failed.
    """
    ref, cand = Side("ref", wanted.ref), Side("cand", wanted.cand)
    _check_families(ref, cand)
    compared = compare(ref.source, cand.source, wanted.floors, Query(tokens=wanted.tokens))
    lab = _lab(wanted, ref, cand, compared, say)
    found = differences(ref, cand)
    _check_names(wanted.knobs, found)
    sorted_ = first.sort(lab, found, frozenset(wanted.knobs))
    ways, blocked = _toggles(lab, wanted, sorted_)
    around = _Round(wanted, lab, compared, sorted_, ways, blocked)
    return around.plan() if wanted.plan else around.play()


def _lab(wanted: Wanted, ref: Side, cand: Side, compared: Comparison, say: Callable[[str], None]) -> Lab:
    chosen = places(compared)
    if not chosen:
        raise HsparityError(
            "E243",
            "the sides share no boundary to measure at",
            (f"ref   {', '.join(ref.source.sites()[:6])}", f"cand  {', '.join(cand.source.sites()[:6])}"),
            "capture boundaries on both sides, or the native path with the same ids on both",
        )
    bench = Bench(ref.source, cand.source, chosen, wanted.tokens)
    ledger = Ledger(bench.squared(ref.source, cand.source), bench.lengths)
    return Lab(
        ref=ref,
        cand=cand,
        bench=bench,
        ledger=ledger,
        cache=Cache(wanted.cache),
        floor_bn=bench.floor(wanted.floors),
        across=(ref.engine, ref.manifest.engine_version) != (cand.engine, cand.manifest.engine_version),
        verbose=wanted.verbose,
        say=say,
    )


def _check_families(ref: Side, cand: Side) -> None:
    """Raises E208: no knob turns one family of models into another."""
    families = [model_types(side.source.manifest.model_config) for side in (ref, cand)]
    if families[0] and families[1] and not families[0] & families[1]:
        notes = [f"{s.role:<4}  {', '.join(sorted(f))}" for s, f in zip((ref, cand), families, strict=True)]
        raise HsparityError(
            "E208", "the sides are different models", notes, "capture the same model on both sides"
        )


def _check_names(names: Sequence[str], found: Sequence[Difference]) -> None:
    known = list(dict.fromkeys([*(k.name for k in KNOBS), *(d.knob.name for d in found)]))
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1)
            raise HsparityError(
                "E242",
                f"no such knob: {name}",
                (f"knobs: {', '.join(known)}",),
                f"did you mean {near[0]}?" if near else "hsparity doctor says which can be turned here",
            )


def _toggles(lab: Lab, wanted: Wanted, sorted_: Alike) -> tuple[list[tuple[str, Turn]], list[Blocked]]:
    """What can be turned away from where it stands, on either side; a knob that is set alike already is not."""
    taken = {d.knob.name for d in (*sorted_.players, *sorted_.idle)}
    ways: list[tuple[str, Turn]] = []
    blocked = [
        Blocked(d.role, d.knob.name, d.ref if d.role == "cand" else d.cand, d.why_not) for d in sorted_.stuck
    ]
    for role in ("cand", "ref"):
        able, unable = toggles(lab.side(role))
        # A knob whose run is a rule's alone is turned by the rule.
        ways += [(role, t) for t in able if t.knob.name not in (*taken, "padding", "clone-only")]
        blocked += [Blocked(role, knob, value, why) for knob, value, why in unable if knob not in taken]
    if wanted.knobs:
        ways = [w for w in ways if w[1].knob.name in wanted.knobs]
        blocked = [b for b in blocked if b.knob in wanted.knobs]
    ways.sort(key=lambda w: w[1].knob.cost / max(w[1].knob.likely, 0.01))
    return ways, blocked


@dataclass(eq=False)
class _Round:
    """One bisection under way."""

    wanted: Wanted
    lab: Lab
    compared: Comparison
    alike: Alike
    ways: list[tuple[str, Turn]]
    blocked: list[Blocked]

    @property
    def asked(self) -> list[SiteDelta]:
        """The sites that decide: parts of layers that were captured beside them do not."""
        return [d for d in self.compared.deltas if d.tokens and d.requested]

    @property
    def within(self) -> bool:
        """Whether the pair stands within what bf16 arithmetic costs, at every site that decides."""
        pairs = [r.verdict for d in self.asked for r in d.ratios if r.of.split()[0] == "pair"]
        judged = self.compared.floor.kind == "bf16-reference" and bool(pairs)
        return judged and not self.beyond and all(v is Verdict.PARITY for v in pairs)

    @property
    def beyond(self) -> bool:
        return any(d.verdict is Verdict.DIVERGED for d in self.asked)

    @property
    def ratio(self) -> float | None:
        found = [r.median for d in self.asked for r in d.ratios if r.of == "pair"]
        known = [r for r in found if np.isfinite(r)]
        return max(known) if known and self.compared.floor.kind == "bf16-reference" else None

    def toggling(self, causes: Sequence[Blame]) -> bool:
        """Whether knobs that stand alike are worth turning: nothing is settled, and there is something to explain."""
        if self.wanted.everything or (self.wanted.knobs and self.ways):
            return True
        explained = self.alike.players and not self.lab.across
        return not explained and not self.within and not any(b.confidence == "settled" for b in causes)

    def play(self) -> Bisect:
        lab, alike = self.lab, self.alike
        if not lab.ledger.tokens and not self.wanted.everything and not self.wanted.knobs:
            return self._result(Outcome.NOTHING, [], [])
        if alike.players:
            first.measure(lab, alike, self.wanted.everything)
        causes = blaming.of_alike(lab, alike) if lab.ledger.tokens else []
        toggled: list[Trial] = []
        if self.toggling(causes):
            for turns in self._turns():
                trial = run(lab, turns, "toggle")
                toggled.append(trial)
                found = trial.share(lab)
                settled = trial.state is State.MEASURED and found is not None and found.low >= first.SETTLED
                if settled and len(turns) == 1 and not self.wanted.everything:
                    break
        _all_failed(lab)
        if lab.ledger.tokens:
            causes = _merged([*causes, *blaming.of_toggles(lab, toggled)])
        return self._result(self._outcome(causes), causes, list(lab.done.values()))

    def _turns(self) -> list[list[tuple[str, Turn]]]:
        """What is turned where the sides stand alike: one knob at a time; between engines float32 on both sides first, which
        says whether they compute the same at all."""
        both = blaming.both_exact(self.lab) if self.lab.across and not self.wanted.knobs else []
        return [*([both] if both else []), *([way] for way in self.ways)]

    def _outcome(self, causes: Sequence[Blame]) -> Outcome:
        if not self.lab.ledger.tokens:
            return Outcome.NOTHING
        if self.within or self._repeat_noise():
            return Outcome.NOISE
        if not causes or causes[0].confidence != "settled":
            return Outcome.INCONCLUSIVE
        # With a bf16 floor that says neither, the cause is known and its weight is not.
        judged = self.compared.floor.kind == "bf16-reference"
        return Outcome.SETTLED if self.beyond or not judged else Outcome.INCONCLUSIVE

    def _repeat_noise(self) -> bool:
        """Whether a repeat of the reference differs from it by as much as the candidate does."""
        whole = self.alike.whole
        return self.alike.repeats and whole is not None and whole.left is not None and whole.left.bulk >= 0.5

    def plan(self) -> Bisect:
        """Every experiment that may be made, in order, with its cost."""
        lab, alike = self.lab, self.alike
        runs: list[tuple[Sequence[tuple[str, Turn]], str]] = []
        if lab.ledger.tokens or self.wanted.everything or self.wanted.knobs:
            names = [d.knob.name for d in alike.players]
            runs += [(first.turns(alike.players, s), "alike") for s in wanted(names)]
            runs += [([way], why) for why, way in rules.following(lab, alike)]
            if self.toggling(()):
                runs += [(turns, "toggle") for turns in self._turns()]
        seen: set[str] = set()
        listed = tuple(self._planned(turns, purpose, seen) for turns, purpose in runs)
        nothing = not lab.ledger.tokens and not listed
        return self._result(Outcome.NOTHING if nothing else Outcome.INCONCLUSIVE, [], [], listed)

    def _planned(self, turns: Sequence[tuple[str, Turn]], purpose: str, seen: set[str]) -> Experiment:
        """One line of the plan. A variant that an earlier line makes already costs nothing."""
        trial = Trial(tuple(turns), purpose)
        costs = []
        for variant in trial.variants():
            cost, held = self.lab.estimate(variant)
            key = f"{variant.role} {[(t.knob.name, t.label) for t in variant.turns]}"
            costs.append((Cost(0.0, 0), True) if key in seen else (cost, held))
            seen.add(key)
        seconds = [c.seconds for c, _ in costs]
        known = [s for s in seconds if s is not None]
        return replace(
            experiment(self.lab, trial),
            seconds=sum(known) if len(known) == len(seconds) else None,
            bytes=sum(c.bytes for c, _ in costs),
            cached=all(held for _, held in costs),
        )

    def _result(
        self,
        outcome: Outcome,
        causes: list[Blame],
        trials: list[Trial],
        planned: tuple[Experiment, ...] = (),
    ) -> Bisect:
        lab, alike = self.lab, self.alike
        made = planned or tuple(experiment(lab, t) for t in trials)
        idle = tuple(_captured(d, State.NOT_APPLIED) for d in alike.idle)
        if outcome is Outcome.NOTHING and not made:
            idle += tuple(_captured(d, State.NO_EFFECT) for d in alike.players if d.proof.applied)
        before = lab.ledger.before_bn[-1]
        known = before[np.isfinite(before)]
        unexplained = self._unexplained()
        bare = Bisect(
            schema=SCHEMA,
            hsparity=__version__,
            outcome=outcome,
            exit_code=0 if planned or self.wanted.plan else EXITS[outcome],
            headline="",
            ref=_facts(lab.ref),
            cand=_facts(lab.cand),
            floor=self._floor(),
            ratio=self.ratio,
            tokens=len(before),
            differing=lab.ledger.tokens,
            distance=float(np.sqrt(np.median(known))) if len(known) else float("nan"),
            boundaries=tuple(p.boundary for p in lab.bench.places if p.boundary is not None),
            unexplained=unexplained,
            causes=tuple(causes),
            experiments=(*idle, *made),
            blocked=tuple(self.blocked),
            command=self.wanted.command,
        )
        from .wording import headline, notes, steps

        return replace(
            bare,
            headline=headline(bare, self.within, self._repeat_noise(), bool(planned) or self.wanted.plan),
            notes=notes(bare, alike, lab.across),
            next=steps(bare, self.wanted),
        )

    def _unexplained(self) -> Span | None:
        whole = self.alike.whole
        if whole is None or whole.left is None:
            return None
        floor = first.noise(self.lab, self.alike)
        f, f_r = (0.0, None) if floor is None else (floor.bulk, floor.bulk_r)
        found = share(1.0 - whole.left.bulk, 1.0 - whole.left.bulk_r, f, f_r)
        return Span(1.0 - found.value, 1.0 - found.high, 1.0 - found.low)

    def _floor(self) -> str:
        lab = self.lab
        if self.wanted.floors:
            sources = [lab.ref.source, lab.cand.source, *self.wanted.floors]
            roles = assign(sources[0], sources[1], sources[2:])
            return describe(roles, sources)
        return "none between the engines" if lab.across else "the engine's own repeats"


EXITS = {Outcome.NOTHING: 0, Outcome.NOISE: 0, Outcome.SETTLED: 1, Outcome.INCONCLUSIVE: 3}


def _facts(side: Side) -> SideFacts:
    m = side.manifest
    return SideFacts(
        side.role,
        side.path,
        m.engine,
        m.engine_version,
        m.dtype,
        m.model,
        m.weights_sha256,
        len(m.prompts),
        sum(p.tokens for p in m.prompts),
    )


def _captured(difference: Difference, state: State) -> Experiment:
    """A knob whose effect the two captures show by themselves: ignored, or applied and without effect."""
    turned = f"{difference.knob.name}: {difference.ref} in ref, {difference.cand} in cand"
    ignored = state is State.NOT_APPLIED
    note = "as captured: both sides run alike here" if ignored else "as captured"
    names = (difference.knob.name,)
    return Experiment((turned,), names, "cand", "alike", state, proof=difference.proof.text, note=note)


def _all_failed(lab: Lab) -> None:
    """Raises the first failure when every capture failed."""
    trials = list(lab.done.values())
    if trials and all(t.state is State.FAILED for t in trials):
        error = trials[0].error
        assert error is not None
        raise error


def _merged(causes: Sequence[Blame]) -> list[Blame]:
    """One entry per cause and knob, the largest share first."""
    kept: dict[tuple[str, tuple[str, ...]], Blame] = {}
    for blame in causes:
        kept.setdefault((blame.name, blame.knobs), blame)
    return sorted(kept.values(), key=lambda b: -(b.share.value if b.share else 0.0))


def command_of(wanted: Wanted, *extra: str) -> str:
    """This bisection as it would be typed, with other options."""
    words = ["hsparity", "bisect", wanted.ref, wanted.cand]
    for floor in wanted.floors:
        words += ["--floor", floor.path]
    words += ["--knobs", ",".join(wanted.knobs)] if wanted.knobs else []
    words += ["--tokens", wanted.tokens] if wanted.tokens else []
    words += ["--cache", str(wanted.cache)] if wanted.cache != CACHE else []
    return shlex.join([*words, *extra])
