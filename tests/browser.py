"""A real browser for tests of pages: Chromium without a window, asked through the document that it prints."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
)
AXE = "axe-playwright-python"
# A frame's name is the theme it is shown in. All rules of axe run, as they come.
_RUN_AXE = """
addEventListener('load',function(){var d=document.documentElement;if(window.name)d.dataset.theme=window.name;
axe.run(document).then(function(r){
 function brief(v){return{rule:v.id,impact:v.impact,help:v.help,nodes:v.nodes.map(function(n){
  return{at:n.target.join(' '),html:n.html.slice(0,200),why:n.failureSummary||''}})}}
 d.setAttribute('data-axe',JSON.stringify({violations:r.violations.map(brief),
  passed:r.passes.map(function(p){return p.id}),
  contrasts:r.passes.concat(r.violations).filter(function(p){return p.id==='color-contrast'})
   .reduce(function(n,p){return n+p.nodes.length},0)}))
}).catch(function(e){d.setAttribute('data-axe',JSON.stringify({failed:String(e)}))})})
"""

_GATHER = """
addEventListener('load',function(){var all=Array.from(document.querySelectorAll('iframe'));
(function look(){
 var found=all.map(function(f){return f.contentDocument.documentElement.getAttribute('%s')});
 if(found.indexOf(null)<0)document.body.setAttribute('data-found','['+found.join(',')+']');else setTimeout(look,50)
})()})
"""


@dataclass(frozen=True, slots=True)
class Audit:
    """What axe says of a page in one frame: what is wrong, the rules that passed, how many texts had their contrast measured."""

    theme: str
    width: int
    violations: list[dict[str, Any]]
    passed: frozenset[str]
    contrasts: int

    def lines(self) -> list[str]:
        """One line for each element that a rule objects to."""
        return [
            f"{self.theme} {self.width}px {v['rule']} ({v['impact']}): {n['at']}: {' '.join(n['why'].split())}"
            for v in self.violations
            for n in v["nodes"]
        ]


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser and the folder that it may write to."""

    program: str
    folder: Path

    def __call__(self, page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        """Open a page once."""
        profile = f"--user-data-dir={self.folder / 'profile'}"
        return subprocess.run(
            [self.program, *FLAGS, profile, *flags, page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            cwd=self.folder,
        )

    def frames(self, page: Path, attribute: str, frames: Sequence[tuple[str, int]]) -> tuple[list[Any], str]:
        """The JSON that the page's own script leaves in `attribute` of its root, for each frame (name, width), and stderr.

        Frames, because Chromium's own window has a least width.
        """
        shown = "".join(
            f'<iframe name="{name}" src="{page.name}" style="border:0;width:{width}px;height:900px"></iframe>'
            for name, width in frames
        )
        shell = page.with_name(f"shell-{page.name}")
        shell.write_text(
            f'<!doctype html><body style="margin:0">{shown}<script>{_GATHER % attribute}</script>',
            encoding="utf-8",
        )
        done = self(shell, "--dump-dom", "--allow-file-access-from-files", "--window-size=1400,1000")
        return json.loads(attribute_of(done, "data-found")), done.stderr

    def audit(self, page: str, folder: Path, frames: Sequence[tuple[str, int]]) -> list[Audit]:
        """Let axe judge the HTML text `page` in each frame (theme, width)."""
        path = folder / "audited.html"
        script = f"<script>{axe_source()}</script><script>{_RUN_AXE}</script></body>"
        if "script-src" not in page:  # a page without a script of its own lets this one run
            page = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
        path.write_text(script.join(page.rsplit("</body>", 1)), encoding="utf-8")
        found, _ = self.frames(path, "data-axe", frames)
        assert not [f["failed"] for f in found if "failed" in f]
        return [
            Audit(theme, width, f["violations"], frozenset(f["passed"]), f["contrasts"])
            for (theme, width), f in zip(frames, found, strict=True)
        ]


def attribute_of(done: subprocess.CompletedProcess[str], name: str) -> str:
    """The first value of an attribute in the document that the browser printed."""
    found = re.search(rf'{name}="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    return html.unescape(found[1])


def find_chromium() -> str:
    """The browser's path. Without one the test fails in CI and is skipped elsewhere."""
    for name in (os.environ.get("CHROME", ""), *NAMES):
        if name and (path := shutil.which(name)):
            return path
    return _missing("no Chromium found: apt-get install chromium")


def axe_source() -> str:
    """axe-core's script, as its package installed it. Without it the test fails in CI and is skipped elsewhere."""
    try:
        found = [f for f in files(AXE) or () if f.name == "axe.min.js"]
    except PackageNotFoundError:
        return _missing(f"no {AXE}: pip install --no-deps -r requirements/axe.lock")
    return found[0].read_text(encoding="utf-8")


def _missing(what: str) -> str:
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(f"{what}; CI=true makes this a failure")
