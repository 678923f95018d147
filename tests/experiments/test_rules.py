"""What has to be run before a graph or a precision is blamed, and what is said where it cannot be run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsparity.engines import Interpreter
from hsparity.experiments import alike as first
from hsparity.experiments.alike import Alike
from hsparity.experiments.attribution import Ledger
from hsparity.experiments.confidence import word
from hsparity.experiments.differences import differences
from hsparity.experiments.distances import Bench, Place
from hsparity.experiments.proofs import Made
from hsparity.experiments.result import Blame, Span, State
from hsparity.experiments.rules import clone_rule, following, graph_rule, ruled
from hsparity.experiments.takes import Cache, Side
from hsparity.experiments.trial import Lab, Trial
from hsparity.experiments.variants import Turn

PLACES = (Place(4, "boundary.004", "boundary.004"), Place(8, "boundary.008", "boundary.008"))


def served(folder: Path, role: str, **settings: Any) -> Side:
    """A capture as vLLM on a CPU would have made it, with `settings` in its manifest."""
    side = Side(role, str(folder))
    manifest = side.source.manifest
    side.source.manifest = replace(
        manifest, engine="vllm", engine_version="0.32.0", settings={**manifest.settings, **settings}
    )
    side.spec = replace(side.spec, engine="vllm", mechanism=str(settings.get("mechanism", "hooks")))
    side.__dict__["interpreter"] = Interpreter("vllm", Path("python"), "0.32.0", "managed", "cpu")
    return side


def lab(ref: Side, cand: Side, tmp_path: Path, places: tuple[Place, ...] = PLACES) -> Lab:
    bench = Bench(ref.source, cand.source, places)
    ledger = Ledger(bench.squared(ref.source, cand.source), bench.lengths)
    return Lab(ref, cand, bench, ledger, Cache(tmp_path), None, across=False)


def blame(name: str, knob: str) -> Blame:
    return Blame(name, "HS506", (knob,), "", Span(1.0, 1.0, 1.0), None, "settled")


def test_a_graph_is_not_blamed_without_the_padded_eager_run(bf16: Path, eager: Path, tmp_path: Path) -> None:
    """A replayed graph on a machine where the padded eager run cannot be made: inconclusive between padding and graph."""
    bench = lab(served(bf16, "ref", mode="eager"), served(eager, "cand", mode="graphs"), tmp_path)
    found = graph_rule(bench, blame("graph-or-compile", "graph"))
    assert (found.name, found.confidence) == ("graph-or-compile", "inconclusive")
    assert found.rival.startswith("batch-variance")
    assert found.against == ("the padded eager run was not made: needs a GPU",)


def test_compiled_passes_are_not_padded(bf16: Path, eager: Path, tmp_path: Path) -> None:
    """torch.compile without a graph pads nothing, so it can be blamed as it stands."""
    bench = lab(served(bf16, "ref", mode="eager"), served(eager, "cand", mode="compiled"), tmp_path)
    found = graph_rule(bench, blame("graph-or-compile", "graph"))
    assert found.confidence == "settled"
    assert "no graph is replayed" in found.evidence[-1]


def native(folder: Path, out: Path) -> Path:
    """A copy whose boundaries 4 and 8 are slots that an engine handed over."""
    import torch
    from safetensors.torch import load_file, save_file

    from hsprobe.schema import CaptureManifest

    shutil.copytree(folder, out)
    manifest = CaptureManifest.from_json((out / "manifest.json").read_text())
    shards = []
    for entry in manifest.shards:
        tensors: dict[str, torch.Tensor] = load_file(out / entry.path)
        for slot, boundary in enumerate(("boundary.004", "boundary.008")):
            tensors[f"slot.{slot:03d}"] = tensors[boundary].clone()
        kept = {k: v for k, v in tensors.items() if not k.startswith("boundary.")}
        save_file(kept, out / entry.path)
        sites = tuple(k for k in kept if k.startswith("slot.") or k == "final_norm")
        shards.append(replace(entry, sites=sites, bytes=(out / entry.path).stat().st_size, sha256=""))
    (out / "manifest.json").write_text(replace(manifest, shards=tuple(shards)).to_json())
    return out


SLOTS = (Place(4, "slot.000", "slot.000"), Place(8, "slot.001", "slot.001"))


def test_precision_on_the_native_path_needs_a_clone_only_run(bf16: Path, eager: Path, tmp_path: Path) -> None:
    """Where hooks are silent the clone-only run cannot be made, and precision is not blamed: aliasing is its rival."""
    ref = served(native(bf16, tmp_path / "ref"), "ref", mode="compiled", mechanism="native")
    cand = served(native(eager, tmp_path / "cand"), "cand", mode="compiled", mechanism="native")
    found = ruled(lab(ref, cand, tmp_path, SLOTS), Alike(), blame("dtype-rounding", "dtype"))
    assert found.confidence == "inconclusive"
    assert found.rival.startswith("aliased-capture")
    assert "layer hooks are silent" in found.against[0]


def done(bench: Lab, made: Made, role: str = "cand") -> Trial:
    """The clone-only run as if it had been captured before: what `made` holds."""
    from hsparity.experiments.rules import free

    knob, why = free(bench, role, "clone-only")
    assert knob is not None
    assert not why
    trial = Trial(((role, Turn(knob, knob.values[0], knob.values[0].name)),), "rule", State.MEASURED)
    trial.made = {role: made}
    trial.after_bn = bench.bench.squared(
        bench.ref.source, made.source, {"cand": {"slot.000": "boundary.004", "slot.001": "boundary.008"}}
    )
    trial.left = bench.ledger.remaining(trial.after_bn)
    bench.done[trial.key] = trial
    return trial


@pytest.mark.parametrize("aliased", [True, False])
def test_clone_only_tells_aliasing_from_precision(
    aliased: bool, bf16: Path, eager: Path, tmp_path: Path
) -> None:
    """Hooks that read the same settings and find the reference's states prove an aliased hand-over; hooks that find the
    hand-over's own states leave precision to blame."""
    ref = served(native(bf16, tmp_path / "ref"), "ref", mode="eager", mechanism="native")
    cand = served(native(eager, tmp_path / "cand"), "cand", mode="eager", mechanism="native")
    bench = lab(ref, cand, tmp_path, SLOTS)
    side = Side("cand", str(bf16 if aliased else eager))
    done(bench, side)
    found = clone_rule(bench, Alike(), blame("dtype-rounding", "dtype"))
    if aliased:
        assert (found.name, found.code, found.confidence) == ("aliased-capture", "HS211", "settled")
    else:
        assert found.name == "dtype-rounding"
        assert "no aliasing" in found.evidence[-1]


def test_the_plan_holds_the_runs_that_a_blame_would_ask_for(
    bf16: Path, eager_fp16: Path, tmp_path: Path
) -> None:
    """A dtype that differs on the native path announces its clone-only run."""
    ref = served(native(bf16, tmp_path / "ref"), "ref", mode="eager", mechanism="native")
    cand = served(native(eager_fp16, tmp_path / "cand"), "cand", mode="eager", mechanism="native")
    bench = lab(ref, cand, tmp_path, SLOTS)
    found = first.sort(bench, differences(ref, cand), frozenset())
    assert ("rule", "clone-only") in [(why, turn.knob.name) for why, (_, turn) in following(bench, found)]


def test_words_for_shares() -> None:
    """Settled from nine tenths on with the whole interval; a smaller share is settled where all is explained together."""
    from hsparity.experiments.attribution import Share

    whole = Share(1.0, 0.99, 1.0)
    assert word(Share(0.95, 0.91, 0.99), None) == "settled"
    assert word(Share(0.95, 0.89, 0.99), None) == "likely"
    assert word(Share(0.4, 0.3, 0.5), None) == "possible"
    assert word(Share(0.4, 0.3, 0.5), whole) == "settled"
    assert word(Share(0.1, -0.2, 0.4), whole) == "inconclusive"


def test_repeats_as_large_as_the_difference_leave_nothing_to_share(
    bf16: Path, eager: Path, eager_fp16: Path, tmp_path: Path
) -> None:
    """Where setting all alike still leaves more than half, that is the engine's own noise, and no floor for a share."""
    ref, cand = served(bf16, "ref"), served(eager, "cand")
    bench = lab(ref, cand, tmp_path)
    whole = Trial((), "alike", State.MEASURED)
    whole.left = bench.ledger.remaining(0.9 * bench.ledger.before_bn)
    found = Alike(repeats=True, trials={frozenset(): whole})
    assert first.noise(bench, found) is None
    whole.left = bench.ledger.remaining(0.1 * bench.ledger.before_bn)
    floor = first.noise(bench, found)
    assert floor is not None
    assert floor.bulk == pytest.approx(0.1)
    assert np.isfinite(floor.bulk_r).all()
