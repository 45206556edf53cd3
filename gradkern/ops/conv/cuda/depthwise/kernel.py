"""The kernel of a depthwise convolution's dX, dW or Y. `build(config)` binds the constants of DepthwiseConfig.

    dX[i] = sum over taps k and o with o * stride + k * dilation - begin = i of dY[o] * W[k]
    dW[k] = sum over images and o of dY[o] * X[o * stride + k * dilation - begin]
    Y[o] = bias + sum over taps k of W[k] * X[o * stride + k * dilation - begin]

with o, i and k of one, two or three axes.

Algorithm: a block processes some channels and tiles of their planes for its share of the images. The halo array (dY for
dX, else X) is copied to shared memory asynchronously, one tile ahead, surrounded by zeros for elements outside of the
array. A thread holds a register tile of the tiled array and all taps of its channel in registers. It reads each row of
its window once. Every element takes part in up to held columns x taps multiply-adds, so that the kernel is bound by
multiply-adds, or by memory.

If the channels of channels-last arrays are not a multiple of a vector (101 channels, for instance), whole vectors
around them are copied. A position's first channel keeps its offset to a vector's begin, known from its address. An
image has at most eight such offsets. A thread computes the place of its window for each of them, once a tile, and reads
an element from the place of its own offset.

A thread may have two channels of 16 bits (config.width) in one access. All of its arrays then hold both, side by side.

Planes of a third axis are processed in turn: a plane of dX or Y needs planes of the halo array, one for each tap along
depth, and a thread loads the filter of this tap. For dW, separate blocks have each tap along depth. Neighbouring blocks
read the same planes at about the same time, so that most reads hit the L2 cache.

At the end of dW each block adds its threads' sums and writes one row of partial sums, see `grid_sum`. The order of all
additions is fixed: results are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.conv.cuda.depthwise.config import ITEMSIZE, DepthwiseConfig, SharedTile
from gradkern.ops.conv.cuda.depthwise.grid_sum import sums_over_blocks


def build(config: DepthwiseConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    ROWS, COLUMNS, CHANNEL_THREADS = config.rows, config.columns, config.channel_threads
    CHANNELS, TOTAL_CHANNELS, LAST, THREADS = (
        config.channels,
        config.total_channels,
        config.channels_last,
        config.threads,
    )
    PARTS, TILES, TILES_ACROSS, ACROSS = config.parts, config.tiles, COLUMNS.tiles, COLUMNS.threads
    WIDTH, LANES = config.width, config.lanes
    UNITS, TURNS, DEPTH_TAPS, DEEP = config.units, config.turns, config.depth.taps, not config.depth.single
    HALO_PLANE, TILED_PLANE, FILTER_PLANE = config.plane_strides
    WRITES, STAGES, TAPS, HELD = config.writes_tiled, config.stages, config.taps, config.held
    STAGE, HALO_BYTES, RING, SHARED = config.stage_bytes, config.halo_bytes, config.ring_bytes, config.shared_bytes
    ITEM, SUM = config.itemsize, ITEMSIZE[config.compute]
    HALO_IMAGE, HALO_CHANNEL, HALO_ROW, HALO_COLUMN = config.halo_strides
    TILED_IMAGE, TILED_CHANNEL, TILED_ROW, TILED_COLUMN = config.tiled_strides
    FILTER_CHANNEL, CHANNEL_TAPS = config.filter_strides[0], config.all_taps
    ALL_TAPS = config.total_channels * CHANNEL_TAPS
    DW, STAGED_OUT, ASYNC = not WRITES, WRITES and not LAST, config.asynchronous
    BIASED, BIAS_CHANNEL = config.bias_stride is not None, config.bias_stride or 0
    WINDOW = COLUMNS.span
    FLOAT = float64 if config.compute == "float64" else float32

    halo, tiled = config.halo, config.tiled
    tiled_shifts = tiled.shifts if tiled else 0
    WINDOW_SHIFTED, TILED_SHIFTED = halo.shifts > 0, tiled_shifts > 0
    PLACES, TILED_PLACES = max(1, halo.shifts), max(1, tiled_shifts)
    ROW_BYTES, COLUMN_BYTES = halo.pitch * ITEM, halo.step * ITEM
    MEMBER_BYTES = ITEM if LAST else halo.plane * ITEM
    HALO_LEAD = halo.lead * ITEM
    TILED_MEMBER, TILED_PITCH, TILED_STEP, TILED_LEAD = (
        (ITEM if LAST else tiled.plane * ITEM, tiled.pitch * ITEM, tiled.step * ITEM, tiled.lead * ITEM)
        if tiled
        else (0, 0, 0, 0)
    )
    ROW_STEP, COLUMN_STEP, ROW_ORIGIN, COLUMN_ORIGIN = ROWS.step, COLUMNS.step, ROWS.origin, COLUMNS.origin
    ROW_TILE, COLUMN_TILE = ROWS.threads * ROWS.step, COLUMNS.threads * COLUMNS.step
    ROW_BLOCK, COLUMN_BLOCK, ROW_HELD, COLUMN_HELD = ROWS.block, COLUMNS.block, ROWS.held, COLUMNS.held
    ROW_SHIFT, COLUMN_SHIFT = ROWS.shift, COLUMNS.shift

    filter_offsets = tuple(
        row * config.filter_strides[1] + column * config.filter_strides[2] + channel * FILTER_CHANNEL
        for row in range(ROWS.taps)
        for column in range(COLUMNS.taps)
        for channel in range(WIDTH)
    )
    load_filter = i.gatherer("global", config.dtype, filter_offsets)
    store_sums = i.scatterer(
        "shared", config.compute, tuple(tap * THREADS * WIDTH * SUM for tap in range(TAPS)), width=WIDTH
    )
    load_bias = i.gatherer("global", config.dtype, tuple(channel * BIAS_CHANNEL for channel in range(WIDTH)))
    load_sum, store_partial = i.loader("shared", config.compute, 1), i.storer("global", config.compute, 1)
    add_over_blocks = sums_over_blocks(
        THREADS,
        TOTAL_CHANNELS,
        (DEPTH_TAPS, ROWS.taps, COLUMNS.taps),
        (FILTER_CHANNEL, FILTER_PLANE, *config.filter_strides[1:]),
        config.dtype,
        config.native_bfloat16,
    )
    store_zeros = i.storer("shared", "float32", 4)
    wait_for_copies = i.wait_for_copies(STAGES - 1)
    copy_halo = _copy(
        config, halo, config.halo_strides, ROWS.halo, COLUMNS.halo, COLUMNS.origin, ROWS.origin, inward=True
    )
    copy_tiled = _copy(
        config, tiled or halo, config.tiled_strides, ROWS.tiled, COLUMNS.tiled, -COLUMNS.shift, -ROWS.shift, inward=DW
    )
    read_tile, write_tile = _tile_reader(config), _tile_writer(config)
    find_window, find_tiled = _places(halo.shifts), _places(tiled_shifts)
    correlate = _in_turn([_window_row(config, row) for row in sorted(set(ROWS.meets.values()))])
    plane_met = _plane_met(config)

    @device_function
    def place_of(unit: int) -> tuple[int, int, int]:
        """The image, the plane and the tile of a unit."""
        image, tile = int32(unit // UNITS), int32(unit % UNITS)
        if not DEEP:
            return image, int32(0), tile
        return image, int32(tile // TILES), int32(tile % TILES)

    @device_function
    def ahead_of(unit: int, tap: int, steps: int, chunks: int) -> tuple[int, int]:
        """The unit and the tap along depth `ahead` steps later: 0, or 1 with a ring of two stages."""
        if TURNS == 1:
            return int32(unit + steps * chunks), int32(tap)
        tap = int32(tap + steps)
        if tap >= TURNS:
            return int32(unit + chunks), int32(tap - TURNS)
        return int32(unit), tap

    @device_function
    def fetch(
        at: int, unit: int, tap: int, units: int, halo: int, tiled: int, thread: int, first_channel: int, here: int
    ) -> None:
        """Starts the copies of one tile of one plane of the halo array, and of dY for dW, to the stage `at`."""
        if unit < units:
            image, plane, tile = place_of(unit)
            tile_row, tile_column = int32(tile // TILES_ACROSS), int32(tile % TILES_ACROSS)
            met = plane_met(plane, tap)
            if met >= 0:
                from_image, from_channel = int64(image) * HALO_IMAGE, int64(first_channel) * HALO_CHANNEL
                copy_halo(
                    at, halo + from_image + int64(met) * HALO_PLANE + from_channel, thread, here,
                    int32(tile_row * ROW_TILE + ROW_ORIGIN), int32(tile_column * COLUMN_TILE + COLUMN_ORIGIN),
                )  # fmt: skip
                if DW:
                    from_image, from_channel = int64(image) * TILED_IMAGE, int64(first_channel) * TILED_CHANNEL
                    copy_tiled(
                        at + HALO_BYTES, tiled + from_image + int64(plane) * TILED_PLANE + from_channel, thread, here,
                        int32(tile_row * ROW_BLOCK - ROW_SHIFT), int32(tile_column * COLUMN_BLOCK - COLUMN_SHIFT),
                    )  # fmt: skip
        if ASYNC:
            i.commit_copies()

    def kernel(halo: int, tiled: int, filters: int, partial: int, counter: int, images: int, chunks: int) -> None:
        thread = int32(cuda.threadIdx.x)
        if LAST:
            member, spot = int32(thread % LANES * WIDTH), int32(thread // LANES)
        else:
            member, spot = int32(thread // CHANNEL_THREADS), int32(thread % CHANNEL_THREADS)
        down, across = int32(spot // ACROSS), int32(spot % ACROSS)
        units, chunks = int32(images * UNITS), int32(chunks)
        shared = i.shared_memory()
        window_at = (
            shared + HALO_LEAD + member * MEMBER_BYTES
            + down * (ROW_STEP * ROW_BYTES) + across * (COLUMN_STEP * COLUMN_BYTES)
        )  # fmt: skip
        tiled_at = (
            shared + (RING if WRITES else HALO_BYTES) + TILED_LEAD
            + member * TILED_MEMBER + down * (ROW_HELD * TILED_PITCH) + across * (COLUMN_HELD * TILED_STEP)
        )  # fmt: skip

        held, taps = cuda.local.array(HELD * WIDTH, FLOAT), cuda.local.array(TAPS * WIDTH, FLOAT)
        window, bias = cuda.local.array(WINDOW * WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        one, zeros = cuda.local.array(1, FLOAT), cuda.local.array(4, float32)
        window_places, tiled_places = cuda.local.array(PLACES, int64), cuda.local.array(TILED_PLACES, int64)

        item = int32(cuda.blockIdx.x)
        while item < PARTS * chunks:
            group, chunk, tap_of_depth = int32(item % PARTS), int32(item // PARTS), int32(0)
            if DW and DEEP:
                group, tap_of_depth = int32(group // DEPTH_TAPS), int32(group % DEPTH_TAPS)
            first_channel = int32(group * CHANNELS)
            here = int32(min(CHANNELS, TOTAL_CHANNELS - first_channel))
            channel = int32(first_channel + min(member, here - WIDTH))

            for n in range(4):
                zeros[n] = float32(0)
            at = i.opaque(thread)
            while at < SHARED // 16:  # zeros for elements outside of the arrays
                store_zeros(shared + at * 16, zeros)
                at = i.opaque(at + THREADS)
            if WRITES:
                if not DEEP:
                    load_filter(taps, filters + int64(channel) * FILTER_CHANNEL)
                for n in range(WIDTH):
                    bias[n] = FLOAT(0)
                if BIASED:
                    load_bias(bias, partial + int64(channel) * BIAS_CHANNEL)
            else:
                for tap in range(TAPS * WIDTH):
                    taps[tap] = FLOAT(0)
            wait_for_block()

            unit = chunk
            for ahead in range(STAGES - 1):
                then, then_tap = ahead_of(unit, tap_of_depth, ahead, chunks)
                fetch(shared + ahead * STAGE, then, then_tap, units, halo, tiled, thread, first_channel, here)
            stage, free = int32(0), int32((STAGES - 1) * STAGE)
            while unit < units:
                then, then_tap = ahead_of(unit, tap_of_depth, STAGES - 1, chunks)
                fetch(shared + free, then, then_tap, units, halo, tiled, thread, first_channel, here)
                image, plane, tile = place_of(unit)
                met = plane_met(plane, tap_of_depth)
                if WRITES and DEEP and met >= 0:
                    load_filter(taps, filters + int64(channel) * FILTER_CHANNEL + int64(tap_of_depth) * FILTER_PLANE)
                first_row = int32(tile // TILES_ACROSS * ROW_BLOCK - ROW_SHIFT)
                first_column = int32(tile % TILES_ACROSS * COLUMN_BLOCK - COLUMN_SHIFT)
                if ASYNC:
                    wait_for_copies()
                wait_for_block()
                begins, ends = TURNS == 1 or tap_of_depth == 0, TURNS == 1 or tap_of_depth == TURNS - 1
                tiled_plane = tiled + int64(image) * TILED_IMAGE + int64(plane) * TILED_PLANE
                window_from, tiled_from = int64(0), int64(0)  # the thread's first elements, if there are shifts
                if WINDOW_SHIFTED:
                    row = int64(tile // TILES_ACROSS * ROW_TILE + ROW_ORIGIN + down * ROW_STEP)
                    column = int64(tile % TILES_ACROSS * COLUMN_TILE + COLUMN_ORIGIN + across * COLUMN_STEP)
                    from_image, from_channel = int64(image) * HALO_IMAGE, int64(first_channel) * HALO_CHANNEL
                    window_from = (
                        halo + from_image + int64(met) * HALO_PLANE + from_channel
                        + row * HALO_ROW + column * HALO_COLUMN
                    )  # fmt: skip
                if TILED_SHIFTED:
                    row, column = int64(first_row + down * ROW_HELD), int64(first_column + across * COLUMN_HELD)
                    from_channel = int64(first_channel) * TILED_CHANNEL
                    tiled_from = tiled_plane + from_channel + row * TILED_ROW + column * TILED_COLUMN
                if WRITES:
                    if begins:
                        for n in range(HELD * WIDTH):
                            held[n] = bias[n % WIDTH]
                    if met >= 0:
                        find_window(window_places, window_at + stage, window_from)
                        correlate(held, window, taps, window_places)
                    if ends and LAST:
                        row, column = int32(first_row + down * ROW_HELD), int32(first_column + across * COLUMN_HELD)
                        mine = (
                            tiled_plane + int64(channel) * TILED_CHANNEL
                            + int64(row) * TILED_ROW + int64(column) * TILED_COLUMN
                        )  # fmt: skip
                        write_tile(held, mine, row, column, member < here)
                    elif ends:
                        write_tile(held, tiled_at, 0, 0, True)
                elif met >= 0:
                    find_tiled(tiled_places, tiled_at + stage, tiled_from)
                    read_tile(held, tiled_places)
                    find_window(window_places, window_at + stage, window_from)
                    correlate(taps, window, held, window_places)
                wait_for_block()
                if STAGED_OUT and ends:
                    copy_tiled(
                        shared + RING, tiled_plane + int64(first_channel) * TILED_CHANNEL,
                        thread, here, first_row, first_column,
                    )  # fmt: skip
                free = stage
                stage = int32(stage + STAGE) if stage < (STAGES - 1) * STAGE else int32(0)
                unit, tap_of_depth = ahead_of(unit, tap_of_depth, 1, chunks)

            if DW:  # over the block's threads of each channel, in a fixed order
                store_sums(shared + thread * (WIDTH * SUM), taps)
                wait_for_block()
                number = i.opaque(thread)
                while number < here * TAPS:
                    whose, tap = int32(number // TAPS), int32(number % TAPS)
                    first = shared + (tap * (THREADS * WIDTH) + (whose if LAST else whose * CHANNEL_THREADS)) * SUM
                    total = FLOAT(0)
                    for other in range(CHANNEL_THREADS):
                        load_sum(one, first + other * ((CHANNELS if LAST else 1) * SUM))
                        total += one[0]
                    one[0] = total
                    place = int32((first_channel + whose) * CHANNEL_TAPS + tap_of_depth * TAPS + tap)
                    store_partial(partial + (int64(chunk) * ALL_TAPS + place) * SUM, one)
                    number = i.opaque(number + THREADS)
            wait_for_block()
            item = int32(item + cuda.gridDim.x)

        if DW:
            add_over_blocks(filters, partial, counter, chunks, thread, shared)

    return kernel


def _plane_met(config: DepthwiseConfig) -> Callable[..., int]:
    """met(plane, tap): the plane of the halo array for a plane of the tiled array and a tap along depth, or -1."""
    SINGLE, HALO, STRIDE = config.depth.single, config.depth.halo, config.depth.stride
    DILATION, BEGIN, DX = config.depth.dilation, config.depth.begin, config.gradient == "dX"

    @device_function
    def met(plane: int, tap: int) -> int:
        if SINGLE:
            return int32(0)
        if DX:
            at = int32(plane + BEGIN - tap * DILATION)
            found = int32(at // STRIDE)
            inside = at >= 0 and found * STRIDE == at
        else:
            found = int32(plane * STRIDE + tap * DILATION - BEGIN)
            inside = found >= 0
        return found if inside and found < HALO else int32(-1)

    return met


def _in_turn(steps: Sequence[Callable[..., None]]) -> Callable[..., None]:
    """One device function of four arguments that calls all of `steps`."""
    if len(steps) == 1:
        return steps[0]
    if not steps:  # all elements of the window are outside of the array

        @device_function
        def nothing(_a: Any, _b: Any, _c: Any, _d: Any) -> None:
            pass

        return nothing
    first, rest = _in_turn(steps[: len(steps) // 2]), _in_turn(steps[len(steps) // 2 :])

    @device_function
    def both(a: Any, b: Any, c: Any, d: Any) -> None:
        first(a, b, c, d)
        rest(a, b, c, d)

    return both


def _window_row(config: DepthwiseConfig, row: int) -> Callable[..., None]:
    """step(sums, window, factors, places): reads one row of the window and adds all of its products."""
    rows, columns, halo = config.rows, config.columns, config.halo
    used = sorted(set(columns.meets.values()))
    where = {column: index for index, column in enumerate(used)}
    width, (row_step, column_step) = config.width, config.halo_strides[2:]
    read = i.gatherer_from(
        config.dtype,
        tuple(
            (
                halo.shift(row * row_step + column * column_step),
                (row * halo.pitch + column * halo.step) * config.itemsize,
            )
            for column in used
        ),
        config.width,
    )
    table = []
    for (tiled_row, tap_row), window_row in rows.meets.items():
        if window_row == row:
            for (tiled_column, tap_column), column in columns.meets.items():
                tiled = tiled_row * columns.held + tiled_column
                tap = tap_row * columns.taps + tap_column
                sums, factor = (tiled, tap) if config.writes_tiled else (tap, tiled)
                for channel in range(width):
                    at = where[column] * width + channel
                    table.append((sums * width + channel, at, factor * width + channel))
    add = i.multiply_adds(tuple(sorted(table, key=lambda each: (each[2], each[1]))))

    @device_function
    def step(sums: Any, window: Any, factors: Any, places: Any) -> None:
        read(window, places)
        add(sums, window, factors)

    return step


def _places(shifts: int) -> Callable[..., None]:
    """find(places, address, there): the address in shared memory of the element at `there` in the array, and those for
    every other shift that its neighbours may have; `address` is the one without a shift.
    """
    SHIFTS, APART = shifts, 16 // max(1, shifts)

    @device_function
    def find(places: Any, address: int, there: int) -> None:
        if SHIFTS == 0:
            places[0] = int64(address)
        else:
            first = int32(there & 15)
            for n in range(SHIFTS):
                places[n] = int64(address + ((first + n * APART) & 15))

    return find


def _tile_offsets(config: DepthwiseConfig, row_step: int, column_step: int) -> tuple[int, ...]:
    return tuple(
        row * row_step + column * column_step
        for row in range(config.rows.held)
        for column in range(config.columns.held)
    )


def _tile_reader(config: DepthwiseConfig) -> Callable[..., None]:
    """read(values, places): reads a thread's register tile of dY, for dW."""
    tile = config.tiled or config.halo
    offsets = _tile_offsets(config, tile.pitch * config.itemsize, tile.step * config.itemsize)
    further = _tile_offsets(config, *config.tiled_strides[2:])
    return i.gatherer_from(config.dtype, tuple(zip(map(tile.shift, further), offsets, strict=True)), config.width)


def _tile_writer(config: DepthwiseConfig) -> Callable[..., None]:
    """write(values, address, row, column, mine): writes a thread's register tile of dX or Y."""
    rows, columns = config.rows, config.columns
    STAGED = config.tiled is not None
    if config.tiled:
        steps = config.tiled.pitch * config.itemsize, config.tiled.step * config.itemsize
    else:
        steps = config.tiled_strides[2:]
    scatter = i.scatterer(
        "shared" if STAGED else "global",
        config.dtype,
        _tile_offsets(config, *steps),
        config.native_bfloat16,
        config.width,
    )
    CLIPPED = not (STAGED or (rows.exact and columns.exact))
    limits = rows.tiled, columns.tiled
    scatter_inside = i.clipped_scatterer(
        config.dtype, (rows.held, columns.held), steps, limits, config.native_bfloat16, config.width
    )

    @device_function
    def write(values: Any, address: int, row: int, column: int, mine: bool) -> None:
        if STAGED:
            scatter(address, values)
        elif mine:
            if CLIPPED:
                scatter_inside(address, values, row, column)
            else:
                scatter(address, values)

    return write


def _copy(
    config: DepthwiseConfig, tile: SharedTile, strides: tuple[int, int, int, int], rows: int, columns: int,
    first_column: int, first_row: int, inward: bool,
) -> Callable[..., None]:  # fmt: skip
    """copy(shared, global, thread, channels, first row, first column): copies a block's part of an array, or back.

    `global` is the address of the image's first channel of the block. Only elements inside the array are copied. A
    thread keeps its columns and iterates over rows, with few instructions besides the accesses. If a block has several
    tiles, elements outside are overwritten by zeros; else the initial zeros remain. If columns are divided, too, the
    first slot of every tile is aligned to a vector of the array. With shifts, the vectors are those around a position's
    channels.
    """
    VECTOR, ITEM, THREADS, LAST = tile.vector, config.itemsize, config.threads, config.channels_last
    BYTES, FLAT, INWARD = tile.vector * config.itemsize, tile.flat, inward
    ASYNC, ZEROS = inward and config.asynchronous and BYTES >= 4, inward and config.tiles > 1
    SHIFTED = tile.shifts > 0
    _, CHANNEL, ROW, COLUMN = strides
    STEP, PITCH, PLANE, PLANES = tile.step * ITEM, tile.pitch * ITEM, tile.plane * ITEM, tile.planes
    LAST_ROW, LAST_COLUMN = rows, columns
    # the slots of a line: vectors of channels at each column, or vectors of the columns inside the array
    PARTS = tile.step // VECTOR if LAST else 1
    BEFORE = first_column - tile.lead  # the column of the tile's first slot
    INSIDE = max(0, BEFORE), min(columns, first_column + tile.columns)
    FIRST_SLOT, FIRST_BYTE = (INSIDE[0] - BEFORE) // VECTOR, INSIDE[0] * ITEM
    CUT, LEAD = config.columns.tiles > 1, tile.lead
    if LAST:
        LINE = tile.columns * PARTS
    elif CUT:
        LINE = -(-(LEAD + tile.columns) // VECTOR)
    else:
        LINE = max(1, -(-(INSIDE[1] - INSIDE[0]) // VECTOR))
    AT_ONCE = max(1, THREADS // LINE)  # lines
    WIDE = -(-LINE // THREADS)
    BUSY = AT_ONCE * LINE if WIDE == 1 else THREADS
    if not (LAST or CUT) and INSIDE[0] >= INSIDE[1]:
        BUSY = 0
    # without tiles the rows inside the array are known
    START, END = (0, tile.rows) if config.tiles > 1 else (max(0, -first_row), min(tile.rows, rows - first_row))
    STEPS = -(-(END - START) // AT_ONCE)
    RUN = rows * columns
    EVERY = PLANES * RUN // VECTOR
    FLOAT = float64 if config.compute == "float64" else float32
    copy_ahead = i.async_copy(BYTES) if ASYNC else None
    copy_around = i.copy_or_zeros(16) if SHIFTED else None
    load = i.loader("global" if inward else "shared", config.dtype, VECTOR)
    store = i.storer("shared" if inward else "global", config.dtype, VECTOR, config.native_bfloat16)

    @device_function
    def around(shared: int, there: int, part: int, here: int, inside: bool) -> None:
        """One of the vectors around the channels at `there`; elements before and after these are ignored."""
        shift = int32(there & 15)
        wanted = int32(shift + here * ITEM - part * 16) if inside else int32(0)
        copy_around(shared, there - shift + part * 16, max(int32(0), min(int32(16), wanted)))

    @device_function
    def one_vector(shared: int, there: int, values: Any) -> None:
        if ASYNC:
            copy_ahead(shared, there)
        elif INWARD:
            load(values, there)
            store(shared, values)
        else:
            load(values, shared)
            store(there, values)

    @device_function
    def copy(shared: int, start: int, thread: int, here: int, first_row: int, first_column: int) -> None:
        values, zeros = cuda.local.array(VECTOR, FLOAT), cuda.local.array(VECTOR, FLOAT)
        for n in range(VECTOR):
            zeros[n] = FLOAT(0)
        if FLAT:
            number = int32(thread)
            while number < EVERY:
                if number * VECTOR < here * RUN:
                    one_vector(shared + number * BYTES, start + number * BYTES, values)
                number = int32(number + THREADS)
        elif thread < BUSY:
            for wide in range(WIDE):
                slot = int32(thread % LINE) if WIDE == 1 else int32(thread + wide * THREADS)
                row = int32(START + thread // LINE) if WIDE == 1 else int32(START)
                if LAST:
                    part, column = int32(slot % PARTS), int32(slot // PARTS)
                    x = first_column + column
                    across = x >= 0 and x < LAST_COLUMN and (SHIFTED or part * VECTOR < here)
                    to = shared + column * STEP + part * BYTES
                    there = start + int64(x) * COLUMN + (0 if SHIFTED else part * BYTES)
                elif CUT:
                    x = first_column - LEAD + slot * VECTOR
                    across = x >= 0 and x < LAST_COLUMN
                    to = shared + slot * BYTES
                    there = start + int64(x) * ITEM
                else:
                    across = True
                    to = shared + (FIRST_SLOT + slot) * BYTES
                    there = start + FIRST_BYTE + slot * BYTES
                if WIDE == 1 or slot < LINE:
                    to += row * PITCH
                    there += int64(first_row + row) * ROW
                    for plane in range(PLANES):
                        if plane < here or LAST:
                            for step in range(STEPS):
                                y = first_row + row + step * AT_ONCE
                                if row + step * AT_ONCE < END:
                                    if SHIFTED:
                                        around(
                                            to + step * (AT_ONCE * PITCH), there + step * (AT_ONCE * ROW),
                                            part, here, across and y >= 0 and y < LAST_ROW,
                                        )  # fmt: skip
                                    elif across and y >= 0 and y < LAST_ROW:
                                        one_vector(
                                            to + plane * PLANE + step * (AT_ONCE * PITCH),
                                            there + plane * CHANNEL + step * (AT_ONCE * ROW),
                                            values,
                                        )
                                    elif ZEROS:
                                        store(to + plane * PLANE + step * (AT_ONCE * PITCH), zeros)

    return copy
