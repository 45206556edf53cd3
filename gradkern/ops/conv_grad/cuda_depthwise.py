"""The kernel of a depthwise convolution's dX or dW. `build(form)` binds its constants; see Form for their meaning.

    dX[i] = sum over taps k and o with o * stride + k * dilation - begin = i of dY[o] * W[k]
    dW[k] = sum over images and o of dY[o] * X[o * stride + k * dilation - begin]

How it goes: a block takes some channels and one tile of their planes through its share of the images. The source (dY
for dX, X for dW) reaches shared memory by asynchronous copies, an image ahead, between zeros that stand for what lies
outside the array. A thread holds a strip of the other array and all taps of its channel in registers. It reads the
window's rows, each once, and every element read takes part in up to held columns x taps multiply-adds: enough of them
for the multiply-adds to be what the kernel waits for, or memory.

dW at its end: each block adds its threads' sums and writes one row of partial sums; after a barrier over the grid all
threads add those rows up. The order of all sums is fixed: the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda import intrinsics as i
from gradkern.ops.conv_grad.cuda_depthwise_form import ITEMSIZE, Form, Shared

__all__ = ["build"]

inline = cuda.jit(device=True, inline="always")


def build(form: Form) -> Callable[..., None]:
    """The kernel for `form`, as a function that Numba compiles with every argument an int64."""
    ROWS, COLUMNS, STRIPS = form.rows, form.columns, form.strips
    CHANNELS, TOTAL_CHANNELS, LAST, THREADS = form.channels, form.total_channels, form.channels_last, form.threads
    GROUPS, TILES, TILES_ACROSS, ACROSS = form.groups, form.tiles, COLUMNS.tiles, COLUMNS.threads
    DX, STAGES, TAPS, HELD = form.gradient == "dX", form.stages, form.taps, form.held
    STAGE, SOURCE_BYTES, RING, SHARED = form.stage_bytes, form.source_bytes, form.ring_bytes, form.shared_bytes
    ITEM, SUM = form.itemsize, ITEMSIZE[form.compute]
    SOURCE_IMAGE, SOURCE_CHANNEL = form.source_strides[:2]
    STRIP_IMAGE, STRIP_CHANNEL, STRIP_ROW, STRIP_COLUMN = form.strip_strides
    FILTER_CHANNEL, FILTER_ROW, FILTER_COLUMN = form.filter_strides
    COLUMN_TAPS = COLUMNS.taps
    DW, STAGED_IN, STAGED_OUT, DIRECT_IN = not DX, not DX and not LAST, DX and not LAST, not DX and LAST
    WINDOW = COLUMNS.span
    FLOAT = float64 if form.compute == "float64" else float32

    source, strip = form.source, form.strip
    ROW_BYTES, COLUMN_BYTES = source.pitch * ITEM, (CHANNELS if LAST else 1) * ITEM
    MEMBER_BYTES = ITEM if LAST else source.plane * ITEM
    SOURCE_LEAD = source.lead * ITEM
    STRIP_MEMBER, STRIP_PITCH, STRIP_LEAD = (
        (strip.plane * ITEM, strip.pitch * ITEM, strip.lead * ITEM) if strip else (0, 0, 0)
    )
    ROW_STEP, COLUMN_STEP, ROW_ORIGIN, COLUMN_ORIGIN = ROWS.step, COLUMNS.step, ROWS.origin, COLUMNS.origin
    ROW_TILE, COLUMN_TILE = ROWS.threads * ROWS.step, COLUMNS.threads * COLUMNS.step
    ROW_BLOCK, COLUMN_BLOCK, ROW_HELD, COLUMN_HELD = ROWS.block, COLUMNS.block, ROWS.held, COLUMNS.held
    ROW_SHIFT, COLUMN_SHIFT = ROWS.shift, COLUMNS.shift

    filter_offsets = tuple(
        row * form.filter_strides[1] + column * form.filter_strides[2]
        for row in range(ROWS.taps)
        for column in range(COLUMNS.taps)
    )
    load_filter = i.gatherer("global", form.dtype, filter_offsets)
    store_filter = i.storer("global", form.dtype, 1, form.native_bfloat16)
    store_sums = i.scatterer("shared", form.compute, tuple(tap * THREADS * SUM for tap in range(TAPS)))
    load_sum = i.loader("shared", form.compute, 1)
    load_partial, store_partial = i.loader("global", form.compute, 1), i.storer("global", form.compute, 1)
    store_zeros = i.storer("shared", "float32", 4)
    wait_for_copies = i.wait_for_copies(STAGES - 1)
    copy_source = _copy(form, source, form.source_strides, ROWS.source, COLUMNS.source, inward=True)
    copy_strip = _copy(form, strip, form.strip_strides, ROWS.strip, COLUMNS.strip, inward=not DX) if strip else None
    move_strip = _strip(form)
    correlate = _in_turn([_window_row(form, row) for row in sorted(set(ROWS.meets.values()))])

    @inline
    def fetch(
        at: int, image: int, images: int, source: int, strip: int, thread: int, first_channel: int, here: int,
        tile_row: int, tile_column: int,
    ) -> None:  # fmt: skip
        """One image's part of the source, and of dY for dW, on its way to the stage `at`."""
        if image < images:
            copy_source(
                at, source + int64(image) * SOURCE_IMAGE + int64(first_channel) * SOURCE_CHANNEL, thread, here,
                tile_row * ROW_TILE + ROW_ORIGIN, tile_column * COLUMN_TILE + COLUMN_ORIGIN,
            )  # fmt: skip
            if STAGED_IN:
                copy_strip(
                    at + SOURCE_BYTES, strip + int64(image) * STRIP_IMAGE + int64(first_channel) * STRIP_CHANNEL,
                    thread, here, tile_row * ROW_BLOCK - ROW_SHIFT, tile_column * COLUMN_BLOCK - COLUMN_SHIFT,
                )  # fmt: skip
        i.commit_copies()

    def kernel(source: int, strip: int, filters: int, partial: int, counter: int, images: int, chunks: int) -> None:
        thread = int32(cuda.threadIdx.x)
        if LAST:
            member, spot = int32(thread % CHANNELS), int32(thread // CHANNELS)
        else:
            member, spot = int32(thread // STRIPS), int32(thread % STRIPS)
        down, across = int32(spot // ACROSS), int32(spot % ACROSS)
        images, chunks = int32(images), int32(chunks)
        shared = i.shared_memory()
        window_at = (
            shared + SOURCE_LEAD + member * MEMBER_BYTES
            + down * (ROW_STEP * ROW_BYTES) + across * (COLUMN_STEP * COLUMN_BYTES)
        )  # fmt: skip
        strip_at = (
            shared + (RING if DX else SOURCE_BYTES) + STRIP_LEAD
            + member * STRIP_MEMBER + down * (ROW_HELD * STRIP_PITCH) + across * (COLUMN_HELD * ITEM)
        )  # fmt: skip

        held, taps = cuda.local.array(HELD, FLOAT), cuda.local.array(TAPS, FLOAT)
        window, one, zeros = cuda.local.array(WINDOW, FLOAT), cuda.local.array(1, FLOAT), cuda.local.array(4, float32)

        items = int32(GROUPS * TILES * chunks)
        item = int32(cuda.blockIdx.x)
        while item < items:
            group, rest = int32(item % GROUPS), int32(item // GROUPS)
            tile, chunk = int32(rest % TILES), int32(rest // TILES)
            tile_row, tile_column = int32(tile // TILES_ACROSS), int32(tile % TILES_ACROSS)
            first_channel = int32(group * CHANNELS)
            here = int32(min(CHANNELS, TOTAL_CHANNELS - first_channel))
            channel = int32(first_channel + min(member, here - 1))

            for n in range(4):
                zeros[n] = float32(0)
            at = i.unseen(thread)
            while at < SHARED // 16:  # copies never write what lies outside the arrays
                store_zeros(shared + at * 16, zeros)
                at = i.unseen(at + THREADS)
            if DX:
                load_filter(taps, filters + int64(channel) * FILTER_CHANNEL)
            else:
                for tap in range(TAPS):
                    taps[tap] = FLOAT(0)
            cuda.syncthreads()

            image = chunk
            for ahead in range(STAGES - 1):
                fetch(shared + ahead * STAGE, image + ahead * chunks, images, source, strip, thread, first_channel, here,
                      tile_row, tile_column)  # fmt: skip
            stage, free = int32(0), int32((STAGES - 1) * STAGE)
            row, column = (
                tile_row * ROW_BLOCK - ROW_SHIFT + down * ROW_HELD,
                tile_column * COLUMN_BLOCK - COLUMN_SHIFT + across * COLUMN_HELD,
            )
            while image < images:
                fetch(shared + free, image + (STAGES - 1) * chunks, images, source, strip, thread, first_channel, here,
                      tile_row, tile_column)  # fmt: skip
                mine = (
                    strip + int64(image) * STRIP_IMAGE + int64(channel) * STRIP_CHANNEL
                    + int64(row) * STRIP_ROW + int64(column) * STRIP_COLUMN
                )  # fmt: skip
                if DIRECT_IN:
                    move_strip(held, mine, row, column, member < here)
                wait_for_copies()
                cuda.syncthreads()
                if DX:
                    for n in range(HELD):
                        held[n] = FLOAT(0)
                    correlate(held, window, taps, window_at + stage)
                    if LAST:
                        move_strip(held, mine, row, column, member < here)
                    else:
                        move_strip(held, strip_at, row, column, True)
                else:
                    if STAGED_IN:
                        move_strip(held, strip_at + stage, row, column, True)
                    correlate(taps, window, held, window_at + stage)
                cuda.syncthreads()
                if STAGED_OUT:
                    copy_strip(
                        shared + RING, strip + int64(image) * STRIP_IMAGE + int64(first_channel) * STRIP_CHANNEL,
                        thread, here, tile_row * ROW_BLOCK - ROW_SHIFT, tile_column * COLUMN_BLOCK - COLUMN_SHIFT,
                    )  # fmt: skip
                free = stage
                stage = int32(stage + STAGE) if stage < (STAGES - 1) * STAGE else int32(0)
                image = int32(image + chunks)

            if DW:  # over the block's threads of each channel, in their order
                store_sums(shared + thread * SUM, taps)
                cuda.syncthreads()
                number = i.unseen(thread)
                while number < here * TAPS:
                    whose, tap = int32(number // TAPS), int32(number % TAPS)
                    first = shared + (tap * THREADS + (whose if LAST else whose * STRIPS)) * SUM
                    total = FLOAT(0)
                    for other in range(STRIPS):
                        load_sum(one, first + other * ((CHANNELS if LAST else 1) * SUM))
                        total += one[0]
                    one[0] = total
                    number_of_all = int64(first_channel) * TAPS + number
                    store_partial(partial + (int64(rest) * (TOTAL_CHANNELS * TAPS) + number_of_all) * SUM, one)
                    number = i.unseen(number + THREADS)
            cuda.syncthreads()
            item = int32(item + cuda.gridDim.x)

        if DW:  # over the blocks, in their order
            i.memory_fence()
            cuda.syncthreads()
            if thread == 0:  # the first block turns the counter's top bit once every other has added one
                amount = int64(1)
                if cuda.blockIdx.x == 0:
                    amount = int64(2147483648) - (cuda.gridDim.x - 1)
                i.grid_wait(counter, i.grid_arrive(counter, amount))
            cuda.syncthreads()
            number = int32(cuda.blockIdx.x * THREADS + thread)
            while number < TOTAL_CHANNELS * TAPS:
                total = FLOAT(0)
                for part in range(TILES * chunks):
                    load_partial(one, partial + (int64(part) * (TOTAL_CHANNELS * TAPS) + number) * SUM)
                    total += one[0]
                one[0] = total
                channel, tap = int32(number // TAPS), int32(number % TAPS)
                at = (
                    int64(channel) * FILTER_CHANNEL
                    + (tap // COLUMN_TAPS) * FILTER_ROW + (tap % COLUMN_TAPS) * FILTER_COLUMN
                )  # fmt: skip
                store_filter(filters + at, one)
                number = int32(number + cuda.gridDim.x * THREADS)

    return kernel


def _in_turn(steps: Sequence[Callable[..., None]]) -> Callable[..., None]:
    """One device function of four arguments that calls all of `steps`."""
    if len(steps) == 1:
        return steps[0]
    first, rest = _in_turn(steps[: len(steps) // 2]), _in_turn(steps[len(steps) // 2 :])

    @inline
    def both(a: Any, b: Any, c: Any, d: Any) -> None:
        first(a, b, c, d)
        rest(a, b, c, d)

    return both


def _window_row(form: Form, row: int) -> Callable[..., None]:
    """Read one row of the window, and add up all that it takes part in: step(sums, window, factors, address)."""
    rows, columns, source = form.rows, form.columns, form.source
    across = form.channels if form.channels_last else 1
    used = sorted(set(columns.meets.values()))
    where = {column: index for index, column in enumerate(used)}
    read = i.gatherer(
        "shared", form.dtype, tuple((row * source.pitch + column * across) * form.itemsize for column in used)
    )
    table = []
    for (strip_row, tap_row), window_row in rows.meets.items():
        if window_row == row:
            for (strip_column, tap_column), column in columns.meets.items():
                strip = strip_row * columns.held + strip_column
                tap = tap_row * columns.taps + tap_column
                sums, factor = (strip, tap) if form.gradient == "dX" else (tap, strip)
                table.append((sums, where[column], factor))
    add = i.multiply_adds(tuple(sorted(table, key=lambda each: (each[2], each[1]))))

    @inline
    def step(sums: Any, window: Any, factors: Any, address: int) -> None:
        read(window, address)
        add(sums, window, factors)

    return step


def _strip(form: Form) -> Callable[..., None]:
    """move(values, address, row, column, mine): a thread's strip, written for dX and read for dW.

    In shared memory the strip is whole. In global memory what lies outside the array is left out, or read as zero.
    """
    rows, columns = form.rows, form.columns
    WRITE = form.gradient == "dX"
    if form.strip:
        step, space = form.strip.pitch * form.itemsize, "shared"
        width = form.itemsize
    else:
        _, _, step, width = form.strip_strides
        space = "global"
    offsets = tuple(row * step + column * width for row in range(rows.held) for column in range(columns.held))
    scatter = i.scatterer(space, form.dtype, offsets, form.native_bfloat16)
    gather = i.gatherer(space, form.dtype, offsets)
    if form.strip or (rows.exact and columns.exact):
        SHARED, HELD = form.strip is not None, form.held
        FLOAT = float64 if form.compute == "float64" else float32

        @inline
        def move(values: Any, address: int, _row: int, _column: int, mine: bool) -> None:
            if WRITE:
                if SHARED or mine:
                    scatter(address, values)
            elif SHARED or mine:
                gather(values, address)
            else:
                for n in range(HELD):
                    values[n] = FLOAT(0)

        return move

    elements = [_strip_element(form, n // columns.held, n % columns.held) for n in range(form.held)]
    every = _in_turn(elements)

    @inline
    def move_inside(values: Any, address: int, row: int, column: int, mine: bool) -> None:
        every(values, address, row if mine else int32(-(1 << 20)), column)

    return move_inside


def _strip_element(form: Form, row: int, column: int) -> Callable[..., None]:
    """One element of a strip in global memory, if it lies inside: step(values, address, first row, first column)."""
    WRITE, N, ROW, COLUMN = form.gradient == "dX", row * form.columns.held + column, row, column
    AT = row * form.strip_strides[2] + column * form.strip_strides[3]
    LAST_ROW, LAST_COLUMN = form.rows.strip, form.columns.strip
    load, store = i.loader("global", form.dtype, 1), i.storer("global", form.dtype, 1, form.native_bfloat16)
    FLOAT = float64 if form.compute == "float64" else float32

    @inline
    def step(values: Any, address: int, first_row: int, first_column: int) -> None:
        one = cuda.local.array(1, FLOAT)
        row, column = first_row + ROW, first_column + COLUMN
        inside = 0 <= row and row < LAST_ROW and 0 <= column and column < LAST_COLUMN
        if WRITE:
            if inside:
                one[0] = values[N]
                store(address + AT, one)
        else:
            one[0] = FLOAT(0)
            if inside:
                load(one, address + AT)
            values[N] = one[0]

    return step


def _copy(
    form: Form, tile: Shared, strides: tuple[int, int, int, int], rows: int, columns: int, inward: bool
) -> Callable[..., None]:
    """copy(shared, global, thread, channels, first row, first column): a block's part of an array, or back.

    `global` is the address of the image's first channel here; only what lies inside the array is copied.
    """
    VECTOR, ITEM, THREADS, CHANNELS, LAST = tile.vector, form.itemsize, form.threads, form.channels, form.channels_last
    BYTES, FLAT = tile.vector * form.itemsize, tile.flat
    ASYNC = inward and form.asynchronous and BYTES >= 4
    INWARD = inward
    _, CHANNEL, ROW, COLUMN = strides
    TILE_ROWS, PITCH, PLANE, LEAD = tile.rows, tile.pitch * ITEM, tile.plane * ITEM, tile.lead
    LAST_ROW, LAST_COLUMN = rows, columns
    ACROSS = tile.columns if LAST else _up(LEAD + tile.columns, VECTOR) // VECTOR  # columns, or vectors of columns
    PARTS = CHANNELS // VECTOR if LAST else 1  # vectors of channels
    RUN = rows * columns
    EVERY = CHANNELS * RUN // VECTOR if FLAT else tile.planes * TILE_ROWS * ACROSS * PARTS
    FLOAT = float64 if form.compute == "float64" else float32
    copy_ahead = i.async_copy(BYTES) if ASYNC else None
    load = i.loader("global" if inward else "shared", form.dtype, VECTOR)
    store = i.storer("shared" if inward else "global", form.dtype, VECTOR, form.native_bfloat16)

    @inline
    def one_vector(shared: int, there: int, values: Any) -> None:
        if ASYNC:
            copy_ahead(shared, there)
        elif INWARD:
            load(values, there)
            store(shared, values)
        else:
            load(values, shared)
            store(there, values)

    @inline
    def copy(shared: int, start: int, thread: int, here: int, first_row: int, first_column: int) -> None:
        values = cuda.local.array(VECTOR, FLOAT)
        number = int32(thread)
        while number < EVERY:
            if FLAT:
                if number * VECTOR < here * RUN:
                    one_vector(shared + number * BYTES, start + number * BYTES, values)
            elif LAST:
                part, position = int32(number % PARTS), int32(number // PARTS)
                column, row = int32(position % ACROSS), int32(position // ACROSS)
                y, x = first_row + row, first_column + column
                if 0 <= y and y < LAST_ROW and 0 <= x and x < LAST_COLUMN and part * VECTOR < here:
                    one_vector(
                        shared + row * PITCH + column * (CHANNELS * ITEM) + part * BYTES,
                        start + int64(y) * ROW + int64(x) * COLUMN + part * BYTES,
                        values,
                    )
            else:
                column, rest = int32(number % ACROSS), int32(number // ACROSS)
                row, plane = int32(rest % TILE_ROWS), int32(rest // TILE_ROWS)
                y, x = first_row + row, first_column - LEAD + column * VECTOR
                if 0 <= y and y < LAST_ROW and 0 <= x and x < LAST_COLUMN and plane < here:
                    one_vector(
                        shared + plane * PLANE + row * PITCH + column * BYTES,
                        start + int64(plane) * CHANNEL + int64(y) * ROW + x * ITEM,
                        values,
                    )
            number = int32(number + THREADS)

    return copy


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
