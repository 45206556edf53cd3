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
    return _Plan(call, *_chosen(call))


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


class _Plan:
    """Brings every array into the five axes and the element type that kernels see, and the bias of Y into that of
    arithmetic; sums dB itself.
    """

    def __init__(self, call: Call, kernel: str, launch: Any) -> None:
        self.kernel = kernel
        self._launch = launch
        self._arithmetic = arithmetic(call.inputs["X"].dtype)
        self._forward, self._no_bias = "Y" in call.outputs, np.empty(0, self._arithmetic)
        read = [call.inputs[name] for name in ("dY", "X", "W") if name in call.inputs]
        self._readers = [_lifted(tensor) for tensor in read]
        self._places = {name: place for place, name in enumerate(call.outputs)}
        self._image = next((name for name in ("Y", "dX") if name in call.outputs), None)
        written = [] if self._image is None else [call.outputs[self._image]]
        self._view, self._odd = [_lifted(tensor) for tensor in written], any(map(_is_odd, written))
        self._sums = channel_sums(call) if "dB" in call.outputs else None
        self.scratch = launch.scratch + sum(tensor.nbytes for tensor in (*read, *written) if _is_odd(tensor))
        self.scratch += self._sums.scratch if self._sums else 0

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        count = len(self._readers)
        seen = [read(array) for read, array in zip(self._readers, inputs[:count], strict=True)]
        results = {name: outputs[place] for name, place in self._places.items()}
        # Y or dX; a copy of an irregular array, copied back below
        image = None if self._image is None else self._view[0](results[self._image])
        dW = results.get("dW")
        with np.errstate(all="ignore"):  # overflow and NaN are results, here as in kernels
            if self._forward:
                given = len(inputs) > count
                bias = np.ascontiguousarray(inputs[count], self._arithmetic) if given else self._no_bias
                self._launch(*seen, bias, image)
            elif image is not None or dW is not None:
                self._launch(*seen, image, dW)
            if self._odd and self._image is not None and image is not None:
                target = results[self._image]
                target[...] = image.view(target.dtype).reshape(target.shape)
            if self._sums is not None:
                self._sums(inputs[:1], (results["dB"],))


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
