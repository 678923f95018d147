"""hsparity doctor: what is here, and what cannot work."""

from __future__ import annotations

import platform
import sys
import textwrap

import click

from ..errors import ExitCode, HsparityError


@click.command()
def doctor() -> int:
    """Say what is here, what is missing and what cannot work.

    Exits 0 when at least one engine is usable, 4 when none is.
    """
    from ..engines import facts, machine

    click.echo(f"python      {platform.python_version()}  {sys.executable}")
    driver = "NVIDIA driver found" if machine.has_driver() else "no NVIDIA driver: engines run on the CPU"
    click.echo(f"device      {driver}")
    compiler = machine.c_compiler()
    click.echo(f"compiler    {compiler or 'none: gcc or clang is needed to install SGLang without a GPU'}")
    root = machine.cache_folder()
    click.echo(f"disk        {machine.gigabytes(machine.free_bytes(root))} free at {root}")
    usable = [_engine(name) for name in facts.capturing()]
    for name in facts.ENGINES:
        if not facts.ENGINES[name].captures:
            _engine(name)
    return int(ExitCode.PARITY if any(usable) else ExitCode.ENGINE)


def _engine(name: str) -> bool:
    """Report one engine; True when it can be used."""
    from ..engines import ask, environments, facts, machine, resolve

    known = facts.facts(name)
    low, high = known.tried
    tried = low if low == high else f"{low} to {high}"
    click.echo(f"\n{known.title}")
    limits = known.limits
    try:
        found = resolve(name)
    except HsparityError as error:
        click.echo(f"  found     no: {error.message}")
        for line in error.help.splitlines():
            click.echo(f"            {line}")
        usable = False
        limits += known.limits_cpu if machine.device() == "cpu" else ()
    else:
        # Asked, not believed: an environment may have been changed since.
        answer = ask.ask(found.python, known)
        version = answer.version_of(known)
        usable = bool(version)
        where = {"own": "hsparity's own environment", "managed": "managed", "adopted": "yours"}[found.origin]
        click.echo(
            f"  found     {found.python}  ({where})" if usable else f"  found     damaged: {found.python}"
        )
        for line in answer.error:
            click.echo(f"            {line}")
        others = [
            f"{p} {v}" for p, v in (answer.versions or {}).items() if p in ask.PACKAGES and p != known.module
        ]
        if usable:
            click.echo(f"  version   {version}  ({', '.join([f'Python {answer.python}', *others])})")
        if usable and (warning := facts.untried(name, version)):
            click.echo(f"  warning   {warning}")
        click.echo(f"  runs on   {'GPU' if found.device == 'cuda' else 'CPU'}")
        if found.shims:
            click.echo(f"  shims     {', '.join(found.shims)}: named in every capture made with them")
        limits += known.limits_cpu if found.device == "cpu" else ()
    click.echo(f"  tried     {tried}")
    if usable:
        _knobs(name, version, found.device)
    for made in environments.all_environments():
        if made.lock and made.lock.engine == name and made.state != "complete":
            click.echo(f"  also      {made.state}: {made.folder}")
        elif made.lock and made.lock.engine == name and made.lock.version != _version(name):
            click.echo(f"  also      {name}@{made.lock.version}  {made.folder}")
    for index, limit in enumerate(limits):
        click.echo(f"  {'cannot' if not index else '':<9} {limit}")
    return usable


def _knobs(name: str, version: str, device: str) -> None:
    """What `hsparity bisect` can turn here."""
    from ..experiments.knobs import turnable

    able, unable = turnable(name, version, device)
    if able:
        _folded("knobs", ", ".join(able))
    for index, (why, names) in enumerate(unable.items()):
        _folded("not here" if not index else "", f"{', '.join(names)}: {why}")


def _folded(label: str, text: str) -> None:
    lines = textwrap.wrap(text, 100, break_on_hyphens=False)
    for index, line in enumerate(lines):
        click.echo(f"  {label if not index else '':<9} {line}")


def _version(name: str) -> str:
    from ..engines import resolve

    try:
        return resolve(name).version
    except HsparityError:
        return ""


COMMAND = doctor
