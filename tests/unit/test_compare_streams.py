"""A model of several residual streams is refused by name before anything is compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsparity.capture.read import open_source
from hsparity.cli.main import invoke
from hsparity.compare import Query, compare
from hsparity.errors import HsparityError
from hsparity.model import Verdict
from tests.causes.streams import Capture, as_slots, capture, edited, plain

SMALL = {"count": 2, "length": 6}


def described(made: Capture, architecture: str, config: dict[str, Any] | None = None) -> Capture:
    return replace(made, real=replace(made.model, architecture=architecture, config=config or {}))


@pytest.mark.parametrize("side", ["ref", "cand"])
@pytest.mark.parametrize(
    ("architecture", "config", "said"),
    [
        ("DeepseekV4ForCausalLM", {}, "hyper-connections"),
        ("KimiK3ForConditionalGeneration", {}, "attention residuals"),
        ("Glm5NextForCausalLM", {}, "hyper-connections"),
        ("OtherForCausalLM", {"hc_mult": 4}, "config.hc_mult = 4"),
        ("OtherForCausalLM", {"text_config": {"attn_res_block_size": 8}}, "config.attn_res_block_size = 8"),
    ],
)
def test_several_streams_are_e215(
    tmp_path: Path, architecture: str, config: dict[str, Any], said: str, side: str
) -> None:
    """On either side, slots as well as boundaries; the error names the architecture and what tells it."""
    made = capture(1, **SMALL)
    slots = edited(described(made, architecture, config), lambda _, s: as_slots(s, (2, 4)))
    odd, other = open_source(slots.write(tmp_path / "odd")), open_source(made.write(tmp_path / "other"))
    with pytest.raises(HsparityError) as caught:
        compare(*((odd, other) if side == "ref" else (other, odd)), [], Query())
    assert caught.value.code == "E215"
    assert architecture in caught.value.message
    assert said in caught.value.notes[0]
    assert caught.value.notes[0].startswith(side)
    assert "logits" in caught.value.help


def test_the_plain_form_is_refused_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 at the command line, and `hsparity explain` knows the code."""
    made = capture(1, **SMALL)
    keys = ["boundary.002", "boundary.004"]
    slots = [{"boundary": 2}, {"boundary": 4}]
    odd = plain(tmp_path / "odd", made, slots, keys, architecture="DeepseekV4ForCausalLM")
    assert invoke(["compare", str(odd), str(made.write(tmp_path / "other"))]) == 2
    assert "error[E215]" in capsys.readouterr().err
    assert invoke(["explain", "E215"]) == 0
    assert capsys.readouterr().out.startswith("E215 several-streams")


@pytest.mark.parametrize("config", [{"hc_mult": 1}, {"mhc": False, "attn_res_block_size": None}])
def test_one_stream_is_compared(tmp_path: Path, config: dict[str, Any]) -> None:
    """Keys that say one stream refuse nothing."""
    made = described(capture(1, **SMALL), "DeepseekV3ForCausalLM", config)
    ref, cand = open_source(made.write(tmp_path / "a")), open_source(made.write(tmp_path / "b"))
    assert compare(ref, cand, [], Query()).verdict is Verdict.PARITY
