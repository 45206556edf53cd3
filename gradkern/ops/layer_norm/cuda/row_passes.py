"""The two passes of a thread over its elements of a row: before the row's sums are known, and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.parameters import register_parameter, shared_parameters
from gradkern.ops.layer_norm.cuda.row_sums import RowPasses, row_sums


def centring(config: LayerNormConfig) -> Callable[..., Any]:
    """The device function centre(value, m, bias): X - mean = xh / r; for the invertible norm Y - bias = xh * scale."""
    INVERTIBLE, HAS_MEAN = config.invertible, config.has_mean

    @device_function
    def centre(value: Any, m: Any, bias: Any) -> Any:
        if INVERTIBLE:
            return value - bias
        if HAS_MEAN:
            return value - m
        return value

    return centre


def gradient_passes(config: LayerNormConfig) -> RowPasses:
    """Of a gradient: its pair is s1 and s2. The first pass adds the row to the sums over rows. The second adds X_grad
    to its sum over rows before it is rounded, to its own type and to that of branch_grad.
    """
    WIDTH, LANES = config.width, config.lanes
    VECTORS, UNPREDICATED_VECTORS = config.vectors, config.unpredicated_vectors
    IN_REGISTERS, SCALE_IN_REGISTERS = config.row_in_registers, config.scale_in_registers
    SCALES_SUMS = config.scales_sums
    INVERTIBLE, CENTRED, centre = config.invertible, config.centred, centring(config)
    NEEDS_X, ROW_TERMS, ZERO_PADDED = config.needs_X, config.row_terms, config.zero_padded
    SCALE_GRAD, BIAS_GRAD = "scale_grad" in config.written, "bias_grad" in config.written
    IN_MEMORY, load_shared_parameter = config.phase == "apply", shared_parameters(config)[1]
    over_lanes, merge, from_memory = row_sums(config)
    load_parameter = register_parameter(config, wanted=SCALE_IN_REGISTERS and ROW_TERMS)
    X_GRAD, X_GRAD_SUM = "X_grad" in config.written, "X_grad_sum" in config.written
    BRANCH_GRAD, BRANCH = "branch_grad" in config.written, config.branch or config.result
    OUT_BYTES, BRANCH_BYTES, FULL = config.result_itemsize, ITEMSIZE[BRANCH], (1 << WIDTH) - 1
    X_VECTOR, D_VECTOR = WIDTH * config.data_itemsize, WIDTH * config.upstream_itemsize
    OUT_VECTOR, BRANCH_VECTOR = WIDTH * OUT_BYTES, WIDTH * BRANCH_BYTES
    SCALE_AT, BIAS_AT, INVERSE_AT = config.scale_at, config.bias_at, config.inverse_scale_at
    SINGLE, ADDED, ALIGNED_VECTORS = config.compute == "float32", config.needs_added, config.aligned_vectors
    FLOAT = float32 if SINGLE else float64
    memory = "shared" if config.ring else "global"
    load_X = i.loader(memory, config.data, WIDTH)
    load_D = i.loader(memory, config.upstream, WIDTH)
    store_X_grad, store_branch = (
        i.storer("global", each, WIDTH, config.native_bfloat16) for each in (config.result, BRANCH)
    )
    load_X_words, load_D_words = i.word_loader(memory, min(16, X_VECTOR)), i.word_loader(memory, min(16, D_VECTOR))
    # words of an aligned vector, elements of a word
    WORDS, ELEMENTS = max(1, X_VECTOR // 4), max(1, 4 // config.data_itemsize)
    unpack_X, unpack_D = i.unpacker(config.data, WIDTH), i.unpacker(config.upstream, WIDTH)
    store_one, store_one_branch = (
        i.storer("global", each, 1, config.native_bfloat16) for each in (config.result, BRANCH)
    )

    @device_function
    def inverse(value: Any) -> Any:
        """1 / value: within 1 or 2 units in the last place of a float32."""
        return i.reciprocal_approximate(value) if SINGLE else FLOAT(1) / value

    @device_function
    def kept(inside: int, n: int) -> int:
        """The mask of the word that holds element n, and perhaps element n + 1."""
        if ELEMENTS == 2:
            return int32((-(inside >> n & 1) & 0xFFFF) | -(inside >> n + 1 & 1) << 16)
        return int32(-(inside >> n & 1))

    @device_function
    def load_inside(x: Any, d: Any, x_at: int, d_at: int, inside: int, j: int) -> None:
        """Vector j of the thread, zero in elements of other rows. Masking words takes fewer registers than elements."""
        x_words, d_words = cuda.local.array(WORDS, int32), cuda.local.array(WORDS, int32)
        if NEEDS_X:
            load_X_words(x_words, 0, x_at)
        load_D_words(d_words, 0, d_at)
        if ~inside & (FULL << (j * WIDTH)):
            for w in range(WORDS):
                keep = kept(inside, j * WIDTH + w * ELEMENTS)
                if NEEDS_X:
                    x_words[w] &= keep
                d_words[w] &= keep
        if NEEDS_X:
            unpack_X(x, x_words, 0)
        unpack_D(d, d_words, 0)

    @device_function
    def has(j: int, v: int, vectors: int, inside: int) -> bool:
        """The row has this vector, the thread's vector j."""
        return inside & (FULL << (j * WIDTH)) != 0 if ALIGNED_VECTORS else v < vectors

    @device_function
    def first(
        pair: Any, xh: Any, g: Any, scale_sum: Any, bias_sum: Any, scales: Any, _biases: Any, _shifts: Any,
        _scale: int, _bias: int, _first_column: int, x_at: int, d_at: int, _second_at: int, m: Any, r: Any,
        _over_own: Any, lane: int, vectors: int, inside: int, valid: bool,
    ) -> None:  # fmt: skip
        shared = i.shared_memory()
        x, d = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        bias, scale = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        # two accumulators each: shorter dependency chains
        s1, s2 = cuda.local.array(2, FLOAT), cuda.local.array(2, FLOAT)
        s1[0] = s1[1] = s2[0] = s2[1] = FLOAT(0)
        for j in range(VECTORS):
            v = lane + j * LANES
            if valid and (ZERO_PADDED or j < UNPREDICATED_VECTORS or has(j, v, vectors, inside)):
                if ALIGNED_VECTORS:
                    load_inside(x, d, x_at + v * X_VECTOR, d_at + v * D_VECTOR, inside, j)
                else:
                    if NEEDS_X:
                        load_X(x, x_at + v * X_VECTOR)
                    load_D(d, d_at + v * D_VECTOR)
                if INVERTIBLE and NEEDS_X:
                    load_shared_parameter(bias, shared + BIAS_AT, v)
                if not SCALE_IN_REGISTERS and ROW_TERMS:
                    load_shared_parameter(scale, shared + SCALE_AT, v)
                for e in range(WIDTH):
                    n = j * WIDTH + e
                    if NEEDS_X:
                        h = centre(x[e], m, bias[e])
                        if IN_REGISTERS and not INVERTIBLE:
                            h = h * r
                        p = d[e] * h
                        if SCALE_GRAD:  # invertible: the division by scale follows later, and s2 needs none
                            scale_sum[n] += p * r if SCALES_SUMS else p
                        if ROW_TERMS:
                            w = scales[n] if SCALE_IN_REGISTERS else scale[e]
                            k = d[e] * w
                            if CENTRED:
                                s1[n & 1] += k
                            if INVERTIBLE:
                                s2[n & 1] += p
                            elif SCALES_SUMS:
                                s2[n & 1] += p * w
                            else:
                                s2[n & 1] += k * h
                            if IN_REGISTERS:
                                xh[n] = h
                                g[n] = k
                    if BIAS_GRAD:
                        bias_sum[n] += d[e]
        pair[0], pair[1] = s1[0] + s1[1], s2[0] + s2[1]
        if SCALES_SUMS:
            pair[1] *= r
        if ROW_TERMS and not IN_MEMORY:
            over_lanes(pair)

    @device_function
    def second(
        pair: Any, xh: Any, g: Any, dx_sum: Any, _scales: Any, _biases: Any, x_at: int, d_at: int, z_at: int,
        out_at: int, branch_at: int, m: Any, r: Any, over_columns: Any, lane: int, vectors: int, inside: int,
        valid: bool,
    ) -> None:  # fmt: skip
        """X_grad = g * r + (xh * k2 + k1)"""
        shared = i.shared_memory()
        x, d = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        bias, scale = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        over_scale = cuda.local.array(WIDTH, FLOAT)
        if ALIGNED_VECTORS:  # else the compiler keeps the first pass's masks, in as many registers
            inside = i.opaque(inside)
        k1, k2 = pair[0] * r * -over_columns, pair[1] * r * -over_columns
        if SCALES_SUMS:
            k2 *= r
        for j in range(VECTORS):
            v = lane + j * LANES
            if valid and (ZERO_PADDED or j < UNPREDICATED_VECTORS or has(j, v, vectors, inside)):
                if INVERTIBLE and IN_REGISTERS:
                    load_shared_parameter(over_scale, shared + INVERSE_AT, v)
                if not IN_REGISTERS:
                    load_X(x, x_at + v * X_VECTOR)
                    load_D(d, d_at + v * D_VECTOR)
                    load_shared_parameter(scale, shared + SCALE_AT, v)
                    if INVERTIBLE:
                        load_shared_parameter(bias, shared + BIAS_AT, v)
                for e in range(WIDTH):
                    n = j * WIDTH + e
                    if IN_REGISTERS:
                        h, k = xh[n], g[n]
                    else:
                        h, k = centre(x[e], m, bias[e]), d[e] * scale[e]
                    if INVERTIBLE:
                        h = h * (over_scale[e] if IN_REGISTERS else inverse(scale[e]))
                    if CENTRED:
                        x[e] = k * r + (h * k2 + k1)
                    else:
                        x[e] = k * r + h * k2
                if ADDED:
                    load_X(d, z_at + v * X_VECTOR)
                    for e in range(WIDTH):
                        x[e] = x[e] + d[e]
                if X_GRAD_SUM:  # sums of columns beyond the row are not read
                    for e in range(WIDTH):
                        dx_sum[j * WIDTH + e] += x[e]
                if not ZERO_PADDED or j < UNPREDICATED_VECTORS or has(j, v, vectors, inside):
                    if ALIGNED_VECTORS and ~inside & (FULL << (j * WIDTH)):
                        for e in range(WIDTH):
                            if inside & (1 << (j * WIDTH + e)):
                                d[0] = x[e]
                                if X_GRAD:
                                    store_one(out_at + v * OUT_VECTOR + e * OUT_BYTES, d)
                                if BRANCH_GRAD:
                                    store_one_branch(branch_at + v * BRANCH_VECTOR + e * BRANCH_BYTES, d)
                    else:
                        if X_GRAD:
                            store_X_grad(out_at + v * OUT_VECTOR, x)
                        if BRANCH_GRAD:
                            store_branch(branch_at + v * BRANCH_VECTOR, x)

    @device_function
    def load_parameters(
        scales: Any, _biases: Any, _shifts: Any, scale: int, _bias: int, _shift: int, origin: int, own: int, lane: int,
        vectors: int,
    ) -> None:  # fmt: skip
        load_parameter(scales, scale, origin, own, lane, vectors)

    @device_function
    def numbers(
        _pair: Any, m: Any, r: Any, _mean: int, _inv_std: int, _row: int, _over_columns: Any, _epsilon: Any,
        _writes: bool,
    ) -> Any:  # fmt: skip
        return m, r

    return RowPasses(load_parameters, _statistics(config), first, None, merge, from_memory, numbers, second)


def _statistics(config: LayerNormConfig) -> Callable[..., tuple[Any, Any]]:
    """The device function load(mean, inv_std, row): the row's mean, 0 where it has none, and its r."""
    HAS_MEAN, STATISTIC = config.has_mean, config.statistic_itemsize
    FLOAT = float32 if config.compute == "float32" else float64
    load_one = i.loader("global", config.statistic, 1)

    @device_function
    def load(mean: int, inv_std: int, row: int) -> tuple[Any, Any]:
        one, other = cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT)
        load_one(one, inv_std + int64(row) * STATISTIC)
        other[0] = FLOAT(0)
        if HAS_MEAN:
            load_one(other, mean + int64(row) * STATISTIC)
        return other[0], one[0]

    return load


def divide_by_scale(config: LayerNormConfig) -> Callable[..., Any]:
    """The last step of scale_grad for the invertible norm, whose sum is that of Y_grad * xh * scale."""
    PARAMETER, FLOAT = config.parameter_itemsize, float32 if config.compute == "float32" else float64
    load_parameter = i.loader("global", config.parameter, 1)

    @device_function
    def divide_by_scale(part: int, column: int, value: Any, scale: int) -> Any:
        one = cuda.local.array(1, FLOAT)
        if part == 0:
            load_parameter(one, scale + int64(column) * PARAMETER)
            value = value / one[0]
        return value

    return divide_by_scale
