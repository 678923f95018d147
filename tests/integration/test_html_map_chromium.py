"""The map's read-out in a real browser: prompts are picked, cells are addressed, and words stay words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsparity.model import Comparison
from hsparity.report import Options, reporters
from tests.browser import Browser, attribute_of, find_chromium
from tests.golden.cases import CASES
from tests.golden.sizes import real_size

pytestmark = pytest.mark.slow
# Takes the steps one after the other, each once the read-out has answered the one before, and tells what stood there.
STEPS = """<script>
addEventListener('load',function(){var said=[],at=0,out=document.getElementById('read'),steps=STEPS;
function note(){said.push([out.textContent,document.getElementById('prompt').value,location.hash,document.activeElement.id,
 document.getElementById('ruled').style.display])}
(function next(){if(at>=steps.length){document.documentElement.setAttribute('data-said',JSON.stringify(said));return}
 steps[at++]();setTimeout(function(){note();next()},700)})()})
</script></body>"""
PICK = "function(){var p=document.getElementById('prompt');p.value='%d';p.onchange()}"
KEY = "function(){document.getElementById('map').dispatchEvent(new KeyboardEvent('keydown',{key:'%s',bubbles:true}))}"
FOCUS = "function(){document.getElementById('map').focus()}"
HASH = "function(){location.hash='%s'}"


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(find_chromium(), tmp_path)


def walked(browser: Browser, comparison: Comparison, *steps: str) -> list[list[str]]:
    """What the read-out, the picker, the address, the focus and the labels say after each step."""
    page = browser.folder / "page.html"
    text = reporters()["html"].render(comparison, Options())
    page.write_text(text.replace("</body>", STEPS.replace("STEPS", f"[{','.join(steps)}]")), encoding="utf-8")
    done = browser(page, "--dump-dom", "--virtual-time-budget=12000")
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    said: list[list[str]] = json.loads(attribute_of(done, "data-said"))
    return said


def test_the_cursor_walks_and_the_address_follows(browser: Browser) -> None:
    """Arrow keys move from cell to cell; the address names layer, prompt and token, and leads back to them."""
    said = walked(
        browser,
        CASES["offset"](),
        FOCUS,
        KEY % "ArrowRight",
        KEY % "PageDown",
        KEY % "End",
        HASH % "layer=29&prompt=1&token=5",
    )
    assert said[1][0].startswith('boundary 31 (layer 30), prompt 0, token 1 " hidden": ')
    assert said[1][2] == "#layer=30&prompt=0&token=1"
    assert said[2][0].startswith("boundary 61 (layer 60), prompt 0, token 1")
    assert said[3][0].startswith("boundary 61 (layer 60), prompt 2, token 31")
    assert said[4][0].startswith("boundary 30 (layer 29), prompt 1, token 5")
    assert "as claimed" in said[4][0]
    assert said[4][0].endswith("undone")
    assert said[4][1] == "1"
    assert said[4][3] == "map"


def test_a_prompt_is_shown_alone(browser: Browser) -> None:
    """The picker shows one prompt and hides the labels of the whole map; back at all they stand again."""
    said = walked(browser, CASES["offset"](), PICK % 2, FOCUS, KEY % "Home", PICK % -1)
    assert said[0][4] == "none"
    assert "prompt 2, token 0" in said[2][0]
    assert said[3][4] == ""


def cells(comparison: Comparison, prompt: int, row: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The claimed and the undone values of one prompt at one row."""
    tokens = comparison.map
    assert tokens is not None
    assert tokens.undone_kc is not None
    _, start, stop = tokens.prompts[prompt]
    return tokens.excess_kc[row, start:stop], tokens.undone_kc[row, start:stop]


def test_a_pooled_map_gives_a_prompt_its_own_columns(browser: Browser) -> None:
    """At real size a prompt's columns come out of the packed result, with the values that stand in it."""
    comparison = real_size()
    said = walked(browser, comparison, PICK % 7, FOCUS, KEY % "Home", KEY % "ArrowRight")
    claimed, _ = cells(comparison, 7, 31)
    step = comparison.map.column_tokens if comparison.map else 0
    for column, (text, *_) in enumerate(said[2:4]):
        assert f"prompt p7, of {step} tokens the one at {column * step} " in text
        value = float(text.split(": ")[1].split("×")[0])
        assert value == pytest.approx(10 ** float(claimed[column]), rel=0.06)


def test_hostile_texts_stay_words(browser: Browser) -> None:
    """A token that is markup, an escape or a turn of the writing direction is read out, not obeyed."""
    texts = ("<img src=x onerror=alert(1)>", "\x1b]8;;http://x\x07link", "\u202egnp.exe", "\x00", "</script>")
    tokens = real_size().map
    assert tokens is not None
    hostile = replace(tokens, texts=tuple(texts[i % 5] for i in range(len(tokens.texts))))
    steps = [PICK % 3, FOCUS, KEY % "Home", *[KEY % "ArrowRight"] * 4]
    said = walked(browser, replace(real_size(), map=hostile), *steps)
    read = " ".join(text for text, *_ in said)
    assert not {"\x1b", "\u202e", "\x00", "\x07"} & set(read)
    assert "<img src=x onerror=alert(1)>" in read
    assert "\\u202egnp.exe" in read


def test_a_link_that_was_cut_leaves_the_page_alive(browser: Browser) -> None:
    """A stray per cent sign in the address is no address, and the map still reads itself out."""
    said = walked(
        browser, CASES["offset"](), HASH % "layer=4&prompt=%zz", FOCUS, HASH % "%", KEY % "ArrowRight"
    )
    assert said[3][0].startswith("boundary ")


def test_a_link_opens_what_it_explains(browser: Browser) -> None:
    """A code in the list of causes leads to its explanation, which opens."""
    page = browser.folder / "page.html"
    text = reporters()["html"].render(CASES["offset"](), Options())
    probe = (
        "<script>addEventListener('load',function(){var d=document.getElementById('why-HS101'),was=d.open;"
        "document.querySelector('a[href=\"#why-HS101\"]').click();setTimeout(function(){"
        "document.documentElement.setAttribute('data-said',JSON.stringify([was,d.open]))},300)})</script></body>"
    )
    page.write_text(text.replace("</body>", probe), encoding="utf-8")
    assert json.loads(attribute_of(browser(page, "--dump-dom"), "data-said")) == [False, True]
