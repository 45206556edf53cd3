"""Conv on the CPU, by the kernels of ConvGrad's plan: see there."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Call, Plan
from gradkern.cpu.element_types import arithmetic
from gradkern.ops.conv.cpu.direct import DirectForward
from gradkern.ops.conv.cpu.implicit_gemm import ImplicitForward
from gradkern.ops.conv.cpu.plan import chosen, is_odd, lifted
from gradkern.ops.conv.cpu.pointwise import PointwiseForward

__all__ = ["SELECTS_BY_NAME", "plan"]

SELECTS_BY_NAME = True  # of Policy.kernel
KERNELS = {"pointwise": PointwiseForward, "implicit_gemm": ImplicitForward, "direct": DirectForward}


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
            self._launch(self._read_X(X), self._read_W(W), B, Y)
        if self._odd_Y:
            target[...] = Y.view(target.dtype).reshape(target.shape)
