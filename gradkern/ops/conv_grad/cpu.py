"""ConvGrad on the CPU: chooses among the kernels and brings the caller's arrays into the form they take.

gemm       columns in slices and matrix products; any convolution
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call, Plan, Refusal, Tensor
from gradkern.cpu import team
from gradkern.cpu.storage import storage
from gradkern.ops.conv_grad.cpu_columns import sum_planes
from gradkern.ops.conv_grad.cpu_gemm import GemmLaunch
from gradkern.ops.conv_grad.geometry import Geometry

__all__ = ["plan"]

DEFAULT_LIMIT = 256 << 20

KERNELS = {"gemm": GemmLaunch}


def plan(call: Call) -> Plan:
    """The plan of the kernel the policy pins, else of the first that takes the call."""
    return _ConvPlan(call, "gemm", GemmLaunch(call, Geometry.of(call.axes, call.attributes), DEFAULT_LIMIT))


class _ConvPlan:
    def __init__(self, call: Call, kernel: str, launch: Any) -> None:
        self.kernel = kernel
        self.scratch = launch.scratch
        self._launch = launch
        self._readers = [_lifted(tensor) for tensor in call.inputs.values()]
        self._names = list(call.outputs)
        self._writers = [_lifted(tensor) if name == "dX" else None for name, tensor in call.outputs.items()]
        self._sum = sum_planes(
            team.QUEUE,
            types.Array(numba.from_dtype(storage(call.inputs["dY"].dtype)), 5, "A", readonly=True),
            types.Array(types.float64, 1, "C"),
        )

    def __call__(self, inputs: Any, outputs: Any, stream: Any = None) -> None:
        dY, X, W = (read(array) for read, array in zip(self._readers, inputs, strict=True))
        wanted = dict(zip(self._names, outputs))
        dX = wanted.get("dX")
        self._launch(dY, X, W, None if dX is None else self._readers[1](dX), wanted.get("dW"))
        dB = wanted.get("dB")
        if dB is not None:
            sums = np.empty(len(dB))
            team.run(self._sum, len(dB), dY.nbytes, dY, sums)
            dB[...] = sums


def _lifted(tensor: Tensor) -> Callable[[np.ndarray], np.ndarray]:
    """The function that views arrays of this signature as (N, C, i0, i1, i2), in the type kernels see."""
    seen_as = storage(tensor.dtype)
    lift = (slice(None), slice(None), *(None,) * (5 - len(tensor.shape)))
    if seen_as == tensor.dtype:
        return lambda array: array[lift]
    return lambda array: array.view(seen_as)[lift]
