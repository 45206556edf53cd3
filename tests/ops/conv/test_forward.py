"""Conv on the CPU: each of its kernels against the float64 formula, where Y lies, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import message
from helpers.reference import reference
from helpers.tolerance import assert_close

import gradkern
from gradkern import AttributeValueError, ProviderError, ShapeError

random = np.random.default_rng(0)
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one axis, groups": ((3, 4, 21), (8, 2, 4), {"group": 2, "strides": [2], "pads": [3, 1]}),
    "filters, two a channel": ((2, 5, 9, 7), (10, 1, 3, 2), {"group": 5, "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    "three axes": ((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), {"dilations": [1, 3, 2], "pads": [0, 2, 1, 1, 0, 3]}),
    "stride beyond the kernel": ((2, 3, 11, 10), (4, 3, 2, 2), {"strides": [3, 4]}),
    "a plane of several blocks": ((1, 2, 70, 60), (2, 1, 7, 7), {"group": 2, "pads": [3] * 4}),
    "pointwise": ((3, 8, 4, 5), (6, 4, 1, 1), {"group": 2}),
}


def arrays(name: str, dtype: str, biased: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    X, W, attributes = CASES[name]
    shapes = {"X": X, "W": W} | ({"B": W[:1]} if biased else {})
    return {key: random.standard_normal(shape).astype(dtype) for key, shape in shapes.items()}, attributes


@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(d, marks=pytest.mark.thorough) for d in ("float64", "float16", "bfloat16"))]
)
@pytest.mark.parametrize("kernel", ["direct", "implicit_gemm", "pointwise"])
def test_every_kernel_gives_the_convolution_in_either_order_of_memory(kernel: str, dtype: str) -> None:
    for number, name in enumerate(CASES):
        if kernel == "pointwise" and (name != kernel or dtype in ("float16", "bfloat16")):
            continue
        inputs, attributes = arrays(name, dtype, biased=number % 2 == 0)
        expected = reference("Conv", inputs, attributes)["Y"]
        last = {**inputs, "X": np.moveaxis(np.ascontiguousarray(np.moveaxis(inputs["X"], 1, -1)), -1, 1)}
        for given in (inputs, last):
            found = gradkern.run("Conv", **given, **attributes, policy={"kernel": kernel}).Y
            assert_close("Conv", "Y", found, expected)
            assert (found.strides[1] == found.itemsize) == (given is last)


def test_with_little_memory_the_sums_are_direct_and_with_none_the_refusal_says_how_much_is_missing() -> None:
    inputs, attributes = arrays("three axes", "float32", biased=True)
    whole = gradkern.run("Conv", **inputs, **attributes).Y
    needed = gradkern.prepare("Conv", **inputs, **attributes, policy={"kernel": "direct"}).scratch
    plan = gradkern.prepare("Conv", **inputs, **attributes, policy={"workspace_limit": needed})
    assert (plan.kernel, plan.scratch) == ("direct", needed)
    np.testing.assert_allclose(plan(*inputs.values()).Y, whole, rtol=1e-5, atol=1e-6)
    with pytest.raises(ProviderError, match=f"needs {needed} bytes of scratch; the policy's workspace_limit is 0"):
        gradkern.prepare("Conv", **inputs, **attributes, policy={"workspace_limit": 0})


def test_an_infinity_reaches_what_sees_it_and_nothing_else() -> None:
    X, W = np.zeros((1, 2, 6, 6), np.float32), np.ones((2, 1, 3, 3), np.float32)
    X[0, 1, 2, 3] = np.inf
    for kernel in ("direct", "implicit_gemm"):
        Y = gradkern.run("Conv", X, W, group=2, policy={"kernel": kernel}).Y
        seen = np.zeros((2, 4, 4), bool)
        seen[1, :3, 1:] = True
        np.testing.assert_array_equal(np.isinf(Y[0]), seen)
        np.testing.assert_array_equal(np.isnan(Y), False)


def test_batches_filters_and_channels_of_nothing() -> None:
    W, B = np.ones((3, 2, 3, 3), np.float32), np.arange(3, dtype=np.float32)
    assert gradkern.run("Conv", np.ones((0, 2, 5, 5), np.float32), W, B).Y.shape == (0, 3, 3, 3)
    assert gradkern.run("Conv", np.ones((2, 2, 5, 5), np.float32), W[:0]).Y.shape == (2, 0, 3, 3)
    Y = gradkern.run("Conv", np.ones((2, 0, 5, 5), np.float32), W[:, :0], B).Y
    np.testing.assert_array_equal(Y, np.broadcast_to(B[:, None, None], Y.shape))


def test_what_is_no_convolution_is_refused() -> None:
    X, W = np.ones((1, 4, 5, 5), np.float32), np.ones((6, 2, 3, 3), np.float32)
    for given, error, expected in (
        ({"W": W}, ShapeError, "Conv: input X has 4 channels (axis 1); W's axis 1 is 2 with group 1, which needs 2"),
        ({"W": W, "group": 2, "dilations": [3, 1]}, ShapeError, "no output"),
        ({"W": W, "group": 2, "B": W[0, 0, 0]}, ShapeError, "input B has shape (3,)"),
        ({"W": W, "group": 2, "kernel_shape": [3, 2]}, ShapeError, "kernel_shape (3, 2) disagrees with W"),
        ({"W": W, "group": 2, "pads": [1] * 4, "auto_pad": "VALID"}, AttributeValueError, "only one of them"),
        ({"W": W[:, :, 0], "group": 2}, ShapeError, "input W has shape (6, 2, 3)"),
    ):
        assert expected in message(error, gradkern.run, "Conv", X, **given)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_it_agrees_with_pytorch(dtype: str) -> None:
    import torch
    from torch.nn import functional

    kind = getattr(torch, dtype)
    X, W, B = (
        torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(kind)
        for shape in ((2, 6, 9, 8), (4, 3, 3, 3), (4,))
    )
    close: dict[str, Any] = {"rtol": 1.6e-2, "atol": 1e-2} if dtype in ("bfloat16", "float16") else {}
    for order in (torch.contiguous_format, torch.channels_last):
        theirs = functional.conv2d(X.to(memory_format=order), W, B, (2, 1), (1, 2), (1, 2), 2)
        attributes: Any = {"strides": (2, 1), "pads": (1, 2, 1, 2), "dilations": (1, 2), "group": 2}
        ours = gradkern.run("Conv", X.to(memory_format=order), W, B, **attributes).Y
        torch.testing.assert_close(ours, theirs, **close)
        assert ours.stride() == theirs.stride()
