"""convolution_backward."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import AtenRequest, Declined, Split, Translation, masked, of_each_axis
from gradkern.torch.flags import flags

_GAINLESS = 100.0
"""Microseconds. With cudnn.benchmark on an H200, of 20 layers of known networks in 16 bits with channels last and one
group that took PyTorch no more for both gradients, the winner of a search gained 9.5 at the most
(tools/results/conv.json), and of EfficientNet-B0's 9.6. A call costs the host 10 more, in a row of such calls. By
machine code it costs less, but 3.6 % of the time of 11 such layers in bfloat16 is all there is to gain, for a second's
search each.
"""


def _split(grad: Any, x: Any, weight: Any, *rest: Any) -> Split:
    _, stride, padding, dilation, transposed, _, groups, mask = rest  # the output's padding follows from all else
    return (grad, x, weight), (*stride, *padding, *dilation, transposed, groups, *mask, flags())


def _conv(grad: Any, x: Any, weight: Any, *rest: Any) -> AtenRequest:
    _, stride, padding, dilation, transposed, output_padding, groups, mask = rest
    spatial = x.dim() - 2
    pads = of_each_axis(padding, spatial)
    attributes: dict[str, Any] = {
        "strides": of_each_axis(stride, spatial),
        "pads": (*pads, *pads),
        "dilations": of_each_axis(dilation, spatial),
        "group": groups,
    }
    if transposed:
        attributes["output_padding"] = of_each_axis(output_padding, spatial)
    if x.is_cuda and not torch._C._get_cudnn_enabled():  # a search may find one of its engines
        raise Declined("torch.backends.cudnn.enabled is False")
    outputs = masked(("dX", "dW", "dB"), mask)
    operator = "ConvTransposeGrad" if transposed else "ConvGrad"
    return AtenRequest(operator, {"dY": grad, "X": x, "W": weight}, outputs, attributes)


def gainless_conv(description: Any) -> float:
    """Translation.gainless: PyTorch, too, has cuDNN try its engines, and there are few others for such arrays."""
    x = dict(description.inputs)["X"]
    last = x.strides[1] == x.dtype.itemsize == 2  # also for images of one pixel: these are in either order
    known = last and dict(description.attributes)["group"] == 1 and description.device != "cpu"
    return _GAINLESS if known and torch._C._get_cudnn_benchmark() else 0.0


def _by_python(description: Any) -> str:
    """Translation.by_python."""
    if dict(description.inputs)["X"].dtype.name != "float32":
        return ""
    return "whether PyTorch allows TF32, which decides how float32 is computed, has no C function"


TRANSLATIONS = (
    Translation(
        "convolution_backward",
        "conv",
        _split,
        _conv,
        searched=True,
        gainless=gainless_conv,
        by_python=_by_python,
    ),
)
