"""The kernel of both GELUs and their gradients. `build(config)` binds its constants; see TilesConfig for their meaning.

    dX = dY * slope(X + B)                     (gradkern.kernels.gelu has the slopes)
    dB = sum dX over the rows, before rounding
    gelu(X + B) if config.forward              (written to dX; there is no dY)

tiles_kernel describes tiles and sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.channels.tiles_kernel import tiles_kernel
from gradkern.kernels.gelu import gelu_of, slope_of
from gradkern.ops.bias_gelu.cuda.config import BiasGeluConfig


def build(config: BiasGeluConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    FORWARD, COUNT, PARAMETER = config.forward, config.parameters_at_once, ITEMSIZE[config.parameter]
    FLOAT = float64 if config.compute == "float64" else float32
    load = i.loader("global", config.parameter, COUNT)
    slope = slope_of(config.fast, config.compute, config.finest, config.native_bfloat16)
    gelu = gelu_of(config.fast, config.compute, config.finest, config.native_bfloat16)

    @device_function
    def load_biases(biases: Any, _: Any, n: int, column: int, parameters: Any) -> None:
        B, _, _ = parameters
        values = cuda.local.array(COUNT, FLOAT)
        load(values, B + int64(column) * PARAMETER)
        for each in range(COUNT):
            biases[n + each] = values[each]

    @device_function
    def element(x: Any, d: Any, bias: Any, _: Any) -> Any:
        value = gelu(x + bias) if FORWARD else d * slope(x + bias)
        return value, value, value

    return tiles_kernel(config, load_biases, element)
