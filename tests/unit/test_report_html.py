"""The page: self-contained, accessible, deterministic, and safe whatever text is in the result."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import subprocess
import sys
import zlib
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest

from hsparity.model import TokenMap, from_json
from hsparity.report import Options, reporters
from hsparity.report.embedded import unpack
from hsparity.report.figures import axis_marks, tick_label, ticks
from hsparity.report.maps import quantise
from hsparity.report.overview import overview
from hsparity.report.palette import DARK, FIRST, LIGHT, PRINT, UNKNOWN, WITHIN, cividis, contrast
from hsparity.report.png import data_uri, encode
from hsparity.report.to_html import script, style_sheet
from tests.golden.cases import CASES
from tests.golden.sizes import real_size

ALL = pytest.mark.parametrize("name", CASES)
VOID = {"meta", "wbr", "image", "line", "rect", "path", "circle"}


class Page(HTMLParser):
    """Every element with its attributes, and the text of each kind."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.markup = markup
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: dict[str, list[str]] = {}
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.words.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [a for t, a in self.elements if t == tag]


@cache
def page(name: str) -> Page:
    return Page(reporters()["html"].render(CASES[name](), Options()))


@ALL
def test_elements_close_in_order_and_ids_are_unique(name: str) -> None:
    """The page is well-formed."""
    p = page(name)
    assert p.open == []
    ids = [a["id"] for _, a in p.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    for attribute in ("aria-labelledby", "aria-describedby"):
        assert {a[attribute] for _, a in p.elements if attribute in a} <= set(ids)
    links = [(a["href"] or "")[1:] for a in p.all("a")]
    assert {link for link in links if not link.startswith("layer=")} <= set(ids)


@ALL
def test_nothing_is_fetched(name: str) -> None:
    """Links stay on the page, images are data, and the policy makes a browser refuse anything else."""
    p = page(name)
    packed = p.words["script"][-2]  # letters and digits, among which any word may turn up
    assert re.fullmatch("[A-Za-z0-9+/=]+", packed)
    assert "http" not in p.markup.replace("http-equiv", "").replace(packed, "")
    assert "@import" not in p.markup
    assert "url(" not in p.markup
    policy = next(a["content"] for a in p.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert (
        policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    )
    for tag, attributes in p.elements:
        assert "src" not in attributes
        assert not [a for a in attributes if a.startswith("on")]
        if "href" in attributes:
            assert (attributes["href"] or "").startswith("data:image/png;base64," if tag == "image" else "#")


def test_several_causes_show_rows_rivals_and_a_fix_each() -> None:
    """The page says of every cause what the terminal says: where, the rows' spans, the beaten rival, the fix."""
    p = page("several")
    words = {tag: " ".join(found) for tag, found in p.words.items()}
    assert [w for w in p.words["strong"] if w.startswith("Fix")] == [
        "Fix HS101 layer-offset.",
        "Fix HS113 request-order.",
        "Fix HS201 final-norm-applied.",
    ]
    assert "64 tokens (prompt and positions): 1 0-31, 2 0-31" in words["p"]
    assert "boundary 31, 12× farther (slot.001)" in words["p"]
    assert "After the rows are given back." in words["p"]
    assert p.words["dt"].count("Next best") == 3
    assert not [a for a in p.all("a") if not (a["href"] or "").startswith("#")]


def test_a_clean_target_lists_what_is_left_to_check() -> None:
    assert any("fc width = slots x hidden size" in text for text in page("target-clean").words["li"])


@ALL
def test_foreign_text_stays_text(name: str) -> None:
    """The only elements are the template's; markup in a token, a path or a setting is shown, not run."""
    p = page(name)
    known = """a b body button caption circle code dd details div dl dt figcaption figure h1 h2 h3 h4 head header
    g html i image label li line main meta option output p path pre rect script section select span strong style
    summary svg tspan table tbody td text th thead title tr ul"""
    assert {t for t, _ in p.elements} <= set(known.split())
    assert len(p.all("script")) == (3 if CASES[name]().map is not None else 2)
    assert "\x1b" not in p.markup
    assert "\u202e" not in p.markup


def test_hostile_text_is_shown_as_written() -> None:
    """What looked like markup reaches the reader."""
    assert any("<script>alert(1)</script>" in w for w in page("hostile").words["h1"])


@ALL
def test_the_page_can_be_used_without_sight_or_mouse(name: str) -> None:
    """Language, landmarks, skip link, scoped headers, captions, labelled pictures."""
    p = page(name)
    assert p.all("html")[0]["lang"] == "en"
    assert p.all("main")
    assert p.all("header")
    assert (p.elements[[t for t, _ in p.elements].index("body") + 1])[1].get("href") == "#verdict"
    assert all(a.get("scope") in ("col", "row", "colgroup") for a in p.all("th"))
    assert all(
        (a.get("role") == "img" and a.get("aria-label")) or a.get("aria-hidden") == "true"
        for a in p.all("svg")
    )
    assert len(p.all("figure")) == len(p.all("figcaption"))
    assert len(p.all("table")) == len(p.all("caption"))
    assert len(p.all("h1")) == 1
    if CASES[name]().map is not None:
        assert p.all("output")[0]["aria-live"] == "polite"


@ALL
def test_verdicts_carry_a_mark_beside_their_color(name: str) -> None:
    """Red and green are never the only difference."""
    p, rows = page(name), 0
    for word, icon in (("diverged", "✗"), ("parity", "✓"), ("inconclusive", "?"), ("missing", "–")):
        shown = re.findall(rf"<td[^>]*>(?:<span[^>]*>(.)</span> )?{word}</td>", p.markup)
        assert set(shown) <= {icon}
        rows += len(shown)
    assert rows >= 2 * len([d for d in CASES[name]().deltas if d.requested][:12])


@ALL
def test_same_result_same_bytes(name: str) -> None:
    """No clock, no path, no order of a set enters the page."""
    assert page(name).markup == reporters()["html"].render(CASES[name](), Options())


def test_bytes_do_not_depend_on_the_process() -> None:
    """Another hash seed, locale and time zone make the same page."""
    program = (
        "import hashlib; from tests.golden.cases import CASES; from hsparity.report import Options, "
        "reporters;"
        "print(hashlib.sha256(reporters()['html'].render(CASES['hostile'](), "
        "Options()).encode()).hexdigest())"
    )
    digests = set()
    for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo")):
        environment = {
            "PYTHONHASHSEED": seed,
            "TZ": zone,
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": ":".join(sys.path),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_chrome_is_small() -> None:
    """Style, script and markup stay under 30 KB; 62 x 96 with its result under 220 KB, 62 x 5,000 under a megabyte."""
    template = (files("hsparity.report") / "templates" / "report.html.j2").read_text()
    assert len((style_sheet() + script() + template).encode()) < 30_000
    assert len(page("offset").markup.encode()) < 220_000
    assert len(page("pooled").markup.encode()) < 1_000_000


@pytest.mark.parametrize("theme", [LIGHT, DARK, PRINT], ids=lambda t: t.name)
@pytest.mark.parametrize("tone", ["ink", "muted", "accent", "bad", "good", "warn"])
def test_text_has_contrast(theme: object, tone: str) -> None:
    """Every colour that carries text stands at 4.5 or more on the page and on code."""
    colors = theme.colors  # type: ignore[attr-defined]
    assert contrast(colors[tone], colors["paper"]) >= 4.5
    assert contrast(colors[tone], colors["code"]) >= 4.5


def test_contrast_is_the_known_formula() -> None:
    """Black on white is 21, and grey 767676 the well-known 4.54."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)


def test_style_uses_only_colors_that_every_theme_has() -> None:
    """A variable that one theme lacks would be invisible there."""
    used = set(
        re.findall(
            r"var\(--([a-z]+)\)", style_sheet() + "".join(page(n).markup for n in ("offset", "parity"))
        )
    )
    assert used <= set(LIGHT.colors)
    assert set(LIGHT.colors) == set(DARK.colors) == set(PRINT.colors)


def test_data_for_the_read_out_is_what_the_map_shows() -> None:
    """The script's cells are the image's, pooled columns say how many tokens they hold."""
    c = CASES["offset"]()
    data = json.loads(page("offset").words["script"][0])
    shown = np.frombuffer(base64.b64decode(data["q"][0]), np.uint8).reshape(data["h"], data["w"])
    assert c.map is not None
    assert (shown == quantise(c.map.excess_kc, float(data["d"]), math.log10(1.5))).all()
    assert data["t"][1] == '" hidden"'
    pooled = json.loads(page("pooled").words["script"][0])
    assert (pooled["k"], pooled["w"], pooled["fine"]) == (6, 834, True)
    assert "Each column shows the largest of 6 tokens." in page("pooled").markup


def test_the_page_carries_its_result() -> None:
    """What the page shows can be rendered again from what it carries."""
    for name in ("offset", "rows", "why", "hostile"):
        markup = page(name).markup
        assert reporters()["html"].render(from_json(unpack(markup) or ""), Options()) == markup


def test_a_wide_map_keeps_what_stands_out() -> None:
    """Each column of the overview is the largest of its prompt's columns, and says which token that was."""
    values = np.full((2, 3000), -0.5, np.float16)
    values[1, 1499], values[0, 1500] = 2.0, 1.0
    values[:, 2999] = np.nan
    spans = (("a", 0, 1500), ("b", 1500, 3000))
    whole = TokenMap(
        (0, 1), 4, spans, values, None, "floor", np.arange(3000, dtype=np.int32), np.zeros(3000, np.int32), ()
    )
    found = overview(whole)
    assert (found.column_tokens, found.prompts) == (12, (("a", 0, 500), ("b", 500, 1000)))
    assert found.excess_kc[1, 499] == 2.0
    assert found.excess_kc[0, 500] == 1.0
    assert int(found.positions_c[499]) == 1499
    assert (found.excess_kc > 0).sum() == 2
    assert not np.isnan(found.excess_kc).any()


def test_a_page_of_real_size_is_small() -> None:
    """62 boundaries x 8,192 tokens x 50 prompts, noisy wherever it can be: under 3 MB."""
    assert len(reporters()["html"].render(real_size(), Options()).encode()) < 3_000_000


def test_rows_that_are_not_their_own_are_drawn() -> None:
    """The map of rows counts them, and stands only where rows are the problem."""
    assert "58 of 92 rows hold another token" in page("rows").markup
    assert "4 of 96 rows are absent in the candidate" in page("rows").markup
    assert "Of 2 rows nothing tells whose state it is" in page("rows").markup
    assert "Row by row" not in page("offset").markup


def test_what_layers_add_is_drawn() -> None:
    """Replay's figures by layer and part, and no figure where nothing was replayed."""
    assert "layer 0 of the candidate, layer 0 (attention) of the candidate" in page("why").markup
    assert "cand attention" in page("why").words["text"]
    assert "Error added by layer" not in page("offset").markup


def test_the_cost_to_a_draft_is_drawn() -> None:
    """Accepted tokens with either side's states, and with the cause undone."""
    assert "the candidate&#39;s, HS503 undone 2.40" in page("why").markup
    assert "What it costs the draft" not in page("offset").markup


def test_data_cannot_end_its_script() -> None:
    """A prompt called </script> is escaped in the JSON."""
    assert "<" not in page("hostile").words["script"][0]
    assert "<script>" in json.loads(page("hostile").words["script"][0])["p"][0][0]


def test_within_the_floor_is_the_page_itself() -> None:
    """Ink is signal: within the floor is the page's colour, unknown has its own, the ramp is ordered."""
    index = quantise(
        np.asarray([[-2.0, 0.0, 1e-9, 1.5, 3.0, 99.0, np.inf, -np.inf, np.nan]], np.float32), 3.0
    )[0]
    assert list(index[:3]) == [WITHIN, WITHIN, FIRST]
    assert list(index[4:]) == [255, 255, 255, WITHIN, UNKNOWN]
    assert index[2] < index[3] < index[4]
    for theme in (LIGHT, DARK):
        palette = theme.map_palette()
        assert len(palette) == 256
        assert "#{:02x}{:02x}{:02x}".format(*palette[WITHIN]) == theme.colors["paper"]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_far_from_parity_is_far_from_paper(theme: object) -> None:
    """The ramp's contrast with the page only grows."""
    paper = theme.colors["paper"]  # type: ignore[attr-defined]
    steps = [contrast("#{:02x}{:02x}{:02x}".format(*c), paper) for c in theme.map_palette()[FIRST::8]]  # type: ignore[attr-defined]
    assert all(b >= a * 0.97 for a, b in pairwise(steps))
    assert steps[-1] > 9


def test_png_decodes_to_its_cells() -> None:
    """Palette, size, checksums and rows are as the format wants them."""
    index = np.arange(12, dtype=np.uint8).reshape(3, 4)
    data, at, chunks = encode(index, cividis(256)), 8, {}
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (4, 3, 8, 3, 0, 0, 0)
    assert len(chunks[b"PLTE"]) == 768
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(3, 5)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:] == index).all()


@pytest.mark.parametrize(
    ("shape", "size"), [((2, 3), (18, 12)), ((62, 2048), (2048, 372)), ((300, 1), (6, 1200))]
)
def test_small_maps_are_repeated(shape: tuple[int, int], size: tuple[int, int]) -> None:
    """Up to six times a side, so that no viewer blurs a cell; wide maps are left at a pixel a column."""
    png = base64.b64decode(data_uri(np.zeros(shape, np.uint8), cividis(256)).split(",")[1])
    assert struct.unpack(">II", png[16:24]) == size


@pytest.mark.parametrize(("low", "high"), [(1e-4, 1.0), (0.5, 2.5), (0.9, 1.6), (1e-9, 1e3), (3e-3, 4e-3)])
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    """At most nine, never outside the axis."""
    found = ticks(low, high)
    assert len(found) <= 9
    assert all(low * 0.99 <= t <= high * 1.01 for t in found)


@pytest.mark.parametrize(
    ("value", "label"),
    [(1e-4, "1e-4"), (0.01, "0.01"), (0.5, "0.5"), (1.0, "1"), (100.0, "100"), (1e5, "1e5")],
)
def test_tick_labels_are_short(value: float, label: str) -> None:
    """1e-4, not 1e-04."""
    assert tick_label(value) == label


@pytest.mark.parametrize(
    ("axis", "marks"),
    [
        ((0, 61, 8), [0, 10, 20, 30, 40, 50, 61]),
        ((0, 0, 8), [0]),
        ((0, 3, 8), [0, 1, 2, 3]),
        ((3, 59, 4), [3, 20, 40, 59]),
    ],
)
def test_axes_are_marked_at_round_numbers(axis: tuple[int, int, int], marks: list[int]) -> None:
    """Both ends and round numbers between that keep their distance."""
    assert axis_marks(*axis) == marks


@ALL
def test_the_floor_is_named_on_the_page(name: str) -> None:
    """Method and table say what the ratios were taken over."""
    c, markup = CASES[name](), page(name).markup
    assert '<h2 id="h-method">Method and limits</h2>' in markup
    if c.floor.kind == "bf16-reference" and name != "hostile":
        assert markup.count(c.floor.source) >= 2
    if c.floor.kind == "none":
        assert "There is no floor" in markup


def test_differing_settings_are_marked() -> None:
    """Both sides stand in one row; what differs carries a sign."""
    assert re.search(
        r"attention</th><td class=\"l\">default</td><td class=\"l diff\"><span aria-hidden=\"true\">≠</span> "
        r"torch_native",
        page("parity").markup,
    )
    assert re.search(r"mode</th><td class=\"l\">eager</td><td class=\"l\">eager", page("parity").markup)
