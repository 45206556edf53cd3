"""DirectML's gradients of pools as calls of ONNX's operators."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from gradkern.call import Call, Tensor
from gradkern.ops.pooling import onnx_windows
from gradkern.strides import channels_as_in


def average(call: Call) -> Call:
    dY, dX = call.inputs["InputGradient"], call.outputs["OutputGradient"]
    attributes = onnx_windows(call.attributes)
    return replace(call, operator="AveragePoolGrad", inputs={"dY": dY}, outputs={"dX": dX}, attributes=attributes)


def maximum(call: Call) -> tuple[Call, Call]:
    """The forward pass that finds the indices, of equal elements the first's, and the gradient by these."""
    X, dY = call.inputs["Input"], call.inputs["InputGradient"]
    call = replace(call, attributes=onnx_windows(call.attributes))
    dtype = np.dtype(np.uint8 if prod(call.attributes["kernel_shape"]) <= 256 else np.int64)
    indices = Tensor(dtype, dY.shape, channels_as_in(X, dY.shape, dtype.itemsize), 16)
    forward = replace(call, operator="MaxPool", inputs={"X": X}, outputs={"Indices": indices})
    return forward, replace(
        call,
        operator="MaxPoolGrad",
        inputs={"dY": dY, "Indices": indices},
        outputs={"dX": call.outputs["OutputGradient"]},
    )
