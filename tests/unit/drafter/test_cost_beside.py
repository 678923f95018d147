"""A measurement beside the prediction: the same steps of the same text, or a word on why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hsparity.align.tokens import PromptRows
from hsparity.drafter.acceptance import Agreement
from hsparity.drafter.beside import Choice, beside, read
from hsparity.drafter.measurement import MeasuredPrompt, Measurement, Step, disagreements
from hsparity.drafter.result import Beside
from hsparity.errors import HsparityError

from .costed import counters
from .test_cost_acceptance import inside
from .test_measurement import record

K, PREFILL, LENGTH, COUNT = 3, 5, 60, 6
CHOICES = (
    Choice("cand", "sglang", (3, 16, 28)),
    Choice("undone:HS101", "sglang", (2, 15, 27)),
    Choice("ref", "vllm", (2, 15, 27)),
)


class Scene:
    """Texts, what a head matches of them, and what an engine that writes them greedily measures."""

    def __init__(self, seed: int = 0, rate: float = 0.6) -> None:
        rng = np.random.default_rng(seed)
        self.texts = {f"p{i}": rng.integers(10, 1000, LENGTH) for i in range(COUNT)}
        self.match = {n: (rng.random((K, LENGTH - 1)) < rate).astype(np.int8) for n in self.texts}
        self.source: Any = SimpleNamespace(token_ids=lambda n: self.texts[n].astype(np.int32))
        blank = np.full((K, LENGTH - 1), np.nan, np.float32)
        self.agreed = [Agreement(n, PREFILL, inside(m), blank) for n, m in self.match.items()]
        none = [Agreement(n, PREFILL, inside(0 * m), blank) for n, m in self.match.items()]
        self.by_key = {"cand": self.agreed, "undone:HS101": none, "ref": none}
        every = np.arange(LENGTH, dtype=np.int32)
        self.rows = [
            PromptRows((n, n), 0, every, ids.astype(np.int32), (every.astype(np.int64),) * 2)
            for n, ids in self.texts.items()
        ]

    def measured(self, name: str, k: int = K, text: np.ndarray | None = None) -> MeasuredPrompt:
        """Steps of an engine along a text, its drafts wrong where the head's are."""
        written = (self.texts[name] if text is None else text).tolist()
        known, steps = PREFILL + 1, []
        while known + k < len(written):
            matches = self.match[name][: min(k, K), known - 2].tolist() + [0] * (k - K)
            accepted = matches.index(0) if 0 in matches else k
            drafts = [written[known + j] if m else 1 for j, m in enumerate(matches)]
            steps.append(Step(known, tuple(drafts), accepted, written[known + accepted]))
            known += accepted + 1
        return MeasuredPrompt(
            name, tuple(written[:PREFILL]), tuple(written[PREFILL:known]), tuple(steps), counters(steps, k)
        )

    def record(self, **changed: Any) -> Measurement:
        return replace(record(*(self.measured(n) for n in self.texts)), **changed)

    def beside(self, measurement: Measurement, steps: int = K, digest: str = "ab" * 32) -> Beside:
        return beside("m.json", measurement, CHOICES, self.by_key, self.rows, self.source, steps, digest)


def test_the_same_steps_differ_by_nothing() -> None:
    """An engine whose drafts are right where the head's are measures what is predicted, in every position and interval."""
    scene = Scene()
    found = scene.beside(scene.record())
    assert not found.why_not
    assert (found.feed, found.prompts) == ("cand", COUNT)
    assert found.predicted_steps == found.measured_steps > 60
    assert found.predicted == found.measured
    assert found.predicted_accepted == found.measured_accepted
    for each in (*found.difference, found.accepted_difference):
        assert each is not None
        assert (each.value, each.low, each.high) == (0.0, 0.0, 0.0)
    assert 0.4 < found.measured[0].value < 0.8
    assert not any("text" in d for d in disagreements(scene.record()))


def test_a_worse_engine_is_seen() -> None:
    """An engine that accepts less on the same text lies below the prediction, by its own steps."""
    scene = Scene()
    worse = []
    for n in scene.texts:
        prompt = scene.measured(n)
        known, steps = PREFILL + 1, []
        while known + K < LENGTH:  # it accepts nothing: every token is the target's own
            steps.append(Step(known, (1, 1, 1), 0, int(scene.texts[n][known])))
            known += 1
        text = tuple(scene.texts[n][PREFILL:known].tolist())
        worse.append(replace(prompt, steps=tuple(steps), generated=text, counters=counters(steps, K)))
    found = scene.beside(record(*worse))
    assert found.measured[0].value == 0.0
    assert found.difference[0].value == found.predicted[0].value > 0.4
    assert found.measured_steps > 2 * found.predicted_steps


def test_a_text_that_goes_another_way_is_cut() -> None:
    """Only steps all of whose drafts lie before the first other token count, on both sides."""
    scene, turn = Scene(), 30
    prompts = []
    for n, ids in scene.texts.items():
        other = ids.copy()
        other[turn:] += 1000
        prompts.append(scene.measured(n, text=other))
    found = scene.beside(record(*prompts))
    whole = scene.beside(scene.record())
    assert not found.why_not
    assert 0 < found.predicted_steps < 0.6 * whole.predicted_steps
    assert found.predicted_steps == found.measured_steps
    assert found.accepted_difference is not None
    assert found.accepted_difference.value == 0.0
    firsts = [s.first for p in prompts for s in p.steps if s.first + K <= turn]
    assert found.measured_steps == len(firsts)


def test_texts_that_share_nothing() -> None:
    """Texts that differ from the first written token on, or other prompts, are no comparison."""
    scene = Scene()
    other = {n: np.concatenate((ids[:PREFILL], ids[PREFILL:] + 1000)) for n, ids in scene.texts.items()}
    apart = record(*(scene.measured(n, text=t) for n, t in other.items()))
    strangers = scene.record(
        prompts=tuple(replace(p, prompt=tuple(i + 1 for i in p.prompt)) for p in scene.record().prompts)
    )
    for measurement in (apart, strangers, record()):
        found = scene.beside(measurement)
        assert "shares no step" in found.why_not
        assert not found.predicted
        assert found.measured_accepted is None


def test_prompts_that_only_one_has_are_left_out() -> None:
    """A record of more or other prompts is held against those that are shared."""
    scene = Scene()
    found = scene.beside(record(*(scene.measured(n) for n in list(scene.texts)[:2])))
    assert found.prompts == 2
    assert found.accepted_difference is not None
    assert found.accepted_difference.value == 0.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"aux_layers": (4, 17, 29)}, "it ran on boundaries 4, 17, 29, and predicted was cand: 3, 16, 28"),
        ({"aux_layers": ()}, "it ran on boundaries"),
        ({"k": 2}, "--steps 2"),
        ({"k": 5}, "--steps 5"),
        ({"draft_sha256": "cd" * 32}, "another head"),
    ],
)
def test_what_is_no_comparison(changed: dict[str, Any], said: str) -> None:
    """Other boundaries, a shorter or longer chain, another head: no figures, and the reason."""
    scene = Scene()
    found = scene.beside(scene.record(**changed))
    assert said in found.why_not
    assert found.predicted_accepted is None


def test_the_engine_that_feeds_so_is_chosen() -> None:
    """Of two feedings of the same boundaries it is the one of the record's own engine; else the one there is."""
    scene = Scene()
    for engine, numbers, key in (
        ("sglang", (2, 15, 27), "undone:HS101"),
        ("vllm", (2, 15, 27), "ref"),
        ("vllm", (3, 16, 28), "cand"),
    ):
        assert scene.beside(scene.record(engine=engine, aux_layers=numbers)).feed == key


def test_not_told_is_not_the_same() -> None:
    """Slots that nothing tells apart on one side are not those that nothing tells on the other."""
    scene = Scene()
    found = beside(
        "m.json",
        scene.record(aux_layers=()),
        [Choice("cand", "sglang", ())],
        scene.by_key,
        scene.rows,
        scene.source,
        K,
        "ab" * 32,
    )
    assert found.why_not


def test_stand_ins_are_carried() -> None:
    """Whatever becomes of the record, what it was measured over is told."""
    scene = Scene()
    for found in (scene.beside(scene.record()), scene.beside(scene.record(k=2))):
        assert found.stand_ins == ("sgl_kernel.verify_tree_greedy_cpu",)


def test_reading_a_record(tmp_path: Path) -> None:
    """A record is read as it was written; no file, bytes, and another JSON are users' errors."""
    path = tmp_path / "m.json"
    path.write_text(Scene().record().to_json())
    assert read(str(path)) == Scene().record()
    for text, code in ((None, "E202"), (b"\xff\xfe\x00", "E202"), (b"{}", "E293"), (b"[]", "E293")):
        other = tmp_path / "other.json"
        if text is not None:
            other.write_bytes(text)
        with pytest.raises(HsparityError) as raised:
            read(str(other))
        assert raised.value.code == code
