"""torch.ops.gradkern.cross_entropy: functional.cross_entropy of labels, whose loss is of 32 bits at least.

It saves the logits as they come, and computes the gradient from them again in one pass.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable
from gradkern.torch.direct import Attributes, Direct
from gradkern.torch.operators import new_like

__all__ = ["BACKWARD", "CROSS_ENTROPY"]

Tensor = torch.Tensor
Options = tuple[str, int, float]

_LOSS = Direct("CrossEntropy", ("loss", "dX"))
_OPTIONS = "Tensor target, Tensor? weight, str reduction, int ignore_index, float label_smoothing"


def _attributes(reduction: str, ignore_index: int, label_smoothing: float) -> Attributes:
    return (
        ("reduction", reduction),
        ("ignore_index", ignore_index),
        ("label_smoothing", label_smoothing),
        ("empty", "nan"),
    )


def _forward(x: Tensor, target: Tensor, weight: Tensor | None, *options: Any) -> OpCall:
    return OpCall(_LOSS, (True, False), _operands(x, target, weight), _attributes(*options), results=(0,))


def _operands(x: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor | None, ...]:
    return x, target.contiguous(), None if weight is None else weight.contiguous()


def _fake_forward(x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, *_: Any) -> Tensor:
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    return x.new_empty(target.shape if reduction == "none" else (), dtype=wide)


def _backward(grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, *options: Any) -> OpCall:
    tensors = *_operands(x, target, weight), None, grad.contiguous()
    return OpCall(_LOSS, (False, True), tensors, _attributes(*options), results=(1,))


def _fake_backward(grad: Tensor, x: Tensor, *_: Any) -> Tensor:
    return new_like(x)


CROSS_ENTROPY = define(f"cross_entropy(Tensor input, {_OPTIONS}) -> Tensor", _forward, _fake_forward, rows=True)
BACKWARD = define(
    f"cross_entropy_backward(Tensor grad, Tensor input, {_OPTIONS}) -> Tensor", _backward, _fake_backward, rows=True
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, target, weight, *ctx.options = inputs
    ctx.save_for_backward(x, target, weight)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return BACKWARD(grad, *ctx.saved_tensors, *ctx.options), *[None] * 5


differentiable(CROSS_ENTROPY, _differentiate, _setup)
"""The gradient of nothing but the logits: weights of classes are constants."""
