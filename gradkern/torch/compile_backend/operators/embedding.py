"""torch.ops.gradkern.embedding: an embedding whose weight's gradient is one operator, without atomics.

Where it needs no more gradients it is PyTorch's own, which Inductor fuses with what reads it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable
from gradkern.torch.direct import Attributes, Direct

__all__ = ["EMBEDDING"]

Tensor = torch.Tensor

_GRADIENT = Direct("GatherGrad", ("dX",))


class _Forward(NamedTuple):
    """A call of PyTorch's."""

    weight: Tensor
    indices: Tensor
    padding_idx: int

    def answer(self) -> Tensor:
        return torch.ops.aten.embedding.default(*self)


def _fake_forward(weight: Tensor, indices: Tensor, padding_idx: int) -> Tensor:
    return weight.new_empty((*indices.shape, weight.shape[1]))


def _backward(grad: Tensor, indices: Tensor, rows: int, padding_idx: int) -> OpCall:
    attributes: Attributes = (("shape", (rows, grad.shape[-1])),)
    if padding_idx >= 0:
        attributes += (("padding_idx", padding_idx),)
    return OpCall(_GRADIENT, (True,), (None, indices, grad), attributes)


def _fake_backward(grad: Tensor, indices: Tensor, rows: int, padding_idx: int) -> Tensor:
    return grad.new_empty((rows, grad.shape[-1]))


EMBEDDING = define("embedding(Tensor weight, Tensor indices, int padding_idx) -> Tensor", _Forward, _fake_forward)
_BACKWARD = define(
    "embedding_backward(Tensor grad, Tensor indices, SymInt rows, int padding_idx) -> Tensor",
    _backward,
    _fake_backward,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weight, indices, ctx.padding_idx = inputs
    ctx.rows = weight.shape[0]
    ctx.save_for_backward(indices)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _BACKWARD(grad, *ctx.saved_tensors, ctx.rows, ctx.padding_idx), None, None


differentiable(EMBEDDING, _differentiate, _setup, torch.ops.aten.embedding.default)
