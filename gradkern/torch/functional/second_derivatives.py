"""Norms and gradients that have derivatives themselves, by PyTorch's own formulas."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

__all__ = ["differentiable", "layer_norm", "rms_norm"]

Tensor = torch.Tensor
Shape = tuple[int, ...]


def layer_norm(x: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """functional.layer_norm, in the widest of the types and rounded to the input's."""
    wide_x, weight, bias = _widened(x, weight, bias)
    return functional.layer_norm(wide_x, shape, weight, bias, eps).to(x.dtype)


def rms_norm(x: Tensor, shape: Shape, weight: Tensor | None, eps: float) -> Tensor:
    """functional.rms_norm, in the widest of the types and rounded to the input's."""
    wide_x, weight = _widened(x, weight)
    return functional.rms_norm(wide_x, shape, weight, eps).to(x.dtype)


def _widened(x: Tensor, *parameters: Tensor | None) -> list[Tensor]:
    wide = reduce(torch.promote_types, [each.dtype for each in parameters if each is not None], x.dtype)
    return [each if each is None else each.to(wide) for each in (x, *parameters)]  # pyright: ignore[reportReturnType]


def differentiable(
    y: Tensor, inputs: Sequence[Tensor | None], needs: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """The gradient of each input that needs one, None for the others; y is computed from the inputs by PyTorch."""
    leaves = [each for each, need in zip(inputs, needs, strict=True) if need and each is not None]
    found = iter(torch.autograd.grad(y, leaves, grad, create_graph=True))
    return [next(found) if need else None for need in needs]
