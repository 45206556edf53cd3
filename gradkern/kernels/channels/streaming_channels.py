"""Parameters of a thread's channels in the streaming kernel, loaded once for an item.

means    subtracted from X
gains    scale * inverse standard deviation
biases   of the batch norm, if its activation's input is recomputed
shifts   bias_sum/m
slopes   inverse standard deviation * scale_sum/m
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.channels.streaming_config import StreamingConfig
from gradkern.kernels.channels.streaming_statistics import sampler, statistics_of_sums


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
