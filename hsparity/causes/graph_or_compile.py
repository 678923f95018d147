"""HS506."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class GraphOrCompile(Hypothesis):
    """
    ## What it is
    One side ran compiled or as a CUDA graph, and eager it would not differ.
    ## Why it happens
    Fusions keep fewer roundings; a graph replays with padded batches and buffers of fixed address, so a stale or padded row
    may be read.
    ## How it shows
    The mode of the sides differs. With graphs, decoded rows are off and prefill rows are not. Padding alone changes sums: the
    padded batch has to be run eager before the graph is to blame.
    ## Fix
    Run `--enforce-eager` (vLLM) or `--disable-cuda-graph` (SGLang) and capture again; `hsparity bisect --knobs graph` does, with
    the padded run before.
    """

    code, name = "HS506", "graph-or-compile"


CAUSE = GraphOrCompile()
