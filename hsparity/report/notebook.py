"""A page of ours in the output of a notebook's cell."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from .base import Options

if TYPE_CHECKING:
    from ..drafter.result import DraftCost
    from ..model import Comparison

HEIGHT = 720  # CSS pixels; what is longer scrolls inside


def comparison_cell(comparison: Comparison) -> str:
    """The comparison's HTML report for a cell."""
    from .to_html import REPORTER

    return _framed(REPORTER.render(comparison, Options()), f"hsparity: {comparison.verdict.value}")


def cost_cell(cost: DraftCost) -> str:
    """The page of a draft's cost for a cell."""
    from .cost_page import render

    return _framed(render(cost), f"hsparity drafter: {cost.verdict.value}")


def _framed(page: str, title: str) -> str:
    """A page in a frame of its own: neither its style nor its script reaches the notebook. A sandbox without
    `allow-same-origin` has no origin, so the page can read no cookie and no storage."""
    return (
        f'<iframe title="{escape(title)}" sandbox="allow-scripts" loading="lazy" '
        f'style="width:100%;height:{HEIGHT}px;border:0" srcdoc="{escape(page)}"></iframe>'
    )
