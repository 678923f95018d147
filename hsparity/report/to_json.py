"""The whole result as one JSON document."""

from __future__ import annotations

from ..model import Comparison, to_json
from . import spelling as sp
from .base import Options


class JsonReporter:
    suffix = ".json"

    def render(self, comparison: Comparison, options: Options) -> str:
        """The document that `hsparity report` reads back: sorted keys, non-finite numbers as null."""
        return sp.json_text(to_json(comparison, indent=1)) + "\n"


REPORTER = JsonReporter()
