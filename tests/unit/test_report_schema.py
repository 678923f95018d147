"""docs/schema is what the records say, and holds for every result that is written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict, is_dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hsparity.cli.main import invoke
from hsparity.model import encode, from_json, to_json
from hsparity.report import Options, reporters, schema
from tests.golden.cases import CASES
from tests.unit.drafter.records import COSTS
from tests.unit.filling import filled

ROOT = Path(__file__).parents[2]
SCHEMAS = schema.schemas()
SPECIMENS = sorted(ROOT.glob("reports/*/report.json"))


@cache
def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(SCHEMAS[name])


def wrong(document: Any) -> list[str]:
    """What the schema that the document names says against it."""
    name = document["schema"].removeprefix("hsparity.").partition("/")[0]
    return [f"{e.json_path}: {e.message[:200]}" for e in validator(name).iter_errors(document)]


def document(name: str) -> Any:
    return json.loads(reporters()["json"].render(CASES[name](), Options()))


def test_the_committed_schemas_are_the_generated_ones() -> None:
    """`make docs` was run after the last change of a record."""
    made = schema.files()
    committed = {
        path.name: path.read_text(encoding="utf-8") for path in (ROOT / schema.FOLDER).glob("*.json")
    }
    stale = [name for name, text in made.items() if committed.get(name) != text]
    assert not stale, f"{stale}: run make docs (python -m hsparity.report.schema)"


def test_every_record_with_a_schema_string_is_published() -> None:
    """A module that defines SCHEMA and a record with a `schema` field is in the list."""
    found = set()
    for path in (ROOT / "hsparity").rglob("*.py"):
        if re.search(r'(?m)^SCHEMA = "hsparity\.', path.read_text(encoding="utf-8")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            own = [
                v for v in vars(import_module(name)).values() if isinstance(v, type) and v.__module__ == name
            ]
            if any(is_dataclass(v) and "schema" in v.__dataclass_fields__ for v in own):
                found.add(name)
    assert found == set(schema.MODULES)


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_schema_is_one_and_describes_its_record(name: str) -> None:
    """Valid by draft 2020-12; a record with every field filled passes as it is written, and so it does with keys of a later
    minor version anywhere."""
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    ((string, kind),) = [(s, k) for s, k in schema.records() if s.startswith(f"hsparity.{name}/")]
    record = replace(filled(kind), schema=string)
    # As each command writes it, and as the encoder that most share does.
    own = getattr(record, "to_json", None)
    documents = [json.loads(json.dumps(encode(record), allow_nan=False))]
    documents += [json.loads(own())] if own and name not in ("draft-check",) else []
    documents += [json.loads(json.dumps(asdict(record)))] if name == "draft-check" else []
    for made in documents:
        assert wrong(made) == []
        assert wrong(_with_more(made)) == []


def _with_more(node: Any) -> Any:
    """The same with a key that nobody knows in every record; a mapping of figures is no record."""
    if isinstance(node, list):
        return [_with_more(part) for part in node]
    if isinstance(node, dict):
        record = len(node) > 1
        return {
            **{k: _with_more(v) for k, v in node.items()},
            **({"new in 1.1": {"any": 1}} if record else {}),
        }
    return node


@pytest.mark.parametrize("name", CASES)
def test_every_golden_result_passes(name: str) -> None:
    """Hostile, tiny and huge ones."""
    assert wrong(document(name)) == []


@pytest.mark.parametrize("path", SPECIMENS, ids=lambda p: p.parent.name)
def test_every_specimen_passes(path: Path) -> None:
    """Results of real captures, as they were saved; some by an older version of the record."""
    assert wrong(json.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", COSTS)
def test_every_cost_passes(name: str) -> None:
    """What hsparity drafter --json wrote."""
    assert wrong(json.loads(COSTS[name]().to_json())) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema", "hsparity.comparison/2"),
        ("verdict", "missing link"),
        ("verdict", None),
        ("headline", 3),
        ("ref", None),
        ("ref.tokens", "96"),
        ("ref.settings", []),
        ("request.layers.0", 1.5),
        ("deltas.0.requested", 1),
        ("deltas.0.nonfinite", [1]),
        ("deltas.0.nonfinite", [1, 2, 3]),
        ("deltas.0.metrics.rel_l2", 0.1),
        ("deltas.0.metrics.rel_l2.p50", "nan"),
        ("deltas.0.ratios.0.verdict", "fine"),
        ("alignment.pair_error_kk", [[0.0]]),
        ("alignment.pair_error_kk.dtype", "float64"),
        ("alignment.pair_error_kk.base64", "*"),
        ("alignment.pair_error_kk.shape", [-1]),
        ("map.prompts.0", ["0", 1]),
        ("findings.0.fix.any", None),
        ("findings.0.evidence", "one line"),
    ],
)
def test_a_changed_result_fails(path: str, value: Any) -> None:
    """Each field is held to its type, each list of fixed length to it."""
    made = document("offset")
    *holders, key = path.split(".")
    node = made
    for holder in holders:
        node = node[int(holder)] if isinstance(node, list) else node[holder]
    node[int(key) if isinstance(node, list) else key] = value
    assert not validator("comparison").is_valid(made)


def test_a_field_without_a_default_must_be_there() -> None:
    """The reader needs it; one with a default may be absent."""
    made = document("offset")
    for optional in set(made) - set(SCHEMAS["comparison"]["required"]):
        del made[optional]
    assert wrong(made) == []
    assert to_json(from_json(json.dumps(made))) == to_json(CASES["offset"]())
    for key in SCHEMAS["comparison"]["required"]:
        assert not validator("comparison").is_valid({k: v for k, v in made.items() if k != key}), key


def test_fields_are_described_by_their_comments() -> None:
    """What stands beside a field in the source stands in the schema."""
    floor = SCHEMAS["comparison"]["$defs"]["SlotMatch"]["properties"]
    assert floor["claimed"]["description"] == "boundary it was said to be; None when unlabelled"
    assert floor["side"]["description"].startswith(
        '"cand" or "ref": that side\'s sites on the other\'s boundaries;'
    )


def test_report_prints_a_schema_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    """hsparity report --schema [NAME]; another name lists those that there are."""
    code = (
        "import sys; sys.modules['torch'] = None; from hsparity.cli.main import invoke; "
        "sys.exit(invoke(['report', '--schema', 'selfcheck']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, schema.text("selfcheck")), done.stderr
    assert invoke(["report", "--schema"]) == 0
    assert capsys.readouterr().out == schema.text("comparison")
    for arguments in (
        ["report", "--schema", "capture"],
        ["report", "x.json", "--schema", "replay"],
        ["report"],
    ):
        assert invoke(arguments) == 2
        assert "error[E100]" in capsys.readouterr().err
