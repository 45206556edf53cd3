"""The gradients of what a mask has decided, element by element: dx = dy where the mask is true, times a factor; else 0.

    DropoutGrad         1 / (1 - ratio); 1 where training_mode is false. mask: bool
    BitmaskDropoutGrad  the same. mask: a bit for each element in C order, bit n % 32 of word n / 32, the lowest first
    FakeQuantGrad       1: the straight-through estimator of quantization, whose mask is true where nothing was clipped

dy and dx have one shape and one type T; a bool mask has that shape. Arithmetic is float32 (float64 for float64) and
rounds once, at the store. dx is 0 where the mask is false, whatever dy is there. ratio is in [0, 1), a number on the
host or an attribute, 0.5 if it is not given.

Source: ONNX Runtime Training, com.microsoft 1, CUDA kernels of these names, with two differences: they multiply by the
mask, so that infinities and NaN that were dropped become NaN, and DropoutGrad there does not look at training_mode.
Beyond them: float64, float16 and bfloat16 in FakeQuantGrad, as many elements as fit the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def factors(values: Mapping[str, Any]) -> list[float]:
    """What kept elements are multiplied by, of the attributes and the numbers on the host."""
    if values.get("training_mode") is False or "ratio" not in values:
        return [1.0]
    return [1 / (1 - values["ratio"])]
