"""The result inside its HTML page, from which the page can be rendered again."""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib

from ..errors import HsparityError

LARGEST = 64 * 2**20  # bytes of an unpacked result; a large one of a large model has about 4 MB
_SMALL, _RATIO = (
    8 * 2**20,
    200,
)  # above so many bytes, no result unpacks to more than so many times its packed size
ELEMENT = ("application/octet-stream", "result")  # type and id of the script element
_OPENING = re.compile(r"<script\b([^<>]*)>", re.I)
_CLOSING = re.compile(r"</script", re.I)
_ATTRIBUTE = re.compile(r"""(?<![a-z])([a-z]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.I)
# RFC 1952: deflate, no flags, no time, best compression, system unknown. gzip.compress names the system by version of Python.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"


def pack(text: str) -> str:
    """Base64 of gzip of the text, in one line: letters that no HTML parser reads as anything else."""
    data = text.encode("utf-8", "backslashreplace")  # as write_file has it
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return base64.b64encode(_HEADER + body + trailer).decode()


def unpack(html: str) -> str | None:
    """The text that `pack` put into a page's script element; None for a page without one.

    Raises ValueError for a damaged one, and E222 for one that unpacks to more than `LARGEST` bytes, or to far more than results do.
    """
    packed = _content(html)
    if packed is None:
        return None
    try:
        data = base64.b64decode("".join(packed.split()), validate=True)
        most = min(LARGEST, max(_SMALL, _RATIO * len(data)))
        inflate = zlib.decompressobj(31)
        text = inflate.decompress(data, most + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the result in the page is damaged: {error}") from error
    if len(text) > most:
        raise HsparityError(
            "E222",
            "the result in the page is too large",
            (f"packed    {len(data):,} bytes", f"unpacked  more than {most:,} bytes"),
            "make the page again: hsparity compare REF CAND --html report.html",
        )
    if not inflate.eof:
        raise ValueError("the result in the page is cut off")
    return text.decode("utf-8")


def _content(html: str) -> str | None:
    """What stands in the first script element of that type and id."""
    for found in _OPENING.finditer(html):
        pairs = _ATTRIBUTE.findall(found[1])
        attributes = {name.lower(): double or single or bare for name, double, single, bare in pairs}
        if (attributes.get("type"), attributes.get("id")) == ELEMENT:
            end = _CLOSING.search(html, found.end())
            return html[found.end() : end.start()] if end else None
    return None
