"""Products of arrays with numbers on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba

from gradkern.call import Call
from gradkern.cpu.compile import INLINE
from gradkern.cpu.elementwise import elementwise_kernel, elementwise_plan
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.ops.scaling.several import SeveralPlan, several


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


_SUMS = {2: elementwise_kernel(_sum_of_two), 3: elementwise_kernel(_sum_of_three)}
_PRODUCTS, _QUOTIENT = elementwise_kernel(_products), elementwise_kernel(_quotient)


def _number(values: Mapping[str, Any]) -> list[float]:
    return [values[name] for name in ("scale", "S") if name in values]


def plan(call: Call) -> FlatPlan | SeveralPlan:
    return (call.operator == "MixedPrecisionScale" and several(call, _plan)) or _plan(call)


def _plan(call: Call) -> FlatPlan:
    if call.operator == "ScaledSum":
        return elementwise_plan(call, _SUMS[len(call.inputs)], tuple(call.inputs), ("output",))
    if call.operator == "BatchScale":
        return elementwise_plan(call, _PRODUCTS, ("input",), ("output_0", "output_1", "output_2"))
    array = "input" if call.operator == "Scale" else "X"
    kernel = _QUOTIENT if call.attributes.get("scale_down") else _PRODUCTS
    return elementwise_plan(call, kernel, (array,), tuple(call.outputs), _number)
