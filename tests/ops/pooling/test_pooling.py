"""Pools and their gradients on the CPU against PyTorch's: sizes that do not divide, padding, both orders of memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.calls import run_any

import gradkern

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


class Pool(NamedTuple):
    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "pads": self.pads + self.pads,
            "dilations": self.dilations,
            "ceil_mode": int(self.ceil),
        }

    @property
    def size(self) -> tuple[int, ...]:
        return self.shape[2:]


POOLS = [
    Pool((2, 3, 9, 8), (3, 3), (2, 2), (1, 1), (1, 1)),
    Pool((2, 2, 6, 7), (3, 2), (2, 2), (0, 0), (1, 1), True),
    Pool((1, 5, 11, 13), (3, 2), (1, 3), (1, 1), (2, 1)),
    Pool((1, 17, 7, 7), (2, 2), (3, 3), (1, 1), (1, 1), True),
    Pool((2, 3, 9), (4,), (1,), (2,), (1,)),
    Pool((2, 4, 5, 6, 7), (3, 2, 3), (2, 2, 1), (1, 0, 0), (1, 1, 2)),
    Pool((1, 2, 4, 5, 3), (2, 3, 2), (2, 2, 2), (0, 1, 1), (1, 1, 1), True),
]


def given(pool: Pool, last: bool) -> Any:
    x = torch.randn(pool.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if last and x.dim() > 3:
        x = x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    return x.requires_grad_()


def function(name: str, pool: Pool) -> Any:
    return getattr(torch.nn.functional, f"{name}_pool{len(pool.size)}d")


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pool", POOLS)
def test_max_pools_agree_with_pytorch_by_indices_of_every_kind(pool: Pool, last: bool) -> None:
    x = given(pool, last)
    _, kernel, strides, pads, dilations, ceil = pool
    y, indices = function("max", pool)(x, kernel, strides, pads, dilations, ceil, return_indices=True)
    g = torch.randn_like(y)
    y.backward(g)
    kinds: list[dict[str, Any]] = [{"index_base": "plane"}, {"index_base": "tensor"}, {"indices_type": "uint8"}]
    for kind in kinds:
        found: Any = gradkern.run("MaxPool", x.detach(), **pool.attributes, **kind)
        assert torch.equal(found.Y, y)
        if kind == kinds[0]:
            assert torch.equal(found.Indices, indices)
        kind.pop("indices_type", None)
        of = gradkern.run("MaxPoolGrad", g, found.Indices, input_size=pool.size, **pool.attributes, **kind)
        torch.testing.assert_close(of.dX, x.grad)
        assert of.dX.stride() == x.stride()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pool", [each for each in POOLS if set(each.dilations) == {1} and len(each.size) > 1])
def test_average_pools_agree_with_pytorch(pool: Pool, last: bool) -> None:
    _, kernel, strides, pads, _, ceil = pool
    for padded, divisor in ((False, None), (True, None), (False, 5)):
        x = given(pool, last)
        y = function("avg", pool)(x, kernel, strides, pads, ceil, padded, divisor)
        g = torch.randn_like(y)
        y.backward(g)
        attributes = {**pool.attributes, "count_include_pad": int(padded), "divisor_override": divisor}
        of: Any = gradkern.run("AveragePoolGrad", g, input_size=pool.size, **attributes)
        torch.testing.assert_close(of.dX, x.grad)


@pytest.mark.parametrize("out", [(1, 1), (3, 4), (9, 11)])
def test_adaptive_pools_agree_with_pytorch(out: tuple[int, ...]) -> None:
    x = given(POOLS[0], last=True)
    y = torch.nn.functional.adaptive_avg_pool2d(x, out)
    g = torch.randn_like(y)
    y.backward(g)
    into: Any = gradkern.run("AdaptiveAveragePoolGrad", g, out={"dX": torch.empty_like(x.detach())})
    torch.testing.assert_close(into.dX, x.grad)
    if out == (1, 1):
        of: Any = gradkern.run("GlobalAveragePoolGrad", g, input_size=(9, 8))
        torch.testing.assert_close(of.dX, x.grad)


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_auto_pad_is_that_of_a_convolution(pad: Any) -> None:
    X = np.random.default_rng(0).standard_normal((1, 2, 7, 6))
    attributes: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": pad}
    found: Any = gradkern.run("MaxPool", X, **attributes)
    W = np.ones((2, 1, 3, 2))
    assert found.Y.shape == gradkern.run("Conv", X, W, group=2, strides=[2, 2], auto_pad=pad).Y.shape
    dX = gradkern.run("MaxPoolGrad", np.ones(found.Y.shape), found.Indices, input_size=(7, 6), **attributes).dX
    assert dX.sum() == found.Y.size
    assert (X[dX > 0] >= found.Y.min()).all()


@pytest.mark.parametrize("index", [-1, 1, 4])
def test_indices_that_no_forward_pass_makes_are_refused(index: int) -> None:
    Indices = np.array([[[0, index]]])
    with pytest.raises(
        gradkern.DataError, match=f"Indices has 1 that are no element of their window, the first {index}"
    ):
        gradkern.run("MaxPoolGrad", np.ones((1, 1, 2)), Indices, input_size=[4], kernel_shape=[2], strides=[2])


def test_without_a_size_of_the_input_the_error_says_what_gives_it() -> None:
    with pytest.raises(gradkern.ArgumentError, match="nothing gives its spatial; expected attribute input_size or an"):
        gradkern.run("AveragePoolGrad", np.ones((1, 1, 2)), kernel_shape=[2])


def test_a_gradient_of_another_pool_is_refused() -> None:
    with pytest.raises(
        gradkern.ShapeError, match=r"dY has spatial shape \(3,\); the pool of an input of \(4,\) gives \(2,\)"
    ):
        gradkern.run("AveragePoolGrad", np.ones((1, 1, 3)), kernel_shape=[2], strides=[2], input_size=[4])


def test_nan_is_the_largest_and_the_first_of_equal_elements_counts() -> None:
    found: Any = gradkern.run("MaxPool", np.array([[[1.0, np.nan, 3, 2, 2, 2]]]), kernel_shape=[3], strides=[3])
    assert found.Indices.tolist() == [[[1, 3]]]
    assert np.isnan(found.Y[0, 0, 0])


def test_directml_s_documentation_has_these_pools() -> None:
    D = np.array([[1, 2], [4, 5]], np.float32)[None, None]
    windows: dict[str, Any] = {"Strides": [1, 1], "WindowSize": [2, 2], "StartPadding": [0, 0], "EndPadding": [0, 0]}
    X = np.array([[1, 2, 3], [2, 4, 2], [5, 6, 7]], np.float32)[None, None]
    found = gradkern.run("DmlMaxPoolingGrad", X, D, **windows).OutputGradient
    np.testing.assert_array_equal(found[0, 0], [[0, 0, 0], [0, 3, 0], [0, 4, 5]])
    tied = gradkern.run("DmlMaxPoolingGrad", np.ones_like(X), D, **windows).OutputGradient
    np.testing.assert_array_equal(tied[0, 0], [[1, 2, 0], [4, 5, 0], [0, 0, 0]])
    D = np.array([[1, 2], [3, 4]], np.float32)[None, None]
    found = gradkern.run("DmlAveragePoolingGrad", D, OutputSizes=[3, 3], **windows).OutputGradient
    np.testing.assert_array_equal(found[0, 0], [[0.25, 0.75, 0.5], [1, 2.5, 1.5], [0.75, 1.75, 1]])
    last = np.moveaxis(np.ones((1, 3, 3, 4), np.float32), -1, 1)
    given = np.moveaxis(np.ones((1, 2, 2, 4), np.float32), -1, 1)
    assert gradkern.run("DmlMaxPoolingGrad", last, given, **windows).OutputGradient.strides == last.strides
    with pytest.raises(gradkern.ShapeError, match="the pool of an input of"):
        gradkern.run("DmlMaxPoolingGrad", X, D[..., :1], **windows)


def test_a_pool_of_nothing_has_a_gradient_of_nothing() -> None:
    found = gradkern.run("AdaptiveAveragePoolGrad", np.ones((1, 2, 3), np.float32), input_size=[0]).dX
    assert found.shape == (1, 2, 0)


@pytest.mark.parametrize(("count_include_pad", "divisor"), [(0, 4), (1, 1 << 40)])
def test_a_window_of_padding_takes_no_memory(count_include_pad: int, divisor: int) -> None:
    windows = {"kernel_shape": [1 << 40], "strides": [1 << 40], "pads": [1 << 40, 1 << 40]}
    given = {**windows, "input_size": [4], "count_include_pad": count_include_pad}
    found = gradkern.run("AveragePoolGrad", np.array([[[3.0, 8.0]]]), **given).dX
    np.testing.assert_array_equal(found, np.full((1, 1, 4), 8 / divisor))


@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_a_dilated_window_that_passes_over_the_input_gives_its_gradient_to_none(kind: str) -> None:
    windows = {"kernel_shape": [2], "dilations": [3], "pads": [1, 2]}
    X = np.array([[[5.0, 4.0], [6.0, 7.0]]])
    Y, indices = run_any("MaxPool", X, **windows, indices_type=kind)
    np.testing.assert_array_equal(Y, [[[-np.inf, 5], [-np.inf, 6]]])
    found = run_any("MaxPoolGrad", np.array([[[1.0, 2.0], [3.0, 4.0]]]), indices, input_size=[2], **windows).dX
    np.testing.assert_array_equal(found, [[[2, 0], [4, 0]]])
