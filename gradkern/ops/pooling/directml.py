"""DirectML's gradients of pools as calls of ONNX's operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gradkern.call import Call, Tensor
from gradkern.strides import channels_as_in

__all__ = ["average", "maximum", "windows"]


def windows(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """ONNX's attributes of the same windows."""
    found = {"kernel_shape": attributes["WindowSize"], "strides": attributes["Strides"]}
    found |= {"pads": (*attributes["StartPadding"], *attributes["EndPadding"]), "auto_pad": "NOTSET", "ceil_mode": 0}
    found |= {"dilations": attributes.get("Dilations", (1,) * len(attributes["Strides"]))}
    if "IncludePadding" in attributes:
        return {**found, "count_include_pad": attributes["IncludePadding"], "divisor_override": None}
    return {**found, "index_base": "plane"}


def average(call: Call) -> Call:
    dY, dX = call.inputs["InputGradient"], call.outputs["OutputGradient"]
    return replace(call, operator="AveragePoolGrad", inputs={"dY": dY}, outputs={"dX": dX})


def maximum(call: Call) -> tuple[Call, Call]:
    """The forward pass that finds the indices, of equal elements the first's, and the gradient by these."""
    X, dY = call.inputs["Input"], call.inputs["InputGradient"]
    dtype = np.dtype(np.uint8 if prod(call.attributes["kernel_shape"]) <= 256 else np.int64)
    indices = Tensor(dtype, dY.shape, channels_as_in(X, dY.shape, dtype.itemsize), 16)
    forward = replace(call, operator="MaxPool", inputs={"X": X}, outputs={"Indices": indices})
    return forward, replace(
        call,
        operator="MaxPoolGrad",
        inputs={"dY": dY, "Indices": indices},
        outputs={"dX": call.outputs["OutputGradient"]},
    )
