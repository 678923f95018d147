"""Faults made inside the real engines, each named first by the comparison. 6 engine starts, Transformers aside."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsprobe.schema import PromptSpec

from .conftest import Capture, Inside, manifest, random_prompts
from .faults.checkpoints import scaling_deepseek, tiny_gemma3

# One worker: what these tests share is made once, and nobody waits for it.
pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("faults")]


def _prompts() -> tuple[PromptSpec, ...]:
    """Four prompts longer than a chunk, one shorter, and two that begin as p0 and p1 do.

    First ids differ: a BOS alone would be a hit in SGLang's cache.
    """
    plain = random_prompts((72, 56, 44, 40, 30), 512)
    p0, p1, p2, p3, w0 = (
        replace(p, id=name, token_ids=(3 + i, *p.token_ids[1:]))
        for i, (name, p) in enumerate(zip(("p0", "p1", "p2", "p3", "w0"), plain, strict=True))
    )
    r0 = PromptSpec("r0", (*p0.token_ids[:64], *p1.token_ids[1:21]))
    r1 = PromptSpec("r1", (*p1.token_ids[:32], *p2.token_ids[1:25]))
    return (p0, p1, p2, p3, w0, r0, r1)


PROMPTS = _prompts()
ALL_SITES = ("boundary.*", "final_norm", "attn_out.*", "mlp_out.*", "hidden.*", "residual.*")


def compare(ref: Path, cand: Path, floor: tuple[Path, ...], *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `hsparity compare`."""
    command = [sys.executable, "-m", "hsparity", "compare", str(ref), str(cand), "--json", "-", *options]
    command += [word for folder in floor for word in ("--floor", str(folder))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def causes(found: dict[str, Any]) -> list[str]:
    """The names of the causes that were not ruled out, strongest first."""
    return [f["name"] for f in found["findings"] if not f["ruled_out"] and f["severity"] == "cause"]


def assert_named(
    name: str, ref: Path, cand: Path, floor: tuple[Path, ...], *options: str, engine: str = ""
) -> dict[str, Any]:
    """The pair diverges, `name` is its first cause, and it says what to change (in `engine`)."""
    code, found = compare(ref, cand, floor, *options)
    assert causes(found)[:1] == [name]
    assert (code, found["verdict"]) == (1, "diverged")
    first: dict[str, Any] = next(f for f in found["findings"] if f["name"] == name)
    assert first["fix"]
    assert not engine or any(engine in side.lower() for side in first["fix"])
    return first


@pytest.fixture(scope="session")
def floors(capture: Capture) -> Any:
    """floors(model) -> what Transformers makes of it in fp32 and in bf16."""

    def of(model: Path) -> tuple[Path, ...]:
        kinds = ("float32", "bfloat16")
        return tuple(
            capture("hf", model=model, prompts=PROMPTS, sites=ALL_SITES, dtype=kind) for kind in kinds
        )

    return of


@pytest.fixture(scope="session")
def hooks(inside: Inside, tiny_llama: Path) -> Path:
    return inside("vllm", "vllm_hooks", model=tiny_llama, prompts=PROMPTS)


@pytest.fixture(scope="session")
def ranks(inside: Inside, tiny_llama: Path) -> Path:
    return inside("vllm", "vllm_ranks", model=tiny_llama, prompts=PROMPTS)


@pytest.fixture(scope="session")
def states(inside: Inside, tiny_llama: Path) -> Path:
    return inside(
        "sglang",
        "sglang_states",
        model=tiny_llama,
        prompts=PROMPTS,
        layers=8,
        warm=["p0", "p1"],
        cached=["w0", "r0", "r1"],
    )


@pytest.fixture(scope="session")
def llama_floor(floors: Any, tiny_llama: Path) -> tuple[Path, ...]:
    folders: tuple[Path, ...] = floors(tiny_llama)
    return folders


@pytest.mark.parametrize("form", ["whole-in-place"])
def test_healthy_hooks_have_no_cause(form: str, hooks: Path, llama_floor: tuple[Path, ...]) -> None:
    """Hooks that add and copy at once agree, whether vLLM's norms write in place or not."""
    code, found = compare(hooks / "whole", hooks / form, llama_floor)
    assert (code, causes(found)) == (0, [])


def test_two_ranks_agree(hooks: Path, ranks: Path, llama_floor: tuple[Path, ...]) -> None:
    """The whole sums of two ranks are at parity with one rank's."""
    code, found = compare(hooks / "whole", ranks / "whole", llama_floor)
    assert (code, found["verdict"]) == (0, "parity")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("hidden-alone", "residual-missing"),
        ("residual-alone", "mid-layer"),
        # The stream entering a layer, kept without a copy while its attention is added in place.
        ("copied-late", "aliased-capture"),
        # One buffer carries the stream through the whole pass: every slot ends as the last boundary.
        ("residual-kept", "slot-duplicated"),
        # Bits cut off, by vLLM's kernel library for CPUs without bfloat16.
        ("kernel", "truncated-rounding"),
        ("cached", "prefix-cache-skip"),
        ("cached-from-zero", "prefix-cache-skip"),
    ],
)
def test_vllm_hooks(folder: str, name: str, hooks: Path, llama_floor: tuple[Path, ...]) -> None:
    assert_named(name, hooks / "whole", hooks / folder, llama_floor)


@pytest.mark.parametrize(("folder", "slots"), [("hidden-kept", 7), ("summed-late", 8)])
def test_overwritten_branches_are_not_misnamed(
    folder: str, slots: int, hooks: Path, llama_floor: tuple[Path, ...]
) -> None:
    """A branch kept without a copy becomes the next layer's normed input: no boundary, and none is claimed.

    After the last layer it becomes the model's final norm.
    """
    code, found = compare(hooks / "whole", hooks / folder, llama_floor)
    assert code == 1
    assert set(causes(found)) <= {
        "aliased-capture",
        "unknown-stream",
        "final-norm-applied",
        "beyond-floor",
        "few-tokens-beyond",
    }
    for finding in found["findings"]:
        if finding["name"] == "final-norm-applied" and not finding["ruled_out"]:
            assert len(finding["slots"]) == 8 - slots


@pytest.mark.parametrize(
    ("folder", "name"),
    [("rank-0", "partial-sum"), ("rank-1", "partial-sum"), ("reduced-twice", "double-reduce")],
)
def test_vllm_ranks(folder: str, name: str, hooks: Path, ranks: Path, llama_floor: tuple[Path, ...]) -> None:
    assert_named(name, hooks / "whole", ranks / folder, llama_floor)


def test_both_ranks_side_by_side(hooks: Path, ranks: Path, llama_floor: tuple[Path, ...]) -> None:
    """Slots of unknown meaning that hold each rank's partial sum: their sum fits."""
    code, found = compare(hooks / "whole", ranks / "both-ranks", llama_floor)
    assert causes(found)[:1] == ["partial-sum"]
    assert (code, found["verdict"]) == (1, "diverged")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("chunked", "last-chunk-only"),
        ("chunked-from-zero", "last-chunk-only"),
        ("radix", "prefix-cache-skip"),
        ("radix-from-zero", "prefix-cache-skip"),
        ("returned", "residual-missing"),
    ],
)
def test_sglang_states(
    folder: str, name: str, hooks: Path, states: Path, llama_floor: tuple[Path, ...]
) -> None:
    assert_named(name, hooks / "whole", states / folder, llama_floor)


def test_transformers_last_entry_is_normed(
    inside: Inside, tiny_llama: Path, hooks: Path, llama_floor: tuple[Path, ...]
) -> None:
    """The last entry of output_hidden_states, and no other, is behind the final norm."""
    folder = inside("hf", "hf_tuple", model=tiny_llama, prompts=PROMPTS)
    first = assert_named("final-norm-applied", hooks / "whole", folder / "tuple", llama_floor)
    assert len(first["slots"]) == 1


def test_one_id_list_in_two_families(
    capture: Capture,
    tiny_deepseek: Path,
    hooks: Path,
    states: Path,
    llama_floor: tuple[Path, ...],
    floors: Any,
) -> None:
    """Ids 2, 4, 6 are boundaries 2, 4, 6 in SGLang's DeepSeek and 3, 5, 7 in its Llama."""
    where = ("--boundaries", "2,4,6")
    first = assert_named(
        "layer-offset", hooks / "whole", states / "native", llama_floor, *where, engine="sglang"
    )
    assert "native-ids" in {
        f["name"] for f in compare(hooks / "whole", states / "native", llama_floor, *where)[1]["findings"]
    }
    assert len(first["slots"]) == 3
    deepseek = capture(
        "sglang", model=tiny_deepseek, prompts=PROMPTS, sites=(), mechanism="native", native_ids=(2, 4, 6)
    )
    reference, bf16 = floors(tiny_deepseek)
    code, found = compare(reference, deepseek, (reference, bf16), *where)
    assert (code, causes(found)) == (0, [])


def test_float16_deepseek_is_scaled(
    capture: Capture, tiny_deepseek: Path, floors: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """vLLM divides DeepSeek's stream by routed_scaling_factor in float16, from the first layer's output on."""
    model = scaling_deepseek(tiny_deepseek, tmp_path_factory.mktemp("models") / "deepseek", 2.5)
    folder = capture("vllm", model=model, prompts=PROMPTS, dtype="float16")
    assert any("scales this model's stream by 0.4" in w for w in manifest(folder).warnings)
    reference, bf16 = floors(model)
    first = assert_named("gain", bf16, folder, (reference, bf16), engine="vllm")
    assert {slot.split(":")[-1] for slot in first["slots"]} == {f"boundary.{r:03d}" for r in range(1, 9)}


def test_gemma3_hands_over_its_branch(
    capture: Capture, floors: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SGLang's Gemma3 stores what its layers add, not the stream they add it to."""
    model = tiny_gemma3(tmp_path_factory.mktemp("models") / "gemma3")
    folder = capture(
        "sglang", model=model, prompts=PROMPTS, sites=(), mechanism="native", native_ids=(2, 4, 6)
    )
    reference, bf16 = floors(model)
    assert_named("residual-missing", reference, folder, (reference, bf16), "--boundaries", "3,5,7")
