"""Max pooling with indices of a byte each, and outputs of PyTorch's whose gradient is one operator of the registry.

Both gradients gather: without atomics, the same in every run.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable
from gradkern.torch.direct import Attributes, Direct
from gradkern.torch.operators import new_like

__all__ = ["BACKWARD", "MAX_POOL", "WITH_GRADIENT", "leave_forward_passes"]

Tensor = torch.Tensor

_MAX_POOL = Direct("MaxPool", ("Y", "Indices"))
_GRADIENTS = {
    name: Direct(name, ("dX",)) for name in ("MaxPoolGrad", "AveragePoolGrad", "AdaptiveAveragePoolGrad", "ResizeGrad")
}


@cache
def _attributes(text: str) -> Attributes:
    """Those that a schema of PyTorch's has no one type for."""
    return tuple(literal_eval(text))


class _Copy(NamedTuple):
    output: Tensor

    def answer(self) -> Tensor:
        return new_like(self.output).copy_(self.output)


def _forward(x: Tensor, attributes: str) -> OpCall:
    return OpCall(_MAX_POOL, (True, True), (x,), (*_attributes(attributes), ("indices_type", "uint8")))


def _fake_forward(x: Tensor, attributes: str) -> Any:
    return torch.ops.gradkern.MaxPool(x, indices_type="uint8", **dict(_attributes(attributes)))


def _backward(grad: Tensor, indices: Tensor | None, size: Sequence[int], operator: str, attributes: str) -> OpCall:
    tensors = (grad,) if indices is None else (grad, indices)
    return OpCall(_GRADIENTS[operator], (True,), tensors, (*_attributes(attributes), ("input_size", tuple(size))))


def _fake_backward(grad: Tensor, indices: Tensor | None, size: Sequence[int], operator: str, attributes: str) -> Tensor:
    tensors = (grad,) if indices is None else (grad, indices)
    return getattr(torch.ops.gradkern, operator)(*tensors, input_size=list(size), **dict(_attributes(attributes)))


MAX_POOL = define("max_pool(Tensor input, str attributes) -> (Tensor, Tensor)", _forward, _fake_forward)
WITH_GRADIENT = define(
    "with_gradient(Tensor output, Tensor input, str operator, str attributes) -> Tensor",
    lambda output, *_: _Copy(output),
    lambda output, *_: new_like(output),
)
BACKWARD = define(
    "windows_backward(Tensor grad, Tensor? indices, SymInt[] input_size, str operator, str attributes) -> Tensor",
    _backward,
    _fake_backward,
)


def leave_forward_passes(graph: fx.Graph) -> None:
    """Stage 2: once autograd has found their gradients, the outputs are PyTorch's again."""
    for node in graph.find_nodes(op="call_function", target=WITH_GRADIENT):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, ctx.attributes = inputs
    ctx.size = list(x.shape[2:])
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    return BACKWARD(grad, *ctx.saved_tensors, ctx.size, "MaxPoolGrad", ctx.attributes), None


def _setup_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, x, *ctx.how = inputs
    ctx.size = list(x.shape[2:])


def _differentiate_input(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return None, BACKWARD(grad, None, ctx.size, *ctx.how), None, None


differentiable(MAX_POOL, _differentiate, _setup)
differentiable(WITH_GRADIENT, _differentiate_input, _setup_gradient, WITH_GRADIENT)
