"""Conv and ConvGrad on the CPU, and the transposed ones as results of their convolution, see ops.conv.transposed:
chooses among the kernels and views the caller's arrays as they take them.

pointwise      1x1 convolutions of float32 and float64: products of the arrays as they are
implicit_gemm  matrix products with a column matrix that is never made; any convolution, if memory allows
direct         sums over a plane's taps, block by block: depthwise convolutions; any convolution, in little memory
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call, Plan, Refusal, Tensor
from gradkern.cpu.batch_norm import Reduce
from gradkern.cpu.element_types import arithmetic, array_type, kernel_dtype
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.runs import Runs
from gradkern.ops.conv.cpu.direct import Direct
from gradkern.ops.conv.cpu.implicit_gemm import ImplicitGemm
from gradkern.ops.conv.geometry import Geometry
from gradkern.ops.conv.transposed import NAMES, convolution_of, is_transposed

DEFAULT_LIMIT = 256 << 20
MOST_TAPS = 1 << 18  # elements of a kernel's window: planning makes a table of them in Python

_FEW_RESULTS, _FEW_POSITIONS = 2, 16  # measured: direct sums are faster up to here, by up to 5

SELECTS_BY_NAME = True  # of Policy.kernel
_LIFTED = ("X", "dY", "W", "Y", "dX")


class Pointwise:
    """Computes Y, or the wanted ones of dX and dW, of a 1x1 convolution: three axes of the arrays as they are, and
    NumPy's matrix products.

    Y[n] = W * X[n] + B        dX[n] = W^T * dY[n] + B        dW = sum over n of  dY[n] * X[n]^T

    for each group, with positions as columns.
    """

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        tensors, dtype = {**call.inputs, **call.outputs}, call.inputs["W"].dtype
        if not geometry.pointwise:
            raise Refusal("takes only 1x1 convolutions with strides of 1 and no padding")
        if dtype != arithmetic(dtype):
            raise Refusal("takes only float32 and float64")
        if not all(_is_matrices(tensors[name]) for name in ("dY", "X", "dX", "Y") if name in tensors):
            raise Refusal("takes only arrays in which each image is a matrix")
        positions = math.prod(geometry.spatial)
        # the shapes of the matrices
        self._weights = geometry.group, geometry.filters, geometry.channels
        self._upstream = geometry.images, geometry.group, geometry.filters, positions
        self._data = geometry.images, geometry.group, geometry.channels, positions
        products = ("Y", "X", self._data, self._upstream), ("dX", "dY", self._upstream, self._data)
        self._products = [each for each in products if each[0] in call.outputs]
        self._sums_weights = "dW" in call.outputs
        self.scratch = call.inputs["W"].nbytes  # where NumPy must copy W to view its groups
        if "dW" in call.outputs and geometry.images > 1:
            self.scratch += math.prod(self._weights) * dtype.itemsize
        if self.scratch > limit:
            raise Refusal(f"needs {self.scratch} bytes of scratch; the policy's workspace_limit is {limit}")

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> None:
        W, B = arrays["W"].reshape(self._weights), arrays["B"]
        for name, source, shape, result in self._products:
            matrices = arrays[name].reshape(result)  # a view, see _is_matrices
            np.matmul(W.swapaxes(1, 2) if name == "dX" else W, arrays[source].reshape(shape), out=matrices)
            if B.size:
                matrices += B.reshape(*result[1:3], 1)
        if self._sums_weights:
            upstream, data, dW = arrays["dY"].reshape(self._upstream), arrays["X"].reshape(self._data), arrays["dW"]
            total = np.zeros(self._weights, dW.dtype)
            share = np.empty_like(total)
            for image in range(len(data)):
                total += np.matmul(upstream[image], data[image].swapaxes(1, 2), out=share)
            dW[...] = total.reshape(dW.shape)


def _is_matrices(tensor: Tensor) -> bool:
    """Whether each image is a matrix of channels and positions to BLAS: its spatial axes step as one axis would, and
    positions or channels are adjacent.
    """
    steps = [(size, stride) for size, stride in zip(tensor.shape[1:], tensor.strides[1:], strict=True) if size != 1]
    spatial = steps if tensor.shape[1] == 1 else steps[1:]
    one_axis = all(outer == inner * size for (_, outer), (size, inner) in pairwise(spatial))
    return tensor.size == 0 or (one_axis and tensor.dtype.itemsize in (stride for _, stride in steps))


_KERNELS: dict[str, Any] = {"pointwise": Pointwise, "implicit_gemm": ImplicitGemm, "direct": Direct}
"""Each computes Y, or the wanted ones of dX and dW, from arrays by their names; Y and dX with a bias B."""


def plan(call: Call) -> Plan:
    """The plan of the kernels that the policy pins, else of the fastest that take the call."""
    return _Plan(call)


def _chosen(call: Call, pinned: str | None) -> tuple[str, Any]:
    """The kernel of a convolution's Y, or of its dX and dW, and its launch."""
    window = math.prod(call.axes["kernel"])
    if window > MOST_TAPS:
        raise Refusal(f"has no kernel for windows of more than {MOST_TAPS} elements; this one has {window}")
    geometry = Geometry.of(call.axes, call.attributes).lifted(3)
    limit = DEFAULT_LIMIT if call.policy.workspace_limit is None else call.policy.workspace_limit
    reasons: list[str] = []
    for name in _order(call, geometry) if pinned is None else [pinned]:
        try:
            return name, _KERNELS[name](call, geometry, limit)
        except Refusal as refusal:
            reasons.append(f"kernel {name!r} {refusal}")
    raise Refusal("; ".join(reasons) + f"; the kernels are {', '.join(_KERNELS)}")


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
    """Brings every array into the five axes and the element type that kernels see, and the bias into that of
    arithmetic; sums dB itself.
    """

    def __init__(self, call: Call) -> None:
        renamed: dict[str, str] = NAMES if is_transposed(call) else {}
        self._sums = _channel_sums(call) if "dB" in call.outputs else None
        self._upstream = list(call.inputs).index("dY") if self._sums else 0
        pins = _pins(call.policy.kernel, bool(renamed))
        call = convolution_of(call) if renamed else call
        self._names = *call.inputs, *call.outputs
        self._arithmetic = arithmetic(call.inputs["W"].dtype)
        self._no_bias = np.empty(0, self._arithmetic)
        self._launches: list[Any] = []
        kernels: dict[str, str] = {}
        # a transposed convolution's dX is Y: another kernel may be best for it than for dW
        for part in ({"Y"}, {"dX", "dW"}):
            wanted = {name: tensor for name, tensor in call.outputs.items() if name in part}
            if not wanted:
                continue
            caller_names = [renamed.get(name, name) for name in wanted]
            pin = pins.get(caller_names[0], pins.get(""))
            kernel, launch = _chosen(replace(call, outputs=wanted), pin)
            kernels |= dict.fromkeys(caller_names, kernel)
            self._launches.append(launch)
        same = len({*kernels.values()}) <= 1
        self.kernel = next(iter(kernels.values()), "sums") if same else "; ".join(map(": ".join, kernels.items()))
        seen = {name: tensor for name, tensor in {**call.inputs, **call.outputs}.items() if name in _LIFTED}
        self._views = [(name, _lifted(tensor)) for name, tensor in seen.items()]
        self._copied_back = [
            (name, place) for place, name in enumerate(call.outputs) if name in seen and _is_odd(seen[name])
        ]
        self.scratch = max((launch.scratch for launch in self._launches), default=0)
        self.scratch += sum(tensor.nbytes for tensor in seen.values() if _is_odd(tensor))
        self.scratch += self._sums.scratch if self._sums else 0

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        arrays = dict(zip(self._names, (*inputs, *outputs), strict=True))
        for name, view in self._views:
            arrays[name] = view(arrays[name])
        arrays["B"] = np.ascontiguousarray(arrays["B"], self._arithmetic) if "B" in arrays else self._no_bias
        with np.errstate(all="ignore"):  # overflow and NaN are results, here as in kernels
            for launch in self._launches:
                launch(arrays)
            for name, place in self._copied_back:
                target = outputs[place]
                target[...] = arrays[name].view(target.dtype).reshape(target.shape)
            if self._sums is not None:
                self._sums((inputs[self._upstream],), (arrays["dB"],))


def _pins(pinned: str | None, by_gradient: bool) -> dict[str, str]:
    """The kernel of each gradient, or of "" for all: "direct", or as a plan's `kernel` "dX: direct; dW: pointwise"."""
    pins = {} if pinned is None else {"": pinned}
    if by_gradient and pinned is not None and ": " in pinned:
        pins = dict(each.split(": ", 1) for each in pinned.split("; "))
    for each in pins.values():
        if each not in _KERNELS:
            raise Refusal(f"has no kernel {each!r}; it has {', '.join(_KERNELS)}")
    return pins


def _channel_sums(call: Call) -> FlatPlan:
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
