"""Findings, one file per code. Each module's docstring is its explanation; `CAUSE` says when it is found."""
