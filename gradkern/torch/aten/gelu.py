"""gelu_backward."""

from __future__ import annotations

from typing import Any

from gradkern.torch.aten.request import AtenRequest, Constant, Declined, Split, Translation, in_order_of

__all__ = ["TRANSLATIONS"]

_OPERATORS = {"none": "BiasGeluGrad_dX", "tanh": "BiasFastGeluGrad_dX"}


def _split(grad: Any, x: Any, *, approximate: str = "none") -> Split:
    return (grad, x), (approximate,)


def _gelu(grad: Any, x: Any, *, approximate: str = "none") -> AtenRequest:
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


TRANSLATIONS = (Translation("gelu_backward", "gelu", _split, _gelu),)
