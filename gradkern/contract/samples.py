"""Random arrays for an operator, made from its contract: what the tests and the benchmark feed it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import ml_dtypes  # noqa: F401  # pyright: ignore[reportUnusedImport]  it makes "bfloat16" a NumPy type name
import numpy as np
from numpy.typing import NDArray

from gradkern.arrays.kind import dtype_of
from gradkern.contract.schema import Example, Input, Operator, shape_of


def inputs_of(
    operator: Operator, types: Mapping[str, str], example: Example, random: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """An array for every input of the example, in contract order: of floating-point types normal, or as its values are
    declared; of others indices, a mask or bits. Inputs on the host are among the example's attributes.
    """
    return {
        each.name: values_of(
            each, random, shape_of(each.shape, example.axes), {**example.attributes, **example.axes}, types[each.type]
        )
        for each in operator.inputs_of(example.axes, example.attributes)
    }


def values_of(
    each: Input, random: np.random.Generator, shape: tuple[int, ...], axes: Mapping[str, Any], dtype: str
) -> NDArray[Any]:
    """Samples of what the contract says the input's values are. axes: the sizes of axes, and attributes."""
    if each.values == "window":
        return _in_windows(random, shape, axes, dtype).astype(dtype_of(dtype))
    if each.index_of:
        return indices_of(each, random, shape, axes).astype(dtype_of(dtype))
    return np.asarray(_drawn(each, random, shape, dtype)).astype(
        dtype_of(dtype)
    )  # of shape () it may have drawn a scalar


def _drawn(each: Input, random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    match dtype, each.values:
        case ("bool", _):
            return random.random(shape) < 0.5
        case ("uint32", _):
            return random.integers(0, 1 << 32, shape, np.uint32)
        case ("int32" | "int64", _):
            return random.integers(-100, 100, shape)
        case (_, "any"):
            return random.standard_normal(shape, dtype=np.float32)
        case (_, "probability"):
            return random.uniform(0, 1, shape)
        case (_, "log_probability"):
            return np.log(random.uniform(0.01, 1, shape))
        case _:
            pass
    spread = np.asarray(random.uniform(0.5, 2.0, shape)).astype(np.float32)
    signs = 1 if each.values == "positive" else random.choice(np.array([-1, 1], np.float32), shape)
    return spread * signs


def indices_of(
    each: Input, random: np.random.Generator, shape: tuple[int, ...], axes: Mapping[str, Any]
) -> NDArray[Any]:
    """Indices into the axes that the contract names, those that count from the end among them where it takes these."""
    sizes = np.array([size for name in each.index_of for size in np.atleast_1d(axes[name])], np.int64)
    if each.along is None:
        bound = np.prod(sizes)
    else:  # a coordinate for each of the dimensions
        place = each.shape.index(each.along) - len(each.shape)
        bound = sizes.reshape(-1, *[1] * (-1 - place))
    return np.asarray(random.integers(-bound if each.negative else 0, np.maximum(bound, 1), shape))


def _in_windows(
    random: np.random.Generator, shape: tuple[int, ...], given: Mapping[str, Any], dtype: str
) -> NDArray[Any]:
    """For each output of a pool an element of its window inside the input: its number in the window for uint8, else its
    index, of the plane or of the tensor.
    """
    sizes, kernel = given["spatial"], given["kernel_shape"]
    strides, dilations, pads = (
        given.get(name, (default,) * len(sizes)) for name, default in (("strides", 1), ("dilations", 1), ("pads", 0))
    )
    flat = np.zeros(shape, np.int64)
    for axis, (size, k, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        place = [1] * len(shape)
        place[2 + axis] = shape[2 + axis]
        first = (np.arange(shape[2 + axis]) * stride - pads[axis]).reshape(place)
        least, most = -(np.minimum(first, 0) // dilation), np.minimum((size - 1 - first) // dilation, k - 1)
        taps = random.integers(least, most + 1, shape)
        flat = flat * (k if dtype == "uint8" else size) + (taps if dtype == "uint8" else first + taps * dilation)
    if dtype == "uint8" or given.get("index_base") == "plane":
        return flat
    planes = np.arange(shape[0] * shape[1]) * prod(sizes)
    return flat + planes.reshape(*shape[:2], *[1] * len(sizes))
