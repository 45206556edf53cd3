"""The end of a kernel with sums over rows: from sums in each thread's registers to the result of every column.

A kernel describes its columns by a ColumnSums (columns.py) and calls two device functions:

    add_over_block, add_over_grid = column_sums(spec, finish)

The launch is cooperative (except with `single_block`) and blocks are persistent. A thread holds the sums of its own
columns over its rows in one local array of per_thread values for each sum. All sums start from zero, also where a
thread has no column. After the last row every thread of every block calls

    add_over_block(first, second, third, partial, operand, first_result, second_result, third_result,
                   block, first_column, own, columns)
    if not single_block:
        add_over_grid(partial, counter, operand, first_result, second_result, third_result, rows, blocks, columns)

with first, second, ...   the local arrays; they are overwritten (fewer sums: repeat one of the arrays)
     partial              address of blocks * spec.partial_bytes(columns) of scratch memory, 16-byte aligned
     counter              address of the stream's counter (device.scratch): zero, or as the previous launch left it
     first_result, ...    addresses of the results, one for each column (fewer sums: repeat one of the addresses)
     block                blockIdx.x // slices; blocks = gridDim.x // slices
     first_column, own    the first column of this block's slice, and the number of its columns. With
                          spec.aligned_vectors a slice may begin before column 0: elements before it, and behind the
                          last whole vector, count in `own` and have places in `first` and `second`
     columns              of all slices
     rows                 block b has rows if and only if b < ceil(rows / (groups_per_block * group_rows)); partial sums
                          of other blocks are not read

finish(part, column, value, operand) -> value, a device function, converts a finished sum (part 0, 1 or 2) to the result
before rounding. Only `finish` reads `operand`, an address or a tuple of addresses. None: the sum is the result.

The order of all additions depends on the spec and the grid alone: results are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import clear_tickets, wait_for_block, wait_for_grid
from gradkern.cuda.device_code.columns import ITEMSIZE, ColumnSums, round_up
from gradkern.cuda.device_code.function import device_function


def column_sums(
    spec: ColumnSums, finish: Callable[..., Any] | None = None
) -> tuple[Callable[..., None], Callable[..., None]]:
    """The device functions add_over_block and add_over_grid for `spec`."""
    WIDTH, LANES, VECTORS = spec.width, spec.lanes, spec.vectors
    GROUPS, GROUP_THREADS, THREADS, GROUP_ROWS = (
        spec.groups_per_block,
        spec.group_threads,
        spec.threads,
        spec.group_rows,
    )
    UNPREDICATED_VECTORS, PER_THREAD = spec.unpredicated_vectors, spec.per_thread
    SUMS, FINISH = spec.sums, finish is not None
    COUNTS_PROGRESS, SINGLE_BLOCK, ALIGNED_VECTORS = spec.counts_progress, spec.single_block, spec.aligned_vectors
    THROUGH_SHARED = GROUPS > 1 or SINGLE_BLOCK or ALIGNED_VECTORS
    RESULT, ITEM, AT = ITEMSIZE[spec.result], spec.itemsize, spec.at
    SLICE_4 = round_up(spec.most_columns, 4)
    FOLD, FOLDED, CHUNK = spec.fold, spec.fold > 1, spec.chunk
    ACROSS = 4 * CHUNK  # columns that are reduced side by side in the last step
    SUMMERS, IN_FLIGHT = THREADS // CHUNK, spec.rows_in_flight
    IN_FLIGHT_4, IN_WARP, FINAL_GROUPS = 4 * IN_FLIGHT, CHUNK < 32, spec.final_groups
    FLOAT = float64 if spec.compute == "float64" else float32
    BYTES, row_address = (int64, i.row_address_long) if spec.long else (int32, i.row_address)

    store_result = i.storer("global", spec.result, 1, spec.native_bfloat16)
    load_one = i.loader("shared", spec.compute, 1)
    load_4 = i.loader("shared", spec.compute, 4)
    load_global_4 = i.loader("global", spec.compute, 4)
    load_global_one = i.loader("global", spec.compute, 1)
    store_vector = i.storer("shared", spec.compute, WIDTH)
    store_global_vector = i.storer("global", spec.compute, WIDTH)
    store_4 = i.storer("shared", spec.compute, 4)
    store_partial_4 = i.storer("global", spec.compute, 4, evict_last=spec.evict_last)
    store_partial_one = i.storer("global", spec.compute, 1)
    shuffle_xor = i.shuffle_xor_double if spec.compute == "float64" else i.shuffle_xor

    @device_function
    def padded(columns: int) -> int:
        """ColumnSums.padded_columns"""
        return (columns + (ACROSS - 1)) & -ACROSS

    @device_function
    def write_sum(
        part: int, column: int, results: int, value: Any, operand: Any,
        first_result: int, second_result: int, third_result: int,
    ) -> None:  # fmt: skip
        """Writes one element of a result, from its finished sum."""
        one = cuda.local.array(1, FLOAT)
        if column < results:
            if FINISH:
                value = finish(part, column, value, operand)
            one[0] = value
            if part == 0:
                store_result(first_result + int64(column) * RESULT, one)
            elif SUMS < 3 or part == 1:
                store_result(second_result + int64(column) * RESULT, one)
            else:
                store_result(third_result + int64(column) * RESULT, one)

    @device_function
    def part_of(column: int, columns: int) -> int:
        """The sum that a column of a row of partial sums belongs to, if each sum has `columns`."""
        part = 1 if column >= columns else 0
        if SUMS == 3 and column >= 2 * columns:
            part = 2
        return part

    @device_function
    def add_over_block(
        first: Any, second: Any, third: Any, partial: int, operand: Any,
        first_result: int, second_result: int, third_result: int,
        block: int, first_column: int, own: int, columns: int,
    ) -> None:  # fmt: skip
        """Reduces over the rows of a warp, then over groups, and writes one row of partial sums for the block."""
        thread = int32(cuda.threadIdx.x)
        group = int32(thread // GROUP_THREADS)
        group_thread = int32(thread - group * GROUP_THREADS)
        lane, group_row = int32(group_thread % LANES), int32(group_thread // LANES)
        vectors = int32((own + (WIDTH - 1)) // WIDTH if ALIGNED_VECTORS else own // WIDTH)
        shared = i.shared_memory()
        x = cuda.local.array(WIDTH, FLOAT)
        four, total = cuda.local.array(4, FLOAT), cuda.local.array(4, FLOAT)
        distance = int32(LANES)
        while distance < 32:
            for n in range(PER_THREAD):
                first[n] += shuffle_xor(first[n], distance)
                if SUMS > 1:
                    second[n] += shuffle_xor(second[n], distance)
                if SUMS > 2:
                    third[n] += shuffle_xor(third[n], distance)
            distance = int32(distance * 2)
        to_second = padded(columns)
        out_at = partial + (int64(block) * SUMS * to_second + first_column) * ITEM
        group_at = shared + AT + group * (SUMS * SLICE_4 * ITEM)
        # The memory is free from here on. There are two barriers, here and below: after one, racecheck reports a hazard
        # between its two sides if a group has passed fewer barriers of its own than another (having no row, say). This
        # is a false positive: the machine code has BAR.SYNC 0 of all threads between the store and the load, and
        # racecheck also reports
        # `if (group == 0) bar.sync 1, 64; s[t] = t; __syncthreads(); x = s[127 - t];` in 128 threads.
        wait_for_block()
        wait_for_block()
        for j in range(VECTORS):
            v = lane + j * LANES
            if group_row == 0 and (j < UNPREDICATED_VECTORS or v < vectors):
                for e in range(WIDTH):
                    x[e] = first[j * WIDTH + e]
                if THROUGH_SHARED:
                    store_vector(group_at + v * (WIDTH * ITEM), x)
                else:
                    store_global_vector(out_at + v * (WIDTH * ITEM), x)
                if SUMS > 1:
                    for e in range(WIDTH):
                        x[e] = second[j * WIDTH + e]
                    if THROUGH_SHARED:
                        store_vector(group_at + (SLICE_4 + v * WIDTH) * ITEM, x)
                    else:
                        store_global_vector(out_at + (to_second + v * WIDTH) * ITEM, x)
                if SUMS > 2:
                    for e in range(WIDTH):
                        x[e] = third[j * WIDTH + e]
                    if THROUGH_SHARED:
                        store_vector(group_at + (2 * SLICE_4 + v * WIDTH) * ITEM, x)
                    else:
                        store_global_vector(out_at + (2 * to_second + v * WIDTH) * ITEM, x)
        if ALIGNED_VECTORS or SINGLE_BLOCK:  # one column for each thread: four results in sequence take longer
            wait_for_block()
            wait_for_block()
            column = i.opaque((max(int32(0), int32(-first_column)) if ALIGNED_VECTORS else int32(0)) + thread)
            while column < own:
                for part in range(SUMS):
                    x[0] = FLOAT(0)
                    for other in range(GROUPS):
                        load_one(four, shared + AT + ((other * SUMS + part) * SLICE_4 + column) * ITEM)
                        x[0] += four[0]
                    if SINGLE_BLOCK:
                        where = first_column + column
                        write_sum(part, where, columns, x[0], operand, first_result, second_result, third_result)
                    else:
                        store_partial_one(out_at + (part * to_second + column) * ITEM, x)
                column = i.opaque(column + THREADS)
        elif THROUGH_SHARED:
            wait_for_block()
            wait_for_block()
            column = i.opaque(4 * thread)
            while column < own:
                for part in range(SUMS):
                    for e in range(4):
                        total[e] = FLOAT(0)
                    for other in range(GROUPS):
                        load_4(four, shared + AT + ((other * SUMS + part) * SLICE_4 + column) * ITEM)
                        for e in range(4):
                            total[e] += four[e]
                    # elements beyond the last column go into the padding of the partial row
                    store_partial_4(out_at + (part * to_second + column) * ITEM, total)
                column = i.opaque(column + 4 * THREADS)

    @device_function
    def load_folded(values: Any, partial: int, column: int, row: int, columns: int, results: int) -> None:
        """Adds four columns of partial sums; each column of the result occurs FOLD times, as if in FOLD rows."""
        one = cuda.local.array(1, FLOAT)
        block, part = int64(row // FOLD), part_of(column, padded(results))
        at = (block * SUMS + part) * padded(columns) + (row - block * FOLD) * results
        column -= part * padded(results)
        if results % 4 == 0:
            load_global_4(values, partial + (at + min(column, results - 4)) * ITEM)
        else:
            for e in range(4):
                load_global_one(one, partial + (at + min(column + e, results - 1)) * ITEM)
                values[e] = one[0]

    @device_function
    def write_column(
        place: int, item: int, last: int, padded_results: int, results: int, operand: Any,
        first_result: int, second_result: int, third_result: int,
    ) -> None:  # fmt: skip
        """Writes one element of a result, from the sums of all groups."""
        one, value = cuda.local.array(1, FLOAT), FLOAT(0)
        for team in range(FINAL_GROUPS):
            load_one(one, last + (team * ACROSS + place) * ITEM)
            value += one[0]
        column = int64(item) * ACROSS + place
        part = part_of(column, padded_results)
        column -= part * padded_results
        write_sum(part, column, results, value, operand, first_result, second_result, third_result)

    @device_function
    def add_over_grid(
        partial: int, counter: int, operand: Any, first_result: int, second_result: int, third_result: int,
        rows: int, blocks: int, columns: int,
    ) -> None:  # fmt: skip
        """Waits for all blocks; each then adds the partial rows of some columns, in a fixed order."""
        thread = int32(cuda.threadIdx.x)
        shared = i.shared_memory()
        four = cuda.local.array(4, FLOAT)
        total, loaded = cuda.local.array(4, FLOAT), cuda.local.array(IN_FLIGHT_4, FLOAT)
        wait_for_grid(counter)
        if COUNTS_PROGRESS and thread == 0 and cuda.blockIdx.x == 0:
            clear_tickets(counter)

        # each block adds the partial rows of some columns, CHUNK threads side by side
        partial_rows = int32(min(int64(blocks), (int64(rows) + GROUPS * GROUP_ROWS - 1) // (GROUPS * GROUP_ROWS)))
        if FOLDED:
            partial_rows = int32(partial_rows * FOLD)
        across, down = int32(thread % CHUNK), int32(thread // CHUNK)
        last = shared + AT
        results = columns // FOLD
        padded_results, row_bytes = padded(results), BYTES(padded(columns) * (SUMS * ITEM))
        items = int32(SUMS * padded_results // ACROSS)
        for item in range(cuda.blockIdx.x, items, cuda.gridDim.x):
            column_at = partial + (int64(item) * CHUNK + across) * (4 * ITEM)
            for e in range(4):
                total[e] = FLOAT(0)
            start = i.opaque(down)
            if not IN_WARP and down >= SUMMERS:
                start = partial_rows
            while start < partial_rows:
                for q in range(IN_FLIGHT):  # independent loads, so that their latencies overlap
                    from_row = min(int32(start + q * SUMMERS), int32(partial_rows - 1))
                    if not FOLDED:
                        load_global_4(four, row_address(column_at, from_row, row_bytes))
                    else:
                        load_folded(four, partial, (int64(item) * CHUNK + across) * 4, from_row, columns, results)
                    for e in range(4):
                        loaded[q * 4 + e] = four[e]
                for q in range(IN_FLIGHT):
                    if start + q * SUMMERS < partial_rows:
                        for e in range(4):
                            total[e] += loaded[q * 4 + e]
                start = i.opaque(start + IN_FLIGHT * SUMMERS)
            distance = int32(CHUNK)
            while distance < 32:
                for e in range(4):
                    total[e] += shuffle_xor(total[e], distance)
                distance = int32(distance * 2)
            if not IN_WARP:
                if down < SUMMERS:
                    store_4(last + thread * (4 * ITEM), total)
            elif thread % 32 < CHUNK:
                store_4(last + (thread // 32 * CHUNK + across) * (4 * ITEM), total)
            wait_for_block()
            if ACROSS > THREADS:
                place = i.opaque(thread)
                while place < ACROSS:
                    write_column(place, item, last, padded_results, results, operand,
                                 first_result, second_result, third_result)  # fmt: skip
                    place = i.opaque(place + THREADS)
            elif thread < ACROSS:
                write_column(thread, item, last, padded_results, results, operand,
                             first_result, second_result, third_result)  # fmt: skip
            wait_for_block()

    return add_over_block, add_over_grid
