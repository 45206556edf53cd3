"""scale_grad and bias_grad by blocks of their own, where arrays are small. They read X and Y_grad again, which the
blocks that make X_grad bring to the L2 cache at the same time. So nobody waits for the whole grid, and no sums go
through memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.cluster_sums import cluster_sums
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.config import ROWS_AHEAD, LayerNormConfig
from gradkern.ops.layer_norm.cuda.parameters import parameter_vector
from gradkern.ops.layer_norm.cuda.row_passes import centring

__all__ = ["column_blocks"]


def column_blocks(config: LayerNormConfig, load_statistics: Callable[..., Any]) -> Callable[..., None]:
    """The device function add_columns(Y_grad, X, scale, bias, mean, inv_std, scale_grad, bias_grad, rows, D_stride,
    X_stride, columns, number), which all threads of a block call; number: of the block among those that have columns.

    A stripe of columns is config.stripe_lanes vectors wide, as many threads side by side; the others take further rows.
    A thread has AHEAD rows under way at once. Where there are many rows, a cluster of config.stripe_blocks blocks
    shares a stripe's, and its first block adds up what the others send. The order of additions follows from the config
    alone: the same bits every time.

    load_statistics(mean, inv_std, row) -> the row's mean, and its r
    """
    WIDTH, VECTORS, ACROSS, THREADS = config.width, config.stripe_vectors, config.stripe_lanes, config.threads
    DOWN, STRIPE, PER_THREAD = THREADS // ACROSS, config.stripe, VECTORS * WIDTH
    TEAM, TEAMS = max(32, ACROSS), config.stripe_teams  # whole warps that have all columns of the stripe
    AHEAD, BLOCKS = ROWS_AHEAD, config.stripe_blocks
    STEP = DOWN * BLOCKS  # rows that a stripe's threads take at once
    PAIRS_AT = config.ring_at + TEAMS * 2 * STRIPE * config.itemsize
    SCALE_GRAD, BIAS_GRAD = "scale_grad" in config.outputs, "bias_grad" in config.outputs
    INVERTIBLE, AT, centre = config.invertible, config.ring_at, centring(config)
    X_BYTES, D_BYTES, PARAMETER = config.data_itemsize, config.upstream_itemsize, config.parameter_itemsize
    X_WORDS, D_WORDS = max(1, WIDTH * X_BYTES // 4), max(1, WIDTH * D_BYTES // 4)
    X_VECTOR, D_VECTOR = ACROSS * WIDTH * X_BYTES, ACROSS * WIDTH * D_BYTES
    X_KEPT, D_KEPT = AHEAD * VECTORS * X_WORDS, AHEAD * VECTORS * D_WORDS
    ITEM, FLOAT = config.itemsize, float32 if config.compute == "float32" else float64
    row_address = i.row_address_long if config.long_rows else i.row_address
    ROW = int64 if config.long_rows else int32

    load_X, load_D = i.word_loader("global", WIDTH * X_BYTES), i.word_loader("global", WIDTH * D_BYTES)
    unpack_X, unpack_D = i.unpacker(config.data, WIDTH), i.unpacker(config.upstream, WIDTH)
    load_parameters, load_parameter = parameter_vector(config), i.loader("global", config.parameter, 1)
    store_vector, load_one = i.storer("shared", config.compute, WIDTH), i.loader("shared", config.compute, 1)
    store_result = i.storer("global", config.parameter, 1, config.native_bfloat16)
    shuffle_xor = i.shuffle_xor_double if config.compute == "float64" else i.shuffle_xor
    # the barrier lies where blocks with rows have others
    begin, expect, send, wait, total_of = cluster_sums(config.compute, BLOCKS, STRIPE, 0, PAIRS_AT)

    @device_function
    def normalised(value: Any, m: Any, r: Any, bias: Any) -> Any:
        """xh; for the invertible norm xh * scale, so that its sum is divided by scale at the end."""
        return centre(value, m, bias) if INVERTIBLE else centre(value, m, bias) * r

    @device_function
    def add(count: int, at: int, step: int) -> Any:
        """The sum of so many numbers in shared memory, `step` bytes apart."""
        one, total = cuda.local.array(1, FLOAT), FLOAT(0)
        for n in range(count):
            load_one(one, at + n * step)
            total += one[0]
        return total

    @device_function
    def write(total: Any, part: int, column: int, scale: int, scale_grad: int, bias_grad: int) -> None:
        """An element of scale_grad (part 0), if it is wanted, or of bias_grad (1)."""
        one = cuda.local.array(1, FLOAT)
        if SCALE_GRAD if part == 0 else BIAS_GRAD:
            if INVERTIBLE and part == 0:
                load_parameter(one, scale + int64(column) * PARAMETER)
                total = total / one[0]
            one[0] = total
            store_result((scale_grad if part == 0 else bias_grad) + int64(column) * PARAMETER, one)

    @device_function
    def add_columns(
        Y_grad: int, X: int, scale: int, bias: int, mean: int, inv_std: int, scale_grad: int, bias_grad: int,
        rows: int, D_stride: int, X_stride: int, columns: int, number: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        across, down = int32(thread % ACROSS), int32(thread // ACROSS)
        stripe, block = int32(number // BLOCKS), int32(number % BLOCKS)
        column = int32(stripe * STRIPE + across * WIDTH)
        shared = i.shared_memory()
        if BLOCKS > 1:
            begin()
        vectors = int32(min(VECTORS, (columns - column + (ACROSS * WIDTH - 1)) // (ACROSS * WIDTH)))  # of this thread
        x, d = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        x_words, d_words = cuda.local.array(X_KEPT, int32), cuda.local.array(D_KEPT, int32)
        m, r = cuda.local.array(AHEAD, FLOAT), cuda.local.array(AHEAD, FLOAT)
        some, biases = cuda.local.array(WIDTH, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        scale_sum, bias_sum = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        for n in range(PER_THREAD):
            scale_sum[n] = bias_sum[n] = FLOAT(0)
        if INVERTIBLE and SCALE_GRAD:
            for j in range(VECTORS):
                if j < vectors:
                    load_parameters(some, bias, int64(column + j * (ACROSS * WIDTH)), 0)
                    for e in range(WIDTH):
                        biases[j * WIDTH + e] = some[e]
        X += int64(column) * X_BYTES
        Y_grad += int64(column) * D_BYTES
        row = ROW(down + block * DOWN)
        while row < rows:
            for q in range(AHEAD):  # independent loads, so that their latencies overlap
                at = min(ROW(row + q * STEP), ROW(rows - 1))
                x_at, d_at = row_address(X, at, X_stride), row_address(Y_grad, at, D_stride)
                for j in range(VECTORS):
                    if j < vectors:
                        load_D(d_words, (q * VECTORS + j) * D_WORDS, d_at + j * D_VECTOR)
                        if SCALE_GRAD:
                            load_X(x_words, (q * VECTORS + j) * X_WORDS, x_at + j * X_VECTOR)
                if SCALE_GRAD and not INVERTIBLE:
                    m[q], r[q] = load_statistics(mean, inv_std, at)
            for q in range(AHEAD):
                if row + q * STEP < rows:
                    for j in range(VECTORS):
                        if j < vectors:
                            unpack_D(d, d_words, (q * VECTORS + j) * D_WORDS)
                            if SCALE_GRAD:
                                unpack_X(x, x_words, (q * VECTORS + j) * X_WORDS)
                            for e in range(WIDTH):
                                n = j * WIDTH + e
                                if BIAS_GRAD:
                                    bias_sum[n] += d[e]
                                if SCALE_GRAD:
                                    scale_sum[n] += d[e] * normalised(x[e], m[q], r[q], biases[n])
            row = ROW(row + AHEAD * STEP)

        # over the rows of a warp, then over teams
        distance = int32(ACROSS)
        while distance < 32:
            for n in range(PER_THREAD):
                if SCALE_GRAD:
                    scale_sum[n] += shuffle_xor(scale_sum[n], distance)
                if BIAS_GRAD:
                    bias_sum[n] += shuffle_xor(bias_sum[n], distance)
            distance = int32(distance * 2)
        of_teams = shared + AT
        at = of_teams + (thread // TEAM * (2 * STRIPE) + across * WIDTH) * ITEM
        if thread % 32 < ACROSS:
            for j in range(VECTORS):
                if SCALE_GRAD:
                    for e in range(WIDTH):
                        some[e] = scale_sum[j * WIDTH + e]
                    store_vector(at + j * (ACROSS * WIDTH * ITEM), some)
                if BIAS_GRAD:
                    for e in range(WIDTH):
                        some[e] = bias_sum[j * WIDTH + e]
                    store_vector(at + (STRIPE + j * ACROSS * WIDTH) * ITEM, some)
        wait_for_block()
        if BLOCKS > 1:  # over blocks
            expect(block)
            place = i.unseen(thread)
            while place < STRIPE:
                at = of_teams + place * ITEM
                first = add(TEAMS, at, 2 * STRIPE * ITEM) if SCALE_GRAD else FLOAT(0)
                second = add(TEAMS, at + STRIPE * ITEM, 2 * STRIPE * ITEM) if BIAS_GRAD else FLOAT(0)
                send(block, place, first, second)
                place = i.unseen(place + THREADS)
            if block == 0:
                wait()
        place = i.unseen(thread)
        while block == 0 and place < 2 * STRIPE:
            part = place // STRIPE
            of_stripe = place - part * STRIPE
            where = stripe * STRIPE + of_stripe
            if where < columns:
                if BLOCKS > 1:
                    total = total_of(of_stripe, part)
                else:
                    total = add(TEAMS, of_teams + place * ITEM, 2 * STRIPE * ITEM)
                write(total, part, where, scale, scale_grad, bias_grad)
            place = i.unseen(place + THREADS)

    return add_columns
