"""_softmax_backward_data and _log_softmax_backward_data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradkern.torch.aten.request import AtenRequest, Declined, Split, Translation

__all__ = ["TRANSLATIONS"]


def _split(grad: Any, output: Any, *rest: Any) -> Split:
    return (grad, output), rest


def _request(operator: str, name: str) -> Callable[..., AtenRequest]:
    """name: of the output in the operator's contract"""

    def request(grad: Any, output: Any, dim: int, input_dtype: Any) -> AtenRequest:
        if output.dim() == 0:
            raise Declined("a tensor without dimensions has no axis")
        attributes = {"axis": dim, "dX_type": str(input_dtype).removeprefix("torch.")}
        return AtenRequest(operator, {"dY": grad, name: output}, ("dX",), attributes)

    return request


TRANSLATIONS = (
    Translation("_softmax_backward_data", "softmax", _split, _request("SoftmaxGrad_13", "Y")),
    Translation("_log_softmax_backward_data", "softmax", _split, _request("LogSoftmaxGrad_13", "X")),
)
