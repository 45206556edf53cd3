"""The windows of pools, and DirectML's gradients of pools as calls of ONNX's operators."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from math import prod

import numpy as np

from gradkern.call import Call, Tensor
from gradkern.kernels.separable.axis_map import Adaptive, AxisMap, Windows
from gradkern.ops.pooling import onnx_windows
from gradkern.strides import channels_as_in

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PoolWindows:
    """Of a max pool, with three spatial axes."""

    kernel: Axes
    outputs: Axes
    strides: Axes
    dilations: Axes
    begins: Axes
    inputs: Axes

    @staticmethod
    def of(call: Call) -> PoolWindows:
        """Of a call whose attributes are resolved; axes of one element come before its own."""
        inputs, attributes = call.axes["spatial"], call.attributes
        rank = len(inputs)
        ones, zeros = (1,) * (3 - rank), (0,) * (3 - rank)
        return PoolWindows(
            (*ones, *attributes["kernel_shape"]),
            (*ones, *call.axes["out"]),
            (*ones, *attributes["strides"]),
            (*ones, *attributes["dilations"]),
            (*zeros, *attributes["pads"][:rank]),
            (*ones, *inputs),
        )

    @property
    def numbers(self) -> Axes:
        """All of them, one after another."""
        return tuple(number for axes in astuple(self) for number in axes)


def axis_maps(call: Call) -> list[AxisMap]:
    """An average pool as a linear map along each spatial axis."""
    inputs, attributes = call.axes["spatial"], call.attributes
    outputs = call.inputs["dY"].shape[2:]
    if call.operator == "GlobalAveragePoolGrad":
        return [Windows(size, 1, size) for size in inputs]
    if call.operator == "AdaptiveAveragePoolGrad":
        return [Adaptive(*sizes) for sizes in zip(inputs, outputs, strict=True)]
    rank, divisor = len(inputs), attributes["divisor_override"] or 0
    names = ("kernel_shape", "strides", "dilations")
    return [
        Windows(
            inputs[axis],
            outputs[axis],
            *(attributes[name][axis] for name in names),
            begin=attributes["pads"][axis],
            end=attributes["pads"][rank + axis],
            padded=bool(attributes["count_include_pad"]),
            divisor=divisor and (divisor if axis == 0 else 1),
        )
        for axis in range(rank)
    ]


def average(call: Call) -> Call:
    """DirectML's gradient of an average pool as ONNX's; others as they are."""
    if "dY" in call.inputs:
        return call
    dY, dX = call.inputs["InputGradient"], call.outputs["OutputGradient"]
    attributes = onnx_windows(call.attributes)
    return replace(call, operator="AveragePoolGrad", inputs={"dY": dY}, outputs={"dX": dX}, attributes=attributes)


def maximum(call: Call) -> tuple[Call, Call]:
    """DirectML's gradient of a max pool: the forward pass that finds the indices, of equal elements the first's, and
    the gradient by these.
    """
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
