"""HS107 fires when a slot's proved place is not that of the table, and only then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import Query, compare
from hsparity.model import Comparison, Verdict
from tests.causes.judged import finding
from tests.causes.streams import Capture, as_slots, edited


def renamed(folder: Path, architecture: str) -> Path:
    """The capture in `folder` as one of another architecture."""
    path = folder / "manifest.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "architecture": architecture}))
    return folder


def landed(
    ref: Source, clean: Capture, folder: Path, *, ids: list[int], on: tuple[int, ...], **who: str
) -> Comparison:
    """A candidate whose slots for `ids` hold the boundaries `on`, beside its own hooks."""
    architecture = who.pop("architecture")
    made = edited(clean, lambda _, s: {**s, **as_slots(s, on)}, settings={"native_ids": ids}, **who)
    return compare(ref, open_source(renamed(made.write(folder / "cand"), architecture)), [], Query())


def codes(result: Comparison) -> list[str]:
    return [f.code for f in result.findings]


@pytest.mark.parametrize(
    ("engine", "version", "architecture", "ids", "on"),
    [
        ("vllm", "0.32.0", "LlamaForCausalLM", [2, 4, 6], (2, 4, 6)),
        ("vllm", "0.32.0", "DeepseekV3ForCausalLM", [1, 3, 5], (1, 3, 5)),
        ("sglang", "0.5.23", "LlamaForCausalLM", [2, 4, 6], (3, 5, 7)),
        ("sglang", "0.5.23", "DeepseekV3ForCausalLM", [2, 4, 6], (2, 4, 6)),
        ("sglang", "0.5.23", "DeepseekV3ForCausalLM", [1, 3, 5], (2, 4, 6)),
        ("sglang", "0.5.23", "DeepseekV3ForCausalLM", [3, 5, 1], (1, 3, 5)),
    ],
)
def test_silent_on_what_the_engines_do(
    ref, clean, tmp_path, *, engine: str, version: str, architecture: str, ids: list[int], on: tuple[int, ...]
):
    """The observed places of both engines are those of the table."""
    result = landed(
        ref, clean, tmp_path, ids=ids, on=on, engine=engine, version=version, architecture=architecture
    )
    assert "HS103" in codes(result)
    assert "HS107" not in codes(result)


@pytest.mark.parametrize(
    ("version", "doubt"), [("0.5.23", False), ("0.5.30", True)], ids=["checked", "not checked"]
)
def test_a_place_that_is_not_the_tables_is_a_note(ref, clean, floor, tmp_path, version: str, doubt: bool):
    """A Llama whose ids are taken as they are: both readings, the row with its source, and that the data won."""
    made = edited(
        clean,
        lambda _, s: {**s, **as_slots(s, (2, 4, 6))},
        settings={"native_ids": [2, 4, 6]},
        engine="sglang",
        version=version,
    )
    cand = open_source(renamed(made.write(tmp_path / "cand"), "LlamaForCausalLM"))
    result = compare(ref, cand, floor, Query())
    assert result.verdict is Verdict.PARITY
    clash = finding(result, "HS107")
    assert (clash.name, clash.severity, clash.structural) == ("convention-clash", "note", False)
    assert clash.slots == ("slot.000", "slot.001", "slot.002")
    assert "ids 2, 4, 6 are boundaries 2, 4, 6 in sglang" in clash.headline
    assert "3, 5, 7 by the table; the data count" in clash.headline
    assert "0.4.9 to 0.5.23" in clash.evidence[0]
    assert "sglang/srt/models/llama.py" in clash.evidence[0]
    assert any("is not checked" in line for line in clash.evidence) is doubt
    assert clash.confirm == (
        f"hsparity conventions --engine sglang --version {version} --arch LlamaForCausalLM",
    )


def test_a_family_that_was_not_read_is_no_clash(ref, clean, tmp_path):
    """The rule of most families promises nothing about another one."""
    result = landed(
        ref,
        clean,
        tmp_path,
        ids=[2, 4, 6],
        on=(2, 4, 6),
        engine="sglang",
        version="0.5.23",
        architecture="FooLM",
    )
    assert "HS107" not in codes(result)


def test_places_that_are_not_proved_are_no_clash(ref, clean, tmp_path):
    """Slots that hold noise fit nothing, so nothing is held against the table."""
    rng = np.random.default_rng(0)

    def noisy(_: str, states):
        slots = as_slots(states, (2, 4, 6))
        return {**states, **{k: rng.standard_normal(v.shape) for k, v in slots.items()}}

    made = edited(clean, noisy, settings={"native_ids": [2, 4, 6]}, engine="sglang", version="0.5.23")
    cand = open_source(renamed(made.write(tmp_path / "cand"), "LlamaForCausalLM"))
    assert "HS107" not in codes(compare(ref, cand, [], Query()))


def test_a_list_of_another_length_is_no_clash(ref, clean, tmp_path):
    """Which slot belongs to which id is open when one is missing: that is another finding."""
    result = landed(
        ref,
        clean,
        tmp_path,
        ids=[2, 4, 6],
        on=(2, 4),
        engine="sglang",
        version="0.5.23",
        architecture="LlamaForCausalLM",
    )
    assert "HS107" not in codes(result)
