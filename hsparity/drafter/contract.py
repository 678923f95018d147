"""What an engine's version does with the layer ids of a draft config: which key it reads, and which boundaries it feeds.

What ids mean is the table of hsparity.conventions; which key is read is LOOKUPS here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hsparity.conventions import RULES, Answer, Rule, answers, parse_version
from hsparity.drafter.classes import NESTED, TOP, is_speculators

if TYPE_CHECKING:
    from .draft import Draft

V1, V2 = "v1", "v2"
LAYER_IDS = "eagle_config.layer_ids"
NAMES = {"vllm": "vLLM", "sglang": "SGLang", "hf": "EAGLE reference"}


@dataclass(frozen=True, slots=True)
class Lookup:
    """The keys that a range of versions looks at, the first that holds a list; `runner` "" for any."""

    engine: str
    since: str
    until: str
    runner: str
    keys: tuple[str, ...]
    source: str


LOOKUPS = (
    Lookup("vllm", "0.22", "0.32.0", V1, (TOP, NESTED), "vllm/v1/worker/gpu_model_runner.py"),
    Lookup(
        "vllm", "0.22", "0.32.0", V2, (TOP, LAYER_IDS), "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"
    ),
    Lookup("vllm", "0.11.1", "0.21", "", (TOP,), "vllm/v1/worker/gpu_model_runner.py"),
    Lookup("vllm", "0.8.5", "0.11.0", "", (), "vllm/v1/worker/gpu_model_runner.py"),
    Lookup(
        "sglang",
        "0.4.9",
        "0.5.23",
        "",
        (NESTED,),
        "sglang/srt/model_executor/model_runner_components/spec_aux_hidden_state.py",
    ),
    Lookup("sglang", "0.4.6", "0.4.8", "", (), "sglang/srt/models/llama.py"),
    Lookup("hf", "", "", "", (), "eagle/model/modeling_llama_kv.py"),
)
DEFAULT = ("2", "L//2", "L-3")  # of every engine here; rule.TRIPLE says so in words


@dataclass(frozen=True, slots=True)
class Reading:
    """What one runner makes of the file. `boundaries` is None where the number of layers or the family is not known."""

    runner: str
    key: str  # that was read; "" for none
    ids: tuple[int, ...] | None
    boundaries: tuple[int, ...] | None
    spelled: str  # the boundaries in words: "2, 16, 29" or "2, L//2, L-3"

    @property
    def default(self) -> bool:
        return self.ids is None


@dataclass(frozen=True, slots=True)
class Contract:
    """The readings of the runners that may be at work: one where the runner is known or makes no difference."""

    engine: str
    version: str
    given: bool  # whether the user named the version
    rule: Rule
    doubts: tuple[str, ...]
    readings: tuple[Reading, ...]
    why: str  # which runner, and why
    num_layers: int | None
    reads_no_list: bool = False  # under any key, in any runner of this version

    @property
    def label(self) -> str:
        """How a report calls the engine: "vLLM 0.32.0"."""
        return f"{NAMES[self.engine]} {self.version}".strip()

    @property
    def reading(self) -> Reading:
        """The likeliest: the newest runner's."""
        return self.readings[0]

    @property
    def exact(self) -> bool:
        """Whether the version is one that was read."""
        return not self.doubts


def contract(
    draft: Draft,
    engine: str,
    version: str = "",
    runner: str = "",
    architecture: str = "",
    num_layers: int | None = None,
) -> Contract:
    """What this engine feeds the head. Without a version it is the newest that was read."""
    known = version or newest(engine)
    answer = _rule(engine, known, architecture)
    rows, why = _rows(engine, known, runner)
    readings = tuple(_read(draft, row, answer.rule, num_layers) for row in rows)
    if len(readings) > 1 and len({(r.key, r.ids) for r in readings}) == 1:
        readings, why = (replace(readings[0], runner=""),), ""
    none = not any(row.keys for row in rows)
    return Contract(engine, known, bool(version), answer.rule, answer.doubts, readings, why, num_layers, none)


def newest(engine: str) -> str:
    """The newest version whose rules were read; "" for the reference code, which has none."""
    if engine == "hf":
        return ""
    ends = [r.until for r in RULES if r.engine == engine and r.native and r.until]
    return max(ends, key=lambda text: parse_version(text) or ())


def default_boundaries(num_layers: int | None) -> tuple[int, ...] | None:
    """What every engine feeds without a list."""
    return None if num_layers is None else (2, num_layers // 2, num_layers - 3)


def _rule(engine: str, version: str, architecture: str) -> Answer:
    name = "eagle" if engine == "hf" else engine
    found = [
        a
        for a in answers(name, "" if engine == "hf" else version, architecture)
        if a.rule.native or engine == "hf"
    ]
    general = [a for a in found if a.rule.most or not a.rule.families]
    return found[0] if architecture or not general else general[0]


def _rows(engine: str, version: str, runner: str) -> tuple[list[Lookup], str]:
    """The rows that may be at work, the likeliest first, and why."""
    rows = [row for row in LOOKUPS if row.engine == engine and within(version, row.since, row.until)]
    if not rows:  # a version beyond the table: the nearest row's
        newer = max(parse_version(r.until) or () for r in LOOKUPS if r.engine == engine)
        above = (parse_version(version) or newer) > newer
        ends = [r.until if above else r.since for r in LOOKUPS if r.engine == engine]
        place = (max if above else min)(ends, key=lambda text: parse_version(text) or ())
        rows = [r for r in LOOKUPS if r.engine == engine and place == (r.until if above else r.since)]
    if engine != "vllm" or len(rows) == 1:
        return rows, ""
    if runner:
        return [r for r in rows if r.runner == runner], f"the {runner.upper()} runner, as --runner says"
    newest_first = sorted(rows, key=lambda r: r.runner, reverse=True)
    if within(version, "0.22", "0.28"):
        return newest_first, "the V2 runner for some models, V1 for the others"
    return (
        newest_first,
        "the V2 runner where Triton is there, else V1 (CPU builds, VLLM_USE_V2_MODEL_RUNNER=0)",
    )


def within(version: str, since: str, until: str) -> bool:
    """since <= version <= until, where "0.21" as the end takes every 0.21.x; "" is no limit."""
    asked, low, high = (parse_version(text) or () for text in (version, since, until))
    padded = (*asked, *(0,) * (3 - len(asked)))
    return padded >= (*low, *(0,) * (3 - len(low))) and (not high or padded[: len(high)] <= high)


def _read(draft: Draft, row: Lookup, rule: Rule, num_layers: int | None) -> Reading:
    held = {**draft.ids_by_key, LAYER_IDS: _whole(draft.nested.get("layer_ids"))}
    if is_speculators(draft):  # of a speculators config only the list on the top level comes through
        held = {TOP: held.get(TOP, ())}
    key = next((k for k in row.keys if held.get(k)), "")
    if not key:
        boundaries = default_boundaries(num_layers)
        words = ", ".join(DEFAULT if boundaries is None else map(str, boundaries))
        return Reading(row.runner, "", None, boundaries, words)
    ids = tuple(held[key])
    boundaries = fed(rule, ids, num_layers)
    words = ", ".join(map(str, boundaries)) if boundaries is not None else "not known"
    return Reading(row.runner, key, ids, boundaries, words)


def fed(rule: Rule, ids: tuple[int, ...], num_layers: int | None) -> tuple[int, ...] | None:
    """The boundaries of these ids in the order they come out; None where they cannot be told. L + 1 is the normed last."""
    found = rule.numbering.read(ids, num_layers)
    if found is None or rule.keeps_order:
        return found
    return tuple(sorted(set(found)))


def _whole(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or any(not isinstance(v, int) or isinstance(v, bool) for v in value):
        return ()
    return tuple(value)
