"""The kernels of products of arrays with numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes
from gradkern.kernels.elementwise.kernel import elementwise_kernel


@device_function
def _sum_of_two(x0: Any, x1: Any, _: Any, r: Any) -> Any:
    return r[0] * x0 + r[1] * x1


@device_function
def _sum_of_three(x0: Any, x1: Any, x2: Any, r: Any) -> Any:
    return r[0] * x0 + r[1] * x1 + r[2] * x2


@device_function
def _product(x: Any, _1: Any, _2: Any, r: Any) -> Any:
    return r[0] * x


@device_function
def _products(x: Any, _1: Any, _2: Any, r: Any) -> Any:
    return r[0] * x, r[1] * x, r[2] * x


@device_function
def _quotient(x: Any, _1: Any, _2: Any, r: Any) -> Any:
    return x / r[0]


_SUMS = {2: _sum_of_two, 3: _sum_of_three}


def build(types: ElementwiseTypes, config: ElementwiseConfig, divides: bool, arrays: int = 1) -> Callable[..., None]:
    """The kernel for these types and this config."""
    if types.operator == "BatchScale":
        return elementwise_kernel(types, config, _products, ("output_0", "output_1", "output_2"))
    element = _SUMS.get(len(types.inputs), _quotient if divides else _product)
    return elementwise_kernel(types, config, element, arrays=arrays)
