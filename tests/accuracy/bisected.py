"""What `hsparity bisect` says of the cases: the named cause or outcome against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsparity import engines
from hsparity.capture.read import open_source
from hsparity.errors import HsparityError
from hsparity.experiments.bisecting import Wanted, bisect
from hsparity.experiments.result import Bisect, Outcome, State
from hsparity.experiments.takes import Cache
from hsprobe.schema import CaptureSpec

QUIET = (Outcome.NOTHING, Outcome.NOISE)


@dataclass(frozen=True, slots=True)
class Answer:
    """One case."""

    name: str
    truth: str
    said: str  # the first cause and its confidence word, or the outcome
    grade: str  # "right" | "inconclusive" | "wrong"
    share: str  # of the excess that the first cause explains, with its interval


def lend(captures: Path, folder: Path) -> None:
    """Link the corpus's own captures into a bisection's cache: what was made with a setting serves there again."""
    cache = Cache(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for made in sorted(captures.glob("*/manifest.json")):
        spec = CaptureSpec.from_json((made.parent / "spec.json").read_text())
        place = cache.place(spec, engines.resolve(spec.engine))
        if not place.exists():
            place.symlink_to(made.parent.resolve())


def ask(record: dict[str, Any], cache: Path) -> Answer:
    """Bisect a case; captures are kept in `cache` by their setting."""
    floors = tuple(open_source(path) for path in record["floors"])
    truth = record["bisect_truth"]
    try:
        result = bisect(Wanted(record["ref"], record["cand"], floors, cache=cache))
    except HsparityError as error:
        return Answer(record["name"], truth, f"{error.code} {error.message}", "inconclusive", "")
    first = result.causes[0] if result.causes else None
    said = f"{first.name} ({first.confidence})" if first else result.outcome.value
    share = (
        f"{first.share.value:.2f} [{first.share.low:.2f}, {first.share.high:.2f}]"
        if first and first.share
        else ""
    )
    return Answer(record["name"], truth, said, grade(result, truth, record["also"]), share)


def grade(result: Bisect, truth: str, also: Sequence[str]) -> str:
    """Whether a bisection found `truth` or a name that is right too.

    "within-noise" needs an outcome that accuses nobody; "not-applied" one such and an experiment or setting that is
    called NOT APPLIED.
    """
    quiet = result.outcome in QUIET
    if truth == "within-noise":
        return "right" if quiet else "inconclusive" if result.outcome is Outcome.INCONCLUSIVE else "wrong"
    if truth == "not-applied":
        told = any(e.state is State.NOT_APPLIED for e in result.experiments)
        return "right" if quiet and told else "wrong"
    if result.causes and result.causes[0].confidence != "inconclusive":
        return "right" if result.causes[0].name in (truth, *also) else "wrong"
    return "inconclusive"
