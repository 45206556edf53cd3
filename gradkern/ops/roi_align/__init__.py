"""The gradients of ROI align, DirectML's ROI_ALIGN_GRAD: of the image, and of the regions.

The forward pass divides each region (x1, y1, x2, y2) into one cell for each of its outputs, and an output is the mean
or the maximum of the image at the samples of its cell, n along each axis:

    size   = scale (x2 - x1)
    n      = |size| / outputs, rounded up, from MinimumSamplesPerOutput to MaximumSamplesPerOutput
    x(s)   = (s - OutputPixelOffset) size / (n outputs) + scale x1 - InputPixelOffset, s = 0 to n outputs - 1
             with AlignRegionsToCorners divided by n outputs - 1 instead; scale x1 - InputPixelOffset of a single sample

and the same for y. A sample from -1 to the number of elements is interpolated between the elements around it, or takes
the nearest, of two as near the lower one, as if outer elements went on; further outside it is 0 and has no gradient. Of
equal maxima the first counts, along x before y.

    OutputGradient     the sum over regions and outputs, in their order, without atomics: the same bits every time
    OutputROIGradient  the derivatives of x(s) and y(s) times the slope of the image: 0 at a sample on an
                       element, outside, and for the nearest element

Arithmetic is float32 (float64 for float64; float64 on the CPU) and rounds once, at the store. A region whose batch
index is out of range is a DataError on the CPU; on a GPU it reaches no image, and its own gradient is 0.

Source: DirectML, DML_ROI_ALIGN_GRAD_OPERATOR_DESC and DML_ROI_ALIGN1_OPERATOR_DESC. Their pages leave open how samples
are counted and what is outside: here as in ONNX's RoiAlign 16 and torchvision, whose aligned=True is that of the
default offsets, and aligned=False that of InputPixelOffset 0, but for regions smaller than an element. Their code for
OutputROIGradient has no scale; here it is the derivative. Extensions: float64, bfloat16, regions in float32, indices of
any integer type, channels-last arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gradkern.errors import ArgumentError, AttributeValueError


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """Raises an error where Input is missing, or the bounds of samples exclude each other."""
    least, most = (attributes[f"{each}SamplesPerOutput"] for each in ("Minimum", "Maximum"))
    if least > most:
        raise AttributeValueError(f"attribute MinimumSamplesPerOutput is {least}; expected at most the maximum, {most}")
    by_maximum = attributes["ReductionFunction"] == "MAX"
    if "Input" not in names and (by_maximum or "OutputROIGradient" in names):
        what = "ReductionFunction MAX" if by_maximum else "OutputROIGradient"
        raise ArgumentError(f"input Input is missing, which {what} takes")
    return {}
