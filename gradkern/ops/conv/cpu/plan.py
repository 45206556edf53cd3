"""Conv and ConvGrad on the CPU: chooses among the kernels and views the caller's arrays as they take them.

pointwise      1x1 convolutions of float32 and float64: products of the arrays as they are
implicit_gemm  matrix products with a column matrix that is never made; any convolution, if memory allows
direct         sums over a plane's taps, block by block: depthwise convolutions; any convolution, in little memory
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call, Plan, Refusal, Tensor
from gradkern.cpu.batch_norm import Reduce
from gradkern.cpu.element_types import arithmetic, array_type, kernel_dtype
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.runs import Runs
from gradkern.ops.conv.cpu.direct import DirectForward, DirectLaunch
from gradkern.ops.conv.cpu.implicit_gemm import ImplicitForward, ImplicitLaunch
from gradkern.ops.conv.cpu.pointwise import PointwiseForward, PointwiseLaunch
from gradkern.ops.conv.geometry import Geometry

__all__ = ["SELECTS_BY_NAME", "channel_sums", "plan"]

DEFAULT_LIMIT = 256 << 20
MOST_TAPS = 1 << 18  # elements of a kernel's window: planning makes a table of them in Python

_FEW_RESULTS, _FEW_POSITIONS = 2, 16  # measured: direct sums are faster up to here, by up to 5

SELECTS_BY_NAME = True  # of Policy.kernel
_FORWARD = {"pointwise": PointwiseForward, "implicit_gemm": ImplicitForward, "direct": DirectForward}
_GRADIENTS = {"pointwise": PointwiseLaunch, "implicit_gemm": ImplicitLaunch, "direct": DirectLaunch}


def plan(call: Call) -> Plan:
    """The plan of the kernel the policy pins, else of the fastest that takes the call."""
    return (_ForwardPlan if "Y" in call.outputs else _ConvPlan)(call, *_chosen(call))


def _chosen(call: Call) -> tuple[str, Any]:
    """The kernel of a call, and its launch."""
    kernels: dict[str, Any] = _FORWARD if "Y" in call.outputs else _GRADIENTS
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


class _ForwardPlan:
    """Brings every array into the five axes and the element type that kernels see; the bias into that of arithmetic."""

    def __init__(self, call: Call, kernel: str, launch: Any) -> None:
        self.kernel = kernel
        self._launch = launch
        X, W, Y = call.inputs["X"], call.inputs["W"], call.outputs["Y"]
        self._read_X, self._read_W, self._view_Y = _lifted(X), _lifted(W), _lifted(Y)
        self._odd_Y, self._arithmetic = _is_odd(Y), arithmetic(X.dtype)
        self._no_bias = np.empty(0, self._arithmetic)
        copied = [tensor for tensor in (X, W, Y) if _is_odd(tensor)]
        self.scratch = launch.scratch + sum(tensor.nbytes for tensor in copied)

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        (X, W, *bias), (target,) = inputs, outputs
        B = np.ascontiguousarray(bias[0], self._arithmetic) if bias else self._no_bias
        Y = self._view_Y(target)  # a copy of an irregular array, copied back below
        with np.errstate(all="ignore"):  # overflow and NaN are results, here as in kernels
            self._launch(self._read_X(X), self._read_W(W), B, Y)
        if self._odd_Y:
            target[...] = Y.view(target.dtype).reshape(target.shape)


class _ConvPlan:
    """Brings every array into the five axes and the element type that kernels see; sums dB itself."""

    def __init__(self, call: Call, kernel: str, launch: Any) -> None:
        self.kernel = kernel
        self._launch = launch
        self._readers = [_lifted(tensor) for tensor in call.inputs.values()]
        wanted = list(call.outputs)
        self._dX, self._dW, self._dB = (wanted.index(name) if name in wanted else None for name in ("dX", "dW", "dB"))
        copied = [tensor for tensor in call.inputs.values() if _is_odd(tensor)]
        self._view_dX = None
        self._odd_dX = False
        if "dX" in call.outputs:
            tensor = call.outputs["dX"]
            self._view_dX, self._odd_dX = _lifted(tensor), _is_odd(tensor)
            copied += [tensor] * self._odd_dX
        self._sums = channel_sums(call) if "dB" in call.outputs else None
        self.scratch = (
            launch.scratch + sum(tensor.nbytes for tensor in copied) + (self._sums.scratch if self._sums else 0)
        )

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
            if self._sums is not None and self._dB is not None:
                self._sums(inputs[:1], (outputs[self._dB],))


def channel_sums(call: Call) -> FlatPlan:
    """A plan of dB: sums of dY over images and positions."""
    dY = call.inputs["dY"]
    order, runs = Runs.of_tensor(dY, [axis == 1 for axis in range(len(dY.shape))])
    sums = Reduce(runs, (array_type(dY.dtype), *(types.none,) * 4), types.none, [None, dY.dtype])

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        sums((read[0], *(None,) * 4), None, (None, *write))

    only = replace(call, inputs={"dY": dY}, outputs={"dB": call.outputs["dB"]})
    return FlatPlan(only, kernel="sums", outputs=("dB",), launch=launch, orders={"dY": order}, scratch=sums.nbytes)


def _lifted(tensor: Tensor) -> Callable[[np.ndarray], np.ndarray]:
    """The function that views arrays of this signature as (N, C, i0, i1, i2), in the type kernels see."""
    seen_as = kernel_dtype(tensor.dtype)
    lift = (slice(None), slice(None), *(None,) * (5 - len(tensor.shape)))
    if _is_odd(tensor):
        return lambda array: np.array(array, order="C").view(seen_as)[lift]
    if seen_as == tensor.dtype:
        return lambda array: array[lift]
    return lambda array: array.view(seen_as)[lift]


def _is_odd(tensor: Tensor) -> bool:
    """Whether the elements are not aligned to their type, as in a packed record: such an array is copied."""
    item = tensor.dtype.itemsize
    return tensor.alignment < tensor.dtype.alignment or any(stride % item for stride in tensor.strides)
