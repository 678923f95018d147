"""Contrast where figures cross: what the rules of axe do not measure, because it is drawn and not written."""

from __future__ import annotations

import pytest

from hsparity.report.palette import DARK, LIGHT, PRINT, Theme, contrast


@pytest.mark.parametrize("theme", [LIGHT, DARK, PRINT], ids=lambda t: t.name)
@pytest.mark.parametrize("tone", ["ink", "muted", "accent", "bad", "good", "warn"])
@pytest.mark.parametrize("ground", ["band", "void"])
def test_curves_and_labels_stand_out_on_what_they_cross(theme: Theme, tone: str, ground: str) -> None:
    """A curve crosses the floor's band and a share fills its bar: 4.5, so that a label may lie there too."""
    assert contrast(theme.colors[tone], theme.colors[ground]) >= 4.5
