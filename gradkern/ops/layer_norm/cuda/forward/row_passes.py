"""The passes of a thread over its elements of a row: load, squared deviations from a mean, normalise."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import inverse_root
from gradkern.ops.layer_norm.cuda.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.parameters import parameter_words, register_parameter, shared_parameters
from gradkern.ops.layer_norm.cuda.row_sums import RowPasses, row_statistics


def norm_passes(config: NormForwardConfig) -> RowPasses:
    """Of a norm: its pair is the sum of X and that of squared deviations. For a skip form X is X + shift + skip,
    rounded to the type of skip; the first pass also writes it, if that output is requested. It prefetches scale and
    bias where the config says so.
    """
    WIDTH, LANES = config.width, config.lanes
    VECTORS, UNPREDICATED_VECTORS = config.vectors, config.unpredicated_vectors
    IN_REGISTERS, SHARED, AHEAD = (config.parameters == each for each in ("registers", "shared", "prefetched"))
    BIASED, CENTRED = config.biased, config.centred
    SKIPS, SHIFTED, SUM = config.skips, config.shifted, "sum" in config.written
    X_VECTOR, S_VECTOR, Y_VECTOR = (
        WIDTH * each for each in (config.data_itemsize, config.upstream_itemsize, config.result_itemsize)
    )
    SCALE_AT, BIAS_AT = config.scale_at, config.bias_at
    FLOAT = float32 if config.compute == "float32" else float64
    RING, X_WORDS, S_WORDS = config.ring, max(1, X_VECTOR // 4), max(1, S_VECTOR // 4)
    load_X, load_S = (i.loader("shared" if RING else "global", each, WIDTH) for each in (config.data, config.upstream))
    load_X_words, load_S_words = i.word_loader("global", X_VECTOR), i.word_loader("global", S_VECTOR)
    unpack_X, unpack_S = i.unpacker(config.data, WIDTH), i.unpacker(config.upstream, WIDTH)
    load_words, unpack_parameter = parameter_words(config)
    _, load_shared_parameter = shared_parameters(config)
    Y_WRITTEN, MEAN, INV_STD = (each in config.written for each in ("Y", "mean", "inv_std"))
    load_parameter = register_parameter(config, wanted=IN_REGISTERS and Y_WRITTEN)
    load_shift = register_parameter(config, wanted=SHIFTED)
    over_lanes, share, merge, from_memory = row_statistics(config)
    IN_MEMORY, STATISTIC, root = config.phase == "apply", config.statistic_itemsize, inverse_root(config.compute)
    store_statistic = i.storer("global", config.statistic, 1, config.native_bfloat16)
    store_Y = i.storer("global", config.result, WIDTH, config.native_bfloat16)

    store_sum = i.storer("global", config.upstream, WIDTH, config.native_bfloat16)
    round_sum = i.rounder(config.upstream, WIDTH, config.native_bfloat16)
    ALIGNED_VECTORS, FULL = config.aligned_vectors, (1 << WIDTH) - 1
    S_BYTES, Y_BYTES = config.upstream_itemsize, config.result_itemsize
    store_one, store_one_sum = (
        i.storer("global", each, 1, config.native_bfloat16) for each in (config.result, config.upstream)
    )

    @device_function
    def is_cut(inside: int, j: int) -> bool:
        """Some elements of vector j are not the row's."""
        return ALIGNED_VECTORS and (~inside & (FULL << (j * WIDTH))) != 0

    @device_function
    def take(  # this thread's elements, with zeros beyond them: their sum
        x: Any, x_at: int, skip_at: int, sum_at: int, shifts: Any, scales: Any, biases: Any, scale_from: int,
        bias_from: int, first_column: int, lane: int, vectors: int, inside: int, valid: bool,
    ) -> Any:  # fmt: skip
        some, more = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        sums = cuda.local.array(2, FLOAT)  # two accumulators: a shorter dependency chain
        sums[0] = sums[1] = FLOAT(0)
        words, more_words = cuda.local.array(VECTORS * X_WORDS, int32), cuda.local.array(VECTORS * S_WORDS, int32)
        if not RING:  # all loads before the first use and the first store: loads are not moved across a store
            for j in range(VECTORS):
                v = lane + j * LANES
                if valid and (j < UNPREDICATED_VECTORS or v < vectors):
                    load_X_words(words, j * X_WORDS, x_at + v * X_VECTOR)
                    if SKIPS:
                        load_S_words(more_words, j * S_WORDS, skip_at + v * S_VECTOR)
        if AHEAD and Y_WRITTEN:
            load_words(scales, scale_from, first_column, lane, vectors)
            if BIASED:
                load_words(biases, bias_from, first_column, lane, vectors)
        for j in range(VECTORS):
            v = lane + j * LANES
            for e in range(WIDTH):
                some[e] = FLOAT(0)
            if valid and (j < UNPREDICATED_VECTORS or v < vectors):
                if RING:
                    load_X(some, x_at + v * X_VECTOR)
                else:
                    unpack_X(some, words, j * X_WORDS)
                if SKIPS:
                    if RING:
                        load_S(more, skip_at + v * S_VECTOR)
                    else:
                        unpack_S(more, more_words, j * S_WORDS)
                    for e in range(WIDTH):
                        if SHIFTED:
                            some[e] = some[e] + shifts[j * WIDTH + e]
                        some[e] = some[e] + more[e]
                    round_sum(some)
                if is_cut(inside, j):
                    own = i.opaque(inside)  # else the compiler hoists this for every vector
                    for e in range(WIDTH):
                        more[0] = some[e]
                        if not own & (1 << (j * WIDTH + e)):
                            some[e] = FLOAT(0)
                        elif SUM:
                            store_one_sum(sum_at + v * S_VECTOR + e * S_BYTES, more)
                elif SUM:
                    store_sum(sum_at + v * S_VECTOR, some)
            for e in range(WIDTH):
                x[j * WIDTH + e] = some[e]
                sums[e & 1] += some[e]
        return sums[0] + sums[1]

    @device_function
    def squares(x: Any, mean: Any, lane: int, vectors: int, inside: int, valid: bool) -> Any:
        sums = cuda.local.array(2, FLOAT)
        sums[0] = sums[1] = FLOAT(0)
        for j in range(VECTORS):
            v = lane + j * LANES
            if valid and (not CENTRED or j < UNPREDICATED_VECTORS or v < vectors):  # a zero's square is zero
                if CENTRED and is_cut(inside, j):
                    own = i.opaque(inside)  # else the compiler hoists this for every vector
                    for e in range(WIDTH):
                        if own & (1 << (j * WIDTH + e)):
                            off = x[j * WIDTH + e] - mean
                            sums[e & 1] += off * off
                else:
                    for e in range(WIDTH):
                        off = x[j * WIDTH + e] - mean if CENTRED else x[j * WIDTH + e]
                        sums[e & 1] += off * off
        return sums[0] + sums[1]

    @device_function
    def first(
        pair: Any, x: Any, _g: Any, _scale_sum: Any, _bias_sum: Any, scales: Any, biases: Any, shifts: Any,
        scale: int, bias: int, first_column: int, x_at: int, skip_at: int, sum_at: int, _m: Any, _r: Any,
        over_own: Any, lane: int, vectors: int, inside: int, valid: bool,
    ) -> None:  # fmt: skip
        total = take(x, x_at, skip_at, sum_at, shifts, scales, biases,
                     scale, bias, first_column, lane, vectors, inside, valid)  # fmt: skip
        if not IN_MEMORY:
            if CENTRED:
                total = over_lanes(total)
                pair[0] = total
            pair[1] = over_lanes(squares(x, total * over_own, lane, vectors, inside, valid))

    @device_function
    def numbers(
        pair: Any, _m: Any, _r: Any, mean: int, inv_std: int, row: int, over_columns: Any, epsilon: Any, writes: bool
    ) -> Any:
        one = cuda.local.array(1, FLOAT)
        m = pair[0] * over_columns if CENTRED else FLOAT(0)
        r = root(pair[1] * over_columns + epsilon)
        if writes:
            if MEAN:
                one[0] = m
                store_statistic(mean + int64(row) * STATISTIC, one)
            if INV_STD:
                one[0] = r
                store_statistic(inv_std + int64(row) * STATISTIC, one)
        return m, r

    @device_function
    def load_parameters(
        scales: Any, biases: Any, shifts: Any, scale: int, bias: int, shift: int, origin: int, own: int, lane: int,
        vectors: int,
    ) -> None:  # fmt: skip
        if SHIFTED:
            load_shift(shifts, shift, origin, own, lane, vectors)
        if IN_REGISTERS and Y_WRITTEN:
            load_parameter(scales, scale, origin, own, lane, vectors)
            if BIASED:
                load_parameter(biases, bias, origin, own, lane, vectors)

    @device_function
    def second(
        _pair: Any, x: Any, _g: Any, _dx_sum: Any, scales: Any, biases: Any, _x_at: int, _skip_at: int, _added_at: int,
        y_at: int, _sum_at: int, mean: Any, r: Any, _over_columns: Any, lane: int, vectors: int, inside: int,
        valid: bool,
    ) -> None:  # fmt: skip
        """Y = (X - mean) * r * scale + bias"""
        shared = i.shared_memory()
        y, scale, bias = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        for j in range(VECTORS):
            v = lane + j * LANES
            if Y_WRITTEN and valid and (j < UNPREDICATED_VECTORS or v < vectors):
                if SHARED:
                    load_shared_parameter(scale, shared + SCALE_AT, v)
                    if BIASED:
                        load_shared_parameter(bias, shared + BIAS_AT, v)
                elif AHEAD:
                    unpack_parameter(scale, scales, j)
                    if BIASED:
                        unpack_parameter(bias, biases, j)
                for e in range(WIDTH):
                    n = j * WIDTH + e
                    xh = (x[n] - mean) * r if CENTRED else x[n] * r
                    y[e] = xh * (scales[n] if IN_REGISTERS else scale[e])
                    if BIASED:
                        y[e] = y[e] + (biases[n] if IN_REGISTERS else bias[e])
                if is_cut(inside, j):
                    own = i.opaque(inside)
                    for e in range(WIDTH):
                        if own & (1 << (j * WIDTH + e)):
                            scale[0] = y[e]
                            store_one(y_at + v * Y_VECTOR + e * Y_BYTES, scale)
                else:
                    store_Y(y_at + v * Y_VECTOR, y)

    return RowPasses(load_parameters, None, first, share, merge, from_memory, numbers, second)
