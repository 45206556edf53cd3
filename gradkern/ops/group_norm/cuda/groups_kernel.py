"""The kernel between a group norm's two passes: of each group of each sample, what its elements need.

A block has one group; its threads share the pairs of all parts of the channels.

    forward   mean, inv_std
    gradient  level = inv_std sum of A P/m, slope = inv_std^2 sum of A Q/m
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.numbers import inverse_root, number_access
from gradkern.ops.group_norm.cuda.config import GroupNormConfig
from gradkern.ops.group_norm.cuda.group_totals import shared_access
from gradkern.ops.group_norm.cuda.numbers import addends_of, combining, parameters_of


def build(config: GroupNormConfig) -> Callable[..., None]:
    """The kernel of ARGUMENTS, each an int64."""
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
