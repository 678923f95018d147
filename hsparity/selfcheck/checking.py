"""The steps of a self-check: sample, readings, log-probabilities, judgement."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from hsparity.capture.checkpoint import find_checkpoint
from hsparity.capture.source import Source
from hsparity.selfcheck.advice import advise, headline
from hsparity.selfcheck.checkpoint import Head, open_head
from hsparity.selfcheck.judging import LIMIT, Errors, Key, apart, judge, margin, same
from hsparity.selfcheck.logits import Rated, rate
from hsparity.selfcheck.readings import NORMED, RAW, READINGS, possible
from hsparity.selfcheck.result import SCHEMA, Claim, Fit, SelfCheck, Verdict
from hsparity.selfcheck.sample import Sample, draw
from hsprobe.schema import Site

TOKENS = 256
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
SCALE_TOKENS = 32  # of the sample, to search a scale of the logits on
SCALE_STEPS, SCALE_ROUNDS, SCALE_SPAN = 17, 3, math.log(8.0)

Progress = Callable[[str], None]


def check(
    source: Source, model: str = "", tokens: int = TOKENS, progress: Progress | None = None
) -> SelfCheck:
    """Read the capture's last states through its checkpoint's final norm and lm_head, and hold the
    log-probabilities against the engine's own.

    Raises E107 (no checkpoint), E206 (damaged), E208 (another model's checkpoint), E210 (no prompt
    log-probabilities, or no site that could be the last state) and E214 (a head or norm of another kind).
    """
    sample = draw(source, tokens)
    head = open_head(find_checkpoint(source.manifest, model), source.manifest, source.norm())
    compute = DTYPES.get(source.manifest.dtype, torch.bfloat16)
    if progress:
        progress(f"{len(sample.next_n)} tokens, {head.weight.rows:,} x {head.weight.width:,} {head.name}")
    measured = _measure(head, sample, compute)
    claims = [
        _traced(judge(key, _rivals(key, source, head, sample, measured), measured), source, measured)
        for key in _claimed(source)
        if key in measured
    ]
    claims = [_rescaled(claim, head, sample, measured) if _unexplained(claim) else claim for claim in claims]
    return _result(source, head, sample, measured, tuple(claims))


def _measure(head: Head, sample: Sample, compute: torch.dtype) -> dict[Key, Errors]:
    """Every site read in every way."""
    found: dict[Key, Errors] = {}
    cast = replace(head, norm_h=head.norm_h.to(compute).float())
    for site, stored_nh in sample.states_snh.items():  # one site at a time: memory holds one site's readings
        states_nh = stored_nh.float()
        inputs_cnh = _inputs(head, states_nh)
        exact = rate(head, inputs_cnh, sample.next_n)
        # A state that is not finite has no log-probability: as wrong as can be.
        error_cn = (exact.logprob_cn - sample.logprob_n).abs().nan_to_num(nan=math.inf)
        # Rounding moves a logit by at most 2**-9 of it; readings beyond any rounding need no floor.
        hopeless_c = error_cn.median(-1).values > LIMIT * 2.0**-7 * exact.largest_cn.median(-1).values
        rated = [i for i, name in enumerate(READINGS) if name in (RAW, NORMED) or not bool(hopeless_c[i])]
        # final_norm is the lm_head's input itself: its rounding is the engine's own.
        stored_cnh = (
            inputs_cnh if site == "final_norm" else _inputs(cast, dithered(states_nh, stored_nh.dtype))
        )
        floors = _floors(head, stored_cnh[rated], sample, exact.pick(rated), compute)
        known_n = sample.top_n >= 0
        for i, reading in enumerate(READINGS):
            agree_n = exact.top_cn[i][known_n] == sample.top_n[known_n]
            floor, coarse = floors[rated.index(i)] if i in rated else (math.nan, math.nan)
            fit = Fit(
                site=site,
                reading=reading,
                error=_median(error_cn[i]),
                floor=floor,
                top1=float(agree_n.double().mean()) if len(agree_n) else math.nan,
                tokens=len(sample.next_n),
            )
            found[site, reading] = Errors(fit, error_cn[i].numpy(), coarse)
    return found


def _inputs(head: Head, states_nh: torch.Tensor) -> torch.Tensor:
    return torch.stack([read(head, states_nh) for read, _ in READINGS.values()])


def dithered(states_nh: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """States moved by up to half a unit in the last place of the dtype they were stored in: what rounding took.

    Engines that fuse the residual add with the norm feed the norm the sum before it was rounded.
    """
    draw_nh = torch.rand(states_nh.shape, generator=torch.Generator().manual_seed(0)) - 0.5
    return states_nh + draw_nh * torch.finfo(dtype).eps * torch.exp2(torch.frexp(states_nh)[1] - 1.0)


def _floors(
    head: Head, inputs_cnh: torch.Tensor, sample: Sample, exact: Rated, compute: torch.dtype
) -> list[tuple[float, float]]:
    """Per candidate, the median cost of rounding: states and logits to the compute dtype, and to bf16."""
    coarse = rate(head, inputs_cnh, sample.next_n, torch.bfloat16)
    rounded = coarse if compute is torch.bfloat16 else rate(head, inputs_cnh, sample.next_n, compute)
    # Engines sum V exponentials in float32, and logits of size x carry x times its half-ulp.
    least_cn = 2.0**-24 * (math.sqrt(head.weight.rows) + exact.largest_cn)
    floor_cn = torch.maximum((rounded.logprob_cn - exact.logprob_cn).abs(), least_cn)
    coarse_cn = (coarse.logprob_cn - exact.logprob_cn).abs()
    return [(_median(f), _median(c)) for f, c in zip(floor_cn, coarse_cn, strict=True)]


def _median(value_n: torch.Tensor) -> float:
    return float(np.median(value_n.numpy()))


def _last(source: Source, below: int = 0) -> str:
    return Site("boundary", max(source.manifest.num_layers - below, 0)).key


def _claimed(source: Source) -> tuple[Key, ...]:
    """What every capture claims of its last sites."""
    return (_last(source), RAW), ("final_norm", NORMED)


def _rivals(key: Key, source: Source, head: Head, sample: Sample, measured: dict[Key, Errors]) -> list[Key]:
    """The other explanations: the same site read otherwise, and the last state one boundary earlier."""
    states_nh = sample.states_snh[key[0]]
    others = [
        (key[0], reading) for reading in READINGS if reading != key[1] and possible(reading, head, states_nh)
    ]
    early = (_last(source, 1), RAW)
    return [*others, early] if key[0] == _last(source) != early[0] and early in measured else others


def _traced(claim: Claim, source: Source, measured: dict[Key, Errors]) -> Claim:
    """Where boundary L fits nothing: does it repeat boundary L-1?"""
    early = (_last(source, 1), RAW)
    if not _unexplained(claim) or claim.site != _last(source) or early not in measured:
        return claim
    return replace(claim, repeats=early[0]) if same(measured[claim.site, RAW], measured[early]) else claim


def _unexplained(claim: Claim) -> bool:
    return claim.verdict is Verdict.FAILED and not claim.holds and not claim.lies_in and not claim.repeats


def _rescaled(claim: Claim, head: Head, sample: Sample, measured: dict[Key, Errors]) -> Claim:
    """A claim that fits once all logits are multiplied by one number is not the capture's fault: the engine's
    log-probabilities hold a temperature, or the model a scale that config.json does not name."""
    key = (claim.site, claim.reading)
    inputs_nh = READINGS[claim.reading][0](head, sample.states_snh[claim.site].float())
    step = max(len(inputs_nh) // SCALE_TOKENS, 1)
    few_nh, next_n, said_n = inputs_nh[::step], sample.next_n[::step], sample.logprob_n[::step]
    best, span = 1.0, SCALE_SPAN
    for _ in range(SCALE_ROUNDS):
        scales_c = best * torch.linspace(-span, span, SCALE_STEPS, dtype=torch.float64).exp()
        rated = rate(head, few_nh.expand(SCALE_STEPS, -1, -1), next_n, scale_c=scales_c)
        median_c = (rated.logprob_cn - said_n).abs().nan_to_num(nan=math.inf).median(-1).values
        best = float(scales_c[median_c.argmin()])
        span *= 2 / (SCALE_STEPS - 1)
    rated = rate(head, inputs_nh[None], sample.next_n, scale_c=torch.tensor([best], dtype=torch.float64))
    error = _median((rated.logprob_cn[0] - sample.logprob_n).abs().nan_to_num(nan=math.inf))
    if not error <= LIMIT * max(measured[key].fit.floor, measured[key].coarse):  # NaN: nothing was finite
        return claim
    reason = (
        f"fits once the logits are multiplied by {best:.3g}: a temperature, or a scale that config.json hides"
    )
    return replace(claim, verdict=Verdict.INCONCLUSIVE, reason=reason)


def _result(
    source: Source, head: Head, sample: Sample, measured: dict[Key, Errors], claims: tuple[Claim, ...]
) -> SelfCheck:
    manifest = source.manifest
    table = sorted(measured.values(), key=lambda e: (e.fit.error, e.fit.site, e.fit.reading))
    winner = table[0] if table[0].fits else None
    rivals = _rivals((winner.fit.site, winner.fit.reading), source, head, sample, measured) if winner else []
    runner_up = min((measured[key] for key in rivals), key=lambda e: e.fit.error, default=None)
    verdicts = {claim.verdict for claim in claims}
    verdict = next((v for v in (Verdict.FAILED, Verdict.INCONCLUSIVE) if v in verdicts), Verdict.PASSED)
    if not claims:
        verdict = Verdict.INCONCLUSIVE
    also = _also(source, head, sample, measured)
    return SelfCheck(
        schema=SCHEMA,
        capture=source.path,
        engine=manifest.engine,
        engine_version=manifest.engine_version,
        checkpoint=str(head.folder),
        head=head.name,
        dtype=manifest.dtype,
        tokens=len(sample.next_n),
        prompts=sample.prompts,
        verdict=verdict,
        headline=headline(verdict, claims, also, head.plus_one),
        winner=winner.fit if winner else None,
        runner_up=runner_up.fit if winner and runner_up else None,
        margin=margin(winner, runner_up) if winner and runner_up else math.nan,
        table=tuple(e.fit for e in table),
        claims=claims,
        also=tuple(f"{site} holds {words}" for site, words in also),
        fix=advise(claims, manifest.engine, manifest.num_layers),
        notes=_notes(head, sample, measured),
    )


def _also(
    source: Source, head: Head, sample: Sample, measured: dict[Key, Errors]
) -> tuple[tuple[str, str], ...]:
    """Slots that are the last state: what the capture does not claim, but the log-probabilities say."""
    found = []
    for site in sample.states_snh:
        if Site.parse(site).kind != "slot":
            continue
        best = min((measured[site, r] for r in READINGS), key=lambda e: e.fit.error)
        rivals = _rivals((site, best.fit.reading), source, head, sample, measured)
        if best.fits and all(apart(best, measured[key]) for key in rivals):
            found.append((site, READINGS[best.fit.reading][1].format(form="the other form")))
    return tuple(found)


def _notes(head: Head, sample: Sample, measured: dict[Key, Errors]) -> tuple[str, ...]:
    notes = []
    for site, states_nh in sample.states_snh.items():
        if lost := int((~torch.isfinite(states_nh.float()).all(-1)).sum()):
            notes.append(f"{lost} of {len(states_nh)} sampled rows of {site} hold NaN or Inf")
    if head.scale != 1.0 or head.cap:
        cap = f", soft cap {head.cap:g}" if head.cap else ""
        notes.append(f"config.json: logits times {head.scale:.6g}{cap}")
    return tuple(notes)
