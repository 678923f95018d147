"""The page of a diff and the page of many results in a real browser: they fit, ask for nothing, and can be used by all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.cli.saved import read
from hsparity.diffing.diff import diff
from hsparity.diffing.page import render as diff_page
from hsparity.overview.gathering import gather
from hsparity.overview.page import render as overview_page
from tests.browser import Browser, find_chromium
from tests.golden.cases import CASES
from tests.integration.test_html_chromium import PROBE
from tests.unit.test_diff import diverged, healthy
from tests.unit.test_overview import result, write

pytestmark = pytest.mark.slow
WIDTHS = (420, 760, 1180)


def many(folder: Path) -> str:
    """Three models, four releases, two settings, and names that no line can hold."""
    for model in ("kimi-k2", "deepseek-v3", "a-model-whose-name-is-long-" * 6):
        for i, version in enumerate(("0.30.0", "0.31.0", "0.32.0", "0.33.0")):
            case = ("parity", "offset", "final-norm", "inconclusive")[(i + len(model)) % 4]
            tried = {"kv_cache_dtype": "fp8" if i % 2 else "auto", "graph": "x" * 200 if i == 3 else ""}
            write(folder / version, **{model[:20]: result(case, version, f"m/{model}", **tried)})
    write(folder, hostile=CASES["hostile"]())
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    return overview_page(gather(folder, read), str(folder / "page.html"))


@pytest.mark.parametrize("name", ["diff", "overview"])
def test_the_page_fits_and_axe_objects_to_nothing(name: str, tmp_path: Path) -> None:
    """No sideways scrolling at any width, nothing for the policy to refuse, no rule of axe broken in either theme."""
    page = many(tmp_path) if name == "overview" else diff_page(diff(healthy(), diverged()))
    path, browser = tmp_path / "page.html", Browser(find_chromium(), tmp_path)
    path.write_text(page.replace("</body>", PROBE), encoding="utf-8")
    probes, said = browser.frames(path, "data-probe", [("", width) for width in WIDTHS])
    assert [(p["width"], p["over"] <= 0, p["out"]) for p in probes] == [(width, True, []) for width in WIDTHS]
    assert not [line for line in said.splitlines() if "CONSOLE" in line]
    audits = browser.audit(page, tmp_path, [("light", 420), ("dark", 1180)])
    assert [line for audit in audits for line in audit.lines()] == []
    assert all(audit.contrasts > 20 for audit in audits)
