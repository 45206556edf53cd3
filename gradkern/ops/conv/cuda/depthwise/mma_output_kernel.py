"""The kernel of a depthwise convolution's dX or Y on tensor cores. `build(config)` binds its constants; see
MmaOutputConfig.

    O[h, w] = bias + sum over rows k and columns l of taps of F[k, l] * S[h + k - begin, w + l - begin]

For Y, S is X and F the filter; for dX, S is dY and F the reversed filter. One channel has no matrix product, but blocks
of 8 columns can form one. With all blocks j of a row, also of images side by side, as the rows of a matrix,

    O[h][j, n] = sum over k and c of S[h + k - begin][j, c] * T_k[c, n]     T_k[c, n] = F[k, c - n], zero elsewhere

where S[..][j, c] is column 8 j + c - begin, c from 0 to 15, and n from 0 to 7: a product of 16 x 16 by 16 x 8 for each
row of taps. T_k is constant, and a thread holds its part of it in two registers.

Algorithm: a block processes some channels of a run of output rows of all images, a few at a time. Threads copy vectors
of 8 channels to shared memory, each to its own place, some steps ahead. They then transpose them, so that two columns
of one channel make a word. A warp iterates over its channels with as many rows of sums as there are rows of taps: a row
of the source is read once and takes part in all of them. A complete row of sums goes to shared memory, from where
threads read vectors of 8 channels again. One barrier a step is enough, because all arrays have two buffers: a step's
products, the transposition of the next and the writes of the last are between the same barriers. Half of the warps
multiply first, so that memory and tensor cores are busy at the same time.

Elements outside of the arrays are zero in shared memory: an infinity in S may cause NaN in columns next to those that
need it. Sums are in float32. Tensor cores truncate instead of rounding, but a sum has only as many products as taps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.conv.cuda.depthwise.mma_config import (
    BLOCK,
    OCTET,
    PLACE,
    STAGES,
    UNIT,
    WARP_CHANNELS,
    MmaOutputConfig,
)
from gradkern.ops.conv.cuda.depthwise.turn_over import turner


def _descent(config: MmaOutputConfig) -> Callable[..., Any]:
    """down(y, image, rows): the row and the image so many rows, at most a period, below those."""
    PERIOD, SIDES = config.period, config.sides

    @device_function
    def down(y: int, image: int, rows: int) -> Any:
        y = int32(y + rows)
        if y >= PERIOD:
            y, image = int32(y - PERIOD), int32(image + SIDES)
        return y, image

    return down


def _mover(config: MmaOutputConfig) -> tuple[Callable[..., Any], ...]:
    """How the source reaches shared memory: three device functions.

    place(number)   of that thread: octet of channels, image at a side, row of a step, first column; where its unit goes
    fetch(raw, start, y, image, column, images, mine)   a unit on its way to `raw`, zeros for elements outside or
                    not mine; start: the address of its channels in the first image
    turn(to, raw)   four columns of eight channels become two words of each channel
    """
    OCTETS, STEP_ROWS, UNITS, THREADS = config.octets, config.rows, config.units, config.threads
    ROWS, COLUMNS = config.source
    IMAGE, ROW, COLUMN = config.source_strides
    BEGIN, RAW, CHANNEL = config.begins[1], 16 * THREADS, 4 * config.channel
    OCTET_BYTES, ROW_BYTES, SIDE_BYTES = OCTET * CHANNEL + 4 * config.octet_pad, 4 * config.row, 4 * config.side
    by_octets, by_units, by_rows = i.quotient_by(OCTETS), i.quotient_by(UNITS), i.quotient_by(STEP_ROWS)
    copy = i.copy_or_zeros(16)

    @device_function
    def place(number: int) -> Any:
        rest = by_octets(number)
        octet = int32(number - rest * OCTETS)
        line = by_units(rest)
        unit = int32(rest - line * UNITS)
        side = by_rows(line)
        row = int32(line - side * STEP_ROWS)
        to = int32(octet * OCTET_BYTES + row * ROW_BYTES + side * SIDE_BYTES + unit * (2 * UNIT))
        return octet, side, row, int32(unit * UNIT - BEGIN), to

    @device_function
    def fetch(raw: int, start: int, y: int, image: int, column: int, images: int, mine: bool) -> None:
        raw = i.opaque(raw)
        inside = mine and y < ROWS and image >= 0 and image < images
        there = start + int64(image) * IMAGE + int64(y) * ROW + int64(column) * COLUMN
        for n in range(UNIT):
            x = int32(column + n)
            size = int32(16) if inside and x >= 0 and x < COLUMNS else int32(0)
            copy(raw + n * RAW, there + n * COLUMN, size)
        i.commit_copies()

    return place, fetch, turner(RAW, CHANNEL, partner=1)


def _writer(config: MmaOutputConfig) -> tuple[Callable[..., Any], ...]:
    """How a step's rows go from shared memory to the output: two device functions.

    place(number)   of that thread: octet of channels, the first row of a step that it writes, image at a side, first of
                    two columns; their place in shared memory
    write(from_, there, row, y, image, images, second)   its columns of this row of the step and those some rows below,
                    the second column if there is one; there: the address of its columns in the first image
    """
    ROWS = config.grid[0]
    IMAGE, ROW, COLUMN = config.grid_strides
    OCTETS, SLOTS, SIDE_SLOTS = config.octets, config.slots, config.side_slots
    STEP_ROWS, PAIRS = config.rows, BLOCK // 2
    OUT_PLACE, OUT_ROW, OUT_OCTET = 4 * PLACE, 4 * config.output_row, 4 * config.output_octet
    AT_ONCE = config.threads // (SLOTS * PAIRS * OCTETS)  # rows
    down, by_octets, by_slots = _descent(config), i.quotient_by(OCTETS), i.quotient_by(SIDE_SLOTS)
    load_two, store_vector = i.word_loader("shared", 8), i.word_storer("global", 16)

    @device_function
    def place(number: int) -> Any:
        rest = by_octets(number)
        octet = int32(number - rest * OCTETS)
        pair, slot, row = int32(rest & (PAIRS - 1)), int32(rest >> 2 & (SLOTS - 1)), int32(rest >> 6)
        side = by_slots(slot)
        column = int32((slot - side * SIDE_SLOTS) * BLOCK + 2 * pair)
        return octet, row, side, column, int32(octet * OUT_OCTET + rest * OUT_PLACE)

    @device_function
    def write(from_: int, there: int, row: int, y: int, image: int, images: int, second: bool) -> None:
        words, vector = cuda.local.array(8, int32), cuda.local.array(4, int32)
        from_ = i.opaque(from_)
        for turn in range(0, STEP_ROWS, AT_ONCE):
            if turn > 0:
                y, image = down(y, image, AT_ONCE)
            if row + turn < STEP_ROWS and y < ROWS and image < images:
                for n in range(4):
                    load_two(words, 2 * n, from_ + (turn * OUT_ROW + 8 * n))
                to = there + int64(image) * IMAGE + int64(y) * ROW
                for n in range(4):
                    vector[n] = i.low_halves(words[2 * n], words[2 * n + 1])
                store_vector(to, vector)
                if second:
                    for n in range(4):
                        vector[n] = i.high_halves(words[2 * n], words[2 * n + 1])
                    store_vector(to + COLUMN, vector)

    return place, write


def build(config: MmaOutputConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    GROUPS, CHANNELS, TOTAL_CHANNELS, THREADS = config.groups, config.channels, config.total_channels, config.threads
    SIDES, SLOTS, SIDE_SLOTS, BLOCKS = config.sides, config.slots, config.side_slots, config.blocks
    PERIOD, (OUT_ROWS, COLUMNS), ROWS = config.period, config.grid, config.rows
    (_, _, COLUMN), ODD = config.grid_strides, config.grid[1] % 2 == 1
    STAGE, SOURCE_AT, SOURCE, OUT = UNIT * 16 * THREADS, config.raw_bytes, config.source_bytes, config.output_bytes
    OUT_AT = config.raw_bytes + 2 * SOURCE
    ROW_TAPS, COLUMN_TAPS = config.taps
    CHANNEL, ROW_BYTES, SIDE_BYTES = 4 * config.channel, 4 * config.row, 4 * config.side
    OCTET_BYTES = OCTET * CHANNEL + 4 * config.octet_pad
    AHEAD, WARM_STEPS, MOVED = config.ahead, config.warm_steps, config.moved
    FAR = -(-(WARM_STEPS * ROWS + max(0, -AHEAD)) // PERIOD)
    FILTER_CHANNEL, FILTER_ROW, FILTER_COLUMN = config.filter_strides
    TURNED = config.gradient == "dX"
    BIASED, BIAS = config.bias_stride is not None, config.bias_stride or 0
    LIVE = ROW_TAPS - 1 + ROWS  # rows of sums of a step, not all at a time
    OUT_PLACE, OUT_ROW, OUT_OCTET = 4 * PLACE, 4 * config.output_row, 4 * config.output_octet

    wait_for_copies, wait_for_all_copies = i.wait_for_copies(STAGES - 1), i.wait_for_copies(0)
    load_half, load_bias = i.word_loader("global", 2), i.loader("global", config.dtype, 1)
    multiply, store_four = i.matrix_product(config.dtype), i.storer("shared", config.dtype, 4)
    down, (place, fetch, turn) = _descent(config), _mover(config)
    out_place, write = _writer(config)
    by_groups, by_rows, by_period = i.quotient_by(GROUPS), i.quotient_by(ROWS), i.quotient_by(PERIOD)
    by_sides, by_slots, by_octet = i.quotient_by(SIDES), i.quotient_by(SIDE_SLOTS), i.quotient_by(OCTET)

    @device_function
    def load_filter(right: Any, word: int, filters: int, channel: int, across: int, pair: int) -> None:
        """A thread's part of the matrices of a channel, from this word on: two words for each row of taps."""
        one = cuda.local.array(2, int32)
        for row in range(ROW_TAPS):
            for n in range(2):
                for half in range(2):
                    column = int32(2 * pair + half + 8 * n - across)
                    one[half] = int32(0)
                    if column >= 0 and column < COLUMN_TAPS:
                        tap = int32(COLUMN_TAPS - 1 - column) if TURNED else column
                        from_row = (ROW_TAPS - 1 - row) * FILTER_ROW if TURNED else row * FILTER_ROW
                        load_half(
                            one, half, filters + int64(channel) * FILTER_CHANNEL + from_row + int64(tap) * FILTER_COLUMN
                        )
                right[word + 2 * row + n] = i.low_halves(one[0], one[1])

    @device_function
    def rows_of_step(sums: Any, right: Any, bias: Any, source: int, out: int) -> None:
        """source: the address of this lane's row of a matrix; out: that of its first place."""
        left, two, four = cuda.local.array(4, int32), cuda.local.array(2, int32), cuda.local.array(4, float32)
        for row in range(ROWS):
            for channel in range(WARP_CHANNELS):
                i.load_matrices(left, source + row * ROW_BYTES + channel * CHANNEL)
                for tap in range(ROW_TAPS):
                    two[0] = right[(channel * ROW_TAPS + tap) * 2]
                    two[1] = right[(channel * ROW_TAPS + tap) * 2 + 1]
                    multiply(sums, (channel * LIVE + row + ROW_TAPS - 1 - tap) * 4, left, two)
            for half in range(2):
                for channel in range(WARP_CHANNELS):
                    for n in range(2):
                        total = sums[(channel * LIVE + row) * 4 + 2 * half + n]
                        four[2 * channel + n] = total + bias[channel] if BIASED else total
                store_four(out + row * OUT_ROW + half * (SLOTS // 2 * (BLOCK // 2) * OUT_PLACE), four)
        for channel in range(WARP_CHANNELS):
            for n in range(4 * (ROW_TAPS - 1)):
                sums[channel * LIVE * 4 + n] = sums[(channel * LIVE + ROWS) * 4 + n]
            for n in range(4 * ROWS):
                sums[(channel * LIVE + ROW_TAPS - 1) * 4 + n] = float32(0)

    def kernel(source: int, output: int, filters: int, bias: int, counter: int, images: int, chunks: int) -> None:
        thread, images = int32(cuda.threadIdx.x), int32(images)
        shared = i.shared_memory()
        stacks = by_sides(int32(images + SIDES - 1))
        steps = by_rows(int32((stacks - 1) * PERIOD + OUT_ROWS + ROWS - 1))
        share = i.quotient(int32(steps + chunks - 1), int32(chunks))

        octet, side, row, column, to = place(thread)
        moves = thread < MOVED
        raw, arrays, outs = shared + thread * 16, shared + SOURCE_AT, shared + OUT_AT

        warp, lane = int32(thread >> 5), int32(thread & 31)
        across, pair = int32(lane >> 2), int32(lane & 3)
        first = int32(warp * WARP_CHANNELS)
        early = warp & 4 == 0  # half of the warps of a scheduler
        first_octet = by_octet(first)
        in_octet = int32(first - first_octet * OCTET)
        slot = int32(lane & (SLOTS - 1))
        slot_side = by_slots(slot)
        block = int32(min(slot - slot_side * SIDE_SLOTS, BLOCKS - 1))  # the last one's, for unused sums
        slot_side = int32(min(slot_side, SIDES - 1))
        own = int32(first_octet * OCTET_BYTES + in_octet * CHANNEL + (lane >> 4) * 16)
        own += slot_side * SIDE_BYTES + block * (2 * BLOCK)
        out_octet, out_row, out_side, out_column, from_ = out_place(thread)
        own_out = int32(first_octet * OUT_OCTET + (across * (BLOCK // 2) + pair) * OUT_PLACE + in_octet * 4)

        right = cuda.local.array(WARP_CHANNELS * ROW_TAPS * 2, int32)
        sums, added = cuda.local.array(WARP_CHANNELS * LIVE * 4, float32), cuda.local.array(WARP_CHANNELS, float32)
        one = cuda.local.array(1, float32)

        item = int32(cuda.blockIdx.x)
        while item < GROUPS * chunks:
            chunk = by_groups(item)
            group = int32(item - chunk * GROUPS)
            first_channel = int32(group * CHANNELS)
            here = int32(min(CHANNELS, TOTAL_CHANNELS - first_channel))
            mine = moves and octet * OCTET < here
            start = source + int64(first_channel + octet * OCTET) * 2
            there = output + int64(out_column) * COLUMN + int64(first_channel + out_octet * OCTET) * 2
            writes = out_side < SIDES and out_column < COLUMNS and out_octet * OCTET < here
            second = not ODD or out_column + 1 < COLUMNS
            first_step = int32(chunk * share)
            last_step = int32(min(first_step + share, steps))

            begin = int32(first_step - WARM_STEPS)
            tall = int32(begin * ROWS + row + AHEAD + FAR * PERIOD)  # not negative
            stack = by_period(tall)
            y, image = int32(tall - stack * PERIOD), int32((stack - FAR) * SIDES + side)
            asked = begin
            for slot_of in range(STAGES):
                fetch(raw + slot_of * STAGE, start, y, image, column, images, mine and asked < last_step)
                asked = int32(asked + 1)
                y, image = down(y, image, ROWS)
            tall = int32(first_step * ROWS + out_row)
            stack = by_period(tall)
            out_y, out_image = int32(tall - stack * PERIOD), int32(stack * SIDES + out_side)
            for channel in range(WARP_CHANNELS):
                of = int32(min(first_channel + first + channel, TOTAL_CHANNELS - 1))
                load_filter(right, channel * ROW_TAPS * 2, filters, of, across, pair)
                added[channel] = float32(0)
                if BIASED:
                    load_bias(one, bias + int64(of) * BIAS)
                    added[channel] = one[0]
            for n in range(WARP_CHANNELS * LIVE * 4):
                sums[n] = float32(0)

            # the transposition is one step ahead of the products, the writes one behind: two buffers of each
            odd = int32(0)  # of the step that is turned over, from the block's first on
            step = int32(begin - 1)
            while step <= last_step:
                wait_for_copies()
                wait_for_block()
                even = int32(1 - odd)
                products = step >= begin and step < last_step
                own_source, own_place = i.opaque(arrays + even * SOURCE + own), i.opaque(outs + even * OUT + own_out)
                if products and early:
                    rows_of_step(sums, right, added, own_source, own_place)
                if moves:
                    turn(arrays + odd * SOURCE + to, raw + odd * STAGE)
                fetch(raw + odd * STAGE, start, y, image, column, images, mine and asked < last_step)
                asked = int32(asked + 1)
                y, image = down(y, image, ROWS)
                if step > first_step:
                    if writes:
                        write(outs + odd * OUT + from_, there, out_row, out_y, out_image, images, second)
                    out_y, out_image = down(out_y, out_image, ROWS)
                if products and not early:
                    rows_of_step(sums, right, added, own_source, own_place)
                odd, step = even, int32(step + 1)
            wait_for_all_copies()  # zeros that are not used
            wait_for_block()
            item = int32(item + cuda.gridDim.x)

    return kernel
