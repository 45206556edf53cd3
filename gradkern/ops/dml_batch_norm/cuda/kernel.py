"""The tiles kernel of DirectML's batch norm gradient, for channel axes that are last in memory.

    r = 1 / sqrt(variance + epsilon)
    dX = D scale r,  scale_sum = sum of D (X - mean) r,  bias_sum = sum of D

r is constant in a channel and multiplies the finished sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import inverse_std, number_access
from gradkern.kernels.channels.tiles_kernel import tiles_kernel
from gradkern.ops.dml_batch_norm.cuda.config import DmlBatchNormConfig


def build(config: DmlBatchNormConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    COUNT, PARAMETER = config.parameters_at_once, ITEMSIZE[config.parameter]
    FLOAT = float64 if config.compute == "float64" else float32
    load = i.loader("global", config.parameter, COUNT)
    number, _ = number_access(config.parameter, config.compute)
    inverse = inverse_std(config.compute, config.epsilon)

    @device_function
    def load_channels(means: Any, gains: Any, n: int, channel: int, parameters: Any) -> None:
        mean, scale, variance = parameters
        at = int64(channel) * PARAMETER
        values, others = cuda.local.array(COUNT, FLOAT), cuda.local.array(COUNT, FLOAT)
        load(values, mean + at)
        for each in range(COUNT):
            means[n + each] = values[each]
        load(values, scale + at)
        load(others, variance + at)
        for each in range(COUNT):
            gains[n + each] = values[each] * inverse(others[each])

    @device_function
    def element(x: Any, d: Any, mean: Any, gain: Any) -> Any:
        return d * gain, d * (x - mean), d

    @device_function
    def finish(part: int, channel: int, value: Any, variance: int) -> Any:
        return value * inverse(number(variance, channel)) if part == 0 else value

    return tiles_kernel(config, load_channels, element, finish)
