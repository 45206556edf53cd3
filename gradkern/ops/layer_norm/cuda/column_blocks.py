"""scale_grad and bias_grad by separate column-reduction blocks, for small arrays. These read X and Y_grad again, from
the L2 cache: blocks that compute X_grad read them at the same time. No block waits for the whole grid, and no partial
sums go through memory.
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
from gradkern.ops.layer_norm.cuda.config import ROWS_IN_FLIGHT, LayerNormConfig
from gradkern.ops.layer_norm.cuda.parameters import parameter_vector
from gradkern.ops.layer_norm.cuda.row_passes import centring


def column_blocks(config: LayerNormConfig, load_statistics: Callable[..., Any]) -> Callable[..., None]:
    """The device function add_columns(Y_grad, X, scale, bias, mean, inv_std, scale_grad, bias_grad, rows, D_stride,
    X_stride, columns, number). All threads of a block call it; number: index of the block among column-reduction
    blocks.

    A column tile is config.reduction_columns wide: config.reduction_lanes threads side by side. The other threads take
    other rows. A thread loads IN_FLIGHT rows before it uses the first. Where there are many rows, a cluster of
    config.reduction_cluster_size blocks shares the rows of a tile, and its first block adds up the sums of the others.
    The order of additions depends on the config alone: results are deterministic.

    load_statistics(mean, inv_std, row) -> the row's mean, and its r
    """
    WIDTH, VECTORS, ACROSS, THREADS = config.width, config.reduction_vectors, config.reduction_lanes, config.threads
    DOWN, COLUMNS, PER_THREAD = THREADS // ACROSS, config.reduction_columns, VECTORS * WIDTH
    GROUP_THREADS, WARP_GROUPS = max(32, ACROSS), config.reduction_warp_groups  # whole warps with all columns
    IN_FLIGHT, CLUSTER_SIZE = ROWS_IN_FLIGHT, config.reduction_cluster_size
    STEP = DOWN * CLUSTER_SIZE  # rows that the threads of a column tile take at a time
    PAIRS_AT = config.ring_at + WARP_GROUPS * 2 * COLUMNS * config.itemsize
    SCALE_GRAD, BIAS_GRAD = "scale_grad" in config.outputs, "bias_grad" in config.outputs
    INVERTIBLE, AT, centre = config.invertible, config.ring_at, centring(config)
    X_BYTES, D_BYTES, PARAMETER = config.data_itemsize, config.upstream_itemsize, config.parameter_itemsize
    X_WORDS, D_WORDS = max(1, WIDTH * X_BYTES // 4), max(1, WIDTH * D_BYTES // 4)
    X_VECTOR, D_VECTOR = ACROSS * WIDTH * X_BYTES, ACROSS * WIDTH * D_BYTES
    X_HELD, D_HELD = IN_FLIGHT * VECTORS * X_WORDS, IN_FLIGHT * VECTORS * D_WORDS
    ITEM, FLOAT = config.itemsize, float32 if config.compute == "float32" else float64
    row_address = i.row_address_long if config.long_rows else i.row_address
    ROW = int64 if config.long_rows else int32

    load_X, load_D = i.word_loader("global", WIDTH * X_BYTES), i.word_loader("global", WIDTH * D_BYTES)
    unpack_X, unpack_D = i.unpacker(config.data, WIDTH), i.unpacker(config.upstream, WIDTH)
    load_parameters, load_parameter = parameter_vector(config), i.loader("global", config.parameter, 1)
    store_vector, load_one = i.storer("shared", config.compute, WIDTH), i.loader("shared", config.compute, 1)
    store_result = i.storer("global", config.parameter, 1, config.native_bfloat16)
    shuffle_xor = i.shuffle_xor_double if config.compute == "float64" else i.shuffle_xor
    # the barrier is at the address of others in blocks with rows
    begin, expect, send, wait, total_of = cluster_sums(config.compute, CLUSTER_SIZE, COLUMNS, 0, PAIRS_AT)

    @device_function
    def normalised(value: Any, m: Any, r: Any, bias: Any) -> Any:
        """xh; for the invertible norm xh * scale: the sum is divided by scale at the end."""
        return centre(value, m, bias) if INVERTIBLE else centre(value, m, bias) * r

    @device_function
    def add(count: int, at: int, step: int) -> Any:
        """The sum of `count` numbers in shared memory, `step` bytes apart."""
        one, total = cuda.local.array(1, FLOAT), FLOAT(0)
        for n in range(count):
            load_one(one, at + n * step)
            total += one[0]
        return total

    @device_function
    def write(total: Any, part: int, column: int, scale: int, scale_grad: int, bias_grad: int) -> None:
        """Writes an element of scale_grad (part 0) or of bias_grad (part 1), if it is requested."""
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
        column_tile, block = int32(number // CLUSTER_SIZE), int32(number % CLUSTER_SIZE)
        column = int32(column_tile * COLUMNS + across * WIDTH)
        shared = i.shared_memory()
        if CLUSTER_SIZE > 1:
            begin()
        vectors = int32(min(VECTORS, (columns - column + (ACROSS * WIDTH - 1)) // (ACROSS * WIDTH)))  # of this thread
        x, d = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        x_words, d_words = cuda.local.array(X_HELD, int32), cuda.local.array(D_HELD, int32)
        m, r = cuda.local.array(IN_FLIGHT, FLOAT), cuda.local.array(IN_FLIGHT, FLOAT)
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
            for q in range(IN_FLIGHT):  # independent loads, so that their latencies overlap
                at = min(ROW(row + q * STEP), ROW(rows - 1))
                x_at, d_at = row_address(X, at, X_stride), row_address(Y_grad, at, D_stride)
                for j in range(VECTORS):
                    if j < vectors:
                        load_D(d_words, (q * VECTORS + j) * D_WORDS, d_at + j * D_VECTOR)
                        if SCALE_GRAD:
                            load_X(x_words, (q * VECTORS + j) * X_WORDS, x_at + j * X_VECTOR)
                if SCALE_GRAD and not INVERTIBLE:
                    m[q], r[q] = load_statistics(mean, inv_std, at)
            for q in range(IN_FLIGHT):
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
            row = ROW(row + IN_FLIGHT * STEP)

        # over the rows of a warp, then over groups of warps
        distance = int32(ACROSS)
        while distance < 32:
            for n in range(PER_THREAD):
                if SCALE_GRAD:
                    scale_sum[n] += shuffle_xor(scale_sum[n], distance)
                if BIAS_GRAD:
                    bias_sum[n] += shuffle_xor(bias_sum[n], distance)
            distance = int32(distance * 2)
        partial_sums = shared + AT
        at = partial_sums + (thread // GROUP_THREADS * (2 * COLUMNS) + across * WIDTH) * ITEM
        if thread % 32 < ACROSS:
            for j in range(VECTORS):
                if SCALE_GRAD:
                    for e in range(WIDTH):
                        some[e] = scale_sum[j * WIDTH + e]
                    store_vector(at + j * (ACROSS * WIDTH * ITEM), some)
                if BIAS_GRAD:
                    for e in range(WIDTH):
                        some[e] = bias_sum[j * WIDTH + e]
                    store_vector(at + (COLUMNS + j * ACROSS * WIDTH) * ITEM, some)
        wait_for_block()
        if CLUSTER_SIZE > 1:  # over blocks
            expect(block)
            place = i.opaque(thread)
            while place < COLUMNS:
                at = partial_sums + place * ITEM
                first = add(WARP_GROUPS, at, 2 * COLUMNS * ITEM) if SCALE_GRAD else FLOAT(0)
                second = add(WARP_GROUPS, at + COLUMNS * ITEM, 2 * COLUMNS * ITEM) if BIAS_GRAD else FLOAT(0)
                send(block, place, first, second)
                place = i.opaque(place + THREADS)
            if block == 0:
                wait()
        place = i.opaque(thread)
        while block == 0 and place < 2 * COLUMNS:
            part = place // COLUMNS
            place_in_block = place - part * COLUMNS
            where = column_tile * COLUMNS + place_in_block
            if where < columns:
                if CLUSTER_SIZE > 1:
                    total = total_of(place_in_block, part)
                else:
                    total = add(WARP_GROUPS, partial_sums + place * ITEM, 2 * COLUMNS * ITEM)
                write(total, part, where, scale, scale_grad, bias_grad)
            place = i.opaque(place + THREADS)

    return add_columns
