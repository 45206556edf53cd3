"""The stable sort of keys with their positions: two kernels for each digit, the lowest first.

    count    of each block's keys, how many have each digit
    scatter  each key and its position to its place: behind the keys with lower digits, those of the blocks before and
             those before it in its own block

A warp has consecutive keys and counts them in its own counters, 32 at a time: lanes with the same digit find one
another, and the first of them adds their number. Where a key goes depends on the keys alone. There are no atomics.

A sort of few keys leaves most of a device idle: blocks behind its own may set the target of the sums to zero meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import integer_access
from gradkern.kernels.segments.config import SortConfig


def _counting(config: SortConfig) -> Callable[[int, Any], None]:
    """A device function add(counters, digits): counts a warp's digits, those of each step in turn."""
    STEPS = config.steps

    @device_function
    def add(counters: int, digits: Any) -> None:
        for step in range(STEPS):
            lanes = i.matching(digits[step])
            if i.lanes_before(lanes) == 0:
                place = counters + digits[step] * 4
                i.store_word(place, i.load_word(place) + i.set_bits(lanes))
            i.warp_barrier()

    return add


def _resetting(config: SortConfig) -> Callable[[int, int], None]:
    """A device function reset(counters, lane): sets a warp's counters to zero."""
    DIGITS = config.digits

    @device_function
    def reset(counters: int, lane: int) -> None:
        digit = lane
        while digit < DIGITS + 1:
            i.store_word(counters + digit * 4, int32(0))
            digit = int32(digit + 32)
        i.warp_barrier()

    return reset


def _clearing(config: SortConfig) -> Callable[..., None]:
    """A device function clear(target, first, last, block): sets a block's part of these bytes to zero. They are pairs;
    those behind the last whole vector are stored one by one.
    """
    SIZE, PART, STEP = config.clears, config.cleared, config.threads * config.clears
    WORDS = max(1, SIZE // 4)
    store, store_pair = i.word_storer("global", SIZE), i.word_storer("global", 2)

    @device_function
    def clear(target: int, first: int, last: int, block: int) -> None:
        zeros = cuda.local.array(WORDS, int32)
        for w in range(WORDS):
            zeros[w] = int32(0)
        at = first + int64(block) * PART + int32(cuda.threadIdx.x) * SIZE
        last = min(last, first + (int64(block) + 1) * PART)
        while at + SIZE <= last:
            store(target + at, zeros)
            at += STEP
        while at < last:
            store_pair(target + at, zeros)
            at += 2

    return clear


def count_kernel(config: SortConfig, long: bool, key: Callable[..., Any] | None) -> Callable[..., None]:
    """The kernel that counts, of int64 arguments COUNT_ARGUMENTS. long: keys have 64 bits.

    key: in the first pass a device function key(indices, n, rows, dropped, sizes, strides, bounds, steps), the key of
    element n, from 0 to `rows`; elements with the key `rows` are of no row.
    """
    FIRST, DIGITS, THREADS, STEPS, WARPS = key is not None, config.digits, config.threads, config.steps, config.warps
    WARPS_SHIFT, OVERLAP, CLEARS = WARPS.bit_length() - 1, config.overlap, config.clears > 0
    reset, clear = _resetting(config), _clearing(config) if CLEARS else None
    COUNTERS, MASK = 4 * (DIGITS + 1), int64(DIGITS - 1)
    (load_key, store_key), add = integer_access(long), _counting(config)
    store_count = i.word_storer("global", 4)
    of = key or load_key

    def kernel(
        indices: int, keys: int, counts: int, count: int, tile: int, shift: int,
        blocks: int, target: int, clear_from: int, clear_to: int, rows: int, dropped: int,
        size_0: int, size_1: int, size_2: int, size_3: int, size_4: int, size_5: int, size_6: int, size_7: int,
        stride_0: int, stride_1: int, stride_2: int, stride_3: int,
        stride_4: int, stride_5: int, stride_6: int, stride_7: int,
        bound_0: int, bound_1: int, bound_2: int, bound_3: int, bound_4: int, bound_5: int, bound_6: int, bound_7: int,
        step_0: int, step_1: int, step_2: int, step_3: int, step_4: int, step_5: int, step_6: int, step_7: int,
    ) -> None:  # fmt: skip
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        if OVERLAP:
            i.begin_next_launch()
        if CLEARS and block >= blocks:
            clear(target, clear_from, clear_to, block - int32(blocks))
            return
        warp, lane = thread >> 5, thread & 31
        shared, count = i.shared_memory(), int32(count)
        counters = shared + warp * COUNTERS
        reset(counters, lane)
        if OVERLAP:
            i.wait_for_launch_before()
        digits, found = cuda.local.array(STEPS, int32), cuda.local.array(STEPS, int64)
        if FIRST:
            sizes = (size_0, size_1, size_2, size_3, size_4, size_5, size_6, size_7)
            strides = (stride_0, stride_1, stride_2, stride_3, stride_4, stride_5, stride_6, stride_7)
            bounds = (bound_0, bound_1, bound_2, bound_3, bound_4, bound_5, bound_6, bound_7)
            steps = (step_0, step_1, step_2, step_3, step_4, step_5, step_6, step_7)
        share = int32(tile) >> WARPS_SHIFT
        begin = int32(block * int32(tile) + warp * share)
        end = min(int32(begin + share), count)
        while begin < end:
            for step in range(STEPS):  # keys behind the last repeat the last: no load waits for the one before
                n = min(int32(begin + step * 32 + lane), int32(end - 1))
                if FIRST:
                    found[step] = of(indices, n, rows, dropped, sizes, strides, bounds, steps)
                else:
                    found[step] = of(keys, n)
            for step in range(STEPS):
                n = int32(begin + step * 32 + lane)
                digits[step] = int32((found[step] >> shift) & MASK) if n < end else int32(DIGITS)
                if FIRST and n < end:
                    store_key(keys, n, found[step])
            add(counters, digits)
            begin = int32(begin + STEPS * 32)
        wait_for_block()
        one = cuda.local.array(1, int32)
        digit = thread
        while digit < DIGITS:
            one[0] = int32(0)
            for each in range(WARPS):
                one[0] += i.load_word(shared + each * COUNTERS + digit * 4)
            store_count(counts + (int64(block) * DIGITS + digit) * 4, one)
            digit = int32(digit + THREADS)

    return kernel


def build_count(config: SortConfig, long: bool) -> Callable[..., None]:
    """The kernel that counts, in all passes but the first."""
    return count_kernel(config, long, None)


def build_scatter(config: SortConfig, long: bool, first: bool) -> Callable[..., None]:
    """The kernel that puts keys and positions in their places, of int64 arguments SCATTER_ARGUMENTS. In the first pass
    a key's position is its own.
    """
    FIRST, DIGITS, THREADS, STEPS, WARPS = first, config.digits, config.threads, config.steps, config.warps
    WARPS_SHIFT, OVERLAP, CLEARS = WARPS.bit_length() - 1, config.overlap, config.clears > 0
    reset, clear = _resetting(config), _clearing(config) if CLEARS else None
    COUNTERS, MASK, EACH = 4 * (DIGITS + 1), int64(DIGITS - 1), config.digits // config.threads
    SCAN, ROUNDS = WARPS * COUNTERS, THREADS.bit_length() - 1
    COUNTS, COUNTS_HELD = config.counts, config.counts * EACH
    (load_key, store_key), add = integer_access(long), _counting(config)
    load_position, store_position = integer_access(False)
    load_counts = i.word_loader("global", 4 * EACH)

    def kernel(
        keys: int, positions: int, keys_to: int, positions_to: int, counts: int, count: int, tile: int, shift: int,
        blocks: int, target: int, clear_from: int, clear_to: int,
    ) -> None:  # fmt: skip
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        if OVERLAP:
            i.begin_next_launch()
        if CLEARS and block >= blocks:
            clear(target, clear_from, clear_to, block - int32(blocks))
            return
        blocks = int32(blocks)
        warp, lane = thread >> 5, thread & 31
        shared, count = i.shared_memory(), int32(count)
        counters = shared + warp * COUNTERS
        reset(counters, lane)
        if OVERLAP:
            i.wait_for_launch_before()
        digits, found = cuda.local.array(STEPS, int32), cuda.local.array(STEPS, int64)
        places = cuda.local.array(STEPS, int64)
        share = int32(tile) >> WARPS_SHIFT
        first = int32(block * int32(tile) + warp * share)
        end = min(int32(first + share), count)
        begin = first
        while begin < end:
            for step in range(STEPS):  # as in the kernel that counts
                found[step] = load_key(keys, min(int32(begin + step * 32 + lane), int32(end - 1)))
            for step in range(STEPS):
                digit = int32((found[step] >> shift) & MASK)
                digits[step] = digit if begin + step * 32 + lane < end else int32(DIGITS)
            add(counters, digits)
            begin = int32(begin + STEPS * 32)
        # of this thread's digits: the keys of all blocks, and of those before this one
        words = cuda.local.array(COUNTS_HELD, int32)
        before, total = cuda.local.array(EACH, int32), cuda.local.array(EACH, int32)
        for e in range(EACH):
            before[e], total[e] = int32(0), int32(0)
        other = int32(0)
        while other < blocks:
            for n in range(COUNTS):
                place = int64(min(int32(other + n), int32(blocks - 1)))
                load_counts(words, n * EACH, counts + (place * DIGITS + thread * EACH) * 4)
            for n in range(COUNTS):
                for e in range(EACH):
                    if other + n < blocks:
                        total[e] += words[n * EACH + e]
                    if other + n < block:
                        before[e] += words[n * EACH + e]
            other = int32(other + COUNTS)
        mine = int32(0)
        for e in range(EACH):
            mine = int32(mine + total[e])
        upto = mine
        i.store_word(shared + SCAN + thread * 4, upto)
        wait_for_block()
        for r in range(ROUNDS):
            lower = int32(0)
            if thread >= 1 << r:
                lower = i.load_word(shared + SCAN + (thread - (1 << r)) * 4)
            wait_for_block()
            upto = int32(upto + lower)
            i.store_word(shared + SCAN + thread * 4, upto)
            wait_for_block()
        base = int32(upto - mine)
        for e in range(EACH):
            here = int32(base + before[e])
            for each in range(WARPS):
                place = shared + each * COUNTERS + (thread * EACH + e) * 4
                held = i.load_word(place)
                i.store_word(place, here)
                here = int32(here + held)
            base = int32(base + total[e])
        wait_for_block()
        begin = first
        while begin < end:
            for step in range(STEPS):
                n = min(int32(begin + step * 32 + lane), int32(end - 1))
                found[step] = load_key(keys, n)
                places[step] = n if FIRST else load_position(positions, n)
            for step in range(STEPS):
                digit = int32((found[step] >> shift) & MASK)
                digits[step] = digit if begin + step * 32 + lane < end else int32(DIGITS)
            for step in range(STEPS):
                n = int32(begin + step * 32 + lane)
                lanes = i.matching(digits[step])
                place = counters + digits[step] * 4
                rank, start = i.lanes_before(lanes), i.load_word(place)
                i.warp_barrier()
                if rank == 0:
                    i.store_word(place, start + i.set_bits(lanes))
                i.warp_barrier()
                if n < end:
                    store_key(keys_to, start + rank, found[step])
                    store_position(positions_to, start + rank, places[step])
            begin = int32(begin + STEPS * 32)

    return kernel
