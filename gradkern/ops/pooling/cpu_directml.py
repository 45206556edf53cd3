"""DirectML's gradients of pools on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Call, Plan
from gradkern.ops.pooling import cpu_average, cpu_max
from gradkern.ops.pooling.directml import average, maximum
from gradkern.strides import channels_last


def plan(call: Call) -> Plan:
    return _MaxPlan(call) if "Input" in call.inputs else cpu_average.plan(average(call))


class _MaxPlan:
    """Two passes, with the indices of the first."""

    def __init__(self, call: Call) -> None:
        forward, gradient = maximum(call)
        self._forward, self._gradient = cpu_max.plan(forward), cpu_max.plan(gradient)
        self._indices, self._last = gradient.inputs["Indices"], channels_last(call.inputs["Input"])
        self.kernel = self._gradient.kernel
        self.scratch = self._indices.nbytes + max(self._forward.scratch, self._gradient.scratch)

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        shape, dtype = self._indices.shape, self._indices.dtype
        indices = np.empty((shape[0], *shape[2:], shape[1]) if self._last else shape, dtype)
        indices = np.moveaxis(indices, -1, 1) if self._last else indices
        self._forward(inputs[:1], (indices,), stream)
        self._gradient((inputs[1], indices), outputs, stream)
