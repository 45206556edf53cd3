"""The gradients of activations on the CPU: one loop over the elements."""

from __future__ import annotations

import math
from typing import Any

import numba

from gradkern.call import Call
from gradkern.cpu.compile import INLINE, Kernel
from gradkern.cpu.elementwise import elementwise_kernel, elementwise_plan
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.gelu import exact_gelu_gradient, exp, fast_gelu_gradient


@numba.njit(**INLINE)
def _gelu(d: Any, x: Any, _: Any, r: Any, one: Any) -> Any:
    return d * exact_gelu_gradient(x), one, one


@numba.njit(**INLINE)
def _fast_gelu(d: Any, x: Any, _: Any, r: Any, one: Any) -> Any:
    return d * fast_gelu_gradient(x), one, one


@numba.njit(**INLINE)
def sigmoid(z: Any, one: Any) -> Any:
    """1/(1 + exp(-z)), and 1 less that, without cancellation."""
    e = exp(-abs(z))  # at most 1
    near, far = one / (one + e), e / (one + e)
    return (near, far) if z >= 0 else (far, near)


@numba.njit(**INLINE)
def _quick_gelu(d: Any, x: Any, _: Any, r: Any, one: Any) -> Any:
    z = r[0] * x
    s, rest = sigmoid(z, one)
    bend = z * rest if abs(z) < math.inf else one - one  # where x is finite and z is not, too
    return d * (s * (one + bend)), one, one


@numba.njit(**INLINE)
def _relu(d: Any, x: Any, _: Any, r: Any, one: Any) -> Any:
    return (d if x > 0 else one - one), one, one


@numba.njit(**INLINE)
def _leaky_relu(d: Any, y: Any, _: Any, r: Any, one: Any) -> Any:
    return (d if y > 0 else r[0] * d), one, one


@numba.njit(**INLINE)
def _sigmoid(d: Any, y: Any, _: Any, r: Any, one: Any) -> Any:
    return d * (y * (one - y)), one, one


@numba.njit(**INLINE)
def _tanh(d: Any, y: Any, _: Any, r: Any, one: Any) -> Any:
    return d * ((one - y) * (one + y)), one, one  # 1 - y^2 would cancel near 1


@numba.njit(**INLINE)
def _dml_relu(x: Any, d: Any, _: Any, r: Any, one: Any) -> Any:
    return _relu(d, x, _, r, one)


@numba.njit(**INLINE)
def _dml_clip(x: Any, d: Any, _: Any, r: Any, one: Any) -> Any:
    return (one - one if x <= r[0] or x >= r[1] else d), one, one


_KERNELS: dict[str, Kernel] = {
    "GeluGrad": elementwise_kernel(_gelu),
    "FastGeluGrad": elementwise_kernel(_fast_gelu),
    "QuickGeluGrad": elementwise_kernel(_quick_gelu),
    "ReluGrad": elementwise_kernel(_relu),
    "LeakyReluGrad": elementwise_kernel(_leaky_relu),
    "SigmoidGrad": elementwise_kernel(_sigmoid),
    "TanhGrad": elementwise_kernel(_tanh),
    "DmlActivationReluGrad": elementwise_kernel(_dml_relu),
    "DmlElementWiseClipGrad": elementwise_kernel(_dml_clip),
    "DmlElementWiseClipGrad1": elementwise_kernel(_dml_clip),
}


def plan(call: Call) -> FlatPlan:
    return elementwise_plan(call, _KERNELS[call.operator], tuple(call.inputs), tuple(call.outputs))
