"""The gradient of resizing along one to three spatial axes.

The forward pass takes output o along each axis from the input around a coordinate, x(o):

    nearest   the element at x rounded by nearest_mode
    linear    (1 - f) X[floor(x)] + f X[floor(x) + 1], f = x - floor(x)
    cubic     four elements around x, by the cubic of coefficient cubic_coeff_a
    antialias    of linear and cubic, where scale is below 1: the weight of an element at distance d is that of scale d,
                 over the sum of all weights
    lanczos   with antialias, of any scale: sinc(d) sinc(d / 3) of d < 3, over the sum of all weights, as Pillow and
              PyTorch have it; sinc(d) = sin(pi d) / (pi d)

and elements outside are the nearest inside. So dX is, for each of its elements, the sum of the dY whose terms include
it, times their weights: a product over the axes, added up in one order, without atomics. Weights and sums are float32
(float64 for float64), coordinates of a nearest element float32; dX rounds once, at the store, and is channels-last in
memory if dY is.

    half_pixel              (o + 1/2) / scale - 1/2
    half_pixel_symmetric    the same about the centre of the input
    pytorch_half_pixel      the same as half_pixel; 0 of one output
    align_corners           o (inputs - 1) / (outputs - 1); 0 of one output
    asymmetric              o / scale
    tf_half_pixel_for_nn    (o + 1/2) / scale
    tf_crop_and_resize      from roi's start to its end, both in parts of the input; outside of it dY reaches no element

scale is that of `scales`, or outputs / inputs. `source_steps` are multiplied by in place of a division, and in place of
align_corners' own: PyTorch's way; it may round to another nearest element.

DirectML's coordinate of output o is (o - OutputPixelOffset) / Scale - InputPixelOffset. DmlResampleGrad takes the
nearest element, of two as near the lower one, as its documentation shows; DmlResampleGrad1 rounds as RoundingDirection
says. The first two of the dimensions are not resampled.

Sources: ONNX, Resize 19; ResizeGrad of ONNX Runtime Training, of linear resizing in four dimensions alone;
DirectML, RESAMPLE_GRAD and RESAMPLE_GRAD1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gradkern.errors import ArgumentError, AttributeValueError, ShapeError


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """Raises an error where roi or scales do not fit dY, or an axis of nothing is resized."""
    if "Scales" in attributes:
        _require_resampling(axes, attributes)
        return dict(attributes)
    spatial, out = axes.get("spatial"), axes["out"]
    rank = len(out) + 2
    for name, count in (("scales", rank), ("roi", 2 * rank)):
        values = attributes.get(name)
        if values is not None and len(values) != count:
            raise ShapeError(f"input {name} has {len(values)} values; expected {count}, for all {rank} dimensions")
    if attributes["antialias"] and attributes["mode"] == "nearest":
        raise AttributeValueError(
            "attribute antialias is 1; mode nearest has no filter, expected linear, cubic or lanczos"
        )
    if attributes["mode"] == "lanczos" and not attributes["antialias"]:
        raise AttributeValueError("attribute antialias is 0; mode lanczos expects 1")
    scales = attributes.get("scales")
    if scales is not None and (min(scales) <= 0 or tuple(scales[:2]) != (1, 1)):
        raise AttributeValueError(f"input scales is {tuple(scales)}; expected 1 of the first two, and more than 0")
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize" and attributes.get("roi") is None:
        raise ArgumentError("input roi is missing, which coordinate_transformation_mode tf_crop_and_resize takes")
    if spatial is not None and any(size == 0 < outputs for size, outputs in zip(spatial, out, strict=True)):
        raise ShapeError(f"dX has spatial shape {spatial}; nothing cannot be resized to {out}")
    return dict(attributes)


def _require_resampling(axes: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    sizes, data, scales = axes["sizes"], axes.get("data"), attributes["Scales"]
    offsets = tuple(map(sum, zip(attributes["InputPixelOffsets"], attributes["OutputPixelOffsets"], strict=True)))
    if min(scales) <= 0:
        raise AttributeValueError(f"attribute Scales is {scales}; expected more than 0")
    if scales[:2] != (1, 1) or offsets[:2] != (0, 0):
        raise AttributeValueError(
            f"attribute Scales is {scales}, and the sums of both offsets are {offsets}; expected 1 and 0 of the first "
            "two dimensions, which are not resampled"
        )
    if data is not None and data[:2] != sizes[:2]:
        raise ShapeError(f"OutputGradient has shape {data}; expected {sizes[:2]} of the first two, as InputGradient")
    if data is not None and any(size == 0 < outputs for size, outputs in zip(data, sizes, strict=True)):
        raise ShapeError(f"OutputGradient has shape {data}; nothing cannot be resampled to {sizes}")
