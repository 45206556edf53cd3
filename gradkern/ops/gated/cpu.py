"""Gated linear units and their gradients on the CPU."""

from __future__ import annotations

from typing import Any

import numba

from gradkern.call import Call
from gradkern.cpu.compile import INLINE, Kernel
from gradkern.cpu.elementwise import elementwise_kernel, elementwise_plan
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.gelu import exact_gelu, exact_gelu_gradient, fast_gelu, fast_gelu_gradient
from gradkern.ops.activation.cpu import sigmoid


@numba.njit(**INLINE)
def _swiglu(a: Any, b: Any, _: Any, r: Any, one: Any) -> Any:
    return a * sigmoid(a, one)[0] * b, one, one


@numba.njit(**INLINE)
def _swiglu_gradient(d: Any, a: Any, b: Any, r: Any, one: Any) -> Any:
    s, rest = sigmoid(a, one)
    return d * b * (s * (one + a * rest)), d * (a * s), a * s * b


@numba.njit(**INLINE)
def _exact_geglu(a: Any, b: Any, _: Any, r: Any, one: Any) -> Any:
    return exact_gelu(a) * b, one, one


@numba.njit(**INLINE)
def _fast_geglu(a: Any, b: Any, _: Any, r: Any, one: Any) -> Any:
    return fast_gelu(a) * b, one, one


@numba.njit(**INLINE)
def _exact_geglu_gradient(d: Any, a: Any, b: Any, r: Any, one: Any) -> Any:
    g = exact_gelu(a)
    return d * b * exact_gelu_gradient(a), d * g, g * b


@numba.njit(**INLINE)
def _fast_geglu_gradient(d: Any, a: Any, b: Any, r: Any, one: Any) -> Any:
    g = fast_gelu(a)
    return d * b * fast_gelu_gradient(a), d * g, g * b


_KERNELS: dict[tuple[str, str | None], Kernel] = {
    ("SwiGLU", None): elementwise_kernel(_swiglu),
    ("SwiGLUGrad", None): elementwise_kernel(_swiglu_gradient),
    ("GeGLU", "none"): elementwise_kernel(_exact_geglu),
    ("GeGLU", "tanh"): elementwise_kernel(_fast_geglu),
    ("GeGLUGrad", "none"): elementwise_kernel(_exact_geglu_gradient),
    ("GeGLUGrad", "tanh"): elementwise_kernel(_fast_geglu_gradient),
}


def plan(call: Call) -> FlatPlan:
    kernel = _KERNELS[call.operator, call.attributes.get("approximate")]
    outputs = ("dA", "dB", "Y") if call.operator.endswith("Grad") else ("Y",)
    return elementwise_plan(call, kernel, tuple(call.inputs), outputs)
