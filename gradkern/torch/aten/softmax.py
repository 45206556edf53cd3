"""_softmax_backward_data and _log_softmax_backward_data."""

from __future__ import annotations

from typing import Any

from gradkern.torch.aten.request import AtenRequest, Declined

__all__ = ["log_softmax", "softmax", "split_softmax"]


def split_softmax(grad: Any, output: Any, dim: int, input_dtype: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The tensors that are read, and all else that decides what is computed."""
    return (grad, output), (dim, input_dtype)


def softmax(grad: Any, output: Any, dim: int, input_dtype: Any) -> AtenRequest:
    return _request("SoftmaxGrad_13", "Y", grad, output, dim, input_dtype)


def log_softmax(grad: Any, output: Any, dim: int, input_dtype: Any) -> AtenRequest:
    return _request("LogSoftmaxGrad_13", "X", grad, output, dim, input_dtype)


def _request(operator: str, name: str, grad: Any, output: Any, dim: int, input_dtype: Any) -> AtenRequest:
    if output.dim() == 0:
        raise Declined("a tensor without dimensions has no axis")
    attributes = {"axis": dim, "dX_type": str(input_dtype).removeprefix("torch.")}
    return AtenRequest(operator, {"dY": grad, name: output}, ("dX",), attributes)
