"""Products of arrays with numbers, and the gradients of a quotient, on the CPU. Calls of MixedPrecisionScale with
several arrays, or one output for all, compute one array after another; quotients with a broadcast array are NumPy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numba
import numpy as np

from gradkern.call import Call, Plan
from gradkern.cpu.compile import INLINE
from gradkern.cpu.element_types import arithmetic
from gradkern.cpu.elementwise import elementwise_kernel, elementwise_plan
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.strides import c_strides


@numba.njit(**INLINE)
def _sum_of_two(x0: Any, x1: Any, _: Any, r: Any, one: Any) -> Any:
    return r[0] * x0 + r[1] * x1, one, one


@numba.njit(**INLINE)
def _sum_of_three(x0: Any, x1: Any, x2: Any, r: Any, one: Any) -> Any:
    return r[0] * x0 + r[1] * x1 + r[2] * x2, one, one


@numba.njit(**INLINE)
def _products(x: Any, _1: Any, _2: Any, r: Any, one: Any) -> Any:
    return r[0] * x, r[1] * x, r[2] * x


@numba.njit(**INLINE)
def _quotient(x: Any, _1: Any, _2: Any, r: Any, one: Any) -> Any:
    return x / r[0], one, one


@numba.njit(**INLINE)
def _quotient_gradients(d: Any, a: Any, b: Any, r: Any, one: Any) -> Any:
    q = d / b
    return q, -(q * (a / b)), one


_SUMS = {2: elementwise_kernel(_sum_of_two), 3: elementwise_kernel(_sum_of_three)}
_PRODUCTS, _QUOTIENT = elementwise_kernel(_products), elementwise_kernel(_quotient)
_DIVISION = elementwise_kernel(_quotient_gradients)
_PART = 1 << 18  # elements whose quotients are in memory at a time


def _number(values: Mapping[str, Any]) -> list[float]:
    return [values[name] for name in ("scale", "S") if name in values]


def plan(call: Call) -> FlatPlan | SeveralPlan:
    if call.operator == "DivGrad":
        return _division(call)
    return (call.operator == "MixedPrecisionScale" and _several(call)) or _plan(call)


def _plan(call: Call) -> FlatPlan:
    if call.operator == "ScaledSum":
        return elementwise_plan(call, _SUMS[len(call.inputs)], tuple(call.inputs), ("output",))
    if call.operator == "BatchScale":
        return elementwise_plan(call, _PRODUCTS, ("input",), ("output_0", "output_1", "output_2"))
    array = "input" if call.operator == "Scale" else "X"
    kernel = _QUOTIENT if call.attributes.get("scale_down") else _PRODUCTS
    return elementwise_plan(call, kernel, (array,), tuple(call.outputs), _number)


@dataclass(frozen=True, slots=True)
class SeveralPlan:
    """Plans of the arrays that have elements, each with the place of its array among the inputs and of its output, and
    of the first element there, None where the output is its own. before, behind: the place of the first array, and of
    what is behind the last.
    """

    plans: tuple[tuple[Plan, Call, int, int, int | None], ...]
    before: int
    behind: int

    @property
    def kernel(self) -> str:
        return self.plans[0][0].kernel if self.plans else "empty"

    @property
    def scratch(self) -> int:
        return max((plan.scratch for plan, *_ in self.plans), default=0)

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], stream: Any) -> None:
        numbers = inputs[self.behind :]
        for plan, call, place, target, first in self.plans:
            output = outputs[target]
            if first is not None:
                shape, strides = call.outputs["Y"].shape, call.outputs["Y"].strides
                output = np.lib.stride_tricks.as_strided(output[first:], shape, strides)
            plan((*inputs[: self.before], inputs[place], *numbers), (output,), stream)


def _several(call: Call) -> SeveralPlan | None:
    """The plan of a call with several arrays or with a single output for all; None of other calls."""
    fused = bool(call.attributes.get("fuse_outputs"))
    before = {name: each for name, each in call.inputs.items() if name == "S"}
    arrays = {name: each for name, each in call.inputs.items() if name != "S"}
    if not fused and len(arrays) == 1:
        return None
    made: list[tuple[Plan, Call, int, int, int | None]] = []
    done = 0
    for number, (name, tensor) in enumerate(arrays.items()):
        target = 0 if fused else number
        output_name, output = list(call.outputs.items())[target]
        if fused:
            step = output.strides[0] if output.size > 1 else output.dtype.itemsize
            alignment = min(output.alignment, done * step & -(done * step) or output.alignment)
            output = output._replace(shape=tensor.shape, strides=c_strides(tensor.shape, step), alignment=alignment)
        own = replace(
            call,
            inputs={**before, "X": tensor},
            outputs={"Y": output},
            in_place=frozenset([("X", "Y")] if (name, output_name) in call.in_place else ()),
        )
        if tensor.size:
            made.append((_plan(own), own, len(before) + number, target, done if fused else None))
        done += tensor.size
    return SeveralPlan(tuple(made), len(before), len(call.inputs))


def _division(call: Call) -> FlatPlan:
    sizes, inputs = call.axes["sizes"], call.inputs
    if inputs["A"].shape == inputs["B"].shape == sizes:
        return elementwise_plan(call, _DIVISION, ("dY", "A", "B"), ("dA", "dB"))
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
