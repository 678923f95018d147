"""From an engine's name, a folder, or hsparity.toml to capture folders, running engines if allowed."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hsprobe.schema import CaptureSpec, PromptSpec

from .. import config as configuration
from ..config import Config, SideConfig
from ..engines import facts
from ..engines import resolve as find_interpreter
from ..errors import HsparityError
from . import checkpoint, floorstore, launch, prompts, specs
from .relay import Relay
from .specs import Wanted

FORMS = (
    "hsparity compare captures/ref captures/cand --layers 2,30,58\n"
    "hsparity compare hf vllm --model M --layers 2,30,58\n"
    "or write hsparity.toml with [ref] and [cand], then: hsparity compare --layers 2,30,58"
)


@dataclass(frozen=True)
class Chosen:
    """What `hsparity compare` compares, all of it on disk."""

    ref: Path
    cand: Path
    floors: tuple[Path, ...]
    layers: str | None
    boundaries: str | None
    tokens: str


def resolve_pair(
    ref: str | None,
    cand: str | None,
    *,
    floors: Sequence[str] = (),
    model: str | None = None,
    prompts: str | None = None,
    allow_capture: bool = True,
    verbose: bool = False,
    layers: str | None = None,
    boundaries: str | None = None,
    tokens: str | None = None,
    limit: int | None = None,
    max_tokens: int | None = None,
) -> Chosen:
    """Both sides and the floor, from the command line first and hsparity.toml second.

    Whatever can be refused is refused before an engine starts. Raises E101 when a side is missing or an engine
    may not be started, E102 for a selection outside the model, E104 for a bad config, E107 for an unknown
    engine, E202 for a path that does not exist, and what a capture raises.
    """
    config = configuration.load() or Config()
    if prompts is not None:
        config = replace(config, prompts=_from_here(prompts, config))
    if model is not None:
        config = replace(config, model=model)
    config = replace(config, limit=limit or config.limit, max_tokens=max_tokens or config.max_tokens)
    pair = [_side(given, config, role) for given, role in ((ref, "ref"), (cand, "cand"))]
    if ref and cand and any(len(floorstore.beside(Path(p), floorstore.REFERENCES)) == 2 for p in (ref, cand)):
        # What lies beside a capture that was typed is about that capture, the config's floor about the config's sides.
        config = replace(config, floor=replace(config.floor, captures=()))
    maker = Maker(config, allow_capture, verbose, [config.relative(s.capture) for s in pair if s.capture])
    if not (layers or boundaries):
        layers, boundaries = config.layers, config.boundaries
    tokens = tokens or config.tokens
    measured = [Path(f) for f in floors if f != "none"]
    named = measured if floors else [config.relative(f) for f in config.floor.captures]
    maker.check(pair, named, (layers, boundaries, tokens))
    paths = [maker.path(side) for side in pair]
    running = any(side.engine for side in pair)
    look = not floors and not config.floor.captures and config.floor.make is not False
    there = look and any(len(floorstore.beside(p, floorstore.REFERENCES)) == 2 for p in paths)
    found = measured if floors else [] if there else maker.floor(wanted=running)
    if look:
        found = floorstore.serving(paths[0], paths[1], found)
    return Chosen(paths[0], paths[1], tuple(found), layers, boundaries, tokens)


def resolve(side: str, config: Config, allow_capture: bool = True, verbose: bool = False) -> Path:
    """The capture folder of "ref", "cand", an engine or a path. Raises as `resolve_pair` does."""
    chosen = getattr(config, side) if side in ("ref", "cand") else _side(side, config, side)
    return Maker(config, allow_capture, verbose, []).path(chosen)


def floor(config: Config, allow_capture: bool = True, verbose: bool = False) -> list[Path]:
    """The floor's captures: those the config names, else Transformers in fp32 and in bf16."""
    return Maker(config, allow_capture, verbose, []).floor(wanted=True)


def _side(given: str | None, config: Config, role: str) -> SideConfig:
    """The config's side when nothing is given, else what is given, with the config's settings for it."""
    configured: SideConfig = getattr(config, role) if role in ("ref", "cand") else SideConfig()
    if given is None:
        if not configured.engine and not configured.capture:
            where = f"{config.path} has no [{role}]" if config.path else f"no {configuration.FILE} here"
            raise HsparityError("E101", f"nothing to compare: {role.upper()} is missing", (where,), FORMS)
        return configured
    if not given.strip():
        raise HsparityError("E101", f"nothing to compare: {role.upper()} is an empty argument", help=FORMS)
    if _is_engine(given):
        facts.split_side(given)
        if (Path(given) / "manifest.json").is_file():
            Relay(given, 0).say(f"taken as the engine; ./{given} names the folder")
        alike = [s for s in (configured, config.ref, config.cand) if s.engine == given]
        return alike[0] if alike else SideConfig(engine=given)
    if not Path(given).expanduser().exists():
        raise _unknown(given)
    return SideConfig(capture=_from_here(given, config))


def _from_here(name: str, config: Config) -> str:
    """A path typed on the command line, as the config would have to spell it."""
    return name if config.folder == Path() else str(Path(name).absolute())


def _is_engine(given: str) -> bool:
    """An engine's name wins over a folder of that name; ./hf names the folder."""
    return given.replace("==", "@").partition("@")[0] in facts.ENGINES


def _unknown(given: str) -> HsparityError:
    """E107 for a bare word that is neither engine nor folder, E202 for anything that looks like a path."""
    if Path(given).name != given or _neighbours(Path(given)):
        return _no_such(Path(given))
    try:
        facts.split_side(given)
    except HsparityError as error:
        notes = (*error.notes, f"no folder here is called {given} either")
        return HsparityError(error.code, error.message, notes, error.help)
    return _no_such(Path(given))


def _neighbours(path: Path) -> list[str]:
    """Folders beside a missing path that are called nearly the same."""
    path = path.expanduser()
    try:
        beside = [p.name for p in path.parent.iterdir() if p.is_dir()]
    except OSError:
        return []
    return [str(path.with_name(name)) for name in difflib.get_close_matches(path.name, beside, n=3)]


def _no_such(path: Path) -> HsparityError:
    near = _neighbours(path)
    engines = f"name a folder, or an engine to run: {', '.join(facts.capturing())}"
    return HsparityError(
        "E202", f"no such capture: {path}", help=f"did you mean {' or '.join(near)}?" if near else engines
    )


def _files_beside_engine(path: Path, engine: str, model: str) -> HsparityError:
    """A dataset has no prompts file: its own tokens have to be run, which is what `audit` does."""
    return HsparityError(
        "E103",
        f"{path} is no capture, so its tokens are not prompts that {engine} could be started with here",
        help=f"hsparity audit {path} --engine {engine} --model {model or 'M'} samples it and runs the engine on its own tokens",
    )


class Maker:
    """Makes the captures of one comparison: the same prompts, the first's continuation forced on the rest."""

    def __init__(self, config: Config, allow: bool, verbose: bool, existing: list[Path]) -> None:
        self.config, self.allow, self.verbose = config, allow, verbose
        # A capture that is there says which model and prompts the other side needs.
        self.base = next((spec for path in existing if (spec := spec_of(path)) is not None), None)
        self.leader = existing[0] if existing and spec_of(existing[0]) is not None else None
        self._given: tuple[PromptSpec, ...] | None = None
        self._made: dict[Path, Wanted] = {}

    def path(self, side: SideConfig, shared: bool = False) -> Path:
        """The folder of a side, captured now if it has to be. A `shared` one may be a folder made before."""
        if side.capture:
            path = self.config.relative(side.capture)
            if not path.exists():
                raise _no_such(path)
            return path
        wanted = self._wanted(side)
        same = [path for path, made in self._made.items() if made == wanted]
        return same[0] if shared and same else self._make(wanted, again=bool(same))

    def check(
        self,
        pair: Sequence[SideConfig],
        floors: Sequence[Path],
        asked: tuple[str | None, str | None, str],
    ) -> None:
        """Refuse what cannot be compared, before an engine starts for it.

        `asked` is --layers, --boundaries and --tokens. Raises E101, E102, E107, E202, E301 and what opening a
        capture raises, E211 for a floor that holds none.
        """
        engines = [side for side in pair if side.engine]
        for side in engines:
            facts.split_side(side.engine)
        folders = [self.config.relative(side.capture) for side in pair if side.capture]
        for path in (*folders, *floors):
            if not path.exists():
                raise _no_such(path)
        if not engines:
            return
        from ..query import Query
        from ..yardstick import find_floors
        from .read import open_source

        for path in floors:
            find_floors(path)
        wanted = [self._wanted(side) for side in engines]
        for path in folders:
            if not any((path / name).is_file() for name in ("manifest.json", "plain.json", "journal.jsonl")):
                raise _files_beside_engine(path, engines[0].engine, self.config.model)
        counts = [open_source(path).manifest.num_layers for path in folders]
        layers, boundaries, tokens = asked
        query = Query(layers, boundaries, tokens=tokens)
        query.keeps(np.zeros(0, np.int32), 0)
        if tokens.strip().lower() == "decode" and not all(each.generate for each in wanted):
            raise HsparityError(
                "E102",
                "bad --tokens 'decode': nothing is decoded",
                help="generate = 8 in hsparity.toml, or compare captures made with --generate",
            )
        for each in wanted:
            find_interpreter(each.engine)
            if query.spelled == Query().spelled:
                continue
            shape = checkpoint.read_shape(each.model, each.revision)
            if shape is None and not counts:
                self._prompts(each)  # tokenising brings a hub model's config.json
                shape = checkpoint.read_shape(each.model, each.revision)
            counts += [shape.num_layers] if shape else []
        for count in dict.fromkeys(counts):
            query.chosen_boundaries(count)

    def _wanted(self, side: SideConfig) -> Wanted:
        """What is captured for a side that is an engine. Raises E101 without a model."""
        return Wanted(
            engine=side.engine,
            model=self._model(side),
            sites=side.sites,
            mechanism=side.mechanism,
            native_ids=side.native_ids,
            generate=self.config.generate or (self.base.generate if self.base else 0),
            batch=self.config.batch,
            dtype=side.dtype,
            revision=side.revision or (self.base.revision if self.base else ""),
            trust_remote_code=side.trust_remote_code,
            engine_args=side.engine_args,
        )

    def floor(self, wanted: bool) -> list[Path]:
        """Captures to measure against, made when the config asks or when `wanted` and possible."""
        chosen = self.config.floor
        if chosen.captures:
            return [self.config.relative(name) for name in chosen.captures]
        if chosen.make is False or not (wanted or chosen.make):
            return []
        try:
            find_interpreter("hf")
        except HsparityError:
            if chosen.make:
                raise
            Relay("floor", 0).say("none: Transformers is not installed (pip install 'hsparity[hf]')")
            return []
        pair = (self.config.ref, self.config.cand)
        plain = SideConfig(
            engine="hf",
            revision=next((s.revision for s in pair if s.revision), ""),
            trust_remote_code=any(s.trust_remote_code for s in pair),
        )
        try:
            return [self.path(replace(plain, dtype=d), shared=True) for d in ("float32", "bfloat16")]
        except HsparityError as error:
            # Without permission to capture, a floor that is not there is no floor.
            if error.code != "E101" or self.allow or chosen.make:
                raise
            return []

    def _make(self, wanted: Wanted, again: bool) -> Path:
        given = self._prompts(wanted)
        if wanted.generate and self.leader is not None:
            given = prompts.continued(given, specs.read_manifest(self.leader), str(self.leader))
        spec = specs.build(wanted, given)
        interpreter = find_interpreter(wanted.engine)
        key = hashlib.sha256(
            f"{spec.sha256()} {interpreter.version} {interpreter.device}".encode()
        ).hexdigest()
        name = wanted.engine.replace("==", "-").replace("@", "-")
        # An engine against itself is two runs, not one folder read twice.
        out = self.config.relative(self.config.captures) / f"{name}-{key[:12]}{'-again' if again else ''}"
        if not launch.is_complete(out, spec):
            if not self.allow:
                raise HsparityError(
                    "E101",
                    f"{wanted.engine} has no capture of this, and --no-capture is given",
                    (f"it would be {out}",),
                    "leave --no-capture out, or name a capture folder",
                )
            launch.run_capture(spec, out, interpreter, self.verbose)
        self._made.setdefault(out, wanted)
        if self.leader is None:
            self.leader = out
        return out

    def _model(self, side: SideConfig) -> str:
        name = self.config.model or (self.base.model if self.base else "")
        if not name:
            raise HsparityError(
                "E101", f"no model for {side.engine}", help='--model M, or model = "M" in hsparity.toml'
            )
        # A relative folder in the config is meant from the config's place.
        beside = self.config.relative(name)
        folder = str(beside) if self.config.path and beside.is_dir() else name
        return specs.resolve_model(folder, side.revision)

    def _prompts(self, wanted: Wanted) -> tuple[PromptSpec, ...]:
        """Tokenised once for the whole comparison."""
        if self._given is None:
            if self.config.prompts or self.base is None:
                file = self.config.relative(self.config.prompts) if self.config.prompts else None
                self._given = specs.tokenised(wanted, file, self.config.limit, self.config.max_tokens)
            else:
                most = self.config.max_tokens
                self._given = tuple(
                    replace(p, token_ids=p.token_ids[:most], forced=())
                    for p in self.base.prompts[: self.config.limit]
                )
        return self._given


def spec_of(folder: Path) -> CaptureSpec | None:
    """The spec a capture of ours was made from; None for other folders."""
    try:
        return CaptureSpec.from_json((folder / "spec.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None
