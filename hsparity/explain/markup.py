"""An explanation as a piece of an HTML page."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from . import entries

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_CODE = re.compile(r"\b(HS\d{3}|E\d{3})\b")


def as_html(code: str, present: Collection[str] = ()) -> str:
    """The explanation of `code` as safe HTML: h4, p, ul and pre. Empty for a code that is not known here.

    Another code in it is a link to #why-CODE where `present`, the codes that the page explains, holds it.
    """
    known = entries().get(code)
    if known is None:
        return ""
    markdown = _markdown()
    tokens = markdown.parse(known.text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "h4"
        if token.children is not None:
            token.children = [
                new for child in token.children for new in _linked(child, set(present) - {code})
            ]
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _markdown() -> MarkdownIt:
    """Paragraphs, lists, code and emphasis; no HTML passes, and a link or an image is text: nothing leads out of the page."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False})
    return made.disable(["html_block", "html_inline", "link", "image", "autolink", "reference"])


def _linked(token: Token, present: set[str]) -> list[Token]:
    """A piece of text cut where it names a code that the page explains; anything else as it is."""
    from markdown_it.token import Token

    if token.type != "text":
        return [token]
    made = []
    for part in _CODE.split(token.content):
        text = Token("text", "", 0, content=part)
        if part in present:
            made += [
                Token("link_open", "a", 1, attrs={"href": f"#why-{part}"}),
                text,
                Token("link_close", "a", -1),
            ]
        elif part:
            made.append(text)
    return made
