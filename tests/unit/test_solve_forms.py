"""Forms: sums of sites with norms, gains and a basis undone, and what reading them may not break."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hsparity.metrics.kernel import Norm
from hsparity.solve.forms import Basis, Form, Read, normed, site

ROWS, WIDTH = 6, 16
GENERATOR = torch.Generator().manual_seed(5)
SITES = {key: torch.randn(ROWS, WIDTH, generator=GENERATOR).bfloat16() for key in ("a", "b", "c")}
NORM = Norm(torch.rand(WIDTH, generator=GENERATOR) + 0.5, 1e-6)


def read(key: str) -> torch.Tensor | None:
    return SITES.get(key)


def made(form: Form, reader: Read = read, **given: object) -> torch.Tensor:
    found = form.make(reader, **given)  # type: ignore[arg-type]
    assert found is not None
    return found


def rms(rows: torch.Tensor, norm: Norm) -> torch.Tensor:
    return rows / (rows.pow(2).mean(1, keepdim=True) + norm.eps).sqrt() * norm.scale


def test_a_plain_form_is_the_site_on_disk() -> None:
    """One site with coefficient 1 is handed on as it is, dtype and all."""
    assert site("a").is_plain
    assert made(site("a")) is SITES["a"]


@pytest.mark.parametrize(
    "form",
    [
        Form((("a", 2.0),)),
        Form((("a", 1.0), ("b", 1.0))),
        Form((("a", 1.0),), gain=2.0),
        Form((("a", 1.0),), row_gains={"p": np.ones(ROWS, np.float32)}),
        Form((("a", 1.0),), basis=Basis(order=torch.arange(WIDTH))),
        normed("a", NORM),
    ],
)
def test_everything_else_is_made_in_float32(form: Form) -> None:
    """Anything that is done to a site makes a new float32 tensor and leaves the site alone."""
    before = SITES["a"].clone()
    assert not form.is_plain
    assert made(form).dtype is torch.float32
    assert torch.equal(SITES["a"], before)


def test_parts_are_summed_with_their_coefficients() -> None:
    """a - 0.5 b + 3 c, in float32."""
    form = Form((("a", 1.0), ("b", -0.5), ("c", 3.0)))
    want = SITES["a"].float() - 0.5 * SITES["b"].float() + 3 * SITES["c"].float()
    assert torch.allclose(made(form), want, atol=1e-6)
    assert form.sites == ("a", "b", "c")


@pytest.mark.parametrize("form", [site("x"), Form((("x", 1.0), ("a", 1.0))), Form((("a", 1.0), ("x", 1.0)))])
def test_a_missing_site_makes_nothing(form: Form) -> None:
    """None, wherever the missing site stands in the sum."""
    assert form.make(read) is None


def test_norms_come_after_the_sum_and_in_order() -> None:
    """norm2(norm1(a + b)), each over the result of the one before."""
    other = Norm(torch.linspace(0.5, 2.0, WIDTH), 0.1)
    form = Form((("a", 1.0), ("b", 1.0)), (NORM, other))
    total = SITES["a"].float() + SITES["b"].float()
    assert torch.allclose(made(form), rms(rms(total, NORM), other), atol=1e-5)
    assert not torch.allclose(made(form), rms(rms(total, other), NORM), atol=1e-2)


def test_a_gain_is_divided_out_after_the_norms() -> None:
    """The form of a slot that is 2.5 times something is that something."""
    form = Form((("a", 1.0),), (NORM,), gain=2.5)
    assert torch.allclose(made(form), rms(SITES["a"].float(), NORM) / 2.5, atol=1e-6)


def test_row_gains_are_those_of_the_prompt_and_the_rows() -> None:
    """Each row is divided by its own gain; another prompt has none."""
    gains = np.array([1, 2, 4, 8, 16, 32], np.float32)
    form = Form((("a", 1.0),), row_gains={"p": gains})
    rows = np.array([5, 1, 1])

    def some(key: str) -> torch.Tensor:
        return SITES[key][rows]

    want = SITES["a"][rows].float() / torch.tensor([32.0, 2.0, 2.0])[:, None]
    assert torch.equal(made(form, some, prompt="p", rows=rows), want)
    assert torch.equal(made(form, some, prompt="q", rows=rows), SITES["a"][rows].float())


def test_a_channel_order_is_undone() -> None:
    """cand[:, undo] is the reference again."""
    channels = torch.randperm(WIDTH, generator=GENERATOR)
    moved = {"slot": SITES["a"][:, channels]}
    form = Form((("slot", 1.0),), basis=Basis(order=torch.argsort(channels)))
    assert torch.equal(made(form, moved.get), SITES["a"].float())


def test_a_rotation_is_undone() -> None:
    """With cand = ref @ Q, the form gives ref."""
    q_hh, _ = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=GENERATOR))
    turned = {"slot": SITES["a"].float() @ q_hh}
    form = Form((("slot", 1.0),), basis=Basis(rotation=q_hh))
    assert torch.allclose(made(form, turned.get), SITES["a"].float(), atol=1e-5)
    assert not torch.allclose(
        made(Form((("slot", 1.0),), basis=Basis(rotation=q_hh.T)), turned.get), SITES["a"].float()
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_buffer_that_is_read_into_again_does_not_matter(dtype: torch.dtype) -> None:
    """Reads may all hand out one buffer: what was read first is not what the last read left there."""
    buffer = torch.empty(ROWS, WIDTH, dtype=dtype)

    def reused(key: str) -> torch.Tensor:
        return buffer.copy_(SITES[key].to(dtype))

    form = Form((("a", 1.0), ("b", -1.0)))
    assert torch.equal(made(form, reused), SITES["a"].float() - SITES["b"].float())
