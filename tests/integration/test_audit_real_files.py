"""Files that real producers wrote, audited against Transformers run here: every slot is found where its producer put it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hsparity import registry
from hsparity.capture import foreign, importing, launch
from hsparity.cli.main import invoke
from hsparity.engines import resolve
from hsparity.models import path as bundled
from hsprobe.schema import CaptureSpec, PromptSpec

REAL = Path(__file__).parents[1] / "readers" / "real"
ROOT = Path(__file__).parents[2]
# Folder, what the draft is to be fed (tests/readers/real/README.md), what the user has to say.
FILES = (
    ("speculators-v1", "3,5,6", ()),
    ("speculators-v1-unsorted", "3,5,6", ()),
    ("speculators-v2", "2,4,5", ()),
    ("hs-connectors-fp8", "2,4,5", ()),
    ("vllm-connector", "2,4,5", ("--slots", "2,4,5,last")),
    ("specforge/plain", "2,4,5", ()),
    ("specforge/compressed", "2,4,5", ()),
)


@pytest.fixture(scope="session")
def floor(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """tiny:llama by Transformers in fp32 and bf16 on the prompts that all these files hold."""
    home = tmp_path_factory.mktemp("transformers")
    opened = foreign.open_dataset(REAL / "speculators-v1", "v1")
    ids = {r.id: opened.read(r).token_ids for r in opened.records()}
    prompts = tuple(PromptSpec(name, tuple(map(int, held))) for name, held in ids.items() if held is not None)
    made = []
    for dtype in ("float32", "bfloat16"):
        spec = CaptureSpec(
            "hf", str(bundled("tiny:llama")), prompts, ("boundary.*", "final_norm"), dtype=dtype
        )
        made.append(launch.run_capture(spec, home / dtype, resolve("hf")))
    return made


def audited(
    folder: str, boundaries: str, more: tuple[str, ...], floor: list[Path], tmp_path: Path
) -> tuple[int, dict]:  # type: ignore[type-arg]
    out = tmp_path / "audit.json"
    words = [
        "audit",
        str(REAL / folder),
        "--against",
        str(floor[1]),
        "--floor",
        str(floor[0]),
        "--boundaries",
        boundaries,
    ]
    code = invoke([*words, *more, "--work", str(tmp_path / "work"), "--json", str(out)])
    return code, json.loads(out.read_text())


@pytest.mark.parametrize(("folder", "boundaries", "more"), FILES)
def test_every_slot_is_found(
    folder: str, boundaries: str, more: tuple[str, ...], floor: list[Path], tmp_path: Path
) -> None:
    code, found = audited(folder, boundaries, more, floor, tmp_path)
    (group,) = found["groups"]
    read = [r["boundary"] for r in group["readings"] if r["role"] == "aux"]
    assert read == [int(b) for b in boundaries.split(",")]
    last = group["readings"][-1]
    assert last["holds"] == ("boundary 8, normed" if folder.startswith("specforge") else "boundary 8")
    causes = [
        f["code"] for f in group["comparison"]["findings"] if f["severity"] == "cause" and not f["ruled_out"]
    ]
    if folder == "hs-connectors-fp8":
        assert (code, causes) == (1, ["HS305"])
    else:
        assert (code, found["verdict"], causes) == (0, "parity", [])


def test_another_layer_is_told(floor: list[Path], tmp_path: Path) -> None:
    code, found = audited("speculators-v2", "3,5,6", (), floor, tmp_path)
    assert code == 1
    assert found["headline"].startswith(
        "One layer later: the draft is to get boundaries 3, 5, 6, the dataset holds 2, 4, 5"
    )


@pytest.mark.parametrize("folder", [name for name, _, _ in FILES])
def test_import_and_back(folder: str, tmp_path: Path) -> None:
    """Every sample becomes a prompt, under the ids and with the rows that its file holds."""
    opened = foreign.open_dataset(REAL / folder, folder)
    made = importing.import_dataset(opened, tmp_path / "capture")
    assert not made.skipped
    assert [p.id for p in made.manifest.prompts] == [r.id for r in opened.records()]
    again = foreign.open_dataset(tmp_path / "capture", "capture")
    for record, copy in zip(opened.records(), again.records(), strict=True):
        one, other = opened.read(record), again.read(copy)
        assert one.token_ids is not None
        assert other.token_ids is not None
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert all(a.equal(b) for a, b in zip(one.states, other.states, strict=True))


def test_every_format_is_documented() -> None:
    """docs/formats.md has a row in its table and a section for each reader, and for nothing else."""
    text = (ROOT / "docs" / "formats.md").read_text()
    rows = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    assert set(registry.readers()) <= rows
    sections = set(re.findall(r"^### `([\w-]+)`$", text, re.MULTILINE))
    assert sections == set(registry.readers()) - {"plain"}


@pytest.mark.parametrize(
    ("slots", "verdict", "causes"),
    [
        ("b3,b5,b6,last-raw", "parity", []),
        ("2,4,5,last", "parity", []),
        ("b3,b5,b7,last-raw", "diverged", ["HS101"]),
        ("?,?,?,last-normed", "diverged", ["HS202"]),
    ],
)
def test_named_slots(slots: str, verdict: str, causes: list[str], floor: list[Path], tmp_path: Path) -> None:
    """A claim is judged, an id is not one, and a slot that nobody named is found and compared like the others."""
    out = tmp_path / "result.json"
    words = [
        "compare",
        str(floor[1]),
        str(REAL / "speculators-v1"),
        "--floor",
        str(floor[0]),
        "--slots",
        slots,
    ]
    code = invoke([*words, "--json", str(out)])
    found = json.loads(out.read_text())
    named = [f["code"] for f in found["findings"] if f["severity"] == "cause" and not f["ruled_out"]]
    assert (found["verdict"], named) == (verdict, causes)
    assert code == int(verdict == "diverged")
    assert len([d for d in found["deltas"] if d["requested"]]) == 4


def test_modules_that_are_no_boundary_are_not_accused(tmp_path: Path) -> None:
    """A dump of modules' outputs against Transformers: the places of the stream in it agree, the rest is left alone."""
    opened = foreign.open_dataset(REAL / "sglang-tensor-dump", "dump")
    ids = {r.id: opened.read(r).token_ids for r in opened.records()}
    prompts = tuple(PromptSpec(name, tuple(map(int, held))) for name, held in ids.items() if held is not None)
    spec = CaptureSpec("hf", str(bundled("tiny:llama")), prompts, ("boundary.*", "final_norm"))
    ref = launch.run_capture(spec, tmp_path / "hf", resolve("hf"))
    out = tmp_path / "result.json"
    invoke(["compare", str(ref), str(REAL / "sglang-tensor-dump"), "--tol", "0.05", "--json", str(out)])
    found = json.loads(out.read_text())
    assert found["verdict"] == "parity"
    compared = {d["ref"] for d in found["deltas"]}
    assert {"boundary.000", "boundary.007", "boundary.008", "final_norm"} <= compared
