"""A cause as a hypothesis: what speaks for it, what against, and how far that goes together."""

from __future__ import annotations

from dataclasses import dataclass, field

FIT = 2.0  # points: less is no hypothesis
STRONG, AHEAD, LEVEL = 4.0, 1.5, 1.0
SHOWN, BEHIND = 3, 3.0


@dataclass(slots=True)
class Hypothesis:
    """One cause. Points are judgements in one unit: 1 for what several causes show, 2 for what few do, 4 for what
    nothing else known does; docs/accuracy.md holds how often each word that they lead to is right."""

    code: str
    name: str
    headline: str
    rival: str = ""
    points: float = 0.0
    reasons: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    veto: str = ""
    quiet: bool = False  # its veto goes without saying
    active: bool = False  # an experiment or a replay speaks for it
    stated: list[str] = field(
        default_factory=list
    )  # values of its own that the two configs state differently
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    next: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    confidence: str = ""

    def plus(self, points: float, text: str) -> None:
        self.points += points
        self.reasons.append(text)

    def minus(self, points: float, text: str) -> None:
        self.points -= points
        self.against.append(text)

    def out(self, text: str, quiet: bool = False) -> None:
        """Rule it out."""
        if not self.veto:
            self.veto, self.quiet = text, quiet


def ranked(found: list[Hypothesis]) -> list[Hypothesis]:
    """Those that fit, best first, each with its confidence word: at most SHOWN."""
    fit = sorted((h for h in found if not h.veto and h.points >= FIT), key=lambda h: (-h.points, h.code))
    if not fit:
        return []
    kept = [h for h in fit if h.points > fit[0].points - BEHIND][:SHOWN]
    second = fit[1].points if len(fit) > 1 else 0.0
    margin = fit[0].points - max(second, FIT - AHEAD)
    for i, h in enumerate(kept):
        level = len(fit) > 1 and margin < LEVEL and fit[0].points - h.points < LEVEL
        if i == 0 and h.active and margin >= AHEAD:
            h.confidence = "settled"
        elif i == 0 and h.points >= STRONG and margin >= AHEAD:
            h.confidence = "likely"
        else:
            h.confidence = "inconclusive" if level else "possible"
    return kept
