"""What head and target choose on each row, against a chain of its own from every start and dense distributions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.align.tokens import PromptRows, align_rows
from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.drafter import agreeing, chain
from hsparity.drafter.acceptance import UNKNOWN, Agreement
from hsparity.drafter.agreeing import Bench, agree
from hsparity.drafter.draft import open_draft
from hsparity.drafter.feedings import Feeding, Part
from hsparity.drafter.head import Head, load_head
from hsparity.drafter.target import Target, find_target
from hsparity.query import Query
from hsparity.solve.forms import site
from tests.causes.streams import edited, keep

from .costed import TOY, VOCABULARY, captured, write_target
from .heads import make_head
from .oracle import Oracle

pytest.importorskip("transformers")

STEPS, TOKENS, PREFILL = 3, 11, 5
KEYS = ("boundary.002", "boundary.004", "boundary.005")


@dataclass(frozen=True)
class Scene:
    folder: Path
    target: Path
    head: Head
    ref: Source
    cand: Source
    rows: PromptRows
    ids: np.ndarray

    def feedings(self) -> list[Feeding]:
        sides = [tuple(Part(s, i, site(k)) for k in KEYS) for i, s in enumerate((self.ref, self.cand))]
        mixed = (sides[1][0], *sides[0][1:])
        return [
            Feeding("ref", "", sides[0]),
            Feeding("cand", "", sides[1]),
            Feeding("undone:HS101", "", mixed),
            Feeding("only:0", "", mixed),
        ]

    def bench(self, generated: bool, targets: tuple[Target, Target] | None = None) -> Bench:
        held = targets or (
            find_target([("the reference", self.ref)], self.target),
            find_target([("the candidate", self.cand)], self.target),
        )
        return Bench(
            self.head,
            lambda f, t, k: chain.run(self.head, f, t, k),
            STEPS,
            held,
            self.feedings()[0].parts,
            generated,
        )

    def agree(self, generated: bool, targets: tuple[Target, Target] | None = None) -> dict[str, Agreement]:
        found = agree(self.bench(generated, targets), self.rows, self.ids, PREFILL, self.feedings())
        return {f.key: a for f, a in zip(self.feedings(), found, strict=True)}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("agreeing")
    target = write_target(folder / "target")
    tensors = load_file(target / "model.safetensors")
    # One that would not write the texts: what it says and what was written are two things.
    tensors["lm_head.weight"] = (
        torch.randn(VOCABULARY, TOY.width, generator=torch.Generator().manual_seed(3)) / 4
    )
    save_file(tensors, target / "model.safetensors")
    made = make_head(
        folder / "head",
        hidden=64,
        target_hidden=TOY.width,
        vocab=VOCABULARY,
        draft_vocab=30,
        dtype=torch.float32,
    )
    sides = []
    for i, engine in enumerate(("vllm", "sglang")):
        capture = captured(i + 1, engine, 1, TOKENS, prefill={"p0": PREFILL})
        if i:  # farther than rounding, so that the sides' targets choose otherwise
            capture = edited(capture, lambda _, s: {k: np.roll(x, 7, axis=1) for k, x in s.items()})
        sides.append(open_source(capture.write(folder / engine)))
    rows = align_rows(*sides, [], Query()).prompts[0]
    head = load_head(open_draft(str(made)), target)
    return Scene(made, target, head, sides[0], sides[1], rows, sides[0].token_ids("p0"))


def naive(
    scene: Scene, side: int, keys_of: tuple[Source, ...], generated: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(match, overlap) [k, S], start by start with the slow chain, over the whole vocabulary."""
    oracle = Oracle(scene.folder, scene.target)
    weights = load_file(scene.target / "model.safetensors")
    held = load_file(scene.folder / "model.safetensors")
    draftable = held["d2t"] + torch.arange(len(held["d2t"]))
    every = np.arange(TOKENS)
    fed = torch.cat([s.rows("p0", k, every).float() for s, k in zip(keys_of, KEYS, strict=True)], dim=1)
    last = (scene.ref, scene.cand)[side].rows("p0", "final_norm", every).float()
    chance = torch.softmax(last @ weights["lm_head.weight"].float().T, -1)
    ids = torch.from_numpy(scene.ids.astype(np.int64))
    match = np.full((STEPS, TOKENS - 1), UNKNOWN)
    overlap = np.full((STEPS, TOKENS - 1), np.nan)
    for start in range(TOKENS - 1):
        reach = min(STEPS, TOKENS - 1 - start)
        with torch.no_grad():
            states = oracle.run(fed, ids, start, reach)
        for j in range(1, reach + 1):
            row = start + j
            if generated and row < PREFILL:
                continue
            drawn = torch.zeros(VOCABULARY)
            drawn[draftable] = torch.softmax(states[j - 1] @ held["lm_head.weight"].float().T, -1)
            written = row >= PREFILL - 1 and row + 1 < TOKENS
            choice = int(ids[row + 1]) if written else int(chance[row].argmax())
            match[j - 1, start] = int(drawn.argmax()) == choice
            overlap[j - 1, start] = 1 - 0.5 * float((drawn - chance[row]).abs().sum())
    return match, overlap


@pytest.mark.parametrize("generated", [True, False])
def test_against_dense_distributions(scene: Scene, generated: bool) -> None:
    """Every known entry is that of the slow chain: matches exactly, overlaps as 1 - total variation; each side's own target."""
    found = scene.agree(generated)
    for key, side, sources in (
        ("ref", 0, (scene.ref,) * 3),
        ("cand", 1, (scene.cand,) * 3),
        ("undone:HS101", 1, (scene.cand, scene.ref, scene.ref)),
    ):
        match, overlap = naive(scene, side, sources, generated)
        assert np.array_equal(found[key].match_ks, match), key
        np.testing.assert_allclose(found[key].overlap_ks, overlap, atol=2e-5)
    assert np.nanmax(np.abs(found["ref"].overlap_ks - found["cand"].overlap_ks)) > 0.01


def test_trials_are_not_weighed(scene: Scene) -> None:
    """A single slot's trial is judged by the reference's target, and its distributions are not compared."""
    found = scene.agree(False)
    match, _ = naive(scene, 0, (scene.cand, scene.ref, scene.ref), False)
    assert np.array_equal(found["only:0"].match_ks, match)
    assert np.isnan(found["only:0"].overlap_ks).all()


class Parrot:
    """Drafts what it is told: the first channel of its state is the token."""

    hidden_size, vocab = 64, VOCABULARY

    def __init__(self, told: np.ndarray, target_ids: torch.Tensor, broken: bool = False) -> None:
        """`told`: by row, the token it drafts for what follows that row."""
        self.told, self.target_ids, self.broken = told, target_ids, broken

    def logits(self, states_nh: torch.Tensor) -> torch.Tensor:
        found = torch.nn.functional.one_hot(states_nh[:, 0].long(), VOCABULARY).float()
        return found * torch.nan if self.broken else found

    def chain(self, fed_tk: torch.Tensor, token_ids: torch.Tensor, steps: int) -> torch.Tensor:
        states = torch.zeros(steps, len(token_ids) - 1, self.hidden_size)
        for j in range(1, steps + 1):
            for i in range(len(token_ids) - j):
                states[j - 1, i, 0] = int(self.told[i + j])
        return states


def parroted(scene: Scene, parrot: Parrot) -> Agreement:
    base = scene.bench(False)
    bench = Bench(parrot, parrot.chain, STEPS, base.targets, base.originals, False)  # type: ignore[arg-type]
    return agree(bench, scene.rows, scene.ids, PREFILL, scene.feedings()[:1])[0]


@pytest.mark.parametrize("drafts", ["the text", "the target's choice"])
def test_the_written_token_counts_in_the_generated_part(drafts: str, scene: Scene) -> None:
    """On rows of the prompt the target's own choice is what counts, on the others the token that was written, where one was."""
    last = scene.ref.rows("p0", "final_norm", np.arange(TOKENS)).float()
    chosen = scene.bench(False).targets[0].logits(last).argmax(-1).numpy()
    written = np.append(scene.ids[1:], -1)
    assert (chosen != written).sum() > TOKENS - 3
    told = np.maximum(written, 0) if drafts == "the text" else chosen
    found = parroted(scene, Parrot(told, torch.arange(VOCABULARY)))
    for j in range(1, STEPS + 1):
        for i in range(TOKENS - j):
            row = i + j
            by_text = PREFILL - 1 <= row < TOKENS - 1
            assert found.match_ks[j - 1, i] == (told[row] == (written if by_text else chosen)[row])
    assert set(found.match_ks[0].tolist()) == {0, 1}


def test_what_is_not_finite_is_no_draft(scene: Scene) -> None:
    """A head of NaN accepts nothing, though its argmax names a token that the text has, and every start is told."""
    every = torch.full((VOCABULARY,), int(scene.ids[PREFILL + 1]))
    right, broken = (parroted(scene, Parrot(scene.ids * 0, every, b)) for b in (False, True))
    assert (right.match_ks == 1).any()
    assert right.nonfinite == 0
    assert not (broken.match_ks == 1).any()
    assert broken.nonfinite == TOKENS - 1


def test_rows_near_the_end(scene: Scene) -> None:
    """A position whose row the capture does not hold is unknown, and has no overlap."""
    found = scene.agree(False)["ref"]
    for j in range(1, STEPS + 1):
        known = np.arange(TOKENS - 1) + j <= TOKENS - 1
        assert ((found.match_ks[j - 1] != UNKNOWN) == known).all()
        assert (np.isfinite(found.overlap_ks[j - 1]) == known).all()


def test_only_generated_rows_are_asked(scene: Scene) -> None:
    """Where the text counts, the first row asked is the one behind the prompt's last: the walk's first step is whole."""
    found = scene.agree(True)["ref"]
    assert (found.match_ks[:, PREFILL - 1] != UNKNOWN).all()
    assert (found.match_ks[0, : PREFILL - 1] == UNKNOWN).all()


@pytest.mark.parametrize("generated", [True, False])
def test_chunks_change_nothing(scene: Scene, generated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of three rows at a time and draft states of one feeding at a time give what all at once give."""
    whole = scene.agree(generated)
    monkeypatch.setattr(agreeing, "CHUNK_BYTES", 4 * VOCABULARY * 3)
    monkeypatch.setattr(agreeing, "HIDDEN_BYTES", 1)
    for key, each in scene.agree(generated).items():
        assert np.array_equal(each.match_ks, whole[key].match_ks)
        np.testing.assert_allclose(each.overlap_ks, whole[key].overlap_ks, atol=1e-6)


def test_without_a_last_state(scene: Scene, tmp_path: Path) -> None:
    """A side without its last state is judged by the other's; where neither has one the text alone says what is taken."""
    made = edited(captured(1, count=1, length=TOKENS), lambda _, s: keep(s, KEYS))
    bare = open_source(made.write(tmp_path / "bare"))
    lent = find_target([("the candidate", bare), ("the reference", scene.ref)], scene.target)
    assert lent.source is scene.ref
    assert "the reference's final_norm" in lent.why
    text = find_target([("the candidate", bare)], scene.target)
    assert text.source is None
    assert "the candidate holds no last state" in text.why
    found = scene.agree(False, (text, text))["ref"]
    whole = scene.agree(False)["ref"]
    told = np.arange(TOKENS - 1)[None] + np.arange(1, STEPS + 1)[:, None]
    by_text = (told >= PREFILL - 1) & (told < TOKENS - 1)
    assert ((found.match_ks != UNKNOWN) == by_text).all()
    assert (found.match_ks[by_text] == whole.match_ks[by_text]).all()
    assert np.isnan(found.overlap_ks).all()


def test_the_last_boundary_goes_through_the_norm(scene: Scene, tmp_path: Path) -> None:
    """A side that holds the last boundary but not its norm chooses by the norm of that boundary."""
    made = edited(
        captured(1, count=1, length=TOKENS), lambda _, s: keep(s, [k for k in s if k != "final_norm"])
    )
    source = open_source(made.write(tmp_path / "side"))
    target = find_target([("the reference", source)], scene.target)
    assert target.site == f"boundary.{TOY.layers:03d}"
    rows = np.arange(TOKENS)
    found, direct = target.states("p0", rows), scene.ref.rows("p0", "final_norm", rows).float()
    assert found is not None
    assert float((found - direct).norm() / direct.norm()) < 2e-2
    assert target.logits(found).shape == (TOKENS, VOCABULARY)
