"""Products of arrays with numbers, element by element, and the gradients of a quotient.

    ScaledSum            output = scale_0 input_0 + scale_1 input_1 [+ scale_2 input_2]
    BatchScale           output_k = scale_k input, for two or three k: the gradient of ScaledSum
    Scale                output = input scale; input / scale where scale_down is 1
    MixedPrecisionScale  Y = S X of each of any number of arrays, in the type that `to` names; with fuse_outputs all in
                         one array, one behind the other
    DivGrad              dA = dY / B, dB = -dY A / B^2, each added up over what its array was broadcast along

All arrays have one shape and, but for outputs of MixedPrecisionScale, one type; those of MixedPrecisionScale have each
its own shape, and A and B of DivGrad may be broadcast to that of dY. Its sums are float64, in an order that shapes and
strides determine. scale and S are a number on the host, read at each
call, or an array of one element on the device. Arithmetic is float32 (float64 where an array is float64) and rounds
once, at the store.

Source: ONNX Runtime Training, com.microsoft 1, CUDA kernels of these names. Beyond them: bfloat16 and float64 in all,
outputs over an input, the number in the memory of either.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gradkern.errors import AttributeValueError


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """Nothing is left open; the third array and scale_2 are refused one without the other."""
    if "scale_2" in attributes:
        given = attributes["scale_2"] is not None
        array = next((name for name in ("input_2", "output_2") if name in names), None)
        if array and not given:
            raise AttributeValueError(f"attribute scale_2 is missing; {array} takes it")
        if given and "input_0" in names and not array:
            raise AttributeValueError("attribute scale_2 is given; expected input_2 with it")
    return {}
