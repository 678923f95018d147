"""docs/findings is what the causes say, and every finding is named there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from hsparity.explain.pages import FOLDER, first_sentence, pages, write
from hsparity.registry import causes

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / FOLDER


def test_the_committed_pages_are_the_generated_ones() -> None:
    """`make docs` was run after the last change of a cause's text."""
    made = pages()
    stale = [
        n for n, text in made.items() if not (COMMITTED / n).is_file() or (COMMITTED / n).read_text() != text
    ]
    gone = [p.name for p in COMMITTED.glob("HS*.md") if p.name not in made]
    assert not stale + gone, f"{stale + gone}: run make docs (python -m hsparity.explain.pages)"


def test_every_finding_has_a_page_in_four_parts_and_a_line_in_the_index() -> None:
    made = pages()
    for code, cause in causes().items():
        page = made[f"{code}-{cause.name}.md"]
        assert re.findall(r"(?m)^## (.+)$", page) == [
            "What it is",
            "Why it happens",
            "How it shows",
            "Fix",
        ], code
        assert f"| [{code}]({code}-{cause.name}.md) | {cause.name} | " in made["README.md"]


def test_every_finding_is_in_the_list_of_names() -> None:
    """A code and a name that others match on are written down, with a remark where they were added."""
    rows = dict(re.findall(r"(?m)^\| (HS\d+) \| ([a-z0-9-]+) \|", (COMMITTED / "names.md").read_text()))
    assert {code: cause.name for code, cause in causes().items()}.items() <= rows.items()
    assert len(set(rows.values())) == len(rows)


def test_look_alikes_are_findings() -> None:
    """Every name in the first column is in the list of names."""
    names = set(re.findall(r"(?m)^\| HS\d+ \| ([a-z0-9-]+) \|", (COMMITTED / "names.md").read_text()))
    said = re.findall(r"(?m)^\| `([a-z0-9-]+)`", (COMMITTED / "look-alikes.md").read_text())
    assert len(said) > 20
    assert set(said) <= names


def test_links_lead_somewhere() -> None:
    for path in COMMITTED.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (COMMITTED / target).is_file(), f"{path.name} links to {target}"


def test_the_command_mends_a_folder_and_leaves_the_rest(tmp_path: Path) -> None:
    """A changed page is written again, one of a finding that is gone goes, what was written by hand stays."""
    write(tmp_path)
    (tmp_path / "HS101-layer-offset.md").write_text("old")
    (tmp_path / "HS999-no-such-finding.md").write_text("old")
    (tmp_path / "names.md").write_text("by hand")
    done = subprocess.run(
        [sys.executable, "-m", "hsparity.explain.pages", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(Path(line).name for line in done.stdout.splitlines()) == [
        "HS101-layer-offset.md",
        "HS999-no-such-finding.md",
    ]
    assert {p.name for p in tmp_path.iterdir()} == {*pages(), "names.md"}
    assert write(tmp_path) == []


def test_a_first_sentence_ends_where_it_ends() -> None:
    assert first_sentence("## What it is\nA note: the ids\nland on 2.5 layers. More.\n## Why") == (
        "The ids land on 2.5 layers."
    )
    assert first_sentence("## What it is\na | b. `c` d") == "A \\| b."
