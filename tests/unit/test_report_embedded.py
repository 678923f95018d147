"""The result that a page carries: packed alike on every machine, read back whole, refused when it is too large."""

from __future__ import annotations

import base64
import gzip
import zlib
from pathlib import Path

import pytest

from hsparity.cli.main import invoke
from hsparity.errors import HsparityError
from hsparity.model import to_json
from hsparity.report import embedded
from hsparity.report.embedded import pack, unpack
from tests.golden.cases import CASES

TEXTS = ["", "{}", "שלום 日本語 \U0001f469 \x00 </script> <!--", to_json(CASES["hostile"]())]


def page(content: str, opening: str = '<script type="application/octet-stream" id="result">') -> str:
    return f"<!doctype html><html><body><script>var id='result'</script>{opening}{content}</script></body></html>"


@pytest.mark.parametrize("text", TEXTS, ids=["empty", "braces", "odd", "hostile"])
def test_what_was_packed_is_read_back(text: str) -> None:
    """And any gzip reader reads it too."""
    assert unpack(page(pack(text))) == text
    assert gzip.decompress(base64.b64decode(pack(text))).decode() == text


def test_a_packed_result_is_one_line_without_a_time() -> None:
    """The same text is the same bytes: the gzip header holds neither a time nor a system."""
    packed = pack(TEXTS[-1])
    assert packed == pack(TEXTS[-1])
    assert base64.b64decode(packed)[:10] == b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"
    assert set(packed) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


@pytest.mark.parametrize(
    "opening",
    [
        '<script id="result" type="application/octet-stream">',
        "<SCRIPT ID='result' TYPE='application/octet-stream'>",
        "<script\n type=application/octet-stream id=result>",
    ],
)
def test_attributes_stand_in_any_order_and_quotes(opening: str) -> None:
    """A page that went through a formatter still reads."""
    assert unpack(page("\n" + pack("{}") + "\n", opening)) == "{}"


def test_a_page_without_a_result_has_none() -> None:
    """Another script, another type, an element that never ends."""
    assert unpack("<html></html>") is None
    assert unpack(page(pack("{}"), '<script type="application/json" id="result">')) is None
    assert unpack('<script type="application/octet-stream" id="result">AAAA') is None


@pytest.mark.parametrize("content", ["!", "AAAA", pack("x" * 9000)[:40], base64.b64encode(b"x").decode()])
def test_a_damaged_result_is_a_value_error(content: str) -> None:
    """Not base64, not gzip, cut off."""
    with pytest.raises(ValueError, match="the result in the page is"):
        unpack(page(content))


def test_a_result_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops one byte past the limit, whatever the packed size promises."""
    monkeypatch.setattr(embedded, "LARGEST", 2**20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(deflate.compress(bytes(2**20)) for _ in range(64)) + deflate.flush()
    assert unpack(page(pack("x" * 2**20))) == "x" * 2**20
    monkeypatch.setattr(embedded, "_SMALL", 2**20)
    with pytest.raises(HsparityError) as caught:
        unpack(page(base64.b64encode(bomb).decode()))
    assert caught.value.code == "E222"


def test_a_result_that_was_packed_too_well_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No result is a thousand times its packed size; a small one may be."""
    bomb = page(pack('{"x": [' + "[]," * 500_000 + "0]}"))
    assert unpack(bomb)
    monkeypatch.setattr(embedded, "_SMALL", 2**20)
    with pytest.raises(HsparityError, match="too large") as caught:
        unpack(bomb)
    assert caught.value.code == "E222"


def test_openings_without_an_end_are_passed_in_a_moment() -> None:
    """A megabyte of them is no result; the closing tag may be in capitals."""
    assert unpack("<script " * 130_000) is None
    capitals = f'<SCRIPT id="result" type="application/octet-stream">{pack("{}")}</SCRIPT><p>more</p>'
    assert unpack(capitals) == "{}"


def test_no_more_of_a_file_is_read_than_a_result_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that never ends is E213; standard input named twice E103."""
    monkeypatch.setattr(embedded, "LARGEST", 2**20)
    assert invoke(["report", "/dev/zero"]) == 2
    assert "more than 1 MB" in (said := capsys.readouterr().err)
    assert "E213" in said
    assert invoke(["report", "-", "-"]) == 2
    assert "standard input can be read once" in capsys.readouterr().err


def test_report_reads_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """hsparity report PAGE shows what the JSON in it shows; a page without one is no result."""
    saved = to_json(CASES["offset"]())
    (tmp_path / "page.html").write_text("\n" + page(pack(saved)), encoding="utf-8")
    (tmp_path / "result.json").write_text(saved, encoding="utf-8")
    (tmp_path / "other.html").write_text("<html></html>", encoding="utf-8")
    shown = []
    for name in ("page.html", "result.json"):
        assert invoke(["report", str(tmp_path / name)]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert invoke(["report", str(tmp_path / "other.html")]) == 2
    assert "E213" in capsys.readouterr().err
