"""hsparity doctor: what is here, and what cannot work."""

from __future__ import annotations

import contextlib
import io
import platform
import sys
import textwrap

import click

from ..errors import ExitCode, HsparityError


@click.command()
@click.argument("paths", nargs=-1)
@click.option("--bundle", metavar="FILE", help="Write the attachment for a bug report: one zip of texts.")
@click.option("--with-prompts", is_flag=True, help="Leave prompts and token ids in the bundle.")
def doctor(paths: tuple[str, ...], bundle: str | None, with_prompts: bool) -> int:
    """Say what is here, what is missing and what cannot work.

    With --bundle, PATHS are captures and saved results of any command. Of a capture the bundle holds the manifest, the
    self-check and the end of the log, never a hidden state. What is inside is listed, and what is not.

    \b
    Examples:
      hsparity doctor
      hsparity doctor --bundle bug.zip result.json captures/vllm

    Exits 0 when at least one engine is usable, 4 when none is; with --bundle, 0 when it is written.
    """
    if bundle is not None:
        return _bundle(bundle, paths, with_prompts)
    if paths or with_prompts:
        raise click.UsageError("PATHS and --with-prompts are for --bundle FILE.zip")
    return _examine()


def _bundle(target: str, paths: tuple[str, ...], with_prompts: bool) -> int:
    from . import bundle, scrub

    bundle.check(target)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        _examine()
    made = bundle.members(paths, said.getvalue(), scrub.here(), with_prompts)
    size = bundle.write(target, made.texts)
    for line in bundle.contents(target, size, made, with_prompts):
        click.echo(line)
    return 0


def _examine() -> int:
    """Print what is here; 0 when an engine is usable, else 4."""
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
