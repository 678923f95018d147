"""docs/ is what causes, errors and exit codes say, and every finding is named there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from hsparity.errors import ExitCode
from hsparity.explain import texts
from hsparity.explain.pages import FOLDER, first_sentence, pages, write
from hsparity.registry import causes, findings

DOCS = Path(__file__).parents[2] / FOLDER
COMMITTED = DOCS / "findings"


def test_the_committed_pages_are_the_generated_ones() -> None:
    """`make docs` was run after the last change of a text."""
    made = pages()
    stale = [n for n, text in made.items() if not (DOCS / n).is_file() or (DOCS / n).read_text() != text]
    gone = [p.name for p in COMMITTED.glob("HS*.md") if f"findings/{p.name}" not in made]
    assert not stale + gone, f"{stale + gone}: run make docs (python -m hsparity.explain.pages)"


def test_every_finding_has_a_page_in_four_parts_and_a_line_in_the_index() -> None:
    """A finding that is mistaken for another has a fifth part."""
    made = pages()
    parts = ["What it is", "Why it happens", "How it shows", "Fix"]
    for code, cause in causes().items():
        page = made[f"findings/{code}-{cause.name}.md"]
        assert re.findall(r"(?m)^## (.+)$", page) in (parts, [*parts, "Look-alikes"]), code
        assert f"| [{code}]({code}-{cause.name}.md) | {cause.name} | " in made["findings/README.md"]


def test_look_alikes_name_each_other() -> None:
    """A row of the table is on the pages of both, each with a link to the other."""
    made = pages()
    mid, aliased = made["findings/HS206-mid-layer.md"], made["findings/HS211-aliased-capture.md"]
    assert "- `aliased-capture` [HS211](HS211-aliased-capture.md): The same tensor" in mid
    assert "- `mid-layer` [HS206](HS206-mid-layer.md): The same tensor" in aliased
    assert "Look-alikes" not in made["findings/HS901-within-noise.md"]


def test_every_error_and_exit_code_is_on_a_page() -> None:
    """Errors stand under what they exit with; an exit code is one row."""
    made = pages()
    told = re.findall(r"(?m)^### (\S+) ", made["errors.md"])
    assert sorted(told) == sorted(c for c in texts() if c.startswith("E"))
    assert re.findall(r"(?m)^\| (\d+) \|", made["exit-codes.md"]) == [str(int(c)) for c in ExitCode]
    assert "finding [HS401](findings/HS401-tokens-differ.md)" in made["errors.md"]


def test_every_finding_is_in_the_list_of_names() -> None:
    """A code and a name that others match on are written down, with a remark where they were added."""
    rows = dict(re.findall(r"(?m)^\| (HS\d+) \| ([a-z0-9-]+) \|", (COMMITTED / "names.md").read_text()))
    assert {code: cause.name for code, cause in causes().items()}.items() <= rows.items()
    assert len(set(rows.values())) == len(rows)


def test_look_alikes_are_findings() -> None:
    """Every name in the first column is in the list of names, and leads to its page where it has one."""
    names = set(re.findall(r"(?m)^\| HS\d+ \| ([a-z0-9-]+) \|", (COMMITTED / "names.md").read_text()))
    page = (COMMITTED / "look-alikes.md").read_text()
    said = re.findall(r"(?m)^\| \[?`([a-z0-9-]+)`", page)
    assert len(said) > 20
    assert set(said) <= names
    for code, found in findings().items():
        assert page.count(f"`{found.name}`") == page.count(f"[`{found.name}`]({code}-{found.name}.md)")


def test_links_lead_somewhere() -> None:
    """To a file, and to a heading in it where one is named."""
    for path in [*COMMITTED.glob("*.md"), DOCS / "errors.md", DOCS / "exit-codes.md"]:
        for target, part in re.findall(r"\]\(([^)#:]*)(#[^)]+)?\)", path.read_text()):
            there = path.parent / target if target else path
            assert there.is_file(), f"{path.name} links to {target}"
            headings = re.findall(r"(?m)^#+ (.+)$", there.read_text())
            assert not part or part[1:] in [h.lower().replace(" ", "-") for h in headings], (
                f"{path.name}: {part}"
            )


def test_the_command_mends_a_folder_and_leaves_the_rest(tmp_path: Path) -> None:
    """A changed page is written again, one of a finding that is gone goes, what was written by hand stays."""
    write(tmp_path)
    findings = tmp_path / "findings"
    (findings / "HS101-layer-offset.md").write_text("old")
    (findings / "HS999-no-such-finding.md").write_text("old")
    (findings / "names.md").write_text("by hand")
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
    left = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.md")}
    assert left == {*pages(), "findings/names.md"}
    assert write(tmp_path) == []


def test_a_first_sentence_ends_where_it_ends() -> None:
    assert first_sentence("## What it is\nA note: the ids\nland on 2.5 layers. More.\n## Why") == (
        "The ids land on 2.5 layers."
    )
    assert first_sentence("## What it is\na | b. `c` d") == "A \\| b."
