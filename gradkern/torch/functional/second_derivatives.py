"""Gradients that have derivatives themselves, by PyTorch's own formulas."""

from __future__ import annotations

from collections.abc import Sequence

import torch  # pyright: ignore[reportMissingImports]

__all__ = ["differentiable"]

Tensor = torch.Tensor


def differentiable(
    y: Tensor, inputs: Sequence[Tensor | None], needs: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """The gradient of each input that needs one, None for the others; y is computed from the inputs by PyTorch."""
    leaves = [each for each, need in zip(inputs, needs, strict=True) if need and each is not None]
    found = iter(torch.autograd.grad(y, leaves, grad, create_graph=True))
    return [next(found) if need else None for need in needs]
