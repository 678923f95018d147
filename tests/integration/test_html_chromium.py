"""The page in a real browser: it renders, fits, prints, and asks for nothing."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from hsparity.cli.plain_page import as_page
from hsparity.report import Options, cost_page, reporters
from hsparity.report.palette import DARK, LIGHT, Theme, rgb
from tests.browser import Browser, attribute_of, find_chromium
from tests.golden.cases import CASES
from tests.unit.drafter.records import COSTS

pytestmark = pytest.mark.slow
WIDTHS = (420, 760, 1180)
SHOWN = ("offset", "parity", "inconclusive", "native-ids", "hostile", "pooled", *COSTS)
AUDITED = ("why", "rows", "native-ids", "cost-real", "cost-full")
# Contrast depends on the theme, layout on the width: each occurs once.
FRAMES = (("light", 420), ("dark", 1180))
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


@pytest.fixture(scope="session")
def chromium() -> str:
    return find_chromium()


@pytest.fixture
def browser(chromium: str, tmp_path: Path) -> Browser:
    return Browser(chromium, tmp_path)


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
    page = write(name, tmp_path, probe=True)
    probes, complaints = browser.frames(page, "data-probe", [("", width) for width in WIDTHS])
    assert [p["width"] for p in probes] == list(WIDTHS)
    for probe in probes:
        assert (probe["over"] <= 0, probe["out"]) == (True, []), probe
        assert probe["theme"] in ("light", "dark")
        if name in CASES and CASES[name]().map is not None:
            assert re.search(r"boundary \d+ \((layer \d+|embeddings)\), prompt .*: ", probe["read"]), probe[
                "read"
            ]
    assert _complaints(complaints) == []


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
    found = attribute_of(browser(page, setting, "--dump-dom"), "data-probe")
    paper, ink = (f"rgb{rgb(theme.colors[name])}" for name in ("paper", "ink"))
    assert found == f"{paper}; {ink}; 5"  # two token maps, their legend, the pair map and its legend
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
        facts.append(json.loads(attribute_of(done, "data-probe")))
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


@pytest.mark.parametrize("name", AUDITED)
def test_axe_objects_to_nothing(name: str, browser: Browser, tmp_path: Path) -> None:
    """No rule of axe is violated, light on a phone or dark on a screen, and the contrast of the texts was measured."""
    found = browser.audit(rendered(name), tmp_path, FRAMES)
    lines = [line for audit in found for line in audit.lines()]
    assert not lines, "\n".join(lines)
    assert all({"color-contrast", "document-title", "html-has-lang"} <= audit.passed for audit in found)
    assert min(audit.contrasts for audit in found) > 40


def test_axe_objects_to_nothing_on_a_plain_page(browser: Browser, tmp_path: Path) -> None:
    """The page of a command that has no figures passes the same rules."""
    page = as_page("PARITY: a dataset", lambda options: f"PARITY.\n{options.width} columns", Options())
    assert [line for audit in browser.audit(page, tmp_path, FRAMES) for line in audit.lines()] == []


def test_axe_sees_what_is_planted(browser: Browser, tmp_path: Path) -> None:
    """The check above can fail: faint text and an image without words are found, each where it shows."""
    page = rendered("parity").replace(
        "</main>", '<p style="color:#6f7278">faint in the dark</p><img src="data:,"></main>'
    )
    light, dark = browser.audit(page, tmp_path, [("light", 1180), ("dark", 1180)])
    assert "image-alt" in {v["rule"] for v in light.violations} & {v["rule"] for v in dark.violations}
    faint = {
        audit.theme: [line for line in audit.lines() if "color-contrast" in line] for audit in (light, dark)
    }
    assert faint["light"] == []
    assert len(faint["dark"]) == 1


def _complaints(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "CONSOLE" in line or "Content Security Policy" in line]
