"""gelu_backward, _softmax_backward_data, _log_softmax_backward_data and embedding_dense_backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradkern.torch.aten.request import (
    AtenRequest,
    Constant,
    Declined,
    Split,
    Translation,
    in_order_of,
    two_tensors,
)

_GELUS = {"none": "BiasGeluGrad_dX", "tanh": "BiasFastGeluGrad_dX"}


def _split_gelu(grad: Any, x: Any, *, approximate: str = "none") -> Split:
    return (grad, x), (approximate,)


def _gelu(grad: Any, x: Any, *, approximate: str = "none") -> AtenRequest:
    """The bias is part of x already, so the operator's is zero."""
    if grad.shape != x.shape:
        raise Declined("gradient and input have different shapes")
    view = in_order_of(x)
    inputs = {"dY": grad, "X": x, "B": Constant(0, (view(x).shape[-1],), x.dtype)}
    return AtenRequest(_GELUS[approximate], inputs, ("dX",), views={"dY": view, "X": view, "dX": view})


def _softmax(operator: str, name: str) -> Callable[..., AtenRequest]:
    """name: of the output in the operator's contract"""

    def request(grad: Any, output: Any, dim: int, input_dtype: Any) -> AtenRequest:
        if output.dim() == 0:
            raise Declined("a tensor without dimensions has no axis")
        attributes = {"axis": dim, "dX_type": str(input_dtype).removeprefix("torch.")}
        return AtenRequest(operator, {"dY": grad, name: output}, ("dX",), attributes)

    return request


def _embedding(grad: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> AtenRequest:
    """A negative padding_idx is none, as in PyTorch's kernels."""
    if scale_grad_by_freq:
        raise Declined("scale_grad_by_freq divides by how often each index is there")
    if grad.shape[:-1] != indices.shape:
        raise Declined("the gradient has another shape than the output")
    attributes = {"shape": (num_weights, grad.shape[-1])}
    padding = {"padding_idx": padding_idx} if padding_idx >= 0 else {}
    return AtenRequest("GatherGrad", {"indices": indices, "dY": grad}, ("dX",), {**attributes, **padding})


TRANSLATIONS = (
    Translation("gelu_backward", "gelu", _split_gelu, _gelu),
    Translation("_softmax_backward_data", "softmax", two_tensors, _softmax("SoftmaxGrad_13", "Y")),
    Translation("_log_softmax_backward_data", "softmax", two_tensors, _softmax("LogSoftmaxGrad_13", "X")),
    Translation("embedding_dense_backward", "embedding", two_tensors, _embedding, measured=0, below=2),
)
