"""A text of letters holds near-duplicate states: large errors swap them, and no row is accused."""

from __future__ import annotations

from pathlib import Path

import torch

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from tests.diagnose import plants
from tests.diagnose.runs import Setup, run

TEXT = (
    b"A letter that comes again in the same word, after the same words, has nearly the state that it had before. "
    b"What an engine errs by can be more than what tells the two apart, and then the nearest state is the wrong one. "
) * 3
MODEL, EAGER = "tiny:deepseek-v3", {"mode": "eager"}
IDS = {f"p{i}": [1, *(10 + letter for letter in TEXT[i * 37 : i * 37 + 99])] for i in range(6)}


def test_a_text_of_letters_under_another_rope_has_no_row_fault(tmp_path: Path) -> None:
    """The numbers are named, and no HS11x beside them."""
    bf16 = Setup(MODEL, branches=True)
    ref = open_source(run(bf16, settings=EAGER, ids=IDS).write(tmp_path / "bf16"))
    exact = run(Setup(MODEL, dtype=torch.float32), settings=EAGER, ids=IDS).write(tmp_path / "fp32")
    made = run(bf16, plants.rope_theta(1.6), "vllm", settings=EAGER, ids=IDS).write(tmp_path / "cand")
    found = compare(ref, open_source(made), [open_source(exact), ref], Query()).findings
    causes = [f.code for f in found if f.severity == "cause" and not f.ruled_out]
    assert causes == ["HS301"]
