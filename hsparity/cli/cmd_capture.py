"""hsparity capture: run an engine over prompts and keep its hidden states."""

from __future__ import annotations

from pathlib import Path

import click

from .env_list import read_environment
from .grouped import GroupedCommand, grouped_option

WHAT, PROMPTS, NATIVE, ENGINE, OUTPUT = (
    "What to capture",
    "Prompts",
    "The engine's own path",
    "Engine",
    "Output",
)
BEGUN = {"engine.log", "probe.started", "probe.error", "spool/"}
CONTEXT = {"ignore_unknown_options": False, "allow_interspersed_args": True}


@click.command(cls=GroupedCommand, context_settings=CONTEXT)
@click.argument("engine")
@click.argument("engine_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- KEY=VALUE...]")
@grouped_option(
    ENGINE,
    "--model",
    required=True,
    metavar="M",
    help="Checkpoint folder, hub name, or a bundled model: tiny:deepseek-v3, tiny:llama, smollm2.",
)
@grouped_option(
    ENGINE,
    "--dtype",
    default="bfloat16",
    metavar="DTYPE",
    help="Compute dtype: bfloat16, float16 or float32.  [default: bfloat16]",
)
@grouped_option(
    ENGINE,
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Prompts submitted together.  [default: 1]",
)
@grouped_option(ENGINE, "--revision", default="", metavar="REV", help="Branch, tag or commit of a hub model.")
@grouped_option(
    ENGINE, "--trust-remote-code", is_flag=True, help="Let the engine run code that comes with the model."
)
@grouped_option(
    ENGINE,
    "--env",
    "env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set this in the engine's processes; may be given several times.",
)
@grouped_option(
    PROMPTS,
    "--prompts",
    metavar="FILE",
    help="JSONL: text, chat messages or token ids; .txt, a prompt a line; or a dataset or capture, for its tokens.  "
    "[default: a small English set]",
)
@grouped_option(PROMPTS, "--limit", type=click.IntRange(min=1), metavar="N", help="Take the first N prompts.")
@grouped_option(
    PROMPTS, "--max-tokens", type=click.IntRange(min=1), metavar="N", help="Cut every prompt to N tokens."
)
@grouped_option(
    PROMPTS,
    "--generate",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Decode N tokens after each prompt, greedily.  [default: 0]",
)
@grouped_option(
    PROMPTS,
    "--continuation",
    metavar="CAPTURE",
    help="Decode the tokens that this capture generated instead, so that both hold the same.",
)
@grouped_option(
    WHAT,
    "--layers",
    metavar="LIST",
    help="Outputs of these decoder layers: 2,30,58 or 0-60:5 or eagle3 or all. Layer N is boundary N+1.  "
    "[default: every boundary]",
)
@grouped_option(
    WHAT,
    "--boundaries",
    metavar="LIST",
    help="The same in canonical numbers: boundary r is the residual stream after r layers. "
    "Excludes --layers.",
)
@grouped_option(
    WHAT,
    "--sites",
    metavar="LIST",
    help="More than the boundaries and the final norm: hidden, residual, attn_out, mlp_out, "
    "router_logits, experts, prompt_logprobs; attn_out.3 takes one layer.",
)
@grouped_option(
    NATIVE,
    "--mechanism",
    type=click.Choice(["hooks", "native", "both"]),
    default="hooks",
    help="hooks read the layers; native takes what the engine would hand an EAGLE-3 draft; "
    "both, to compare the two.  [default: hooks]",
)
@grouped_option(
    NATIVE,
    "--native-ids",
    metavar="LIST",
    help="Layer ids as a draft config gives them: 2,30,58. Left out, the engine's default.",
)
@grouped_option(
    OUTPUT,
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    help="Capture folder. One that was begun with the same options is finished.",
)
@grouped_option(OUTPUT, "-v", "--verbose", is_flag=True, help="Show the engine's own log as well.")
def capture(
    *,
    engine: str,
    engine_args: tuple[str, ...],
    model: str,
    dtype: str,
    batch: int,
    revision: str,
    trust_remote_code: bool,
    env: tuple[str, ...],
    prompts: str | None,
    limit: int | None,
    max_tokens: int | None,
    generate: int,
    continuation: str | None,
    layers: str | None,
    boundaries: str | None,
    sites: str | None,
    mechanism: str,
    native_ids: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Run ENGINE over prompts and keep its hidden states.

    ENGINE is hf, vllm or sglang, or a release of one: vllm@0.31.0. It runs in its own interpreter
    (hsparity engines list); nothing is installed there. What follows -- goes to the engine.

    \b
    Examples:
      hsparity capture hf --model M -o captures/hf                     every boundary
      hsparity capture vllm --model M --layers 2,30,58 -o captures/vllm
      hsparity capture hf --model M --dtype float32 -o captures/hf-fp32
      hsparity capture sglang --model M --mechanism both --native-ids 2,30,58 -o captures/sglang
      hsparity capture vllm --model M -o captures/tp2 -- tensor_parallel_size=2
      hsparity capture vllm --model M --env VLLM_MLA_DISABLE=1 -o captures/mla-off

    \b
    The same decoded tokens in two engines:
      hsparity capture hf --model M --generate 32 -o captures/hf
      hsparity capture vllm --model M --continuation captures/hf -o captures/vllm
    """
    from ..capture import launch, specs
    from ..capture import prompts as prompt_files
    from ..engines import resolve
    from . import suggest

    out = Path(output)
    _refuse_foreign(out)
    wanted = specs.Wanted(
        engine=engine,
        model=specs.resolve_model(model, revision),
        layers=layers,
        boundaries=boundaries,
        sites=tuple(s for s in (sites or "").split(",") if s.strip()),
        mechanism=mechanism,
        native_ids=_numbers(native_ids),
        generate=generate,
        batch=batch,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        engine_args=specs.parse_engine_args(engine_args),
        env=read_environment(env),
    )
    # Before any work: the engine is there, and the tokens to continue with.
    interpreter = resolve(engine)
    manifest = specs.read_manifest(Path(continuation)) if continuation else None
    given = specs.tokenised(wanted, Path(prompts) if prompts else None, limit, max_tokens)
    if manifest is not None:
        given = prompt_files.continued(given, manifest, str(continuation))
    spec = specs.build(wanted, given)
    launch.run_capture(spec, out, interpreter, verbose)
    _summarise(out)
    typed = {
        "--model": model,
        "--prompts": prompts,
        "--limit": limit,
        "--max-tokens": max_tokens,
        "--generate": generate,
        "--continuation": continuation or (str(out) if spec.generate else None),
        "--layers": layers,
        "--boundaries": boundaries,
        "--sites": sites,
        "--mechanism": mechanism if mechanism != "hooks" else None,
        "--native-ids": native_ids,
        "--dtype": dtype if spec.dtype != "bfloat16" else None,
        "--batch": batch if batch > 1 else None,
        "--revision": revision,
        "--trust-remote-code": trust_remote_code,
    }
    click.echo(f"next  {suggest.after_capture(out, typed)}")


def _numbers(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.removeprefix("-").isdigit() for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of numbers", param_hint="--native-ids")
    return tuple(int(part) for part in parts)


def _refuse_foreign(out: Path) -> None:
    """Raises E106 for a folder that holds something, but no capture, not even one that was begun."""
    from ..capture import sides
    from ..errors import HsparityError

    if not out.is_dir():
        return
    there = sorted(p.name + "/" * p.is_dir() for p in out.iterdir() if not p.name.startswith("."))
    # An engine that never came up leaves its log and no spec.
    if set(there) <= BEGUN or sides.spec_of(out) is not None:
        return
    more = f" and {len(there) - 3} more" if len(there) > 3 else ""
    raise HsparityError(
        "E106",
        f"{out} holds other files and no capture",
        (f"there: {', '.join(there[:3])}{more}",),
        f"name a folder that is new or empty, such as -o {out / 'capture'}",
    )


def _summarise(out: Path) -> None:
    from ..capture import specs

    manifest = specs.read_manifest(out)
    tokens = sum(p.tokens for p in manifest.prompts)
    sites = len({site for shard in manifest.shards for site in shard.sites})
    click.echo(
        f"{out}: {manifest.engine} {manifest.engine_version}, {manifest.dtype}, "
        f"{len(manifest.prompts)} prompts, {tokens} tokens, {sites} sites"
    )
    for warning in manifest.warnings:
        click.echo(f"warning: {warning}", err=True)


COMMAND = capture
