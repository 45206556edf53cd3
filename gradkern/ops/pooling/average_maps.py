"""The gradients of average pools as linear maps along each spatial axis."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.kernels.separable.axis_map import Adaptive, AxisMap, Windows


def axis_maps(call: Call) -> list[AxisMap]:
    """Of the forward pass, for each spatial axis."""
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
