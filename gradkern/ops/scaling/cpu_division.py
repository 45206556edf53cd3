"""The gradients of a quotient on the CPU: one loop over arrays of one shape, NumPy where one is broadcast."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np

from gradkern.call import Call
from gradkern.cpu.compile import INLINE
from gradkern.cpu.element_types import arithmetic
from gradkern.cpu.elementwise import elementwise_kernel, elementwise_plan
from gradkern.cpu.flat_plan import FlatPlan

_PART = 1 << 18  # elements whose quotients are in memory at a time


@numba.njit(**INLINE)
def _quotient(d: Any, a: Any, b: Any, r: Any, one: Any) -> Any:
    q = d / b
    return q, -(q * (a / b)), one


_KERNEL = elementwise_kernel(_quotient)


def plan(call: Call) -> FlatPlan:
    sizes, inputs = call.axes["sizes"], call.inputs
    if inputs["A"].shape == inputs["B"].shape == sizes:
        return elementwise_plan(call, _KERNEL, ("dY", "A", "B"), ("dA", "dB"))
    kind = inputs["dY"].dtype
    wide, step = arithmetic(kind), max(1, _PART // max(1, prod(sizes[1:])))
    shapes = {name: (1,) * (len(sizes) - len(each.shape)) + each.shape for name, each in inputs.items()}
    over = {name: tuple(n for n, size in enumerate(shapes[name[1:]]) if size == 1 != sizes[n]) for name in call.outputs}

    def launch(read: list[Any], write: list[Any]) -> None:
        arrays = [each.view(kind).reshape(shape) for each, shape in zip(read, shapes.values(), strict=True)]
        totals = {name: np.zeros(shapes[name[1:]]) for name in over}
        with np.errstate(all="ignore"):
            for first in range(0, sizes[0], step):
                d, a, b = (_rows(each, first, step).astype(wide) for each in arrays)
                q = d / b
                for name, axes in over.items():
                    values = q if name == "dA" else -(q * (a / b))
                    part = np.add.reduce(np.broadcast_to(values, d.shape), axes, np.float64, keepdims=True)
                    _rows(totals[name], first, step)[...] += part
            for target, total in zip(write, totals.values(), strict=True):
                target[:] = total.astype(wide).astype(kind).reshape(-1).view(target.dtype)

    return FlatPlan(call, kernel="sums", outputs=tuple(call.outputs), launch=launch)


def _rows(array: np.ndarray, first: int, count: int) -> np.ndarray:
    """Those of the first axis, or the only one."""
    return array[first : first + count] if array.shape[0] > 1 else array
