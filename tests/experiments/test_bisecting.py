"""Bisections with Transformers: a real engine, a tiny model, seconds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsparity.capture.read import open_source
from hsparity.cli.main import invoke
from hsparity.errors import HsparityError
from hsparity.experiments.bisecting import Wanted, bisect
from hsparity.experiments.result import Bisect, Outcome, State
from hsparity.experiments.takes import Side, forced

from .conftest import PROMPTS, Take


@pytest.fixture(scope="session")
def cache(home: Path) -> Path:
    """One cache for all tests: equal settings are captured once."""
    return home / "bisect"


def run(ref: Path, cand: Path, cache: Path, *floors: Path, **options: Any) -> Bisect:
    sources = tuple(open_source(f) for f in floors)
    return bisect(Wanted(str(ref), str(cand), sources, cache=cache, **options))


def test_attention_kernels_within_noise(bf16: Path, eager: Path, fp32: Path, cache: Path) -> None:
    """Eager attention against sdpa is within bf16 noise, exit 0, and what difference there is is theirs."""
    found = run(bf16, eager, cache, fp32, bf16)
    assert (found.outcome, found.exit_code) == (Outcome.NOISE, 0)
    assert found.ratio is not None
    assert 0.3 < found.ratio < 1.3
    assert [c.name for c in found.causes] == ["attention-backend"]
    assert found.causes[0].share is not None
    assert found.causes[0].share.low == pytest.approx(1.0)
    assert found.experiments[0].proof == "applied: attention backend eager -> sdpa"
    assert "with every knob set alike the reference is reproduced bit for bit" in found.notes


def test_a_mask_is_named_and_beyond_the_floor(take: Take, bf16: Path, fp32: Path, cache: Path) -> None:
    """A token hidden from attention on one side is mask-differs, settled, exit 1."""
    hidden = int(PROMPTS[0].token_ids[3])
    masked = take(engine_args={"mask_token_id": hidden})
    found = run(bf16, masked, cache, fp32, bf16)
    assert (found.outcome, found.exit_code) == (Outcome.SETTLED, 1)
    assert [(c.name, c.code, c.confidence) for c in found.causes] == [("mask-differs", "HS517", "settled")]
    assert found.differing < found.tokens  # the other prompts, and what comes before, are untouched


def test_two_knobs_get_shares_that_add_up(bf16: Path, eager_fp16: Path, fp32: Path, cache: Path) -> None:
    """float16 and eager attention together: each alone redraws the rounding and removes little, both remove all. So the
    shares are Shapley values that add up to the whole, and the interaction is said."""
    found = run(bf16, eager_fp16, cache, fp32, bf16)
    assert {e.knobs for e in found.experiments} == {
        ("dtype",),
        ("attention-backend",),
        ("dtype", "attention-backend"),
    }
    shares = {c.name: c.share for c in found.causes if c.share}
    assert sum(s.value for s in shares.values()) == pytest.approx(1.0, abs=0.06)
    assert set(shares) == {"dtype-rounding", "attention-backend"}
    assert all(any("interact" in line for line in c.evidence) for c in found.causes)
    assert found.unexplained is not None
    assert found.unexplained.value == 0.0


def test_a_batch_that_is_ignored_is_not_applied(take: Take, bf16: Path, cache: Path) -> None:
    """Transformers runs one prompt at a time: a batch of 2 is NOT APPLIED, not without effect, and nothing is captured."""
    found = run(bf16, take(batch=2), cache / "none")
    assert (found.outcome, found.exit_code) == (Outcome.NOTHING, 0)
    assert "NOT APPLIED" in found.headline
    assert [(e.knobs, e.state) for e in found.experiments] == [(("batch",), State.NOT_APPLIED)]
    assert found.experiments[0].proof == "batch=2 was asked for and hf has no use for it"
    assert not (cache / "none").exists()


def respelled(folder: Path, out: Path, **engine_args: Any) -> Path:
    """A copy whose spec asks for more arguments; what ran is the same."""
    shutil.copytree(folder, out)
    spec = json.loads((out / "spec.json").read_text())
    spec["engine_args"] |= engine_args
    (out / "spec.json").write_text(json.dumps(spec))
    return out


def test_a_written_out_default_is_no_difference(bf16: Path, tmp_path: Path) -> None:
    """sdpa asked for is sdpa by default: bit-equal, and no knob differs."""
    asked = respelled(bf16, tmp_path / "asked", attn_implementation="sdpa")
    found = run(bf16, asked, tmp_path)
    assert (found.outcome, found.experiments) == (Outcome.NOTHING, ())


def test_an_argument_that_no_knob_owns_is_turned_too(bf16: Path, tmp_path: Path, cache: Path) -> None:
    """low_cpu_mem_usage is not in the table: turned on request, it is not called applied, for nothing shows it."""
    asked = respelled(bf16, tmp_path / "asked", low_cpu_mem_usage=True)
    found = run(bf16, asked, cache, knobs=("argument low_cpu_mem_usage",))
    assert found.outcome is Outcome.NOTHING
    assert [e.state for e in found.experiments] == [State.NOT_APPLIED]
    assert found.experiments[0].note == "bit-equal, and nothing shows that it was applied"


def test_turning_away_says_how_far_each_knob_moves(bf16: Path, eager: Path, fp32: Path, cache: Path) -> None:
    """With --knobs a knob that stands alike is turned away, on either side: float32 moves the states by about what bf16
    costs, and settles nothing."""
    found = run(bf16, eager, cache, fp32, bf16, knobs=("dtype",))
    assert {(e.knobs, e.purpose, e.state) for e in found.experiments} == {
        (("dtype",), "toggle", State.MEASURED)
    }
    assert [e.role for e in found.experiments] == ["cand", "ref"]
    toggle = found.experiments[0]
    assert toggle.moved is not None
    assert 0.4 < toggle.moved < 1.0  # e0 over sqrt(2) e0
    assert toggle.share is not None
    assert toggle.share.value < 0.9
    assert found.outcome is Outcome.NOISE


def test_the_plan_costs_and_captures_nothing(bf16: Path, eager_fp16: Path, tmp_path: Path) -> None:
    """--plan lists the singles before the pair, with seconds and bytes, and makes no folder."""
    found = run(bf16, eager_fp16, tmp_path / "cache", plan=True)
    assert [len(e.knobs) for e in found.experiments] == [1, 1, 2]
    assert found.experiments[0].knobs == ("dtype",)  # likelier than the attention kernels
    assert all(e.state is State.PLANNED and (e.seconds or 0) > 0 and e.bytes > 0 for e in found.experiments)
    assert found.exit_code == 0
    assert not (tmp_path / "cache").exists()


def test_captures_are_used_again(bf16: Path, eager: Path, cache: Path) -> None:
    """A second bisection makes no capture, and says so in its plan."""
    first = run(bf16, eager, cache)
    folder = Path(first.experiments[0].capture)
    made = (folder / "manifest.json").stat().st_mtime_ns
    assert run(bf16, eager, cache).causes == first.causes
    assert (folder / "manifest.json").stat().st_mtime_ns == made
    assert run(bf16, eager, cache, plan=True).experiments[0].cached


def test_a_killed_bisection_goes_on(
    bf16: Path, eager: Path, tmp_path: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the manifest, which is written last, a variant is gone on with: finished prompts are kept."""
    done = run(bf16, eager, cache)
    left = tmp_path / Path(done.experiments[0].capture).name
    shutil.copytree(done.experiments[0].capture, left)
    (left / "manifest.json").unlink()
    capfd.readouterr()
    assert run(bf16, eager, tmp_path).causes[0].share == done.causes[0].share
    assert f"resuming: {len(PROMPTS)} of {len(PROMPTS)} prompts are done" in capfd.readouterr().err


def test_a_side_of_its_own_is_no_repeat(bf16: Path, eager: Path, tmp_path: Path, cache: Path) -> None:
    """A cache that holds the reference itself for the variant proves nothing by being equal to it, and the page says so."""
    done = Path(run(bf16, eager, cache).experiments[0].capture)
    (tmp_path / done.name).symlink_to(bf16)
    found = run(bf16, eager, tmp_path)
    assert found.experiments[0].note == "the cache holds a side's own capture for it: no new run was made"
    assert found.causes[0].against == (found.experiments[0].note,)
    assert not any("reproduced" in note for note in found.notes)


def test_without_floors_the_repeat_is_the_floor(bf16: Path, eager: Path, cache: Path) -> None:
    """One engine against itself needs no bf16 floor to settle a cause; the page says what it is measured against."""
    found = run(bf16, eager, cache)
    assert (found.outcome, found.exit_code, found.ratio) == (Outcome.SETTLED, 1, None)
    assert found.floor == "the engine's own repeats"
    assert any("--floor" in line for line in found.next)


def test_another_device_is_refused(bf16: Path, eager: Path, tmp_path: Path) -> None:
    """A capture made on a GPU is not bisected on a CPU: E241."""
    moved = tmp_path / "gpu"
    shutil.copytree(eager, moved)
    text = json.loads((moved / "manifest.json").read_text())
    text["environment"]["device_type"] = "cuda"
    (moved / "manifest.json").write_text(json.dumps(text))
    with pytest.raises(HsparityError, match="another device") as error:
        run(bf16, moved, tmp_path)
    assert error.value.code == "E241"


def test_the_page_and_the_json(
    bf16: Path, eager: Path, fp32: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints the verdict, the cause and the next command, and --json - prints the whole result alone."""
    words = ["bisect", str(bf16), str(eager), "--cache", str(cache)]
    floors = ["--floor", str(fp32), "--floor", str(bf16)]
    assert invoke([*words, *floors]) == 0
    page = capsys.readouterr().out
    assert "WITHIN NOISE" in page
    assert "1. HS504 attention-backend, settled: 100 % of the difference" in page
    assert "next      hsparity compare" in page
    assert invoke([*words, "--json", "-"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["outcome"]) == ("hsparity.bisect/1", "settled")
    assert invoke([*words, "--plan", "-v"]) == 0
    plan = " ".join(capsys.readouterr().out.split())
    assert "cached" in plan
    assert "experts grouped_mm: the model routes to no experts" in plan


def test_forced_tokens_follow_the_other_side(bf16: Path) -> None:
    """A variant of a greedy capture decodes what the other side decoded, so that every token stays paired; SGLang, which
    cannot be forced, and what was forced already stay as they are."""
    other = open_source(bf16)
    spec = Side("ref", str(bf16)).spec
    greedy = replace(spec, prompts=tuple(replace(p, forced=()) for p in spec.prompts))
    assert forced(greedy, other) == spec
    assert forced(spec, other) is spec
    served = replace(greedy, engine="sglang")
    assert forced(served, other) is served
