"""gelu_backward."""

from __future__ import annotations

from typing import Any

from gradkern.torch.aten.request import AtenRequest, Constant, Declined, in_order_of

__all__ = ["gelu", "split_gelu"]

_OPERATORS = {"none": "BiasGeluGrad_dX", "tanh": "BiasFastGeluGrad_dX"}


def split_gelu(grad: Any, x: Any, *, approximate: str = "none") -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The tensors that are read, and all else that decides what is computed."""
    return (grad, x), (approximate,)


def gelu(grad: Any, x: Any, *, approximate: str = "none") -> AtenRequest:
    """The bias is part of x already, so the operator's is zero."""
    if grad.shape != x.shape:
        raise Declined("gradient and input have different shapes")
    view = in_order_of(x)
    columns = view(x).shape[-1]
    return AtenRequest(
        _OPERATORS[approximate],
        {"dY": grad, "X": x, "B": Constant(0, (columns,), x.dtype)},
        ("dX",),
        views={"dY": view, "X": view, "dX": view},
    )
