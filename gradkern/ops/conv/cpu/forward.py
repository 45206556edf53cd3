"""Conv on the CPU: the kernels of ConvGrad's plan, see there, as a forward pass has them.

pointwise      Y[n] = W X[n]
gemm           Y[m, p] = sum over c, k of  W[m, (c, k)] * columns of X[(c, k), p], a slice of the columns at a time
implicit_gemm  the same, but no column is copied: its elements are read where they lie
direct         depthwise convolutions in blocks of a plane; pinned, any convolution
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gradkern.call import Call, Plan, Refusal
from gradkern.cpu.element_types import arithmetic
from gradkern.ops.conv.cpu.direct_forward import DirectForward
from gradkern.ops.conv.cpu.gemm import Slices, gatherer, products, scatterer
from gradkern.ops.conv.cpu.implicit_gemm import ImplicitForward
from gradkern.ops.conv.cpu.plan import chosen, is_odd, lifted
from gradkern.ops.conv.cpu.pointwise import is_matrices
from gradkern.ops.conv.geometry import Geometry

__all__ = ["SELECTS_BY_NAME", "plan"]

SELECTS_BY_NAME = True  # of Policy.kernel


def plan(call: Call) -> Plan:
    """The plan of the kernel the policy pins, else of the fastest that takes the call."""
    return _ForwardPlan(call, *chosen(call, KERNELS))


class _ForwardPlan:
    """Brings every array into the five axes and the element type that kernels see; the bias into that of arithmetic."""

    def __init__(self, call: Call, kernel: str, launch: Any) -> None:
        self.kernel = kernel
        self._launch = launch
        X, W, Y = call.inputs["X"], call.inputs["W"], call.outputs["Y"]
        self._read_X, self._read_W, self._view_Y = lifted(X), lifted(W), lifted(Y)
        self._odd_Y, self._arithmetic = is_odd(Y), arithmetic(X.dtype)
        self._no_bias = np.empty(0, self._arithmetic)
        copied = [tensor for tensor in (X, W, Y) if is_odd(tensor)]
        self.scratch = launch.scratch + sum(tensor.nbytes for tensor in copied)

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        (X, W, *bias), (target,) = inputs, outputs
        B = np.ascontiguousarray(bias[0], self._arithmetic) if bias else self._no_bias
        Y = self._view_Y(target)  # a copy of an irregular array, copied back below
        with np.errstate(all="ignore"):  # overflow and NaN are results, here as in kernels
            self._launch(self._read_X(X), self._read_W(W), W, B, Y)
        if self._odd_Y:
            target[...] = Y.view(target.dtype).reshape(target.shape)


class _PointwiseForward:
    """A 1x1 convolution of float32 or float64: three axes of the arrays as they are, and NumPy's matrix products."""

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        X, Y = call.inputs["X"], call.outputs["Y"]
        if not geometry.pointwise:
            raise Refusal("takes only 1x1 convolutions with strides of 1 and no padding")
        if X.dtype != arithmetic(X.dtype):
            raise Refusal("takes only float32 and float64")
        if not (is_matrices(X) and is_matrices(Y)):
            raise Refusal("takes only arrays in which each image is a matrix")
        self.scratch = call.inputs["W"].nbytes  # where NumPy must copy W to view its groups
        if self.scratch > limit:
            raise Refusal(f"needs {self.scratch} bytes of scratch; the policy's workspace_limit is {limit}")
        positions = prod(geometry.spatial)
        self._weights = geometry.group, geometry.filters, geometry.channels
        self._X = geometry.images, geometry.group, geometry.channels, positions
        self._Y = geometry.images, geometry.group, geometry.filters, positions

    def __call__(self, X: np.ndarray, W: np.ndarray, weights: np.ndarray, B: np.ndarray, Y: np.ndarray) -> None:
        matrices = Y.reshape(self._Y)  # a view, see is_matrices
        np.matmul(W.reshape(self._weights), X.reshape(self._X), out=matrices)
        if B.size:
            matrices += B.reshape(*self._weights[:2], 1)


class _GemmForward:
    """W times the columns of X, over the slices of Y's positions."""

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        dtype = call.inputs["X"].dtype
        self._dtype = arithmetic(dtype)
        self._window = geometry.weight_window()
        self._group, self._taps = geometry.group, geometry.taps
        self._filters = geometry.filters
        self._rows = geometry.channels * geometry.taps
        weights, item = call.inputs["W"].size * self._dtype.itemsize, self._dtype.itemsize
        positions = geometry.images * self._window.positions
        self._slices = Slices(self._rows + self._filters, positions, geometry.group, item, limit - weights)
        self.scratch = weights + self._slices.elements * (self._rows + self._filters) * item
        self._gather, self._scatter = gatherer(dtype), scatterer(dtype)
        self._origin = np.zeros((1, 3), np.int64)

    def __call__(self, X: np.ndarray, W: np.ndarray, weights: np.ndarray, B: np.ndarray, Y: np.ndarray) -> None:
        filters, window = self._filters, self._window
        left = np.ascontiguousarray(weights, self._dtype).reshape(self._group, filters, self._rows)
        bias = B.reshape(self._group, filters, 1) if B.size else None
        for group, start, result in products(self._slices, left, X, window, self._taps, self._gather):
            if bias is not None:
                result += bias[group : group + len(result)]
            self._scatter(result, group, filters, start, window.grid, (1, 1, 1), self._origin, Y)


KERNELS = {
    "pointwise": _PointwiseForward,
    "direct": DirectForward,
    "implicit_gemm": ImplicitForward,
    "gemm": _GemmForward,
}
