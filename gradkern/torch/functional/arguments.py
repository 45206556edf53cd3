"""Checks of functions' arguments before they compute: a later error would name an operator the caller did not call."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from gradkern.torch.operators import type_name

_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def require_tensor(function: str, argument: str, value: Any) -> None:
    """Raise ArgumentError for anything else."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(f"{function}: {argument} is a {type(value).__name__}; expected a tensor")


def require_floats(function: str, optional: Mapping[str, Any] | None = None, **tensors: Any) -> None:
    """Raise ArgumentError for what is no tensor, and DTypeError for one of integers or complex numbers.

    optional   tensors, or None in their place
    """
    given = {name: each for name, each in (optional or {}).items() if each is not None}
    for argument, value in (tensors | given).items():
        require_tensor(function, argument, value)
        if value.dtype not in _FLOATS:
            kind = type_name(value.dtype)
            raise DTypeError(f"{function}: {argument} has type {kind}; expected float16, bfloat16, float32 or float64")


def require_float_type(function: str, dtype: Any) -> None:
    """Raise DTypeError for what is no floating-point type of the registry."""
    if dtype not in _FLOATS:
        raise DTypeError(f"{function}: dtype is {dtype!r}; expected torch.float16, bfloat16, float32 or float64")


def require_shape(function: str, argument: str, tensor: torch.Tensor, shape: tuple[int, ...], why: str) -> None:
    """Raise ShapeError for another shape."""
    if tensor.shape != shape:
        raise ShapeError(f"{function}: {argument} has shape {tuple(tensor.shape)}; expected {tuple(shape)}, {why}")


def require_type(function: str, argument: str, tensor: Any, dtype: torch.dtype) -> None:
    """Raise DTypeError for another type than the input's."""
    if tensor.dtype != dtype:
        raise DTypeError(
            f"{function}: {argument} has type {type_name(tensor.dtype)}; expected {type_name(dtype)}, as input has it"
        )


def require_least(function: str, least: Any) -> None:
    """Raise AttributeValueError where weights could become zero."""
    if not isinstance(least, (int, float)) or not 0 < least < inf:
        raise AttributeValueError(f"{function}: least is {least!r}; expected a number above 0")


def norm_shape(function: str, x: Any, normalized_shape: Any, **parameters: Any) -> tuple[int, ...]:
    """normalized_shape, if it is the shape of all parameters that are given and of the input's last dimensions."""
    if not isinstance(normalized_shape, (tuple, list)):
        raise ArgumentError(f"{function}: normalized_shape is {normalized_shape!r}; expected a tuple of sizes")
    shape = tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"{function}: normalized_shape is {shape}; expected the last dimensions of input, {tuple(x.shape)}"
        )
    for name, each in parameters.items():
        if each is not None:
            require_shape(function, name, each, shape, "normalized_shape")
    return shape
