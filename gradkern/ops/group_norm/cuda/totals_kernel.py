"""The kernels that add up what the first pass of a group norm has found in all parts of each channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import inverse_root, number_access
from gradkern.ops.group_norm.cuda.config import BARRIER, GroupNormConfig
from gradkern.ops.group_norm.cuda.numbers import addends_of, combining, parameters_of, shared_access


def build_groups(config: GroupNormConfig) -> Callable[..., None]:
    """The kernel of ARGUMENTS, each an int64, between the two passes: of each group of each sample, what its elements
    need. A block has one group; its threads share the pairs of all parts of the channels.

        forward   mean, inv_std
        gradient  level = inv_std sum of A P/m, slope = inv_std^2 sum of A Q/m
    """
    GRADIENT, LINES, arrays, WARPS, WIDTH = config.gradient, config.lines, config.arrays, config.rows, config.width
    FLOAT, NUMBER, EPSILON = float64 if config.compute == "float64" else float32, config.itemsize, config.epsilon
    MEAN, INV_STD = "mean" in arrays, "inv_std" in arrays
    OVERLAPS = config.overlaps
    statistic, put_statistic = number_access(config.statistic, config.compute, config.native_bfloat16)
    number, put = number_access(config.compute, config.compute, True)
    _, gain_and_bias = parameters_of(config)
    _, shift = addends_of(config)
    combine, over_lanes = combining(GRADIENT, config.compute)
    root = inverse_root(config.compute)
    keep, kept = shared_access(config.compute, 0)

    def kernel(
        _dY: int, X: int, skip: int, _residual_grad: int, mean: int, inv_std: int, gamma: int, beta: int, bias: int,
        sample_scale: int, sample_shift: int, _Y: int, _S: int, _dX: int, _dgamma: int, _dbeta: int, _ds: int, _dt: int,
        sums: int, samples: int, channels: int, positions: int, groups: int, of_group: int, parts: int,
        part_length: int, _tiles: int,
    ) -> None:  # fmt: skip
        if OVERLAPS:
            i.begin_next_launch()
            i.wait_for_launch_before()
        thread = int32(cuda.threadIdx.x)
        warp = int32(thread // 32)
        lane = int32(thread - warp * 32)
        ng = int64(cuda.blockIdx.x)
        n = int64(i.quotient(int32(ng), int32(groups)))
        g = ng - n * groups
        half = samples * channels
        of_groups = sums
        partial = of_groups + 2 * samples * groups * NUMBER
        each_part, limit = part_length, positions
        if not LINES:
            each_part = part_length * WIDTH
        count, first, second = FLOAT(0), FLOAT(0), FLOAT(0)
        pair = thread
        while pair < of_group * parts:
            part = i.quotient(pair, int32(of_group))
            c = g * of_group + (pair - part * of_group)
            place = (n * parts + part) * channels + c
            elements = FLOAT(min((part + 1) * each_part, limit) - part * each_part)
            one, other = number(partial, place), number(partial, half * parts + place)
            if GRADIENT:
                gain, _ = gain_and_bias(gamma, beta, sample_scale, sample_shift, c, n * channels + c)
                one, other = gain * one, gain * other
            count, first, second = combine(count, first, second, elements, one, other)
            pair = int32(pair + 32 * WARPS)
        count, first, second = over_lanes(count, first, second, 32)
        if lane == 0:
            keep(warp, count)
            keep(int32(WARPS + warp), first)
            keep(int32(2 * WARPS + warp), second)
        wait_for_block()
        if thread == 0:
            count, first, second = FLOAT(0), FLOAT(0), FLOAT(0)
            for each in range(WARPS):
                count, first, second = combine(
                    count, first, second, kept(each), kept(WARPS + each), kept(2 * WARPS + each)
                )
            if GRADIENT:
                r = statistic(inv_std, ng)
                share = r / (FLOAT(of_group) * FLOAT(positions))
                put(of_groups, ng, share * first)
                put(of_groups, samples * groups + ng, share * (r * second))
            else:
                first += shift(X, skip, bias, n, g * of_group, channels, positions)
                deviation = root(second / count + FLOAT(EPSILON))
                put(of_groups, ng, first)
                put(of_groups, samples * groups + ng, deviation)
                if MEAN:
                    put_statistic(mean, ng, first)
                if INV_STD:
                    put_statistic(inv_std, ng, deviation)

    return kernel


def build_parameters(config: GroupNormConfig) -> Callable[..., None]:
    """The kernel of ARGUMENTS, each an int64, of the parameters' gradients, from the pairs of all parts of each channel
    of each sample.

    A block has a few channels, and each row of its threads every so manyth part, or sample where samples have
    gradients.
    """
    OVERLAPS = config.overlaps
    FLOAT, NUMBER, arrays = float64 if config.compute == "float64" else float32, config.itemsize, config.arrays
    CHANNELS, ROWS, WARPS = config.lanes, config.rows, config.threads // 32
    shuffle = i.shuffle_xor_double if config.compute == "float64" else i.shuffle_xor
    DGAMMA, DBETA = "dgamma" in arrays, "dbeta" in arrays
    DS, DT, GAMMA, BETA = (
        name in arrays for name in ("sample_scale_grad", "sample_shift_grad", "gamma", "beta")
    )  # fmt: skip
    OF_SAMPLES = DS or DT
    number, _ = number_access(config.compute, config.compute, True)
    _, put_element = number_access(config.data, config.compute, config.native_bfloat16)
    parameter, put_parameter = number_access(config.parameter, config.compute, config.native_bfloat16)
    more, _ = parameters_of(config)
    keep, kept = shared_access(config.compute, BARRIER)

    @device_function
    def scale_gradient(c: int, gamma: int, beta: int, P: Any, Q: Any) -> Any:
        value = Q
        if GAMMA:
            value = parameter(gamma, c) * Q
        if BETA:
            value += parameter(beta, c) * P
        return value

    def kernel(
        _dY: int, _X: int, _skip: int, _residual: int, _mean: int, _inv_std: int, gamma: int, beta: int, _bias: int,
        sample_scale: int, _sample_shift: int, _Y: int, _S: int, _dX: int, dgamma: int, dbeta: int, ds: int, dt: int,
        sums: int, samples: int, channels: int, _positions: int, groups: int, _of_group: int, parts: int,
        _length: int, _tiles: int,
    ) -> None:  # fmt: skip
        if OVERLAPS:
            i.wait_for_launch_before()
        thread = int32(cuda.threadIdx.x)
        row = int32(thread // CHANNELS)
        lane = int32(thread - row * CHANNELS)
        c = int64(cuda.blockIdx.x) * CHANNELS + lane
        valid = c < channels
        c = min(c, channels - 1)  # all lanes of a warp take part in its shuffles
        partial = sums + 2 * samples * groups * NUMBER
        half = samples * channels * parts
        all_P, all_Q = FLOAT(0), FLOAT(0)
        rows = samples if OF_SAMPLES else samples * parts
        unit = int32(row)
        while unit < rows:
            n, first = unit, unit * parts
            if not OF_SAMPLES:
                n, first = i.quotient(unit, int32(parts)), int64(unit)
            P, Q = FLOAT(0), FLOAT(0)
            for part in range(parts if OF_SAMPLES else 1):
                place = (first + part) * channels + c
                P += number(partial, place)
                Q += number(partial, half + place)
            nc = n * channels + c
            if DT and valid:
                put_element(dt, nc, P)
            if DS and valid:
                put_element(ds, nc, scale_gradient(c, gamma, beta, P, Q))
            factor = more(sample_scale, nc)
            all_P += factor * P
            all_Q += factor * Q
            unit = int32(unit + ROWS)
        distance = int32(CHANNELS)
        while distance < 32:
            all_P += shuffle(all_P, distance)
            all_Q += shuffle(all_Q, distance)
            distance = int32(2 * distance)
        warp = int32(thread // 32)
        if thread - 32 * warp < CHANNELS:
            keep(warp * CHANNELS + lane, all_P)
            keep((WARPS + warp) * CHANNELS + lane, all_Q)
        wait_for_block()
        if row == 0 and valid:
            P, Q = FLOAT(0), FLOAT(0)
            for each in range(WARPS):
                P += kept(each * CHANNELS + lane)
                Q += kept((WARPS + each) * CHANNELS + lane)
            if DGAMMA:
                put_parameter(dgamma, c, Q)
            if DBETA:
                put_parameter(dbeta, c, P)

    return kernel
