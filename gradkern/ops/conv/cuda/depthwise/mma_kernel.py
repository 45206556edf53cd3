"""The kernel of a depthwise convolution's dW on tensor cores. `build(config)` binds its constants; see MmaWeightConfig.

    dW[k, l] = sum over images, rows h and columns w of dY[h, w] * X[h + k - begin, w + l - begin]

One channel has no matrix product, but its columns can form one. Divide the columns of dY into blocks of 8, and sum over
rows and blocks, but not yet over the columns b of a block:

    G_k[c, b] = sum over rows h and blocks j of X[h + k - begin, 8 j + c - begin] * dY[h, 8 j + b]     16 x 8, each k
    dW[k, l]  = sum over b of G_k[b + l, b]

This is a matrix product with sums over 16 pairs (h, j) at a time: two rows of eight blocks, narrow images side by side.
For 7x7 taps 7 of 16 multiply-adds are useful, and tensor cores have 16 times the throughput of other units.

Algorithm: a block processes some channels of a run of rows of all images (see MmaWeightConfig), a few rows at a time.
Threads copy vectors of 8 channels to shared memory, each to its own place, some steps ahead. They then transpose them,
so that two rows of one channel make a word, the operand of a product. A warp iterates over its channels. It holds the
pairs of rows of X that a pair of dY needs, (0, 1), (2, 3) and so on. For each pair of dY it reads one more, and
computes those between, (1, 2), (3, 4), from them: six words are read for seven products. One barrier a step is enough,
because all arrays have two buffers: a step's products and the transposition of the next are between the same barriers.
Half of the warps multiply first, so that memory and tensor cores are busy at the same time.

Elements outside of the arrays are zero in shared memory: an infinity in X may cause NaN in any tap of its channel.
Tensor cores truncate instead of rounding; runs are short enough for this not to matter.

At the end each run's sums are a row of partial sums, see `grid_sum`: results are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from numba import cuda
from numba.cuda import float32, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.conv.cuda.depthwise.grid_sum import sums_over_blocks
from gradkern.ops.conv.cuda.depthwise.mma_config import (
    BLOCK,
    OCTET,
    STAGES,
    STEP_ROWS,
    WARP_CHANNELS,
    WINDOW,
    MmaWeightConfig,
)
from gradkern.ops.conv.cuda.depthwise.turn_over import turner


def _mover(config: MmaWeightConfig, array: Literal["X", "dY"]) -> tuple[Callable[..., Any], ...]:
    """How X or dY reaches shared memory: four device functions.

    place(number)   of that thread: octet of channels, first of two rows of a step, image at a side, column;
                    their offset from the block's first channel; their place in shared memory
    start(step, row, side)   the row within its image, and the image, of the first of the two rows at this step
    fetch(raw, start, row, image, column, images, mine)   two rows of two columns on their way to `raw`, zeros for those
                    that are outside or not mine; start: the address of the column in the first image
    turn(to, raw)   two rows of two columns of eight channels become, for each channel, a word of two rows a column
    """
    THREADS, OCTETS, SIDES, PERIOD = config.threads, config.octets, config.sides, config.period
    of_X = array == "X"
    ROWS, COLUMNS = config.source if of_X else config.grid
    IMAGE, ROW, COLUMN = config.source_strides if of_X else config.grid_strides
    CHANNEL = 4 * (config.X_channel if of_X else config.dY_channel)
    PITCH, SIDE = (4 * each for each in (
        (config.X_pitch, config.X_side) if of_X else (config.dY_pitch, config.dY_side)
    ))  # fmt: skip
    LEAD, AHEAD = (4 * config.lead, config.ahead) if of_X else (0, 0)
    FAR = -(-(config.warm_steps * STEP_ROWS + max(0, -AHEAD)) // PERIOD)
    PAD, RAW, TWOS = 4 * config.octet_pad, 16 * THREADS, (COLUMNS + 1) // 2
    ACROSS, ODD = SIDES * TWOS, COLUMNS % 2 == 1
    copy, by_octets, by_period = i.copy_or_zeros(16), i.quotient_by(OCTETS), i.quotient_by(PERIOD)
    by_across, by_twos = i.quotient_by(ACROSS), i.quotient_by(TWOS)

    @device_function
    def place(number: int) -> Any:
        rest = by_octets(number)
        octet = int32(number - rest * OCTETS)
        pair = by_across(rest)
        rest = int32(rest - pair * ACROSS)
        side = by_twos(rest)
        column = int32(2 * (rest - side * TWOS))
        to = int32(octet * (OCTET * CHANNEL + PAD) + pair * PITCH + side * SIDE + LEAD + column * 4)
        from_ = int32(octet * (OCTET * 2) + column * COLUMN)
        return octet, int32(2 * pair), side, column, from_, to

    @device_function
    def start(step: int, row: int, side: int) -> Any:
        tall = int32(step * STEP_ROWS + row + AHEAD + FAR * PERIOD)  # not negative
        stack = by_period(tall)
        return int32(tall - stack * PERIOD), int32((stack - FAR) * SIDES + side)

    @device_function
    def fetch(raw: int, start: int, row: int, image: int, column: int, images: int, mine: bool) -> None:
        raw = i.opaque(raw)
        for n in range(2):
            if n == 1:
                row = int32(row + 1)
                if row == PERIOD:
                    row, image = int32(0), int32(image + SIDES)
            inside = mine and row < ROWS and image >= 0 and image < images
            there = start + int64(image) * IMAGE + int64(row) * ROW
            for m in range(2):
                size = int32(16) if inside and (m == 0 or not ODD or column + 1 < COLUMNS) else int32(0)
                copy(raw + (2 * n + m) * RAW, there + m * COLUMN, size)
        i.commit_copies()

    return place, start, fetch, turner(RAW, CHANNEL, partner=2)


def _rows(config: MmaWeightConfig, number: int) -> Callable[..., None]:
    """multiply(sums, window, x, later_x, dy, later_dy): multiplies two rows of dY, number `number` of two steps,
    with all pairs of X that they need. The last pair of rows of X is loaded, in the window's place of one that is no
    longer needed. The addresses are those of a thread's columns of the step, of the first four blocks and of the last
    four.
    """
    PAIRS, ROW_TAPS = config.pairs, config.taps[0]
    X_CHANNEL, DY_CHANNEL = 4 * config.X_channel, 4 * config.dY_channel
    X_ROW, DY_ROW = (number % (STEP_ROWS // 2) * 4 * each for each in (config.X_pitch, config.dY_pitch))
    load_word, multiply = i.word_loader("shared", 4), i.matrix_product(config.dtype)
    LAST = (number + PAIRS - 1) % PAIRS

    @device_function
    def rows(sums: Any, window: Any, x: int, later_x: int, dy: int, later_dy: int) -> None:
        left, right = cuda.local.array(4, int32), cuda.local.array(2, int32)
        for channel in range(WARP_CHANNELS):
            for n in range(2):
                place, word = X_ROW + channel * X_CHANNEL + n * (BLOCK * 4), (channel * PAIRS + LAST) * 4 + n
                load_word(window, word, x + place)
                load_word(window, word + 2, later_x + place)
            load_word(right, 0, dy + (DY_ROW + channel * DY_CHANNEL))
            load_word(right, 1, later_dy + (DY_ROW + channel * DY_CHANNEL))
            for tap in range(ROW_TAPS):
                first = (channel * PAIRS + (number + tap // 2) % PAIRS) * 4
                for n in range(4):
                    if tap % 2 == 0:
                        left[n] = window[first + n]
                    else:
                        second = (channel * PAIRS + (number + tap // 2 + 1) % PAIRS) * 4
                        left[n] = i.high_and_low(window[first + n], window[second + n])
                multiply(sums, (channel * ROW_TAPS + tap) * 4, left, right)

    return rows


def _of_step(config: MmaWeightConfig, first: int) -> Callable[..., None]:
    """multiply(sums, window, arrays, X_of, dY_of): what `_rows` does for the two pairs of rows from number `first` on,
    those of the step with these arrays; X_of, dY_of: the places in them where a thread's columns begin, of the first
    four blocks and of the last four.
    """
    multiply, multiply_next = _rows(config, first), _rows(config, first + 1)

    @device_function
    def of_step(sums: Any, window: Any, arrays: int, X_of: Any, dY_of: Any) -> None:
        x, later_x = i.opaque(arrays + X_of[0]), i.opaque(arrays + X_of[1])
        dy, later_dy = i.opaque(arrays + dY_of[0]), i.opaque(arrays + dY_of[1])
        multiply(sums, window, x, later_x, dy, later_dy)
        multiply_next(sums, window, x, later_x, dy, later_dy)

    return of_step


def build(config: MmaWeightConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    GROUPS, CHANNELS, TOTAL_CHANNELS, THREADS = config.groups, config.channels, config.total_channels, config.threads
    SIDES, PERIOD, DY_ROWS, BLOCKS = config.sides, config.period, config.grid[0], config.blocks
    # shared memory: what is on its way | X, dY of even steps | X, dY of odd steps; here in bytes
    STAGE, ARRAYS_AT, SHARED = 64 * THREADS, config.raw_bytes, config.shared_bytes
    X_BYTES, ARRAYS, PAD = config.X_bytes, config.X_bytes + config.dY_bytes, 4 * config.octet_pad
    X_CHANNEL, DY_CHANNEL = 4 * config.X_channel, 4 * config.dY_channel
    X_SIDE, DY_SIDE, SHIFT = 4 * config.X_side, 4 * config.dY_side, 4 * (config.lead - config.begins[1])
    PAIRS, ROW_TAPS, COLUMN_TAPS, TAPS = config.pairs, config.taps[0], config.taps[1], config.all_taps
    WARM_STEPS, MATRIX, PITCH = config.warm_steps, 4 * config.matrix, 4 * config.sums_pitch
    WORDS, SUMS = WARP_CHANNELS * PAIRS * 4, WARP_CHANNELS * ROW_TAPS * 4
    TURNS = STEP_ROWS % PAIRS  # of the window, after the STEP_ROWS pairs of two steps

    wait_for_copies, wait_for_all_copies = i.wait_for_copies(STAGES - 1), i.wait_for_copies(0)
    by_groups, by_sides, by_blocks = i.quotient_by(GROUPS), i.quotient_by(SIDES), i.quotient_by(BLOCKS)
    by_step, by_octet, by_taps = i.quotient_by(STEP_ROWS), i.quotient_by(OCTET), i.quotient_by(COLUMN_TAPS)
    store_zeros = i.storer("shared", "float32", 4)
    multiply_even, multiply_odd = _of_step(config, 0), _of_step(config, STEP_ROWS // 2)
    store_sum, load_sum = i.storer("shared", "float32", 1), i.loader("shared", "float32", 1)
    store_partial = i.storer("global", "float32", 1)
    place_X, start_X, fetch_X, turn_X = _mover(config, "X")
    place_dY, start_dY, fetch_dY, turn_dY = _mover(config, "dY")
    channel, row, column = config.filter_strides
    add_over_blocks = sums_over_blocks(
        THREADS, TOTAL_CHANNELS, (1, *config.taps), (channel, 0, row, column), config.dtype, native_bfloat16=True
    )

    @device_function
    def turn_window(window: Any) -> None:
        """After two steps: each pair of rows to where the first of the next two steps looks for it."""
        for channel in range(WARP_CHANNELS):
            for n in range(4):
                kept = window[channel * PAIRS * 4 + n]
                for pair in range(PAIRS - 1):
                    window[(channel * PAIRS + pair) * 4 + n] = window[(channel * PAIRS + pair + 1) * 4 + n]
                window[(channel * PAIRS + PAIRS - 1) * 4 + n] = kept

    @device_function
    def ask(
        slot: int, moves_X: bool, mine: bool, raw: int, start: int, column: int, images: int,
        row: int, image: int, step: int, first: int, last: int,
    ) -> Any:  # fmt: skip
        """A step's vectors on their way to the slot, dY's from the first on; row, image and number of the next step."""
        asks = mine and step < last and (moves_X or step >= first)
        if moves_X:
            fetch_X(raw + slot * STAGE, start, row, image, column, images, asks)
        else:
            fetch_dY(raw + slot * STAGE, start, row, image, column, images, asks)
        row = int32(row + STEP_ROWS)
        if row >= PERIOD:
            row, image = int32(row - PERIOD), int32(image + SIDES)
        return row, image, int32(step + 1)

    @device_function
    def turn_over(slot: int, moves_X: bool, moves: bool, to: int, raw: int) -> None:
        """Transposes the slot's vectors into the arrays of that number; all warps are done with these by then."""
        if moves_X and moves:
            turn_X(to + slot * ARRAYS, raw + slot * STAGE)
        elif moves:
            turn_dY(to + (slot * ARRAYS + X_BYTES), raw + slot * STAGE)

    def kernel(X: int, dY: int, dW: int, partial: int, counter: int, images: int, chunks: int) -> None:
        thread, images = int32(cuda.threadIdx.x), int32(images)
        shared = i.shared_memory()
        stacks = by_sides(int32(images + SIDES - 1))
        steps = by_step(int32((stacks - 1) * PERIOD + DY_ROWS + STEP_ROWS - 1))
        share = i.quotient(int32(steps + chunks - 1), int32(chunks))

        # the first half of the block copies X, the other dY
        moves_X = thread < THREADS // 2
        raw, arrays = shared + thread * 16, shared + ARRAYS_AT
        if moves_X:
            octet, row, side, column, from_, to = place_X(thread)
        else:
            octet, row, side, column, from_, to = place_dY(int32(thread - THREADS // 2))
        moves = row < STEP_ROWS

        # what it multiplies: column `across` of the blocks `down` and `down` + 4
        warp, across, down = int32(thread >> 5), int32(thread >> 2 & 7), int32(thread & 3)
        early = warp & 4 == 0  # half of the warps of a scheduler
        first_octet = by_octet(int32(warp * WARP_CHANNELS))
        in_octet = int32(warp * WARP_CHANNELS - first_octet * OCTET)
        X_of, dY_of = cuda.local.array(2, int32), cuda.local.array(2, int32)
        own_X = int32(first_octet * (OCTET * X_CHANNEL + PAD) + in_octet * X_CHANNEL + across * 4)
        own_dY = int32(first_octet * (OCTET * DY_CHANNEL + PAD) + in_octet * DY_CHANNEL + across * 4)
        for n in range(2):
            slot = int32(down + 4 * n)
            slot_side = by_blocks(slot)
            block = int32(slot - slot_side * BLOCKS)
            X_of[n], dY_of[n] = own_X, int32(own_dY + X_BYTES)
            if slot < SIDES * BLOCKS:
                X_of[n] += slot_side * X_SIDE + block * (BLOCK * 4) + SHIFT
                dY_of[n] += slot_side * DY_SIDE + block * (BLOCK * 4)
            else:  # there is no such block: the first block of X, in banks of its own, times zeros
                X_of[n] = X_of[0]
                dY_of[n] += SIDES * DY_SIDE

        window, sums = cuda.local.array(WORDS, int32), cuda.local.array(SUMS, float32)
        zeros, one = cuda.local.array(4, float32), cuda.local.array(1, float32)
        for n in range(4):
            zeros[n] = float32(0)

        item = int32(cuda.blockIdx.x)
        while item < GROUPS * chunks:
            chunk = by_groups(item)
            group = int32(item - chunk * GROUPS)
            first_channel = int32(group * CHANNELS)
            here = int32(min(CHANNELS, TOTAL_CHANNELS - first_channel))
            mine = moves and octet * OCTET < here
            start = (X if moves_X else dY) + int64(first_channel) * 2 + from_
            first = int32(chunk * share)
            last = int32(min(first + share, steps))

            # the transposition is one step ahead of the products, copies two more: those of step n are in slot n % 2
            begin = int32(first - WARM_STEPS)
            asked = begin
            if moves_X:
                asked_row, asked_image = start_X(begin, row, side)
            else:
                asked_row, asked_image = start_dY(begin, row, side)
            while asked < begin + STAGES:
                asked_row, asked_image, asked = ask(
                    i.opaque(asked - begin), moves_X, mine, raw, start, column, images,
                    asked_row, asked_image, asked, first, last,
                )  # fmt: skip
            at = i.opaque(ARRAYS_AT + thread * 16)
            while at < SHARED:  # zeros for elements outside of the arrays
                store_zeros(shared + at, zeros)
                at = i.opaque(at + THREADS * 16)
            for n in range(SUMS):
                sums[n] = float32(0)
            for n in range(WORDS):
                window[n] = int32(0)
            step = int32(begin - 1)
            while True:
                wait_for_copies()
                wait_for_block()
                if early and step >= begin:  # the first time there is nothing yet
                    multiply_odd(sums, window, arrays + ARRAYS, X_of, dY_of)
                turn_over(0, moves_X, moves, arrays + to, raw)
                asked_row, asked_image, asked = ask(
                    0, moves_X, mine, raw, start, column, images,
                    asked_row, asked_image, asked, first, last,
                )  # fmt: skip
                if not early and step >= begin:
                    multiply_odd(sums, window, arrays + ARRAYS, X_of, dY_of)
                for _ in range(TURNS):
                    turn_window(window)
                step = int32(step + 1)
                if step >= last:
                    break
                wait_for_copies()
                wait_for_block()
                if early:
                    multiply_even(sums, window, arrays, X_of, dY_of)
                turn_over(1, moves_X, moves, arrays + to, raw)
                asked_row, asked_image, asked = ask(
                    1, moves_X, mine, raw, start, column, images,
                    asked_row, asked_image, asked, first, last,
                )  # fmt: skip
                if not early:
                    multiply_even(sums, window, arrays, X_of, dY_of)
                step = int32(step + 1)
                if step >= last:
                    break
            wait_for_all_copies()  # zeros that are not used
            wait_for_block()

            # the matrices take the arrays' place: sums 0 and 1 are of row `across`, 2 and 3 of the eighth after it
            place = shared + warp * (WARP_CHANNELS * ROW_TAPS * MATRIX) + (down * 2 * PITCH + across * 4)
            for number in range(WARP_CHANNELS * ROW_TAPS):
                for half in range(2):
                    for n in range(2):
                        one[0] = sums[4 * number + 2 * half + n]
                        store_sum(place + (number * MATRIX + n * PITCH + half * (WINDOW // 2 * 4)), one)
            wait_for_block()
            number = i.opaque(thread)
            while number < here * TAPS:
                row_of_taps = by_taps(number)  # of a channel and a row of taps, one matrix
                at = shared + row_of_taps * MATRIX + (number - row_of_taps * COLUMN_TAPS) * 4
                total = float32(0)
                for n in range(BLOCK):
                    load_sum(one, at + n * (PITCH + 4))
                    total += one[0]
                one[0] = total
                place = int64(chunk) * TOTAL_CHANNELS + first_channel
                store_partial(partial + (place * TAPS + number) * 4, one)
                number = i.opaque(number + THREADS)
            wait_for_block()
            item = int32(item + cuda.gridDim.x)
        add_over_blocks(dW, partial, counter, chunks, thread, shared)

    return kernel
