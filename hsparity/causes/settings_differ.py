"""HS403."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import counted

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class SettingsDiffer:
    """
    ## What it is
    A note: settings that change the arithmetic are not the same on both sides.
    ## Why it happens
    Every engine has its own defaults for attention backend, KV dtype, chunked prefill and compilation.
    ## How it shows
    The differing ones are listed side by side. A setting is a suspect only where the ratios say that
    something is off.
    ## Fix
    None is needed at parity. Otherwise make them equal one at a time.
    """

    code, name = "HS403", "settings-differ"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding
        from hsparity.yardstick import SETTINGS, setting

        lines = []
        a, b = evidence.ref.manifest.dtype, evidence.cand.manifest.dtype
        if a != b:
            lines.append(f"dtype: ref {a}, cand {b}")
        for name in SETTINGS:
            left, right = setting(evidence.ref, name), setting(evidence.cand, name)
            # What one side does not say may well be the same.
            if left is not None and right is not None and left != right:
                lines.append(f"{name}: ref {left}, cand {right}")
        if not lines:
            return None
        words = f"{counted(len(lines), 'setting')} differ{'s' * (len(lines) == 1)}"
        return Finding(self.code, self.name, words, evidence=tuple(lines), severity="note")


CAUSE = SettingsDiffer()
