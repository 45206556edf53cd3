"""ConvTranspose and its gradients on the CPU: each kernel against the float64 formula, PyTorch, sizes, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import message
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of
from helpers.reference import reference
from helpers.tolerance import assert_close

import gradkern
from gradkern import AttributeValueError, ShapeError
from gradkern.ops.conv import resolve

random = np.random.default_rng(0)
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one axis, groups": ((3, 4, 11), (4, 3, 4), {"group": 2, "strides": [2], "pads": [3, 1], "output_padding": [1]}),
    "a filter each": ((2, 6, 5, 4), (6, 1, 3, 2), {"group": 6, "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    "three axes": ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"dilations": [1, 2, 3], "pads": [0, 2, 1, 1, 0, 2]}),
    "behind all windows": (
        (2, 3, 4, 5),
        (3, 4, 2, 2),
        {"strides": [3, 1], "dilations": [1, 4], "output_padding": [4, 3]},
    ),
    "a given size": (
        (2, 3, 4, 5),
        (3, 4, 3, 3),
        {"strides": [3, 2], "output_shape": [10, 14], "auto_pad": "SAME_UPPER"},
    ),
    "pointwise": ((3, 8, 4, 5), (8, 3, 1, 1), {"group": 2}),
}


def arrays(name: str, dtype: str, gradients: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    X, W, attributes = CASES[name]
    made: dict[str, Any] = {"X": random.standard_normal(X), "W": random.standard_normal(W)}
    if gradients:
        made = {"dY": random.standard_normal(reference("ConvTranspose", made, attributes)["Y"].shape), **made}
    else:
        made["B"] = random.standard_normal(W[1] * attributes.get("group", 1))
    return {key: each.astype(dtype) for key, each in made.items()}, attributes


@pytest.mark.parametrize(
    ("dtype", "kernel"), [("float32", "direct"), ("float32", "implicit_gemm"), ("float32", None), ("bfloat16", None)]
)
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_in_either_order_of_memory(name: str, dtype: str, kernel: str | None) -> None:
    for operator in ("ConvTranspose", "ConvTransposeGrad"):
        inputs, attributes = arrays(name, dtype, operator.endswith("Grad"))
        moved = {key: np.ascontiguousarray(np.moveaxis(inputs[key], 1, -1)) for key in ("X", "dY") if key in inputs}
        last = inputs | {key: np.moveaxis(each, -1, 1) for key, each in moved.items()}
        for given in (inputs, last):
            found = gradkern.run(operator, **given, **attributes, policy={"kernel": kernel})
            for key, expected in reference(operator, inputs, attributes).items():
                assert_close(operator, key, getattr(found, key), expected)


@pytest.mark.torch
@pytest.mark.parametrize("case", [
    ((2, 6, 5, 4), (6, 3, 3, 2), (2, 3), (1, 0), (1, 2), (1, 1), 2),
    ((1, 4, 3, 4, 3), (4, 2, 3, 3, 3), (2, 1, 2), (1, 1, 0), (0, 0, 1), (1, 1, 1), 1),
    ((3, 4, 9), (4, 1, 4), (3,), (2,), (2,), (2,), 4),
])  # fmt: skip
def test_all_of_it_agrees_with_pytorch(case: Any) -> None:
    import torch

    X, W, stride, padding, more, dilation, groups = case
    x, w = (torch.randn(each, dtype=torch.float64, requires_grad=True) for each in (X, W))
    b = torch.randn(W[1] * groups, dtype=torch.float64, requires_grad=True)
    y = torch.convolution(x, w, b, stride, padding, dilation, True, more, groups)
    dY = torch.randn_like(y)
    attributes: dict[str, Any] = {"strides": stride, "pads": (*padding, *padding), "dilations": dilation}
    attributes |= {"output_padding": more, "group": groups}
    torch.testing.assert_close(gradkern.run("ConvTranspose", x.detach(), w.detach(), b.detach(), **attributes).Y, y)
    ours = gradkern.run("ConvTransposeGrad", dY, x.detach(), w.detach(), **attributes)
    for mine, theirs in zip(ours, torch.autograd.grad(y, (x, w, b), dY), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    ("attributes", "expected"),  # of ONNX's own examples: convtranspose_output_shape, _autopad_same, _pads
    [
        ({"strides": [3, 2], "output_shape": [10, 8]}, (10, 8)),
        ({"strides": [3, 2], "output_padding": [1, 1]}, (10, 8)),
        ({"strides": [2, 2], "auto_pad": "SAME_UPPER"}, (6, 6)),
        ({"strides": [3, 2], "pads": [1, 2, 1, 2]}, (7, 3)),
    ],
)
def test_sizes_are_those_of_onnx(attributes: Any, expected: tuple[int, ...]) -> None:
    X, W = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), np.ones((1, 2, 3, 3), np.float32)
    Y = gradkern.run("ConvTranspose", X, W, **attributes).Y
    assert Y.shape == (1, 2, *expected)
    np.testing.assert_array_equal(Y, reference("ConvTranspose", {"X": X, "W": W}, attributes)["Y"])


def test_attributes_that_are_resolved_stay_as_they_are() -> None:
    """A plan can be made again from those of a call."""
    axes = {"C": 3, "spatial": (3, 4), "kernel": (3, 2)}
    usual: dict[str, Any] = {"group": 1, "kernel_shape": None, "strides": (3, 2), "dilations": None, "pads": None}
    usual |= {"auto_pad": "NOTSET", "output_padding": None, "output_shape": None}
    for given in (
        {"pads": (1, 0, 0, 1), "output_padding": (2, 1)},
        {"output_shape": (11, 7)},
        {"output_shape": (10, 6), "auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
    ):
        resolved = resolve(axes, {**usual, **given})
        assert resolve(axes, {key: each for key, each in resolved.items() if key != "out"}) == resolved


def test_what_is_no_transposed_convolution_is_refused() -> None:
    X, W = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 2, 3, 3), np.float32)
    for given, error, expected in (
        ({"W": W[:3]}, ShapeError, "ConvTranspose: input W has shape (3, 2, 3, 3): axis 0 (C) is 3; expected 4"),
        ({"W": W, "group": 3}, ShapeError, "input X has 4 channels (axis 1); C must be divisible by group, which is 3"),
        ({"W": W, "B": W[0, 0, 0], "group": 2}, ShapeError, "input B has shape (3,)"),
        ({"W": W, "pads": [4, 0, 3, 0]}, ShapeError, "spatial shape (0, 7), of (7, 7) less the pads"),
        ({"W": W, "pads": [1] * 4, "auto_pad": "VALID"}, AttributeValueError, "only one of them"),
        ({"W": W, "kernel_shape": [3, 2]}, ShapeError, "kernel_shape (3, 2) disagrees with W"),
    ):
        assert expected in message(error, gradkern.run, "ConvTranspose", X, **given)
    expected = "input dY has spatial shape (5, 5); the forward transposed convolution gives (7, 7)"
    assert expected in message(ShapeError, gradkern.run, "ConvTransposeGrad", np.ones((1, 2, 5, 5), np.float32), X, W)


@pytest.mark.thorough
@pytest.mark.parametrize(("dtype", "width"), [("bfloat16", 8), ("float16", 1), ("float32", 4), ("float64", 2)])
def test_the_kernel_that_adds_a_bias_spills_no_register(dtype: str, width: int) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from helpers.fake_candidates import FakeCandidate

    from gradkern.call import Call, Tensor
    from gradkern.cuda.dry_run import DryRunDevice, dry_run
    from gradkern.ops.conv.cuda.plan import Biased
    from gradkern.policy import Policy
    from gradkern.strides import end_to_end

    candidate: Any = FakeCandidate("a candidate of Y")
    kind, item = np.dtype(dtype), np.dtype(dtype).itemsize
    Y, B = Tensor(kind, (4, 6, 9, 8), (), width * item), Tensor(kind, (6,), (item,), width * item)
    for order, capability in zip(((0, 1, 2, 3), (0, 2, 3, 1)), (*HOPPER, OTHERS[item % len(OTHERS)]), strict=False):
        call = Call("ConvTranspose", {"B": B}, {"Y": end_to_end(Y, order)}, {}, {}, frozenset(), "cuda:0", Policy())
        with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
            Biased(candidate, call, device)
        (spec,) = device.specs
        compiled = made_of(spec)
        assert compiled.spilled == 0
        assert "ld.local" not in compiled.ptx
