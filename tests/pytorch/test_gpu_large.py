"""Gradients of norms of more than 2**32 elements, and of very wide rows: every element against float64 mathematics.

The last rows begin behind what 32 bits can count. Of another number of rows a call may have another kernel, so that the
same rows alone have other bits: both are held against the same bound.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tolerance import SHARE_OF_ROW, ULPS, assert_close

import gradkern

pytestmark = [pytest.mark.torch, pytest.mark.gpu]

LAYER, SIMPLIFIED = "LayerNormalizationGrad", "SimplifiedLayerNormalizationGrad"
CHUNK = 1 << 25  # elements that are computed in float64 at once
SPARE = 4 << 30  # bytes for these, and for scratch memory


@pytest.fixture(autouse=True)
def _memory() -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.empty_cache()


def require_memory(size: int) -> None:
    free, _ = torch.cuda.mem_get_info()
    if free < size:
        pytest.skip(f"needs {size / 2**30:.0f} GiB of free memory on the GPU, which has {free / 2**30:.0f}")


def chunks(rows: int, columns: int) -> list[slice]:
    step = max(CHUNK // columns, 1)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


class Problem:
    """Random data in float16, with the statistics in float32 as a forward pass has them."""

    def __init__(self, operator: str, rows: int, columns: int) -> None:
        self.operator, self.rows, self.columns = operator, rows, columns
        kind: Any = {"dtype": torch.float16, "device": "cuda"}
        self.x, self.dy = torch.empty(rows, columns, **kind), torch.empty(rows, columns, **kind)
        self.scale = torch.randn(columns, **kind)
        self.mean = torch.empty(rows, 1, dtype=torch.float32, device="cuda")
        self.inv_std = torch.empty_like(self.mean)
        for each in chunks(rows, columns):
            self.x[each].normal_(0.5, 2)
            self.dy[each].normal_()
            x = self.x[each].double()
            mean = x.mean(1, keepdim=True) if operator == LAYER else torch.zeros_like(x[:, :1])
            self.mean[each] = mean
            self.inv_std[each] = ((x - mean).square().mean(1, keepdim=True) + 1e-5).rsqrt()

    def run(self, rows: slice = slice(None)) -> Any:
        """gradkern's gradients, of some of the rows alone."""
        statistics = [self.mean[rows], self.inv_std[rows]] if self.operator == LAYER else [self.inv_std[rows]]
        anything: Any = gradkern.run
        return anything(self.operator, self.dy[rows], self.x[rows], self.scale, *statistics, axis=1)

    def exact(self, rows: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """dX of these rows and their part of the sums for scale and bias, in float64."""
        dy, inv_std = self.dy[rows].double(), self.inv_std[rows].double()
        normalized = (self.x[rows].double() - self.mean[rows].double()) * inv_std
        g = dy * self.scale.double()
        dx = g - normalized * (g * normalized).mean(1, keepdim=True)
        if self.operator == LAYER:
            dx -= g.mean(1, keepdim=True)
        return dx * inv_std, (dy * normalized).sum(0), dy.sum(0)


def excess(found: torch.Tensor, exact: torch.Tensor) -> float:
    """How far beyond its bound an element is, as `tolerance.assert_elements_close` bounds it; 0 or less is right."""
    info = torch.finfo(found.dtype)
    last_place = (
        torch.exp2(torch.frexp(exact.abs()).exponent - 1.0).mul_(info.eps).clamp_(min=info.smallest_normal * info.eps)
    )
    bound = last_place.mul_(ULPS).add_(exact.abs().amax(1, keepdim=True), alpha=SHARE_OF_ROW)
    return float((found.double() - exact).abs_().sub_(bound).max())


@pytest.mark.parametrize(("rows", "columns"), [(2_097_159, 2048), (3, 1_048_577)])
@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED])
def test_every_row_is_as_in_float64(operator: str, rows: int, columns: int) -> None:
    require_memory(3 * 2 * rows * columns + SPARE)
    problem = Problem(operator, rows, columns)
    found = problem.run()
    scale_grad, bias_grad = (torch.zeros(columns, dtype=torch.float64, device="cuda") for _ in range(2))
    wrong: dict[str, float] = {}
    for each in chunks(rows, columns):
        exact, of_scale, of_bias = problem.exact(each)
        beyond = excess(found.X_grad[each], exact)
        if not beyond <= 0:  # NaN, too
            wrong[f"rows {each.start} to {each.stop}"] = beyond
        scale_grad += of_scale
        bias_grad += of_bias
    assert wrong == {}
    sums = {"scale_grad": scale_grad} | ({"bias_grad": bias_grad} if operator == LAYER else {})
    for name, exact in sums.items():
        terms = np.full(columns, float(rows) ** 0.5)  # of numbers about 1, which may cancel
        assert_close(operator, name, getattr(found, name).cpu().numpy(), exact.cpu().numpy(), terms)


@pytest.mark.parametrize(("rows", "columns"), [(2_097_159, 2048), (3, 1_048_577)])
@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED])
def test_some_rows_alone_are_as_in_float64(operator: str, rows: int, columns: int) -> None:
    """The last ones, and those about the element number 2**31 and 2**32, whose addresses are as large."""
    require_memory(2 * 2 * rows * columns + SPARE)
    problem = Problem(operator, rows, columns)
    starts = [0, rows - 1, rows - 3, rows // 2, (1 << 31) // columns - 1, (1 << 32) // columns - 1]
    for start in {each for each in starts if 0 <= each < rows}:
        for count in (1, 3, 1000):
            some = slice(start, min(start + count, rows))
            exact, _, _ = problem.exact(some)
            assert excess(problem.run(some).X_grad, exact) <= 0, some
