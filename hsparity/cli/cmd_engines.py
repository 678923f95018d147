"""hsparity engines: environments that hold vLLM, SGLang or Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import HsparityError

if TYPE_CHECKING:
    from ..engines.locks import Lock


@click.group()
def engines() -> None:
    """Install, adopt and list inference engines.

    Engines live in their own environments: they conflict with each other and hsparity imports
    none of them. CPU builds are installed where there is no GPU driver.

    \b
    Examples:
      hsparity engines install vllm sglang
      hsparity engines install vllm==0.31.0       then: hsparity capture vllm@0.31.0 ...
      hsparity engines add sglang --python /opt/sglang/bin/python
    """


@engines.command(name="list")
def list_() -> None:
    """List what is installed, adopted and installable."""
    from ..engines import adopted, environments, facts, locks, machine

    click.echo("ENGINE          VERSION    ORIGIN       WHERE")
    rows = [
        _row(name, _adopted_version(name), "adopted", str(path)) for name, path in adopted.adopted().items()
    ]
    own = _own_transformers()
    rows += [_row("hf", own, "own", "hsparity's own environment")] if own else []
    for made in environments.all_environments():
        label = made.lock.engine if made.lock else made.folder.name
        version = made.facts.get("version", made.lock.version if made.lock else "")
        if made.lock and made.lock.version != _newest(made.lock.engine):
            label = f"{label}@{made.lock.version}"
        rows.append(
            _row(label, version, "managed" if made.state == "complete" else made.state, str(made.folder))
        )
    for row in rows:
        click.echo(row)
    ready = {e.lock.name for e in environments.all_environments() if e.lock and e.state == "complete"}
    open_ = [k for e in facts.ENGINES for k in locks.fitting(e, machine.device()) if k.name not in ready]
    for lock in open_:
        click.echo(
            _row(lock.engine, lock.version, "-", f"hsparity engines install {lock.engine}=={lock.version}")
        )


def _row(name: str, version: str, origin: str, where: str) -> str:
    return f"{name:<15} {version or '?':<10} {origin:<12} {where}"


def _newest(engine: str) -> str:
    from ..engines import locks, machine

    found = locks.fitting(engine, machine.device())
    return found[0].version if found else ""


def _own_transformers() -> str:
    from importlib import metadata

    try:
        return metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return ""


def _adopted_version(name: str) -> str:
    from ..engines import interpreter

    try:
        return interpreter.resolve(name).version
    except HsparityError:
        return "gone"


@engines.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--python", metavar="PATH", help="Make the environment with this interpreter.  [default: the lock's]"
)
def install(names: tuple[str, ...], python: str | None) -> None:
    """Install engines into managed environments in the cache folder.

    NAME is vllm or sglang, or a release that has a lock: vllm==0.31.0. speculators, which writes
    datasets of states, has an environment too.
    """
    from ..engines import install as installing
    from ..engines import locks, machine

    chosen = [locks.choose(name, machine.device()) for name in names]
    _check_disk(chosen)
    for lock in chosen:
        made = installing.install(lock, python)
        click.echo(f"{lock.engine} {made.facts['version']}  {made.facts['device']}  {made.python}")


def _check_disk(chosen: list[Lock]) -> None:
    """All of them together, before the first takes minutes."""
    from ..engines import environments, machine
    from ..engines import install as installing

    absent = [k for k in chosen if environments.installed(k.engine, k.version) is None]
    need, free = sum(map(installing.need_bytes, absent)), machine.free_bytes(machine.cache_folder())
    if free < need:
        raise HsparityError(
            "E308",
            f"not enough disk for {' and '.join(k.name for k in absent)}",
            (
                f"needed  {machine.gigabytes(need)}",
                f"free    {machine.gigabytes(free)} at {machine.cache_folder()}",
            ),
            "free some, install one at a time, or set XDG_CACHE_HOME to a folder on a larger disk",
        )


@engines.command()
@click.argument("name")
@click.option("--python", required=True, metavar="PATH", help="An interpreter that can import the engine.")
def add(name: str, python: str) -> None:
    """Adopt an interpreter that you already have.

    It has to import the engine, torch and safetensors; nothing is installed in it.
    NAME is hf, vllm or sglang, with a label if you keep several: vllm@nightly.
    """
    from ..engines import adopted, facts

    answer = adopted.add(name, python)
    engine, _ = facts.split_selector(name)
    version = answer.version_of(facts.facts(engine))
    if warning := facts.untried(engine, version):
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"{name}  {version}  Python {answer.python}  {python}")


@engines.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a managed environment, or forget an adopted interpreter.

    An adopted interpreter is forgotten first, and never touched.
    """
    from ..engines import adopted, environments, facts

    if adopted.forget(name.replace("==", "@")):
        click.echo(f"forgot {name}")
        return
    engine, version = facts.split_selector(name)
    mine = [
        e
        for e in environments.all_environments()
        if e.lock and e.lock.engine == engine and version in ("", e.lock.version) and e.state != "installing"
    ]
    if not mine:
        raise HsparityError("E301", f"{name} is not installed here", help="hsparity engines list")
    for environment in mine:
        environments.remove(environment.folder)
        click.echo(f"removed {environment.folder}")


@engines.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the interpreter that runs an engine."""
    from ..engines import resolve

    click.echo(resolve(name).python)


COMMAND = engines
