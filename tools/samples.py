"""Random arrays for an operator, made from its contract: what the tests and the benchmark feed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401  makes "bfloat16" a NumPy type name
import numpy as np

from gradkern.contract.axes import shape_of
from gradkern.contract.schema import Example, Input, Operator
from gradkern.strides import c_strides

__all__ = ["ORDERS", "in_order", "inputs_of", "strides_in_order", "values_of"]

ORDERS = ("C", "channels_last")


def inputs_of(
    operator: Operator, types: Mapping[str, str], example: Example, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """An array for every input of the example, in contract order: normal, positive where it is a spread, nonzero where
    it divides.
    """
    return {
        each.name: values_of(each, random, shape_of(each.shape, example.axes)).astype(types[each.type])
        for each in operator.inputs_of(example.axes)
    }


def values_of(each: Input, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Float32 samples of what the contract says the input's values are."""
    if each.values == "any":
        return random.standard_normal(shape, dtype=np.float32)
    spread = random.uniform(0.5, 2.0, shape).astype(np.float32)
    return spread if each.values == "positive" else spread * random.choice(np.array([-1, 1], np.float32), shape)


def in_order(array: Any, order: str) -> Any:
    """The same elements, NumPy's or PyTorch's; "channels_last" has axis 1, the C of N C H W, innermost in memory."""
    if order == "C" or array.ndim < 3:
        return array
    if isinstance(array, np.ndarray):
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)
    return array.movedim(1, -1).contiguous().movedim(-1, 1)  # PyTorch's


def strides_in_order(shape: tuple[int, ...], itemsize: int, order: str) -> tuple[int, ...]:
    """The strides, in bytes, that `in_order` gives an array of this shape."""
    if order == "C" or len(shape) < 3:
        return c_strides(shape, itemsize)
    first, *spatial, channels = c_strides((shape[0], *shape[2:], shape[1]), itemsize)
    return (first, channels, *spatial)
