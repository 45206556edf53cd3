"""The gradients of activations on the CPU: one loop over the elements."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, Kernel, kernel, widest_vectors
from gradkern.cpu.element_types import destination, load, real, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.gelu import exact_gelu_gradient, exp, fast_gelu_gradient
from gradkern.cpu.threads import QUEUE, take
from gradkern.strides import is_dense, memory_order

__all__ = ["plan"]

_SPAN = 1 << 14  # elements of one task


@numba.njit(**INLINE)
def _gelu(d: Any, x: Any, alpha: Any, one: Any) -> Any:
    return d * exact_gelu_gradient(x)


@numba.njit(**INLINE)
def _fast_gelu(d: Any, x: Any, alpha: Any, one: Any) -> Any:
    return d * fast_gelu_gradient(x)


@numba.njit(**INLINE)
def _quick_gelu(d: Any, x: Any, alpha: Any, one: Any) -> Any:
    z = alpha * x
    e = exp(-abs(z))  # at most 1
    near, far = one / (one + e), e / (one + e)
    s, rest = (near, far) if z >= 0 else (far, near)
    return d * (s * (one + z * rest))


@numba.njit(**INLINE)
def _relu(d: Any, x: Any, alpha: Any, one: Any) -> Any:
    return d if x > 0 else one - one


@numba.njit(**INLINE)
def _leaky_relu(d: Any, y: Any, alpha: Any, one: Any) -> Any:
    return d if y > 0 else alpha * d


@numba.njit(**INLINE)
def _sigmoid(d: Any, y: Any, alpha: Any, one: Any) -> Any:
    return d * (y * (one - y))


@numba.njit(**INLINE)
def _tanh(d: Any, y: Any, alpha: Any, one: Any) -> Any:
    return d * ((one - y) * (one + y))  # 1 - y^2 would cancel near 1


def _kernel(slope: Any) -> Kernel:
    def elements(queue: Any, dY: Any, X: Any, dX: Any, alpha: float) -> None:
        widest_vectors()
        target = destination(dX, dY, X)
        factor, one = real(dY, alpha), real(dY, 1)
        task = take(queue)
        while task >= 0:
            begin = task * _SPAN
            for n in range(begin, min(begin + _SPAN, X.size)):
                store(target, n, slope(load(dY, n), load(X, n), factor, one))
            task = take(queue)

    elements.__qualname__ = slope.py_func.__name__  # kernels are told apart by it, in the cache too
    return kernel(elements)


_KERNELS: dict[str, Kernel] = {
    "GeluGrad": _kernel(_gelu),
    "FastGeluGrad": _kernel(_fast_gelu),
    "QuickGeluGrad": _kernel(_quick_gelu),
    "ReluGrad": _kernel(_relu),
    "LeakyReluGrad": _kernel(_leaky_relu),
    "SigmoidGrad": _kernel(_sigmoid),
    "TanhGrad": _kernel(_tanh),
}


def plan(call: Call) -> FlatPlan:
    names = tuple(call.inputs)
    tensors = (*call.inputs.values(), *call.outputs.values())
    order = memory_order(tensors[1])  # elements may lie in any order that all share
    if not all(is_dense(each, order) for each in tensors):
        order = tuple(range(len(tensors[1].shape)))
    over = (names[0], names[1])
    arrays = [argument_type(call, name, over, order) for name in (*names, "dX")]
    compiled = _KERNELS[call.operator](QUEUE, *arrays, types.float64)
    tasks, nbytes = -(-tensors[1].size // _SPAN), sum(each.nbytes for each in tensors)
    alpha = float(call.attributes.get("alpha", 0.0))

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        threads.run(compiled, tasks, nbytes, *read, *write, alpha)

    orders = dict.fromkeys((*names, "dX"), order)
    return FlatPlan(call, kernel="elements", outputs=("dX",), launch=launch, over=over, orders=orders)
