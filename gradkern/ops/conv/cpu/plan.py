"""ConvGrad on the CPU: chooses among the kernels and views the caller's arrays as they take them.

pointwise      1x1 convolutions of float32 and float64: products of the arrays as they are
implicit_gemm  matrix products with a column matrix that is never made; any convolution, if memory allows
direct         sums over a plane's taps, block by block: depthwise convolutions; any convolution, in little memory
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call, Plan, Refusal, Tensor
from gradkern.cpu import threads
from gradkern.cpu.element_types import kernel_dtype
from gradkern.ops.conv.cpu.direct import DirectLaunch
from gradkern.ops.conv.cpu.implicit_gemm import ImplicitLaunch
from gradkern.ops.conv.cpu.lines import sum_planes
from gradkern.ops.conv.cpu.pointwise import PointwiseLaunch
from gradkern.ops.conv.geometry import Geometry

__all__ = ["SELECTS_BY_NAME", "ChannelSums", "chosen", "is_odd", "lifted", "plan"]

DEFAULT_LIMIT = 256 << 20
MOST_TAPS = 1 << 18  # elements of a kernel's window: planning makes a table of them in Python

_FEW_RESULTS, _FEW_POSITIONS = 2, 16  # measured: direct sums are faster up to here, by up to 5

SELECTS_BY_NAME = True  # of Policy.kernel
KERNELS = {"pointwise": PointwiseLaunch, "implicit_gemm": ImplicitLaunch, "direct": DirectLaunch}


def plan(call: Call) -> Plan:
    """The plan of the kernel the policy pins, else of the fastest that takes the call."""
    return _ConvPlan(call, *chosen(call, KERNELS))


def chosen(call: Call, kernels: Mapping[str, Any]) -> tuple[str, Any]:
    """The kernel of a call, and its launch: `kernels` has a class for each name, made of call, geometry and limit."""
    window = math.prod(call.axes["kernel"])
    if window > MOST_TAPS:
        raise Refusal(f"has no kernel for windows of more than {MOST_TAPS} elements; this one has {window}")
    geometry = Geometry.of(call.axes, call.attributes).lifted(3)
    limit = DEFAULT_LIMIT if call.policy.workspace_limit is None else call.policy.workspace_limit
    pinned = call.policy.kernel
    if pinned is not None and pinned not in kernels:
        raise Refusal(f"has no kernel {pinned!r}; it has {', '.join(kernels)}")
    reasons: list[str] = []
    for name in _order(call, geometry) if pinned is None else [pinned]:
        try:
            return name, kernels[name](call, geometry, limit)
        except Refusal as refusal:
            reasons.append(f"kernel {name!r} {refusal}")
    raise Refusal("; ".join(reasons) + f"; the kernels are {', '.join(kernels)}")


def _order(call: Call, geometry: Geometry) -> list[str]:
    """The kernels from fast to slow.

    The implicit GEMM computes a panel of results (filters, or channels of dX) at a time and wastes most of it on one or
    two. Direct sums compute every position, also those that strides leave out.
    """
    results = geometry.filters if "Y" in call.outputs else geometry.channels
    few = results <= _FEW_RESULTS and math.prod(geometry.strides) <= _FEW_POSITIONS
    matrices = geometry.pointwise and geometry.channels * geometry.filters > 1
    return ["pointwise"] * matrices + (["direct", "implicit_gemm"] if few else ["implicit_gemm", "direct"])


class _ConvPlan:
    """Brings every array into the five axes and the element type that kernels see; sums dB itself."""

    def __init__(self, call: Call, kernel: str, launch: Any) -> None:
        self.kernel = kernel
        self._launch = launch
        self._readers = [lifted(tensor) for tensor in call.inputs.values()]
        wanted = list(call.outputs)
        self._dX, self._dW, self._dB = (wanted.index(name) if name in wanted else None for name in ("dX", "dW", "dB"))
        copied = [tensor for tensor in call.inputs.values() if is_odd(tensor)]
        self._view_dX = None
        self._odd_dX = False
        if "dX" in call.outputs:
            tensor = call.outputs["dX"]
            self._view_dX, self._odd_dX = lifted(tensor), is_odd(tensor)
            copied += [tensor] * self._odd_dX
        self.scratch = launch.scratch + sum(tensor.nbytes for tensor in copied)
        self._sums = ChannelSums(call.inputs["dY"])

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        dY, X, W = (read(array) for read, array in zip(self._readers, inputs, strict=True))
        dX = dW = None
        if self._dX is not None and self._view_dX is not None:
            dX = np.empty(X.shape, X.dtype) if self._odd_dX else self._view_dX(outputs[self._dX])
        if self._dW is not None:
            dW = outputs[self._dW]
        with np.errstate(all="ignore"):  # overflow and NaN are results, here as in kernels
            if dX is not None or dW is not None:
                self._launch(dY, X, W, dX, dW)
            if self._odd_dX and self._dX is not None and dX is not None:
                target = outputs[self._dX]
                target[...] = dX.view(target.dtype).reshape(target.shape)
            if self._dB is not None:
                self._sums(inputs[:1], (outputs[self._dB],))


class ChannelSums:
    """A plan of dB: sums of dY over images and positions."""

    kernel = "sums"

    def __init__(self, dY: Tensor) -> None:
        self._read = lifted(dY)
        self.scratch = dY.nbytes * is_odd(dY)
        self._sum = sum_planes(
            threads.QUEUE,
            types.Array(numba.from_dtype(kernel_dtype(dY.dtype)), 5, "A", readonly=True),
            types.Array(types.float64, 1, "C"),
        )

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        dY, (dB,) = self._read(inputs[0]), outputs
        sums = np.empty(len(dB))
        threads.run(self._sum, len(dB), dY.nbytes, dY, sums)
        with np.errstate(all="ignore"):  # overflow is a result, here as in kernels
            dB[...] = sums


def lifted(tensor: Tensor) -> Callable[[np.ndarray], np.ndarray]:
    """The function that views arrays of this signature as (N, C, i0, i1, i2), in the type kernels see."""
    seen_as = kernel_dtype(tensor.dtype)
    lift = (slice(None), slice(None), *(None,) * (5 - len(tensor.shape)))
    if is_odd(tensor):
        return lambda array: np.array(array, order="C").view(seen_as)[lift]
    if seen_as == tensor.dtype:
        return lambda array: array[lift]
    return lambda array: array.view(seen_as)[lift]


def is_odd(tensor: Tensor) -> bool:
    """Whether the elements are not aligned to their type, as in a packed record: such an array is copied."""
    item = tensor.dtype.itemsize
    return tensor.alignment < tensor.dtype.alignment or any(stride % item for stride in tensor.strides)
