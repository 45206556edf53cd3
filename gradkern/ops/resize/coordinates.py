"""Resizing as linear maps along each spatial axis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradkern.call import Call, Refusal
from gradkern.kernels.separable.axis_map import Resampling, finite

_ROUNDING = {"INCREASING": "ceil", "DECREASING": "floor", None: "round_prefer_floor"}


def by_onnx_names(call: Call) -> Call:
    """A call of DirectML's with the names of ResizeGrad's arrays and axes."""
    if "dY" in call.inputs:
        return call
    sizes, data = call.axes["sizes"], call.axes["data"]
    axes = {"N": sizes[0], "C": sizes[1], "out": sizes[2:], "spatial": data[2:]}
    (dY,), (dX,) = call.inputs.values(), call.outputs.values()
    return replace(call, axes=axes, inputs={"dY": dY}, outputs={"dX": dX})


def axis_maps(call: Call) -> list[Resampling]:
    """Of the forward pass, for each spatial axis."""
    inputs, outputs = call.axes["spatial"], call.axes["out"]
    of_axis = _resampling if "Scales" in call.attributes else _axis_map
    maps = [
        of_axis(call.attributes, axis, *sizes) if all(sizes) else Resampling(*sizes, "nearest", 0.0, 0.0)
        for axis, sizes in enumerate(zip(inputs, outputs, strict=True))
    ]
    if not all(map(finite, maps)):
        raise Refusal("roi, scales or source_steps make coordinates that are no numbers of less than 2^31")
    return maps


def _resampling(attributes: Any, axis: int, size: int, outputs: int) -> Resampling:
    names = ("Scales", "InputPixelOffsets", "OutputPixelOffsets")
    scale, into, out = (float(attributes[name][2 + axis]) for name in names)
    mode = "linear" if attributes["InterpolationMode"] == "LINEAR" else "nearest"
    rounding = _ROUNDING[attributes.get("RoundingDirection")]
    return Resampling(size, outputs, mode, -out, 1.0, scale, -into, rounding)


def _axis_map(attributes: Any, axis: int, size: int, outputs: int) -> Resampling:
    mode = attributes["coordinate_transformation_mode"]
    scales, roi, steps = (attributes.get(name) for name in ("scales", "roi", "source_steps"))
    scale = outputs / size if scales is None else scales[2 + axis]
    step, divisor = (1.0, scale) if steps is None else (steps[axis], 1.0)
    antialias = bool(attributes["antialias"])
    narrowing = min(1.0, divisor / step) if antialias and step else 1.0
    if narrowing < 1 and narrowing * size < max(0.25, (outputs - 1) / 2):  # sums of weights would be long
        raise Refusal(f"a scale of {narrowing} with antialias makes no {outputs} outputs of {size} inputs")
    shift, offset = 0.0, 0.0
    match mode:
        case "half_pixel" | "pytorch_half_pixel":
            shift, offset = 0.5, -0.5
        case "half_pixel_symmetric":
            shift, offset = 0.5, size / 2 * (1 - outputs / (scale * size)) - 0.5
        case "tf_half_pixel_for_nn":
            shift = 0.5
        case "align_corners" if steps is None:
            step, divisor = size - 1.0, outputs - 1.0
        case "tf_crop_and_resize":
            start, end = roi[2 + axis], roi[len(roi) // 2 + 2 + axis]
            step, divisor, offset = (end - start) * (size - 1), outputs - 1.0, start * (size - 1)
            if outputs == 1:
                offset = 0.5 * (start + end) * (size - 1)
    if outputs <= 1 and mode in ("pytorch_half_pixel", "align_corners", "tf_crop_and_resize"):
        shift, step, divisor = 0.0, 0.0, 1.0
        offset = offset if mode == "tf_crop_and_resize" else 0.0
    return Resampling(
        size,
        outputs,
        attributes["mode"],
        shift,
        float(step),
        float(divisor),
        float(offset),
        attributes["nearest_mode"],
        attributes["cubic_coeff_a"],
        bool(attributes["exclude_outside"]) and (attributes["mode"] == "cubic" or antialias),
        mode == "tf_crop_and_resize",
        narrowing,
    )
