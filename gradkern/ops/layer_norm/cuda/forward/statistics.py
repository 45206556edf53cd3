"""A row's mean and the sum of its squared deviations, over all of its threads: of a warp, of a group of warps, of a
cluster's blocks.

Each warp computes its own mean first, and then deviations from it, so that no digits cancel. Warps exchange these
pairs, a sum and a sum of squares, once. A part of n elements adds its own squares and (sum - n mean)^2 / n to the row's
squares about the row's mean. (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983, formula 1.5b.)
Without a mean the squares are those of the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.config import NormForwardConfig


def row_statistics(config: NormForwardConfig) -> tuple[Callable[..., Any], ...]:
    """over_lanes(value), the sum of a value over a row's threads in one warp; and share, merge and from_memory of
    RowPasses.
    """
    WIDTH, LANES, VECTORS = config.width, config.lanes, config.vectors
    UNPREDICATED_VECTORS = config.unpredicated_vectors
    BLOCKS_PER_ROW, WARPS = config.blocks_per_row, config.group_threads // 32
    SLOTS, PAIR = config.exchange_slots, 2 * config.itemsize
    CENTRED, CLUSTER, DOUBLE = config.centred, config.cluster, config.compute == "float64"
    FLOAT = float64 if DOUBLE else float32
    load_shared, load_global = i.loader("shared", config.compute, 2), i.loader("global", config.compute, 2)
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor

    @device_function
    def butterfly(value: Any, lanes: int) -> Any:
        """The sum over `lanes` neighbouring lanes, the same in each."""
        distance = int32(lanes // 2)
        while distance > 0:
            value += shuffle_xor(value, distance)
            distance = int32(distance // 2)
        return value

    @device_function
    def over_lanes(value: Any) -> Any:
        return butterfly(value, min(LANES, 32))

    @device_function
    def share(slot: int, columns: int, slice_columns: int, shift: int) -> int:
        warp, slice_, own = slot, int32(0), int32(columns + shift)
        if CLUSTER:
            slice_ = int32(slot // WARPS)
            warp = int32(slot - slice_ * WARPS)
            own = int32(min(int32(slice_columns), int32(own - slice_ * int32(slice_columns))))
        elements = int32(32 * WIDTH * UNPREDICATED_VECTORS)
        if warp == 0 and slice_ == 0:  # the shift is less than a vector
            elements = int32(elements - shift)
        for j in range(UNPREDICATED_VECTORS, VECTORS):
            first = int32((warp * 32 + j * LANES) * WIDTH)
            elements = int32(elements + min(max(int32(own - first), int32(0)), int32(32 * WIDTH)))
        return elements if warp < WARPS and slice_ < BLOCKS_PER_ROW else int32(0)

    @device_function
    def squares_about(mean: Any, pair: Any, n: Any, over_n: Any) -> Any:
        off = pair[0] - n * mean
        return pair[1] + off * off * over_n

    @device_function
    def over(n: Any) -> Any:
        return FLOAT(1) / n if n > FLOAT(0) else FLOAT(0)

    @device_function
    def merge(pair: Any, at: int, n: Any, over_n: Any, over_columns: Any, warp_lane: int) -> None:
        more = cuda.local.array(2, FLOAT)
        load_shared(pair, at + warp_lane % min(SLOTS, 32) * PAIR)
        if CENTRED:
            total = pair[0]
            for k in range(1, SLOTS // 32):
                load_shared(more, at + (32 * k + warp_lane) * PAIR)
                total += more[0]
            total = butterfly(total, min(SLOTS, 32))
            mean = total * over_columns
            squares = squares_about(mean, pair, n[0], over_n[0])
            for k in range(1, SLOTS // 32):
                load_shared(more, at + (32 * k + warp_lane) * PAIR)
                squares += squares_about(mean, more, n[k], over_n[k])
            pair[0] = total
        else:
            squares = pair[1]
            for k in range(1, SLOTS // 32):
                load_shared(more, at + (32 * k + warp_lane) * PAIR)
                squares += more[1]
        pair[1] = butterfly(squares, min(SLOTS, 32))

    @device_function
    def from_memory(
        pair: Any, row_sums: int, row: int, over_columns: Any, warp_lane: int, columns: int, slice_columns: int
    ) -> None:
        more = cuda.local.array(2, FLOAT)
        first = row_sums + int64(row) * (BLOCKS_PER_ROW * PAIR)
        total, squares = FLOAT(0), FLOAT(0)
        if CENTRED:
            for other in range(warp_lane, BLOCKS_PER_ROW, 32):
                load_global(more, first + other * PAIR)
                total += more[0]
            total = butterfly(total, 32)
        mean = total * over_columns
        for other in range(warp_lane, BLOCKS_PER_ROW, 32):
            load_global(more, first + other * PAIR)
            if CENTRED:
                n = FLOAT(min(slice_columns, columns - int64(other) * slice_columns))
                squares += squares_about(mean, more, n, over(n))
            else:
                squares += more[1]
        pair[0], pair[1] = total, butterfly(squares, 32)

    return over_lanes, share, merge, from_memory
