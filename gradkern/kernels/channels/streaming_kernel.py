"""The streaming kernel over channels: sums over the elements of each channel, and gradients of the elements.

streaming_tiling.py describes how an array is divided into items.

    r  = deviation, or 1 / sqrt(deviation + epsilon)       inverse standard deviation of the channel
    bias_sum = sum of D,  scale_sum = sum of D (X - mean) r
    dX = D scale r                                              if the statistics are constants
    dX = scale r (D - bias_sum/m - (X - mean) r scale_sum/m)    if they are those of m elements

The first dX takes one pass together with the sums: D and X are read once, if an output needs them, and dX is written
once. The second needs the sums first. They are kept unrounded as totals, and a second pass visits items in reverse
order: the rows read last are still on the chip. It subtracts the mean before it multiplies. a*D + b*X + c would be
shorter, but b*X and c cancel where the mean is large compared to the deviation.

r is constant in a channel and multiplies the finished sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_grid
from gradkern.cuda.device_code.column_sums import column_sums
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import inverse_std, number_access
from gradkern.kernels.channels.streaming_channels import sampler, statistics_writer
from gradkern.kernels.channels.streaming_config import StreamingConfig
from gradkern.kernels.channels.streaming_pass import one_pass


def build(config: StreamingConfig, then: StreamingConfig | None = None) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument (ARGUMENTS) an int64. `elements`
    is m, or the number of counts.

    then: a second pass of the same launch, over the same items.
    """
    SUMS, TOTALS, TWO_PASSES = config.sums > 0 and not config.direct, config.totals, then is not None
    SCALE_SUM, BIAS_SUM, SCALE_FIRST = "scale_sum" in config.outputs, "bias_sum" in config.outputs, config.sums_scale
    ACROSS, SUM = 4 * config.chunk, config.itemsize
    FLOAT = float64 if config.compute == "float64" else float32
    CENTRED, COUNTED, STATISTICS = config.centred, config.counted, config.statistics
    NORMALISES = config.normalises and not config.given
    SECOND_WRITES = then is not None and len(then.outputs) > 0
    statistic, _ = number_access(config.statistic, config.compute)
    count_of, put_total = number_access(config.compute, config.compute)
    _, put_result = number_access(config.parameter, config.compute, config.native_bfloat16)
    of_bits = i.float_of_bits(config.compute)
    inverse = inverse_std(config.compute, config.epsilon)
    sample, write_statistics = sampler(config, 1), statistics_writer(config)

    @device_function
    def times_inverse(part: int, channel: int, value: Any, deviation: int) -> Any:
        """A finished sum: scale_sum, the first sum if it is requested, still needs the factor r."""
        if SCALE_FIRST and part == 0:
            value = value * inverse(statistic(deviation, channel))
        return value

    @device_function
    def finish(part: int, channel: int, value: Any, operand: Any) -> Any:
        """The total. A requested result is rounded from it."""
        deviation, scale_sum, bias_sum = operand
        value = times_inverse(part, channel, value, deviation)
        if SCALE_SUM and part == 0:
            put_result(scale_sum, channel, value)
        if BIAS_SUM and part == 1:
            put_result(bias_sum, channel, value)
        return value

    @device_function
    def keep_shift(part: int, channel: int, value: Any, operand: Any) -> Any:
        """Totals of statistics are stored unchanged, together with K: X may be overwritten later."""
        X, shift, samples = operand
        if part == 1:
            one = cuda.local.array(1, FLOAT)
            sample(one, X, channel, samples)
            put_total(shift, channel, one[0])
        return value

    @device_function
    def share_of(counts: int, elements: int) -> Any:
        """1/m."""
        if COUNTED:
            total = FLOAT(0)
            for n in range(elements):
                total += count_of(counts, n)
            return FLOAT(1) / total
        return FLOAT(1) / FLOAT(elements)

    _, add_over_grid = column_sums(
        config.column_sums, keep_shift if STATISTICS else finish if TOTALS else times_inverse
    )
    first_pass = one_pass(config, inverse, times_inverse)
    second_pass = None if then is None else one_pass(then, inverse, times_inverse)

    def kernel(
        D: int, D2: int, X: int, Y: int, Z: int, dX: int, dZ: int,
        scale: int, bias: int, mean: int, deviation: int, scale_total: int, bias_total: int, shift: int,
        scale_sum: int, bias_sum: int, input_mean: int, input_var: int, running_mean: int, running_var: int,
        counts: int, partial: int, counter: int,
        count: int, inner_channels: int, spatial: int, row: int, tile: int, tiles: int, rows_each: int, rows_over: int,
        groups: int, items: int, lane_bits: int, repeats: int, parts: int, partial_rows: int, elements: int,
        n1: int, n2: int, n3: int, n4: int, n5: int, channels: int,
        apart: int, first_sample: int, second_sample: int, third_sample: int,
        epsilon: int, momentum: int, correction: int,
    ) -> None:  # fmt: skip
        # tuples: Python compiles calls with more than 30 arguments like *args, and Numba rejects these
        outer_sizes = (n1, n2, n3, n4, n5)
        data = (D, D2, X, Y, Z, dX, dZ)
        parameters = (scale, bias, mean, deviation, scale_total, bias_total, shift)
        results = (scale_sum, bias_sum)
        samples = (apart, first_sample, second_sample, third_sample)
        settings = (of_bits(epsilon), of_bits(momentum), of_bits(correction))
        row_of_sums = ((channels + ACROSS - 1) & -ACROSS) * SUM  # bytes of a partial row of one sum
        share = share_of(counts, elements) if CENTRED or NORMALISES else FLOAT(0)
        statistics = (mean, deviation, input_mean, input_var, running_mean, running_var)
        totals = (scale_total, bias_total, shift)
        if NORMALISES:
            write_statistics(statistics, totals, channels, share, elements, settings)
        ended = first_pass(data, parameters, results, samples, partial,
                   count, inner_channels, spatial, row, tile, tiles, rows_each, rows_over, groups, items, lane_bits,
                   repeats, parts, share, settings[0], row_of_sums, outer_sizes, int32(0))  # fmt: skip
        if SUMS and STATISTICS:
            add_over_grid(partial, counter, (X, shift, samples), scale_total, bias_total, bias_total,
                          partial_rows, partial_rows, channels)  # fmt: skip
        elif SUMS and TOTALS:
            wanted = (deviation, scale_sum, bias_sum)
            add_over_grid(partial, counter, wanted, scale_total, bias_total, bias_total,
                          partial_rows, partial_rows, channels)  # fmt: skip
        elif SUMS:
            first, second = (scale_sum, bias_sum) if SCALE_FIRST else (bias_sum, bias_sum)
            add_over_grid(partial, counter, deviation, first, second, second, partial_rows, partial_rows, channels)
        if TWO_PASSES:
            wait_for_grid(counter)
            share = share_of(counts, elements)
            if STATISTICS:
                write_statistics(statistics, totals, channels, share, elements, settings)
        if SECOND_WRITES:
            second_pass(data, parameters, results, samples, partial,
                        count, inner_channels, spatial, row, tile, tiles, rows_each, rows_over, groups, items,
                        lane_bits, repeats, parts, share, settings[0], row_of_sums, outer_sizes, ended)  # fmt: skip

    return kernel
