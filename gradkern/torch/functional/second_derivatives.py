"""Norms and gradients that have derivatives themselves, by PyTorch's own formulas."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

Tensor = torch.Tensor


def norm(
    x: Tensor, shape: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: Any, centred: bool
) -> Tensor:
    """functional.layer_norm if centred, else rms_norm, in the widest of the types and rounded to the input's."""
    wide = reduce(torch.promote_types, [each.dtype for each in (weight, bias) if each is not None], x.dtype)
    wide_x, weight, bias = (each if each is None else each.to(wide) for each in (x, weight, bias))
    function: Any = functional.layer_norm if centred else functional.rms_norm
    parameters = (weight, bias) if centred else (weight,)
    return function(wide_x, shape, *parameters, eps).to(x.dtype)


def differentiable(
    y: Tensor, inputs: Sequence[Tensor | None], needs: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """The gradient of each input that needs one, None for the others; y is computed from the inputs by PyTorch."""
    leaves = [each for each, need in zip(inputs, needs, strict=True) if need and each is not None]
    found = iter(torch.autograd.grad(y, leaves, grad, create_graph=True))
    return [next(found) if need else None for need in needs]
