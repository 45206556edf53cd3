"""The kernel of a depthwise convolution's dX, dW or Y. `build(config)` binds the constants of DepthwiseConfig.

    dX[i] = sum over taps k and o with o * stride + k * dilation - begin = i of dY[o] * W[k]
    dW[k] = sum over images and o of dY[o] * X[o * stride + k * dilation - begin]
    Y[o] = bias + sum over taps k of W[k] * X[o * stride + k * dilation - begin]

with o, i and k of one, two or three axes.

How it goes: a block takes some channels and one tile of their planes through its share of the images. The source (dY
for dX, else X) reaches shared memory by asynchronous copies, a tile ahead, between zeros that stand for what lies
outside the array. A thread holds a strip of the other array and all taps of its channel in registers. It reads the
window's rows, each once, and every element read takes part in up to held columns x taps multiply-adds: enough of them
for the multiply-adds to be what the kernel waits for, or memory.

Channels that make no vectors, those of channels-last arrays of 101 channels for instance: whole vectors around them are
copied, so that a position's first channel lies in shared memory as far from a vector's begin as it does in the array.
How far follows from its address. An image has at most eight such distances, so a thread computes the place of its
window for each of them, once a tile, and an element is read from the place of its own distance.

A thread may have two channels of 16 bits (config.width): one access moves both. Then all of its arrays hold the two
side by side.

Planes of a third axis pass one after another: a plane of dX or Y meets those of the source in turn, one for each tap
along depth, whose filter a thread loads then; of dW, blocks of their own have each such tap. Neighbouring blocks read
the same planes at about the same time, so that most come from the L2 cache.

dW at its end: each block adds its threads' sums and writes one row of partial sums, see `grid_sum`. The order
of all sums is fixed: the same bits every time.
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

__all__ = ["build"]


def build(config: DepthwiseConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    ROWS, COLUMNS, STRIPS = config.rows, config.columns, config.strips
    CHANNELS, TOTAL_CHANNELS, LAST, THREADS = (
        config.channels,
        config.total_channels,
        config.channels_last,
        config.threads,
    )
    PARTS, TILES, TILES_ACROSS, ACROSS = config.parts, config.tiles, COLUMNS.tiles, COLUMNS.threads
    WIDTH, LANES = config.width, config.lanes
    UNITS, TURNS, DEPTH_TAPS, DEEP = config.units, config.turns, config.depth.taps, not config.depth.single
    SOURCE_PLANE, STRIP_PLANE, FILTER_PLANE = config.plane_strides
    WRITES, STAGES, TAPS, HELD = config.writes_strip, config.stages, config.taps, config.held
    STAGE, SOURCE_BYTES, RING, SHARED = config.stage_bytes, config.source_bytes, config.ring_bytes, config.shared_bytes
    ITEM, SUM = config.itemsize, ITEMSIZE[config.compute]
    SOURCE_IMAGE, SOURCE_CHANNEL, SOURCE_ROW, SOURCE_COLUMN = config.source_strides
    STRIP_IMAGE, STRIP_CHANNEL, STRIP_ROW, STRIP_COLUMN = config.strip_strides
    FILTER_CHANNEL, CHANNEL_TAPS = config.filter_strides[0], config.all_taps
    ALL_TAPS = config.total_channels * CHANNEL_TAPS
    DW, STAGED_OUT, ASYNC = not WRITES, WRITES and not LAST, config.asynchronous
    BIASED, BIAS_CHANNEL = config.bias_stride is not None, config.bias_stride or 0
    WINDOW = COLUMNS.span
    FLOAT = float64 if config.compute == "float64" else float32

    source, strip = config.source, config.strip
    strip_shifts = strip.shifts if strip else 0
    WINDOW_SHIFTED, STRIP_SHIFTED = source.shifts > 0, strip_shifts > 0
    PLACES, STRIP_PLACES = max(1, source.shifts), max(1, strip_shifts)
    ROW_BYTES, COLUMN_BYTES = source.pitch * ITEM, source.step * ITEM
    MEMBER_BYTES = ITEM if LAST else source.plane * ITEM
    SOURCE_LEAD = source.lead * ITEM
    STRIP_MEMBER, STRIP_PITCH, STRIP_STEP, STRIP_LEAD = (
        (ITEM if LAST else strip.plane * ITEM, strip.pitch * ITEM, strip.step * ITEM, strip.lead * ITEM)
        if strip
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
    copy_source = _copy(
        config, source, config.source_strides, ROWS.source, COLUMNS.source, COLUMNS.origin, ROWS.origin, inward=True
    )
    copy_strip = _copy(
        config, strip or source, config.strip_strides, ROWS.strip, COLUMNS.strip, -COLUMNS.shift, -ROWS.shift, inward=DW
    )
    read_strip, write_strip = _strip_reader(config), _strip_writer(config)
    find_window, find_strip = _places(source.shifts), _places(strip_shifts)
    correlate = _in_turn([_window_row(config, row) for row in sorted(set(ROWS.meets.values()))])
    plane_met = _plane_met(config)

    @device_function
    def place_of(unit: int) -> tuple[int, int, int]:
        """Its image, its plane, and its tile of that."""
        image, tile = int32(unit // UNITS), int32(unit % UNITS)
        if not DEEP:
            return image, int32(0), tile
        return image, int32(tile // TILES), int32(tile % TILES)

    @device_function
    def ahead_of(unit: int, tap: int, steps: int, chunks: int) -> tuple[int, int]:
        """The unit and the tap along depth so many steps later: none, or one of a ring of two stages."""
        if TURNS == 1:
            return int32(unit + steps * chunks), int32(tap)
        tap = int32(tap + steps)
        if tap >= TURNS:
            return int32(unit + chunks), int32(tap - TURNS)
        return int32(unit), tap

    @device_function
    def fetch(
        at: int, unit: int, tap: int, units: int, source: int, strip: int, thread: int, first_channel: int, here: int
    ) -> None:
        """One tile of one plane of the source, and of dY for dW, on its way to the stage `at`."""
        if unit < units:
            image, plane, tile = place_of(unit)
            tile_row, tile_column = int32(tile // TILES_ACROSS), int32(tile % TILES_ACROSS)
            met = plane_met(plane, tap)
            if met >= 0:
                from_image, from_channel = int64(image) * SOURCE_IMAGE, int64(first_channel) * SOURCE_CHANNEL
                copy_source(
                    at, source + from_image + int64(met) * SOURCE_PLANE + from_channel, thread, here,
                    int32(tile_row * ROW_TILE + ROW_ORIGIN), int32(tile_column * COLUMN_TILE + COLUMN_ORIGIN),
                )  # fmt: skip
                if DW:
                    from_image, from_channel = int64(image) * STRIP_IMAGE, int64(first_channel) * STRIP_CHANNEL
                    copy_strip(
                        at + SOURCE_BYTES, strip + from_image + int64(plane) * STRIP_PLANE + from_channel, thread, here,
                        int32(tile_row * ROW_BLOCK - ROW_SHIFT), int32(tile_column * COLUMN_BLOCK - COLUMN_SHIFT),
                    )  # fmt: skip
        if ASYNC:
            i.commit_copies()

    def kernel(source: int, strip: int, filters: int, partial: int, counter: int, images: int, chunks: int) -> None:
        thread = int32(cuda.threadIdx.x)
        if LAST:
            member, spot = int32(thread % LANES * WIDTH), int32(thread // LANES)
        else:
            member, spot = int32(thread // STRIPS), int32(thread % STRIPS)
        down, across = int32(spot // ACROSS), int32(spot % ACROSS)
        units, chunks = int32(images * UNITS), int32(chunks)
        shared = i.shared_memory()
        window_at = (
            shared + SOURCE_LEAD + member * MEMBER_BYTES
            + down * (ROW_STEP * ROW_BYTES) + across * (COLUMN_STEP * COLUMN_BYTES)
        )  # fmt: skip
        strip_at = (
            shared + (RING if WRITES else SOURCE_BYTES) + STRIP_LEAD
            + member * STRIP_MEMBER + down * (ROW_HELD * STRIP_PITCH) + across * (COLUMN_HELD * STRIP_STEP)
        )  # fmt: skip

        held, taps = cuda.local.array(HELD * WIDTH, FLOAT), cuda.local.array(TAPS * WIDTH, FLOAT)
        window, bias = cuda.local.array(WINDOW * WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        one, zeros = cuda.local.array(1, FLOAT), cuda.local.array(4, float32)
        window_places, strip_places = cuda.local.array(PLACES, int64), cuda.local.array(STRIP_PLACES, int64)

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
            while at < SHARED // 16:  # what lies outside the arrays
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
                fetch(shared + ahead * STAGE, then, then_tap, units, source, strip, thread, first_channel, here)
            stage, free = int32(0), int32((STAGES - 1) * STAGE)
            while unit < units:
                then, then_tap = ahead_of(unit, tap_of_depth, STAGES - 1, chunks)
                fetch(shared + free, then, then_tap, units, source, strip, thread, first_channel, here)
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
                strip_plane = strip + int64(image) * STRIP_IMAGE + int64(plane) * STRIP_PLANE
                window_from, strip_from = int64(0), int64(0)  # where the thread's first elements lie, if shifts matter
                if WINDOW_SHIFTED:
                    row = int64(tile // TILES_ACROSS * ROW_TILE + ROW_ORIGIN + down * ROW_STEP)
                    column = int64(tile % TILES_ACROSS * COLUMN_TILE + COLUMN_ORIGIN + across * COLUMN_STEP)
                    from_image, from_channel = int64(image) * SOURCE_IMAGE, int64(first_channel) * SOURCE_CHANNEL
                    window_from = (
                        source + from_image + int64(met) * SOURCE_PLANE + from_channel
                        + row * SOURCE_ROW + column * SOURCE_COLUMN
                    )  # fmt: skip
                if STRIP_SHIFTED:
                    row, column = int64(first_row + down * ROW_HELD), int64(first_column + across * COLUMN_HELD)
                    from_channel = int64(first_channel) * STRIP_CHANNEL
                    strip_from = strip_plane + from_channel + row * STRIP_ROW + column * STRIP_COLUMN
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
                            strip_plane + int64(channel) * STRIP_CHANNEL
                            + int64(row) * STRIP_ROW + int64(column) * STRIP_COLUMN
                        )  # fmt: skip
                        write_strip(held, mine, row, column, member < here)
                    elif ends:
                        write_strip(held, strip_at, 0, 0, True)
                elif met >= 0:
                    find_strip(strip_places, strip_at + stage, strip_from)
                    read_strip(held, strip_places)
                    find_window(window_places, window_at + stage, window_from)
                    correlate(taps, window, held, window_places)
                wait_for_block()
                if STAGED_OUT and ends:
                    copy_strip(
                        shared + RING, strip_plane + int64(first_channel) * STRIP_CHANNEL,
                        thread, here, first_row, first_column,
                    )  # fmt: skip
                free = stage
                stage = int32(stage + STAGE) if stage < (STAGES - 1) * STAGE else int32(0)
                unit, tap_of_depth = ahead_of(unit, tap_of_depth, 1, chunks)

            if DW:  # over the block's threads of each channel, in their order
                store_sums(shared + thread * (WIDTH * SUM), taps)
                wait_for_block()
                number = i.opaque(thread)
                while number < here * TAPS:
                    whose, tap = int32(number // TAPS), int32(number % TAPS)
                    first = shared + (tap * (THREADS * WIDTH) + (whose if LAST else whose * STRIPS)) * SUM
                    total = FLOAT(0)
                    for other in range(STRIPS):
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
    """met(plane, tap): which of the source's planes this one of the strip's array meets at a tap along depth, or -1."""
    SINGLE, SOURCE, STRIDE = config.depth.single, config.depth.source, config.depth.stride
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
        return found if inside and found < SOURCE else int32(-1)

    return met


def _in_turn(steps: Sequence[Callable[..., None]]) -> Callable[..., None]:
    """One device function of four arguments that calls all of `steps`."""
    if len(steps) == 1:
        return steps[0]
    if not steps:  # where all that a strip meets lies outside

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
    """Read one row of the window, and add up all that it takes part in: step(sums, window, factors, places)."""
    rows, columns, source = config.rows, config.columns, config.source
    used = sorted(set(columns.meets.values()))
    where = {column: index for index, column in enumerate(used)}
    width, (row_step, column_step) = config.width, config.source_strides[2:]
    read = i.gatherer_from(
        config.dtype,
        tuple(
            (
                source.shift(row * row_step + column * column_step),
                (row * source.pitch + column * source.step) * config.itemsize,
            )
            for column in used
        ),
        config.width,
    )
    table = []
    for (strip_row, tap_row), window_row in rows.meets.items():
        if window_row == row:
            for (strip_column, tap_column), column in columns.meets.items():
                strip = strip_row * columns.held + strip_column
                tap = tap_row * columns.taps + tap_column
                sums, factor = (strip, tap) if config.writes_strip else (tap, strip)
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
    """find(places, address, there): the address in shared memory of what lies `there` in the array, and those it would
    have with each other shift that its neighbours may have; `address` is the one without a shift.
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


def _strip_offsets(config: DepthwiseConfig, row_step: int, column_step: int) -> tuple[int, ...]:
    return tuple(
        row * row_step + column * column_step
        for row in range(config.rows.held)
        for column in range(config.columns.held)
    )


def _strip_reader(config: DepthwiseConfig) -> Callable[..., None]:
    """read(values, places): a thread's strip of dY, for dW."""
    tile = config.strip or config.source
    offsets = _strip_offsets(config, tile.pitch * config.itemsize, tile.step * config.itemsize)
    further = _strip_offsets(config, *config.strip_strides[2:])
    return i.gatherer_from(config.dtype, tuple(zip(map(tile.shift, further), offsets, strict=True)), config.width)


def _strip_writer(config: DepthwiseConfig) -> Callable[..., None]:
    """write(values, address, row, column, mine): a thread's strip of dX or Y."""
    rows, columns = config.rows, config.columns
    STAGED = config.strip is not None
    if config.strip:
        steps = config.strip.pitch * config.itemsize, config.strip.step * config.itemsize
    else:
        steps = config.strip_strides[2:]
    scatter = i.scatterer(
        "shared" if STAGED else "global",
        config.dtype,
        _strip_offsets(config, *steps),
        config.native_bfloat16,
        config.width,
    )
    CLIPPED = not (STAGED or (rows.exact and columns.exact))
    limits = rows.strip, columns.strip
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
    """copy(shared, global, thread, channels, first row, first column): a block's part of an array, or back.

    `global` is the address of the image's first channel here; only what lies inside the array is copied. A thread
    keeps its columns and walks down the rows, so that an access costs little more than itself. Where a block goes from
    tile to tile, what lies outside is overwritten by zeros; else the zeros of the start last. Where columns are cut,
    too, the first slot of every tile lies at a whole vector of the array. Of a tile with shifts the vectors are those
    around a position's channels.
    """
    VECTOR, ITEM, THREADS, LAST = tile.vector, config.itemsize, config.threads, config.channels_last
    BYTES, FLAT, INWARD = tile.vector * config.itemsize, tile.flat, inward
    ASYNC, ZEROS = inward and config.asynchronous and BYTES >= 4, inward and config.tiles > 1
    SHIFTED = tile.shifts > 0
    _, CHANNEL, ROW, COLUMN = strides
    STEP, PITCH, PLANE, PLANES = tile.step * ITEM, tile.pitch * ITEM, tile.plane * ITEM, tile.planes
    LAST_ROW, LAST_COLUMN = rows, columns
    # the slots of a line: vectors of channels at each column, or vectors of the columns that lie inside
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
    # without tiles it is known which rows lie inside
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
        """One of the vectors around the channels that lie `there`; what comes before and after them is nobody's."""
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
