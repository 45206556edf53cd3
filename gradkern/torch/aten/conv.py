"""convolution_backward."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import AtenRequest, masked, require_cudnn
from gradkern.torch.flags import flags

__all__ = ["conv", "gainless_conv", "split_conv"]

_GAINLESS = 100.0
"""Microseconds. With cudnn.benchmark on an H200, of 20 layers of known networks in 16 bits with channels last and one
group that took PyTorch no more for both gradients, the winner of a search gained 9.5 at the most
(tools/results/conv.json), and of EfficientNet-B0's 9.6. A call costs the host 10 more, in a row of such calls.
"""


def split_conv(
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The tensors that are read, and all else that decides what is computed."""
    # output_padding follows from the shapes and all else
    return (grad, x, weight), (*stride, *padding, *dilation, transposed, groups, *mask, flags())


def conv(
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> AtenRequest:
    spatial = x.dim() - 2
    pads = _each(padding, spatial)
    attributes: dict[str, Any] = {
        "strides": _each(stride, spatial),
        "pads": (*pads, *pads),
        "dilations": _each(dilation, spatial),
        "group": groups,
    }
    if transposed:
        attributes["output_padding"] = _each(output_padding, spatial)
    require_cudnn(x)
    outputs = masked(("dX", "dW", "dB"), mask)
    operator = "ConvTransposeGrad" if transposed else "ConvGrad"
    return AtenRequest(operator, {"dY": grad, "X": x, "W": weight}, outputs, attributes)


def _each(values: Any, spatial: int) -> tuple[int, ...]:
    """One value for each dimension; aten takes one for all."""
    return tuple(values) * spatial if len(values) == 1 and spatial > 1 else tuple(values)


def gainless_conv(description: Any) -> float:
    """Translation.gainless: PyTorch, too, has cuDNN try its engines, and there are few others for such arrays."""
    x = dict(description.inputs)["X"]
    last = x.strides[1] == x.dtype.itemsize == 2  # also for images of one pixel: these are in either order
    known = last and dict(description.attributes)["group"] == 1 and description.device != "cpu"
    return _GAINLESS if known and torch._C._get_cudnn_benchmark() else 0.0
