"""What the streaming kernel knows of a channel: the parameters of a thread's channels, loaded once for an item, and
statistics of the batch from sums.

means    subtracted from X
gains    scale * inverse standard deviation
biases   of the batch norm, if its activation's input is recomputed
shifts   bias_sum/m
slopes   inverse standard deviation * scale_sum/m

Mean and variance of a channel are from sums that do not cancel:

    K = the median of three elements of the channel,  first = sum of (X - K),  second = sum of (X - K)^2
    mean = K + first/m,  variance = second/m - (first/m)^2

K is within a few deviations of the mean, whatever the mean is and even with some outliers, so that no digits cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import inverse_root, number_access
from gradkern.kernels.channels.streaming_config import StreamingConfig


def sampler(config: StreamingConfig, count: int) -> Callable[..., None]:
    """The device function sample(values, X, channel, samples): K of `count` channels from `channel` on. samples: the
    elements from channel to channel, and the places of the first channel's three samples in X.
    """
    ITEM = config.data_itemsize
    FLOAT = float64 if config.compute == "float64" else float32
    load = i.loader("global", config.data, count)

    @device_function
    def sample(values: Any, X: int, channel: int, samples: Any) -> None:
        apart, first, second, third = samples
        others, more = cuda.local.array(count, FLOAT), cuda.local.array(count, FLOAT)
        at = int64(channel) * apart
        load(values, X + (at + first) * ITEM)
        load(others, X + (at + second) * ITEM)
        load(more, X + (at + third) * ITEM)
        for p in range(count):
            low, high = min(values[p], others[p]), max(values[p], others[p])
            values[p] = max(low, min(high, more[p]))

    return sample


def statistics_of_sums(config: StreamingConfig) -> Callable[..., Any]:
    """The device function of_sums(K, first, second, share, epsilon): mean, variance, 1 / sqrt(variance + epsilon).
    share: 1/m.
    """
    FLOAT = float64 if config.compute == "float64" else float32
    root = inverse_root(config.compute)

    @device_function
    def of_sums(K: Any, first: Any, second: Any, share: Any, epsilon: Any) -> Any:
        away = first * share
        variance = second * share - away * away
        if variance < FLOAT(0):  # by rounding, where all elements are equal; not for NaN
            variance = FLOAT(0)
        return K + away, variance, root(variance + epsilon)

    return of_sums


def statistics_writer(config: StreamingConfig) -> Callable[..., None]:
    """The device function write_statistics(statistics, totals, channels, share, elements, settings), called by all
    blocks: writes the outputs with an address. settings: epsilon, momentum, and the factor from the batch's variance to
    the one in the running variance. Of a message: mean, variance and m.
    """
    THREADS, MESSAGE = config.threads, config.message
    FLOAT = float64 if config.compute == "float64" else float32
    total, put = number_access(config.compute, config.compute)
    running, put_running = number_access(config.statistic, config.compute, config.native_bfloat16)
    of_sums = statistics_of_sums(config)

    @device_function
    def move(before: int, after: int, channel: int, value: Any, momentum: Any) -> None:
        """Moves a running statistic towards that of the batch."""
        if after != 0:
            put_running(after, channel, running(before, channel) * momentum + value * (FLOAT(1) - momentum))

    @device_function
    def write_statistics(
        statistics: Any, totals: Any, channels: int, share: Any, elements: int, settings: Any
    ) -> None:  # fmt: skip
        mean, inverse_std, input_mean, input_variance, running_mean, running_variance = statistics
        second_total, first_total, shift = totals
        epsilon, momentum, correction = settings
        each = int32((channels + cuda.gridDim.x - 1) // cuda.gridDim.x)  # of a block
        n = int32(cuda.threadIdx.x)
        while n < each:
            channel = int64(cuda.blockIdx.x) * each + n
            if channel < channels:
                K, first = total(shift, channel), total(first_total, channel)
                of_batch, variance, inverse = of_sums(K, first, total(second_total, channel), share, epsilon)
                move(input_mean, running_mean, channel, of_batch, momentum)
                move(input_variance, running_variance, channel, variance * correction, momentum)
                if mean != 0:
                    put(mean, channel, of_batch)
                if inverse_std != 0:
                    put(inverse_std, channel, variance if MESSAGE else inverse)
            n = int32(n + THREADS)
        if MESSAGE and cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
            put(inverse_std, channels, FLOAT(elements))

    return write_statistics


def at_once(config: StreamingConfig) -> int:
    """Number of channels that are loaded at a time."""
    return config.width if config.columns else 1


def channel_loader(config: StreamingConfig, inverse: Callable[..., Any]) -> Callable[..., None]:
    """The device function load_channels(means, gains, biases, shifts, slopes, n, channel, X, parameters, samples,
    share, epsilon): loads parameters of the channels from `channel` on into the places from n on.
    """
    COUNT = at_once(config)
    SAMPLES, NORMALISES, CENTRED = config.statistics, config.normalises and not config.given, config.centred
    MEANS = config.sums_scale or config.centred or config.recomputes or config.given
    GAINS = "dX" in config.outputs or config.recomputes or config.given
    BIASES = config.recomputes or config.normalises
    PARAMETER, STATISTIC, SUM = ITEMSIZE[config.parameter], ITEMSIZE[config.statistic], config.itemsize
    FLOAT = float64 if config.compute == "float64" else float32
    load_parameters = i.loader("global", config.parameter, COUNT)
    load_statistics = i.loader("global", config.statistic, COUNT)
    load_totals = i.loader("global", config.compute, COUNT)
    sample, of_sums = sampler(config, COUNT), statistics_of_sums(config)

    @device_function
    def load_channels(
        means: Any, gains: Any, biases: Any, shifts: Any, slopes: Any, n: int, channel: int, X: int, parameters: Any,
        samples: Any, share: Any, epsilon: Any,
    ) -> None:  # fmt: skip
        scale, bias, mean, deviation, scale_total, bias_total, shift = parameters
        values, others = cuda.local.array(COUNT, FLOAT), cuda.local.array(COUNT, FLOAT)
        more, scales = cuda.local.array(COUNT, FLOAT), cuda.local.array(COUNT, FLOAT)
        if SAMPLES:
            sample(values, X, channel, samples)
            for p in range(COUNT):
                means[n + p] = values[p]
        elif NORMALISES:
            load_totals(values, shift + channel * SUM)
            load_totals(others, bias_total + channel * SUM)
            load_totals(more, scale_total + channel * SUM)
            load_parameters(scales, scale + channel * PARAMETER)
            for p in range(COUNT):
                of_batch, _, inverse_std = of_sums(values[p], others[p], more[p], share, epsilon)
                means[n + p] = of_batch
                gains[n + p] = scales[p] * inverse_std
        else:
            if MEANS:
                load_statistics(values, mean + channel * STATISTIC)
                for p in range(COUNT):
                    means[n + p] = values[p]
            if GAINS:
                load_statistics(values, deviation + channel * STATISTIC)
                load_parameters(scales, scale + channel * PARAMETER)
                for p in range(COUNT):
                    gains[n + p] = scales[p] * inverse(values[p])
                    if CENTRED:
                        slopes[n + p] = inverse(values[p]) * share
            if CENTRED:
                load_totals(values, scale_total + channel * SUM)
                for p in range(COUNT):
                    slopes[n + p] *= values[p]
                load_totals(values, bias_total + channel * SUM)
                for p in range(COUNT):
                    shifts[n + p] = values[p] * share
        if BIASES:
            load_parameters(values, bias + channel * PARAMETER)
            for p in range(COUNT):
                biases[n + p] = values[p]

    return load_channels
