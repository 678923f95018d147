"""The container files, linted: the tests cannot build them, so at least they parse and name what exists."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from dockerfile_parse import DockerfileParser

from hsparity.cli.main import hsparity

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
INSTRUCTIONS = {"ARG", "CMD", "COMMENT", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "VOLUME", "WORKDIR"}


def parse(path: Path) -> list[dict[str, Any]]:
    structure: list[dict[str, Any]] = DockerfileParser(fileobj=io.BytesIO(path.read_bytes())).structure
    return structure


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path out of the build: everything is out but what a `!` line names."""
    lines = (ROOT / ".dockerignore").read_text().split()
    kept = [line[1:] for line in lines if line.startswith("!")]
    return not any(path == k or path.startswith(f"{k}/") for k in kept)


def test_there_is_one_file_per_engine() -> None:
    """vLLM and SGLang each have a Dockerfile."""
    assert [p.stem for p in DOCKERFILES] == ["sglang", "vllm"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.stem)
def test_dockerfiles_parse(path: Path) -> None:
    """Known instructions only, a FROM first, an exec-form entry point, and both devices are handled."""
    structure = parse(path)
    names = [s["instruction"] for s in structure]
    assert set(names) <= INSTRUCTIONS
    assert next(n for n in names if n not in ("COMMENT", "ARG")) == "FROM"
    assert yaml.safe_load(next(s["value"] for s in structure if s["instruction"] == "ENTRYPOINT")) == [
        "hsparity"
    ]
    script = "\n".join(s["value"] for s in structure if s["instruction"] == "RUN")
    assert "cpu)" in script
    assert "cuda)" in script
    # An argument set before FROM is unknown after it.
    assert "ARG" in names[names.index("FROM") :]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.stem)
def test_copied_files_exist(path: Path) -> None:
    """Every COPY source is in the checkout and not ignored; every lock that is named exists."""
    structure = parse(path)
    for step in structure:
        if step["instruction"] == "COPY":
            for source in shlex.split(step["value"])[:-1]:
                assert (ROOT / source).exists(), source
                assert not ignored(source), source
    text = path.read_text()
    locks = [
        word.strip("\"';") for word in text.replace("=", " ").replace("/", " ").split() if ".txt" in word
    ]
    assert locks
    for lock in locks:
        if "$" not in lock:
            assert (ROOT / "hsparity" / "engines" / "locks" / lock).exists(), lock


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.stem)
def test_shell_steps_parse(path: Path, tmp_path: Path) -> None:
    """Each RUN is valid shell."""
    import subprocess

    for step in parse(path):
        if step["instruction"] == "RUN":
            script = tmp_path / "step.sh"
            script.write_text(step["value"])
            subprocess.run(["sh", "-n", str(script)], check=True)


def compose(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / name).read_text())
    return loaded


def test_compose_captures_on_both_and_compares() -> None:
    """Every service builds from a file that is there, and waits for what it reads."""
    services = compose("compose.yaml")["services"]
    assert list(services) == ["hf-fp32", "hf-bf16", "vllm", "sglang", "compare"]
    for service in services.values():
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    written = [s["command"][s["command"].index("-o") + 1] for s in services.values() if "-o" in s["command"]]
    compared = services["compare"]["command"]
    read = {*compared[1:3], *(compared[i + 1] for i, word in enumerate(compared) if word == "--floor")}
    assert read == set(written)
    waits = {name: set(s.get("depends_on", {})) for name, s in services.items()}
    reached, rest = set(), {"compare"}
    while rest:
        reached |= rest
        rest = set().union(*(waits[name] for name in rest)) - reached
    assert reached == set(services)


def test_compose_commands_are_commands() -> None:
    """Each service's command is one of hsparity's, and each option one that the command has."""
    for service in compose("compose.yaml")["services"].values():
        words = [
            word.replace("${MODEL:-tiny:deepseek-v3}", "tiny:deepseek-v3") for word in service["command"]
        ]
        result = CliRunner().invoke(hsparity, [*words, "--help"])
        assert result.exit_code == 0, result.output
        assert f"hsparity {words[0]}" in result.output
        known = {p for p in result.output.replace(",", " ").split() if p.startswith("-")}
        assert {word for word in words if word.startswith("-")} <= known


def test_the_cuda_file_adds_to_known_services() -> None:
    """compose.cuda.yaml gives GPUs to the services that capture, and to no others."""
    services = compose("compose.yaml")["services"]
    captures = {name for name, s in services.items() if s["command"][0] == "capture"}
    assert set(compose("compose.cuda.yaml")["services"]) == captures
