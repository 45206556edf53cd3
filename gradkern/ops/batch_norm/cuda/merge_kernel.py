"""The kernel that merges the statistics of a batch's parts: a thread for each channel, and one for their number.

    m = sum of n,  mean = sum of n mean_part / m,  squares = sum of n (variance_part + (mean_part - mean)^2)
    inv_std = 1 / sqrt(squares/m + epsilon),  variance of a sample = squares / max(m - 1, 1)
    running_mean = input_mean momentum + mean (1 - momentum), likewise running_var from the sample variance

The numbers are few: float64 costs nothing here. Every thread adds the parts in their order, so that all devices get the
same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import number_access


def build(dtype: str, running: str, epsilon: float, outputs: tuple[str, ...]) -> Callable[..., None]:
    """The kernel of parts.MERGE_ARGUMENTS, each an int64. running: the type of the running statistics."""
    EPSILON = epsilon
    WHOLE, SAMPLE = "statistics" in outputs, "sample_statistics" in outputs
    MEAN, VARIANCE = "running_mean" in outputs, "running_var" in outputs
    FLOAT = float64 if dtype == "float64" else float32
    RUNNING_FLOAT = float64 if running == "float64" else float32
    running_number, put_running = number_access(running, running, False)
    given, put_given = number_access(dtype, dtype)
    of_bits = i.float_of_bits("float64")

    @device_function
    def number(address: int, place: int) -> float:
        return float64(given(address, place))

    @device_function
    def put(address: int, place: int, value: float) -> None:
        put_given(address, place, FLOAT(value))

    @device_function
    def move(before: int, after: int, channel: int, value: float, momentum: float) -> None:
        """Moves a running statistic towards that of the batch."""
        moved = float64(running_number(before, channel)) * momentum + value * (1 - momentum)
        put_running(after, channel, RUNNING_FLOAT(moved))

    def kernel(
        part_statistics: int, input_mean: int, input_var: int, statistics: int, sample_statistics: int,
        running_mean: int, running_var: int, parts: int, channels: int, momentum: int,
    ) -> None:  # fmt: skip
        channel = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
        last, row = 2 * channels, 2 * channels + 1
        if channel > channels:
            return
        total, mean, squares = float64(0), float64(0), float64(0)
        for part in range(parts):
            count = number(part_statistics, part * row + last)
            total += count
            if channel < channels:
                mean += count * number(part_statistics, part * row + channel)
        if channel == channels:
            if WHOLE:
                put(statistics, last, total)
            if SAMPLE:
                put(sample_statistics, last, total)
            return
        inverse = float64(0)
        if total != 0:
            mean /= total
            for part in range(parts):
                apart = number(part_statistics, part * row + channel) - mean
                variance = number(part_statistics, part * row + channels + channel)
                squares += number(part_statistics, part * row + last) * (variance + apart * apart)
            inverse = 1 / math.sqrt(squares / total + EPSILON)
        if WHOLE:
            put(statistics, channel, mean)
            put(statistics, channels + channel, inverse)
        if SAMPLE:
            put(sample_statistics, channel, mean)
            put(sample_statistics, channels + channel, squares / max(total - 1, float64(1)))
        if MEAN:
            move(input_mean, running_mean, channel, mean, of_bits(momentum))
        if VARIANCE:
            move(input_var, running_var, channel, squares / max(total - 1, float64(1)), of_bits(momentum))

    return kernel
