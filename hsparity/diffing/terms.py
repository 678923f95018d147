"""What of two comparisons may be held against each other, and what may not."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from hsparity.errors import HsparityError
from hsparity.model import Comparison, Quantiles, Side, SiteDelta
from hsparity.report import spelling as sp
from hsparity.report import view

from . import names as model_names
from .commands import capture_again, compare_again, floor_paths, new_file
from .matching import by_reference, shared

CLOSE = 1e-6  # floors that are the same numbers, written and read again
_SIZE = re.compile(r", [\d,]+ prompts?, [\d,]+ tokens?(?=[,)])")


@dataclass(frozen=True, slots=True)
class Terms:
    """What both comparisons share; every False has its warning."""

    model: bool  # that it is one model is known
    prompts: bool  # the same text was asked for
    tokens: bool  # and the same tokens of it were compared: figures are about one thing
    yardstick: bool  # the same floor, held by the same hsparity: ratios and verdicts mean the same
    request: bool
    version: bool  # of hsparity
    evidence: bool  # the same sites were captured, so the same causes could be seen
    warnings: tuple[str, ...]

    @property
    def verdicts(self) -> bool:
        """Whether the two verdicts answer one question."""
        return self.model and self.prompts and self.yardstick and self.request


def settle(old: Comparison, new: Comparison, names: tuple[str, str]) -> Terms:
    """The terms of two comparisons called `names`. Raises E255 when nothing is comparable."""
    _refuse_other_model(old, new, names)
    both = shared(old, new)
    if not both:
        raise HsparityError(
            "E255",
            "the two results share no site",
            (_line("old", names[0], _sites(old)), _line("new", names[1], _sites(new))),
            _to_share(old, new, names[1]),
        )
    prompts = _prompts(old, new)
    tokens = prompts or _tokens(old, new)
    said = {
        "model": _model_unsure(old, new),
        "prompts": prompts,
        "tokens": tokens,
        "floor": _floor(old, new, () if tokens else both),
        "request": _request(old, new),
        "version": _version(old, new),
        "evidence": _evidence(old, new),
    }
    engines = [_other_engine(a, b) for a, b in _sides(old, new)]
    engines += [_other_sites(old, new, both)]
    return Terms(
        model=not said["model"],
        prompts=not said["prompts"],
        tokens=not said["tokens"],
        yardstick=not said["floor"] and not said["version"],
        request=not said["request"],
        version=not said["version"],
        evidence=not said["evidence"],
        warnings=tuple(dict.fromkeys(w for w in (*engines, *said.values()) if w)),
    )


def _sides(old: Comparison, new: Comparison) -> tuple[tuple[Side, Side], tuple[Side, Side]]:
    return (old.ref, new.ref), (old.cand, new.cand)


def _refuse_other_model(old: Comparison, new: Comparison, names: tuple[str, str]) -> None:
    for then, now in _sides(old, new):
        shapes = [(s.architecture, s.num_layers, s.hidden_size) for s in (then, now)]
        other = shapes[0] != shapes[1]
        # The candidate may run other weights of one model, quantised ones: that is a setting, and is named.
        other = other or (then.role == "ref" and _hashes_differ(then, now))
        if other:
            raise HsparityError(
                "E255",
                "the two results are of different models",
                (_line("old", names[0], _shape(then)), _line("new", names[1], _shape(now))),
                "hold a result against an older one of the same model; results of several models stand side by side in\n"
                "hsparity overview FOLDER --html overview.html",
            )


def _hashes_differ(then: Side, now: Side) -> bool:
    return bool(then.digest and now.digest and then.digest != now.digest)


def _shape(side: Side) -> str:
    weights = f", weights {side.digest[:12]}" if side.digest else ""
    return sp.clean(
        f"{side.role} {side.model}: {side.architecture}, {side.num_layers} layers, hidden {side.hidden_size}{weights}"
    )


def _line(word: str, name: str, text: str) -> str:
    return f"{word}  {sp.clean(name)}  {text}"


def _sites(comparison: Comparison) -> str:
    own = [d for d in comparison.deltas if d.ref == d.cand]
    numbers = tuple(b for d in own if (b := view.boundary_of(d.ref)) is not None)
    rest = [sp.clean(f"{d.cand} on {d.ref}") for d in comparison.deltas if d.ref != d.cand]
    more = [f"{len(rest) - 4} more"] if len(rest) > 4 else []
    return (
        ", ".join([*([f"boundaries {sp.numbers(numbers)}"] if numbers else []), *rest[:4], *more])
        or "no site"
    )


def _to_share(old: Comparison, new: Comparison, name: str) -> str:
    """What makes the new comparison hold sites of the old one."""
    mechanisms = [c.cand.settings.get("mechanism") for c in (old, new)]
    again = compare_again(new, old.request, new_file(name))
    if mechanisms[0] == mechanisms[1]:
        return again
    # Hooks give boundaries, the engine's own path gives slots: the candidate is captured the way it was.
    out = f"{new.cand.path}-again"
    again = compare_again(replace(new, cand=replace(new.cand, path=out)), old.request, new_file(name))
    return f"{capture_again(new.cand, new.cand.path, out, settings=old.cand.settings)}\n{again}"


def _model_unsure(old: Comparison, new: Comparison) -> str:
    then, now = old.ref, new.ref
    if old.redacted or new.redacted:
        which = (
            "both results"
            if old.redacted and new.redacted
            else f"the {'old' if old.redacted else 'new'} result"
        )
        return (
            f"names, hashes and token ids were taken out of {which}: that it is one model is not known, and no number is held "
            "against another"
        )
    hashed = bool(then.digest and now.digest)
    if hashed or model_names.same(then.model, now.model):
        return ""
    return sp.clean(
        f"the model is called {then.model} then and {now.model} now, and the weights were not hashed on both sides: "
        "that it is one model is not known, and no number is held against another"
    )


def _other_engine(then: Side, now: Side) -> str:
    if then.engine == now.engine:
        return ""
    role = {"ref": "reference", "cand": "candidate"}.get(then.role, then.role)
    return sp.clean(f"the {role} is another engine: {then.engine} then, {now.engine} now")


def _other_sites(old: Comparison, new: Comparison, both: tuple[tuple[SiteDelta, SiteDelta], ...]) -> str:
    """That one boundary of the reference is held by two sites of the candidate."""
    a, b = old.request.offset, new.request.offset
    if a != b:
        return f"--offset {a} then, {b} now: each boundary of the reference is held against another one of the candidate"
    if not by_reference(old, new):
        return ""
    then, now = both[0]
    return sp.clean(
        f"{then.ref} is held by the candidate's {then.cand} then, {now.cand} now: sites are held by the reference's boundary"
    )


OTHER_TOKENS = "no number is held against another, because other tokens alone can move it"


def _prompts(old: Comparison, new: Comparison) -> str:
    """Why the text is not the same; empty when it is, as far as the results tell."""
    if old.request.tokens != new.request.tokens:
        then, now = sp.clean(old.request.tokens), sp.clean(new.request.tokens)
        return f"--tokens {then} then, {now} now: {OTHER_TOKENS}"
    counts = [f"{sp.count(c.ref.prompts, 'prompt')}, {sp.count(c.ref.tokens, 'token')}" for c in (old, new)]
    if counts[0] != counts[1]:
        return f"the reference holds {counts[0]} then, {counts[1]} now: {OTHER_TOKENS}"
    if view.compared_words(old) != view.compared_words(new):
        return ""
    maps = (old.map, new.map)
    if maps[0] is None or maps[1] is None or maps[0].column_tokens != maps[1].column_tokens:
        return ""
    if maps[0].prompts != maps[1].prompts:
        return f"the prompts are others, or others in length: {OTHER_TOKENS}"
    # Of a column that pools several tokens the id is that of whichever stands out most.
    ids = (maps[0].ids_c, maps[1].ids_c)
    if maps[0].column_tokens == 1 and len(ids[0]) and len(ids[1]) and not np.array_equal(ids[0], ids[1]):
        return f"token ids differ: {OTHER_TOKENS}"
    return ""


def _tokens(old: Comparison, new: Comparison) -> str:
    """That of the same text other tokens have a state on both sides."""
    then, now = (view.compared_words(c) for c in (old, new))
    if then == now:
        return ""
    return f"of the same prompts {then} could be held side by side then, {now} now: {OTHER_TOKENS}"


def _floor(old: Comparison, new: Comparison, both: tuple[tuple[SiteDelta, SiteDelta], ...]) -> str:
    """`both`: sites whose floors are of the same tokens, and must be the same figures. Without any, the captures that
    were the floor must be the same."""
    a, b = old.floor, new.floor
    same = a.kind == b.kind and _near(a.limit, b.limit) and _near(a.resolution, b.resolution)
    same = same and (bool(both) or floor_paths(old) == floor_paths(new))
    if same and all(_alike(x.floor, y.floor) for x, y in both if x.tokens and y.tokens):
        return ""
    lines = [floor_words(c) for c in (old, new)]
    words = f"{lines[0]} then, {lines[1]} now" if lines[0] != lines[1] else f"{lines[0]}, measured anew"
    return f"other floor: {words}; ratios and verdicts are not held against one another, rel-L2 is"


def floor_words(comparison: Comparison) -> str:
    """The floor without the size of its captures, of which a comparison may have taken a part."""
    return _SIZE.sub("", view.floor_line(comparison))


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=CLOSE) or (math.isnan(a) and math.isnan(b))


def _alike(a: Quantiles | None, b: Quantiles | None) -> bool:
    if a is None or b is None:
        return a is b
    return _near(a.p50, b.p50) and _near(a.p99, b.p99)


def _request(old: Comparison, new: Comparison) -> str:
    a, b = old.request, new.request
    # Under another offset "all" reaches other boundaries, and is one request.
    if a.boundaries == b.boundaries or (a.offset != b.offset and a.spelled == b.spelled):
        return ""
    words = [view.requested_words(c) for c in (old, new)]
    return (
        f"other layers were asked for: {words[0]} then, {words[1]} now; only sites that both compared are held "
        "against each other"
    )


def _version(old: Comparison, new: Comparison) -> str:
    if old.hsparity == new.hsparity:
        return ""
    return sp.clean(
        f"other hsparity: {old.hsparity} then, {new.hsparity} now; rel-L2 means the same, ratios, verdicts and findings may not"
    )


def _evidence(old: Comparison, new: Comparison) -> str:
    """Whether a cause that is seen now could not have been seen then."""
    more = [
        then.role
        for then, now in _sides(old, new)
        if set(then.sites) != set(now.sites) or then.native_labels != now.native_labels
    ]
    if not more:
        return ""
    who = " and ".join({"ref": "reference", "cand": "candidate"}.get(role, role) for role in more)
    return f"the captures of the {who} hold other sites than then: a cause may be new only because it can be seen now"
