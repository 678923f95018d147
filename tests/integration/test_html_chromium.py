"""The page in a real browser: it renders, fits, prints, and asks for nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hsparity.report import Options, cost_page, reporters
from hsparity.report.palette import DARK, LIGHT, Theme, rgb
from tests.golden.cases import CASES
from tests.unit.drafter.records import COSTS

pytestmark = pytest.mark.slow
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
WIDTHS = (420, 760, 1180)
SHOWN = ("offset", "parity", "inconclusive", "native-ids", "hostile", "pooled", *COSTS)
# Asks the finished layout what no flag answers. Added before </body>; the page's policy stays in force.
PROBE = """<script>
addEventListener('load',function(){var d=document.documentElement,m=document.getElementById('map'),o=[];
document.querySelectorAll('body *').forEach(function(e){
 var seen=!e.closest('.scroll,.skip,svg')||e.matches('caption span');
 if(seen&&e.getBoundingClientRect().right>innerWidth+1)o.push(e.tagName+'.'+e.className)});
var read='';if(m){m.focus();m.dispatchEvent(new KeyboardEvent('keydown',{key:'ArrowRight',bubbles:true}));
 read=document.getElementById('read').textContent}
document.getElementById('theme').click();
d.setAttribute('data-probe',JSON.stringify({over:d.scrollWidth-innerWidth,out:o.slice(0,5),read:read,theme:d.dataset.theme,width:innerWidth}))})
</script></body>"""

Browser = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next(
        (path for name in (os.environ.get("CHROME", ""), *NAMES) if name and (path := shutil.which(name))),
        None,
    )
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: apt-get install chromium")
        pytest.skip("no Chromium found (apt-get install chromium); CI=true makes this a failure")
    return found


@pytest.fixture
def browser(chromium: str, tmp_path: Path) -> Browser:
    def run(page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        return subprocess.run(
            [chromium, *FLAGS, profile, *flags, page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            cwd=tmp_path,
        )

    return run


def rendered(name: str) -> str:
    if name in COSTS:
        return cost_page.render(COSTS[name]())
    return reporters()["html"].render(CASES[name](), Options())


def write(name: str, folder: Path, probe: bool = False) -> Path:
    page = rendered(name)
    path = folder / f"{name}.html"
    path.write_text(page.replace("</body>", PROBE) if probe else page, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHOWN)
def test_page_fits_and_is_quiet(name: str, browser: Browser, tmp_path: Path) -> None:
    """No sideways scrolling at any width, and nothing for the policy to refuse."""
    # Frames, because Chromium's own window has a least width.
    write(name, tmp_path, probe=True)
    frames = "".join(
        f'<iframe src="{name}.html" style="border:0;width:{w}px;height:900px"></iframe>' for w in WIDTHS
    )
    shell = tmp_path / "shell.html"
    shell.write_text(
        f'<!doctype html><body style="margin:0">{frames}'
        "<script>addEventListener('load',function(){setTimeout(function(){"
        "document.body.setAttribute('data-probe','['+Array.from(document.querySelectorAll('iframe')).map(function(f){"
        "return "
        "f.contentDocument.documentElement.getAttribute('data-probe')}).join(',')+']')},500)})</script>",
        encoding="utf-8",
    )
    done = browser(shell, "--dump-dom", "--allow-file-access-from-files", "--window-size=1400,1000")
    found = re.search(r'<body[^>]*data-probe="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    probes = json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&"))
    assert [p["width"] for p in probes] == list(WIDTHS)
    for probe in probes:
        assert (probe["over"] <= 0, probe["out"]) == (True, []), probe
        assert probe["theme"] in ("light", "dark")
        if name in CASES and CASES[name]().map is not None:
            assert re.search(r"boundary \d+ \((layer \d+|embeddings)\), prompt .*: ", probe["read"]), probe[
                "read"
            ]
    assert _complaints(done.stderr) == []


@pytest.mark.parametrize(("scheme", "theme"), [("1", LIGHT), ("0", DARK)], ids=["light", "dark"])
def test_page_follows_the_readers_theme(scheme: str, theme: Theme, browser: Browser, tmp_path: Path) -> None:
    """Paper, ink and the maps are those of the theme that the reader's system asks for."""
    page, shot = write("offset", tmp_path), tmp_path / "shot.png"
    question = (
        "<script>addEventListener('load',function(){var d=document.documentElement,s=getComputedStyle(d),n=0;"
        "document.querySelectorAll('image').forEach(function(i){if(getComputedStyle(i).display!=='none')n+=i.classList.contains('THEME')?1:100});"
        "d.setAttribute('data-probe',[s.backgroundColor,s.color,n].join('; '))})</script></body>"
    ).replace("THEME", theme.name)
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", question), encoding="utf-8")
    setting = f"--blink-settings=preferredColorScheme={scheme}"
    found = re.search(r'data-probe="([^"]*)"', browser(page, setting, "--dump-dom").stdout)
    assert found
    paper, ink = (f"rgb{rgb(theme.colors[name])}" for name in ("paper", "ink"))
    assert found[1] == f"{paper}; {ink}; 5"  # two token maps, their legend, the pair map and its legend
    browser(page, setting, f"--screenshot={shot}", "--window-size=1180,3000")
    assert struct.unpack(">II", shot.read_bytes()[16:24]) == (1180, 3000)
    assert shot.stat().st_size > 100_000  # a blank one is a tenth of that


def test_page_is_whole_without_script(browser: Browser, tmp_path: Path) -> None:
    """With scripts off every heading, table and figure stands as it stood, but for button and hint."""
    write("offset", tmp_path)
    shell, facts = tmp_path / "shell.html", []
    for sandbox in ("allow-same-origin allow-scripts", "allow-same-origin"):
        shell.write_text(
            f'<!doctype html><body><iframe id="f" sandbox="{sandbox}" src="offset.html" '
            'style="border:0;width:1180px;height:900px"></iframe>'
            "<script>addEventListener('load',function(){var "
            "d=document.getElementById('f').contentDocument,o=[];"
            "d.querySelectorAll('h1,h2,h3,table,svg,figcaption,pre,.cause').forEach(function(e){o.push(e.tagName+Math.round(e.getBoundingClientRect().height))});"
            "document.body.setAttribute('data-probe',JSON.stringify([o,d.getElementById('theme').hidden,d.getElementById('read').textContent]))})</script>",
            encoding="utf-8",
        )
        done = browser(shell, "--dump-dom", "--allow-file-access-from-files", "--window-size=1400,1000")
        found = re.search(r'<body[^>]*data-probe="([^"]*)"', done.stdout)
        assert found, done.stderr[-2000:]
        facts.append(json.loads(found[1].replace("&quot;", '"')))
    (shown, hidden, hint), (shown_without, hidden_without, hint_without) = facts
    assert shown == shown_without
    assert len(shown) > 25
    assert (hidden, hidden_without) == (False, True)
    assert (hint_without, "arrow keys" in hint) == ("", True)


@pytest.mark.parametrize("name", ["offset", "pooled"])
def test_page_prints(name: str, browser: Browser, tmp_path: Path) -> None:
    """A PDF of few pages, with the maps in it."""
    pdf = tmp_path / "page.pdf"
    browser(write(name, tmp_path), f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    data = pdf.read_bytes()
    assert data.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", data)) <= 6
    assert len(re.findall(rb"/Subtype\s*/Image", data)) >= 3


@pytest.mark.parametrize("name", ["hostile", "cost-hostile"])
def test_hostile_text_runs_nothing(name: str, browser: Browser, tmp_path: Path) -> None:
    """An alert would stop the browser; an image would be refused by the policy and reported."""
    done = browser(write(name, tmp_path), "--dump-dom")
    assert "<img" not in done.stdout
    assert _complaints(done.stderr) == []


def test_the_policy_is_in_force(browser: Browser, tmp_path: Path) -> None:
    """The check above can fail: a page that does ask for something is reported."""
    page = write("parity", tmp_path)
    page.write_text(
        page.read_text(encoding="utf-8").replace("</main>", '<img src="other.png"></main>'), encoding="utf-8"
    )
    assert _complaints(browser(page, "--dump-dom").stderr)


def _complaints(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "CONSOLE" in line or "Content Security Policy" in line]
