"""What a difference costs a draft head, as one self-contained page: no script needed, no request made, same bytes."""

from __future__ import annotations

import shlex
from typing import Any

from markupsafe import Markup

from ..drafter.result import Beside, DraftCost, FedSide
from ..model import Verdict
from . import spelling as sp
from . import view
from .cost_figures import accepted_bars, beside_dots
from .cost_tables import (
    beside_table,
    bins_table,
    feeds_table,
    layers_table,
    positions_table,
    sides_table,
    slots_table,
)
from .cost_values import best_undone, main_feeds, number, spread
from .embedded import pack
from .tables import TONES, Cell
from .to_html import script, style_sheet, template

LEAST = 0.005  # accepted draft tokens a step: less does not show in two decimals


def render(cost: DraftCost) -> str:
    """The page; the record itself is in it, as JSON."""
    return template("cost.html.j2").render(**_context(cost)) + "\n"


def _context(cost: DraftCost) -> dict[str, Any]:
    word = cost.verdict.value.capitalize()
    return {
        "title": f"{word}: {_name(cost.draft)} on {sp.clean(cost.ref.engine)} → {sp.clean(cost.cand.engine)}",
        "version": sp.clean(cost.hsparity),
        "css": Markup(style_sheet()),
        "js": Markup(script()),
        "verdict": Cell(word, TONES[cost.verdict][0]),
        "statement": _sentence(cost.headline),
        "subtitle": _subtitle(cost),
        "fed": _fed(cost),
        "change": _change(cost),
        "fix": [sp.clean(line) for line in cost.fix],
        "measured": [_measured(b) for b in cost.beside],
        "notes": [_sentence(n) for n in cost.notes],
        "next": "\n".join(sp.clean(line) for line in cost.next),
        "bars": accepted_bars(cost),
        "bars_caption": _bars_caption(cost),
        "feeds": feeds_table(cost),
        "how": [line for f in main_feeds(cost) if (line := _how(f.words, f.note, f.stands_in))],
        "positions": positions_table(cost),
        "beside": [_beside(b) for b in cost.beside],
        "slots": slots_table(cost),
        "layers": layers_table(cost),
        "places": bins_table(
            "Accepted draft tokens a step, of steps that start at these positions. Every row is a start here, so figures differ "
            "from those of a walk.",
            "position in the text",
            cost.positions,
        )
        if cost.positions
        else None,
        "prompts": bins_table("Accepted draft tokens a step.", "prompt", cost.by_prompt)
        if cost.by_prompt
        else None,
        "prompts_summary": f"All {sp.count(len(cost.by_prompt), 'prompt')} as a table",
        "states": Cell(
            cost.state_verdict.value, TONES[cost.state_verdict][0], icon=TONES[cost.state_verdict][1]
        ),
        "states_text": _sentence(cost.states),
        "sides": sides_table(cost),
        "head": sp.clean(f"{cost.draft}, {cost.layout} layout, run by {cost.runner}; target {cost.model}"),
        "command": sp.clean(shlex.join(cost.command)),
        "dropped": [_sentence(line) for line in cost.dropped],
        "assumed": _assumed(cost),
        "result": Markup(pack(cost.to_json())),
        "redacted": f"{view.REDACTED[:1].upper()}{view.REDACTED[1:]}." if cost.redacted else "",
    }


def _name(path: str) -> str:
    return sp.clean(path).rstrip("/").rsplit("/", 1)[-1]


def _sentence(text: str) -> str:
    shown = sp.clean(text).strip()
    return shown[:1].upper() + shown[1:] + ("" if shown.endswith((".", "!", "?", ":")) else ".")


def _subtitle(cost: DraftCost) -> str:
    return (
        f"{_name(cost.draft)}, an EAGLE-3 head for {_name(cost.model)}, fed by {_engine(cost.ref)} (reference) and by "
        f"{_engine(cost.cand)} (candidate); {sp.count(cost.steps, 'draft position')}; "
        f"{sp.count(cost.prompts, 'prompt')}, {cost.feed('ref').steps:,} {sp.clean(cost.tokens)}"
    )


def _engine(side: FedSide | Beside) -> str:
    return sp.clean(f"{side.engine} {side.version}".strip())


def _fed(cost: DraftCost) -> str:
    """What each side feeds the head, slot by slot."""
    sides = [
        f"{_engine(side)} feeds it {', '.join(sp.clean(p) for p in side.places)}"
        for side in (cost.ref, cost.cand)
    ]
    return f"{sides[0]}; {sides[1]}."


def _change(cost: DraftCost) -> str:
    """What to change: the counterfactual that pays most."""
    ref, cand, best = cost.feed("ref").accepted.value, cost.feed("cand").accepted.value, best_undone(cost)
    if cost.verdict is Verdict.PARITY:
        return "Nothing, for this head."
    if best is None:
        return "No finding of the comparison could be undone on these captures, so no fix has a price."
    if best.accepted.value - cand < LEAST:
        return "Nothing that was found: undone, it brings no accepted token back."
    what = (
        "everything that was found"
        if best.key == "undone:all"
        else sp.clean(best.words).removesuffix(" undone")
    )
    text = (
        f"{what[:1].upper()}{what[1:]}. Undone, the head gets {number(best.accepted.value)} draft tokens a step accepted in place "
        f"of {number(cand)}; on the reference's states {number(ref)}."
    )
    return text if cost.verdict is Verdict.DIVERGED else f"Not settled. What would pay most: {text}"


def _measured(beside: Beside) -> str:
    if beside.why_not:
        return ""
    assert beside.measured_accepted is not None
    assert beside.predicted_accepted is not None
    text = (
        f"{_engine(beside)} got {spread(beside.measured_accepted)} accepted on boundaries {_boundaries(beside)}; "
        f"{spread(beside.predicted_accepted)} were predicted of the same steps"
    )
    return f"{text}. {_stand_ins(beside)}".strip() if beside.stand_ins else f"{text}."


def _stand_ins(beside: Beside) -> str:
    if not beside.stand_ins:
        return ""
    engine = sp.clean(beside.engine)
    return (
        f"{engine} ran with {sp.count(len(beside.stand_ins), 'stand-in')} of hsparity's for kernels that it lacks on that "
        f"machine; scheduler and models are its own."
    )


def _boundaries(beside: Beside) -> str:
    return ", ".join(map(str, beside.boundaries))


def _bars_caption(cost: DraftCost) -> str:
    ref, cand, best = cost.feed("ref").accepted.value, cost.feed("cand").accepted.value, best_undone(cost)
    text = (
        f"Of {sp.count(cost.steps, 'draft token')} a step the target takes {number(ref)} with the reference's states in the head "
        f"and {number(cand)} with the candidate's"
    )
    if best is not None:
        text += f"; {number(best.accepted.value)} with {_undoing(best.key, best.words)}"
    noise = next((f for f in cost.feeds if f.key == "noise"), None)
    if noise is not None:
        text += f"; {number(noise.accepted.value)} with the floor's noise on the reference's"
    return f"{text}. Greedy, one chain. Whiskers are 95 % intervals over prompts; the dashed line is ref."


def _undoing(key: str, words: str) -> str:
    return "everything that was found undone" if key == "undone:all" else sp.clean(words)


def _how(words: str, note: str, stands_in: tuple[str, ...]) -> str:
    """What was fed in place of the faulty slots; empty where nothing was."""
    parts = [note] if note else []
    if stands_in:
        parts.append(
            f"the candidate's capture does not hold what {', '.join(stands_in)} should be: the reference's own states stand in"
        )
    return _sentence(f"{words}: {'; '.join(parts)}") if parts else ""


def _beside(beside: Beside) -> dict[str, Any]:
    """One measurement: its heading, and either why it stands alone or figure and table."""
    fed = f"boundaries {_boundaries(beside)}" if beside.boundaries else "slots not told apart"
    out: dict[str, Any] = {
        "heading": f"{_engine(beside)}, fed {fed}",
        "path": sp.clean(beside.path),
        "stand_ins": "" if beside.why_not else ", ".join(sp.clean(s) for s in beside.stand_ins),
        "why_not": _sentence(f"not laid beside the prediction: {beside.why_not}") if beside.why_not else "",
    }
    if not beside.why_not:
        out |= {
            "caption": f"{_apart(beside)} Hollow: predicted. Solid: measured. Whiskers are 95 % intervals over prompts. "
            f"{_stand_ins(beside)}".rstrip(),
            "dots": beside_dots(beside),
            "table": beside_table(beside),
        }
    return out


def _apart(beside: Beside) -> str:
    most = 100 * max((abs(d.value) for d in beside.difference), default=0.0)
    if most < 0.05:
        return "Prediction and measurement are the same to a tenth of a point, position by position."
    return f"Prediction and measurement lie at most {most:.1f} points apart, position by position."


def _assumed(cost: DraftCost) -> str:
    return (
        "The head is run in float32 by hsparity on captured states, teacher-forced on the text that both captures share: it sees "
        f"the same tokens on both sides, and only the states differ. Counted are {sp.clean(cost.tokens)}. Drafts are a greedy "
        f"chain of {cost.steps}, without a tree. A draft is accepted where it is the token that the target takes: on generated "
        "rows the text's own next token, on others the largest logit of the captured last state through final norm and lm_head. "
        "A candidate whose states differ may also write other text, which is not counted here: acceptance of two texts is no "
        "comparison. Intervals are 95 % bootstrap intervals that draw whole prompts. An engine that drafts a tree, quantises the "
        "head or samples gets other figures. When not to believe a prediction: docs/drafter.md."
    )
