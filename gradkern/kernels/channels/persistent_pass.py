"""The two passes of the persistent kernel over a channel's part of a slot of the ring.

Units of 16 bytes in memory are units in the slot, too; with config.shifted a row may begin within one. Vectors are
aligned as in memory. With config.edges a plane is not a whole number of vectors: a channel's elements before its first
vector and behind its last are processed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.channels.persistent_config import UNIT, PersistentConfig


def persistent_passes(config: PersistentConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The first pass over a slot and the second, as two device functions:

    first(slot, ..., m, gain, d_sum, dh_sum)   adds to the sums, and writes dX if it does not need them
    second(slot, ..., m, gain, shift, slope)   writes dX

    `over_slot` below describes the other arguments and the results.
    """
    first_of_vector, second_of_vector = _formulas(config, config.width)
    first_of_element, second_of_element = _formulas(config, 1)
    return _over_slot(config, first_of_vector, first_of_element), _over_slot(
        config, second_of_vector, second_of_element
    )


def _over_slot(
    config: PersistentConfig, on_vector: Callable[..., None], on_element: Callable[..., None]
) -> Callable[..., Any]:
    WIDTH, VECTOR, ITEM, CHANNEL_THREADS = config.width, config.vector, ITEMSIZE[config.data], config.channel_threads
    EDGES, SHIFTED, BY_ROWS = config.edges, config.shifted, config.by_rows
    SINGLE = 2 * WIDTH  # elements of a plane outside of vectors, at most

    @device_function
    def first_vector(start: int) -> int:
        return int32((start + (VECTOR - 1)) & -VECTOR) if EDGES else start

    @device_function
    def single(start: int, end: int, number: int) -> tuple[int, bool]:
        """The byte of single element `number` of a channel at the bytes from `start` to `end` of a row, and whether it
        is in the channel. The first WIDTH elements are before its first vector, the others behind its last.
        """
        if number < WIDTH:
            at = int32(start + number * ITEM)
            return at, at < first_vector(start)
        at = int32((end & -VECTOR) + (number - WIDTH) * ITEM)
        return at, at < end

    @device_function
    def over_slot(
        slot: int, slot_out: int, part: int, count: int, at: int, place: int, v: int, out: int, walk: Any,
        m: Any, gain: Any, one: Any, other: Any,
    ) -> tuple[int, int, int, int]:  # fmt: skip
        """`count` images from the address `slot` on, of D, and `part` bytes behind them of X.

        A channel's threads iterate over its vectors, across the plane and down the images, and continue in the next
        slot. This thread's next vector is number v of the channel in the slot and number `place` of its row. It (or its
        row, with by_rows) is at `at` in the slot and at the address `out` in dX. Returns these values for the next
        slot. The slot's first row is at slot_out.

        walk: the steps of these values from one of the thread's vectors to its next, and the extra steps to another
        row; the thread's number in the channel; the byte of a row where the channel begins; vectors and bytes of a
        plane; and bytes from row to row, in the slot and in memory.
        """
        at_step, across, out_step, at_carry, out_carry, member, first, plane, plane_bytes, pitch, image = walk
        vectors = int32(count * plane)
        while v < vectors:
            if BY_ROWS:
                low = int32(out & (UNIT - 1)) if SHIFTED else int32(0)
                start = int32(low + first)
                ahead = int32(first_vector(start) + place * VECTOR)
                if not EDGES or ahead + VECTOR <= start + plane_bytes:
                    d_at = slot + int32(at + ahead)
                    on_vector(d_at, d_at + part, out - low + ahead, m, gain, one, other)
            else:
                on_vector(slot + at, slot + part + at, out, m, gain, one, other)
            at, place, v, out = int32(at + at_step), int32(place + across), int32(v + CHANNEL_THREADS), out + out_step
            if place >= plane:
                at, place, out = int32(at + at_carry), int32(place - plane), out + out_carry
        if EDGES:
            number, singles = member, int32(count * SINGLE)
            while number < singles:
                row = int32(number // SINGLE)
                row_out = slot_out + int64(row) * image
                low = int32(row_out & (UNIT - 1)) if SHIFTED else int32(0)
                start = int32(low + first)
                ahead, is_one = single(start, int32(start + plane_bytes), int32(number % SINGLE))
                if is_one:
                    d_at = slot + int32(row * pitch + ahead)
                    on_element(d_at, d_at + part, row_out - low + ahead, m, gain, one, other)
                number = int32(number + CHANNEL_THREADS)
        return int32(at - count * pitch), place, int32(v - vectors), out

    return over_slot


def _formulas(config: PersistentConfig, count: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """The arithmetic of the passes on `count` contiguous elements: D at the address d_at, X at x_at and dX at out."""
    GRADIENT, CENTRED, SUMS, READS_X = "dX" in config.outputs, config.centred, config.sums, config.parts > 1
    FLOAT = float64 if config.compute == "float64" else float32
    load, store = i.loader("shared", config.data, count), i.storer("global", config.data, count)

    @device_function
    def first(d_at: int, x_at: int, out: int, m: Any, gain: Any, d_sum: Any, dh_sum: Any) -> None:
        d, x = cuda.local.array(count, FLOAT), cuda.local.array(count, FLOAT)
        load(d, d_at)
        if READS_X:
            load(x, x_at)
        for e in range(count):
            if SUMS:
                d_sum[e & 1] += d[e]
            if READS_X:
                dh_sum[e & 1] += d[e] * (x[e] - m)
            d[e] = d[e] * gain
        if GRADIENT and not CENTRED:
            store(out, d)

    @device_function
    def second(d_at: int, x_at: int, out: int, m: Any, gain: Any, shift: Any, slope: Any) -> None:
        d, x = cuda.local.array(count, FLOAT), cuda.local.array(count, FLOAT)
        load(d, d_at)
        load(x, x_at)
        for e in range(count):
            d[e] = gain * (d[e] - shift - (x[e] - m) * slope)
        store(out, d)

    return first, second
