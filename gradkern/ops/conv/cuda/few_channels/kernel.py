"""The kernel of the dW of a convolution of few channels, on tensor cores. `build(config)` binds its constants.

Algorithm: a block processes some filters and a run of the rows of dY, a row at a time. While a row is multiplied, the
next row of dY and the next rows of X are copied to shared memory. Products read dY from there, transposed by ldmatrix.
Of X they need words of two elements that meet the same tap, from two adjacent columns of dY: each row of X is converted
to words once, while the row of dY before the first that needs them is multiplied. One barrier a row is enough. Each
warp has a row of taps, and all the block's filters.

Elements outside of the arrays are zero in shared memory: an infinity in X may cause NaN in other taps of its filter.
Tensor cores truncate instead of rounding; runs are short enough for this not to matter. At the end each run's sums are
a row of partial sums, see `grid_sum`: results are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.conv.cuda.depthwise.grid_sum import sums_over_blocks
from gradkern.ops.conv.cuda.few_channels.config import COLUMNS, FILTERS, OCTET, PLACES, FewChannelsConfig

_IN_FLIGHT = 8  # loads of one thread at a time, of rows too odd for copies


def build(config: FewChannelsConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    THREADS, GROUPS, ALL_FILTERS, BLOCK_FILTERS = config.threads, config.groups, config.filters, config.block_filters
    ROW_TAPS, ROWS, STEP_ROWS, AT_ONCE = config.taps[0], config.dY[0], config.steps[0], config.rows_at_once
    NEXT_ROWS = max(ROW_TAPS, STEP_ROWS)  # from the first row of X that a row of dY meets to the first that it does not
    TAPS, RUN, TILES, PLACE_TILES = config.all_taps, config.places, config.filter_tiles, config.place_tiles
    COLUMN_TILES, SUMS, NEXT = config.column_tiles, config.sums, 8 * config.step
    DY_TILE, APART, LATER_PAIR = config.dY_tile, config.pairs_apart, config.later_pair
    PLACES_OF_ROW, ODD = PLACES * PLACE_TILES, config.first % 2
    DY_ROW, WORDS_AT, X_ROW, SHARED = config.dY_bytes, config.words_at, 4 * config.X_words, config.shared_bytes
    load_word, multiply = i.word_loader("shared", 4), i.matrix_product(config.dtype)
    store_zeros, store_partial = i.storer("shared", "float32", 4), i.storer("global", "float32", 1)
    store_sums, load_sum = i.storer("shared", "float32", 2), i.loader("shared", "float32", 1)
    wait_for_older, wait_for_all = i.wait_for_copies(1), i.wait_for_copies(0)
    place_of, in_ring = _place_of(config), _in_ring(config)
    fetch_dY, fetch_X, make_words = _fetch_dY(config), _fetch_X(config), _make_words(config)
    filter_, row, column, channel = config.dW_strides
    add_over_blocks = sums_over_blocks(
        THREADS, ALL_FILTERS, (*config.taps, config.channels), (filter_, row, column, channel), config.dtype, True
    )

    @device_function
    def multiply_row(sums: Any, dY: int, X: int) -> None:
        """A row of dY times the row of X that the warp's row of taps meets; where this thread's part of both begins."""
        left, right = cuda.local.array(4, int32), cuda.local.array(2, int32)
        of_X = cuda.local.array(PLACE_TILES * 2, int32)
        tile = i.opaque(0)
        while tile < COLUMN_TILES:
            dY_at, X_at = dY + tile * DY_TILE, X + tile * (COLUMNS // 2 * NEXT)
            for place in range(PLACE_TILES):
                for half in range(2):  # of the columns
                    load_word(of_X, place * 2 + half, X_at + (half * LATER_PAIR * NEXT + place * (PLACES * 4)))
            for n in range(TILES):
                i.load_turned(left, dY_at + n * (FILTERS * 2))
                for place in range(PLACE_TILES):
                    right[0], right[1] = of_X[place * 2], of_X[place * 2 + 1]
                    multiply(sums, (n * PLACE_TILES + place) * 4, left, right)
            tile = i.opaque(tile + 1)

    def kernel(X: int, dY: int, dW: int, partial: int, counter: int, images: int, chunks: int) -> None:
        thread, shared = int32(cuda.threadIdx.x), i.shared_memory()
        warp, lane = int32(thread >> 5), int32(thread & 31)
        across, down = int32(lane >> 2), int32(lane & 3)
        rows = int32(images * ROWS)
        share = i.quotient(int32(rows + chunks - 1), int32(chunks))
        # the column of dY and its eight filters that this lane addresses; the pairs of columns whose words it holds
        column = int32((lane >> 1 & 3) * (2 * APART) + (lane & 1) + (lane >> 4) * (2 * LATER_PAIR))
        own_dY = shared + place_of(column) + (lane >> 3 & 1) * 16
        own_words = shared + WORDS_AT + down * (APART * NEXT) + (across + ODD) * 4
        own_sums = shared + ((across * ROW_TAPS + warp) * PLACES_OF_ROW + down * 2) * 4
        sums, one, two = (cuda.local.array(SUMS, float32), cuda.local.array(1, float32), cuda.local.array(2, float32))
        zeros = cuda.local.array(4, float32)
        for n in range(4):
            zeros[n] = float32(0)

        item = int32(cuda.blockIdx.x)
        while item < GROUPS * chunks:
            chunk = i.quotient(item, int32(GROUPS))
            first_filter = int32((item - chunk * GROUPS) * BLOCK_FILTERS)
            here = int32(min(BLOCK_FILTERS, ALL_FILTERS - first_filter))
            at = i.opaque(thread * 16)
            while at < SHARED:  # what no row ever fills
                store_zeros(shared + at, zeros)
                at = i.opaque(at + THREADS * 16)
            for n in range(SUMS):
                sums[n] = float32(0)
            number = int32(chunk * share)
            last = int32(min(number + share, rows))
            image = i.quotient(number, int32(ROWS))
            row, begins, stage, held = int32(number - image * ROWS), True, i.opaque(0), i.opaque(0)
            wait_for_block()
            while number < last:
                begin = int32(row * STEP_ROWS)  # of X, with the pads
                if begins:  # a run, or an image: all rows of X that this row of dY meets
                    held = i.opaque(0)
                    fetch_X(X, shared, image, begin, held, i.opaque(ROW_TAPS), thread)
                    i.commit_copies()
                    fetch_dY(dY, shared + stage, image, row, first_filter, here, thread)
                    fetch_X(X, shared, image, int32(begin + NEXT_ROWS), i.opaque(ROW_TAPS), i.opaque(AT_ONCE), thread)
                    i.commit_copies()
                    wait_for_older()
                    wait_for_block()
                    make_words(shared, held, i.opaque(ROW_TAPS), thread)
                wait_for_all()
                wait_for_block()
                begins = number + 1 == last or row + 1 == ROWS
                if not begins:
                    after = int32(begin + STEP_ROWS + NEXT_ROWS)
                    fetch_dY(dY, shared + (DY_ROW - stage), image, int32(row + 1), first_filter, here, thread)
                    fetch_X(X, shared, image, after, held, i.opaque(AT_ONCE), thread)
                    i.commit_copies()
                    make_words(shared, in_ring(int32(held + ROW_TAPS)), i.opaque(AT_ONCE), thread)
                multiply_row(sums, own_dY + stage, own_words + in_ring(int32(held + warp)) * X_ROW)
                number, row = int32(number + 1), int32(row + 1)
                stage, held = int32(DY_ROW - stage), in_ring(int32(held + AT_ONCE))
                if row == ROWS:
                    image, row = int32(image + 1), int32(0)

            wait_for_block()  # the sums take the rows' place
            for n in range(TILES * 2):  # half of a product's filters
                for tile in range(PLACE_TILES):
                    for word in range(2):
                        two[word] = sums[(n // 2 * PLACE_TILES + tile) * 4 + n % 2 * 2 + word]
                    store_sums(own_sums + (n * (FILTERS // 2 * ROW_TAPS * PLACES_OF_ROW) + tile * PLACES) * 4, two)
            wait_for_block()
            number = i.opaque(thread)
            while number < here * TAPS:
                of_filters = i.quotient(number, int32(RUN))  # rows of taps
                place = int32(of_filters * PLACES_OF_ROW + number - of_filters * RUN)
                load_sum(one, shared + place * 4)
                store_partial(partial + ((int64(chunk) * ALL_FILTERS + first_filter) * TAPS + number) * 4, one)
                number = i.opaque(number + THREADS)
            wait_for_block()
            item = int32(item + cuda.gridDim.x)
        add_over_blocks(dW, partial, counter, chunks, thread, shared)

    return kernel


def _in_ring(config: FewChannelsConfig) -> Callable[..., int]:
    """in_ring(number): the row of shared memory that has this number, of those held and as many again."""
    HELD = config.held_rows

    @device_function
    def in_ring(number: int) -> int:
        return int32(number - HELD if number >= HELD else number)

    return in_ring


def _place_of(config: FewChannelsConfig) -> Callable[..., int]:
    """place_of(column): the offset of a column of dY in a row of shared memory, in bytes."""
    PITCH, APART = config.dY_pitch, config.eights_apart

    @device_function
    def place_of(column: int) -> int:
        return int32(column * PITCH + (column >> 3) * APART)

    return place_of


def _fetch_dY(config: FewChannelsConfig) -> Callable[..., None]:
    """fetch(dY, to, image, row, first filter, filters, thread): a row of dY on its way to shared memory."""
    THREADS, OCTETS = config.threads, config.block_filters // OCTET
    IMAGE, ROW, COLUMN = config.dY_strides
    VECTORS, place_of = config.dY[1] * OCTETS, _place_of(config)
    copy, by_octets = i.async_copy(16), i.quotient_by(OCTETS)

    @device_function
    def fetch(dY: int, to: int, image: int, row: int, first: int, here: int, thread: int) -> None:
        there = dY + int64(image) * IMAGE + int64(row) * ROW + first * 2
        number = i.opaque(thread)
        while number < VECTORS:
            column = by_octets(number)
            octet = int32(number - column * OCTETS)
            if octet * OCTET < here:
                copy(to + place_of(column) + octet * 16, there + int64(column) * COLUMN + octet * 16)
            number = i.opaque(number + THREADS)

    return fetch


def _fetch_X(config: FewChannelsConfig) -> Callable[..., None]:
    """fetch(X, shared, image, first, held, rows, thread): so many rows of X, from row `first` on, counted with
    the pads before it, on their way to the rows of shared memory from number `held` on; zeros for those outside.
    """
    THREADS, ROWS, BEGIN = config.threads, config.X[0], config.begins[0]
    IMAGE, ROW = config.X_strides
    BYTES, TO, LEAD, SIZE = 2 * config.X[1] * config.channels, config.X_at, 2 * config.lead, config.X_bytes
    VECTOR = config.X_vector
    VECTORS = -(-BYTES // VECTOR)
    in_ring, by_vectors = _in_ring(config), i.quotient_by(VECTORS)
    copy = i.copy_or_zeros(VECTOR) if VECTOR > 2 else None
    load_half, store_half = i.word_loader("global", 2), i.word_storer("shared", 2)

    @device_function
    def place(number: int, first: int, held: int) -> Any:
        """Of a vector: its row in X, its offset in the row, and its place in shared memory."""
        row = by_vectors(number)
        at = int32((number - row * VECTORS) * VECTOR)
        return int32(first + row - BEGIN), at, int32(in_ring(int32(held + row)) * SIZE + TO + LEAD + at)

    @device_function
    def fetch(X: int, shared: int, image: int, first: int, held: int, rows: int, thread: int) -> None:
        there = X + int64(image) * IMAGE
        number = i.opaque(thread)
        vectors = int32(rows * VECTORS)
        while number < vectors:
            row, at, to = place(number, first, held)
            size = int32(min(int32(VECTOR), int32(BYTES - at))) if row >= 0 and row < ROWS else int32(0)
            copy(shared + to, there + int64(row) * ROW + at, size)
            number = i.opaque(number + THREADS)

    @device_function
    def fetch_halves(X: int, shared: int, image: int, first: int, held: int, rows: int, thread: int) -> None:
        halves, one, tos = (
            cuda.local.array(_IN_FLIGHT, int32),
            cuda.local.array(1, int32),
            cuda.local.array(_IN_FLIGHT, int32),
        )
        there = X + int64(image) * IMAGE
        number = i.opaque(thread)
        vectors = int32(rows * VECTORS)
        while number < vectors:
            for n in range(_IN_FLIGHT):
                row, at, tos[n] = place(int32(number + n * THREADS), first, held)
                halves[n] = int32(0)
                if number + n * THREADS < vectors and row >= 0 and row < ROWS:
                    load_half(halves, n, there + int64(row) * ROW + at)
            for n in range(_IN_FLIGHT):
                one[0] = halves[n]
                if number + n * THREADS < vectors:
                    store_half(shared + tos[n], one)
            number = i.opaque(number + _IN_FLIGHT * THREADS)

    return fetch if VECTOR > 2 else fetch_halves


def _make_words(config: FewChannelsConfig) -> Callable[..., None]:
    """make(shared, held, rows, thread): so many rows of X in shared memory, from number `held` on, become words."""
    THREADS, SIZE, TO = config.threads, config.X_bytes, config.words_at
    FROM, STEP, TWOS = config.X_at + 2 * (config.first - config.first % 2), 2 * config.step, config.X_words // 2
    EVEN = config.step % 2 == 0
    in_ring, by_twos = _in_ring(config), i.quotient_by(TWOS)
    load_word, store_two = i.word_loader("shared", 4), i.word_storer("shared", 8)

    @device_function
    def make(shared: int, held: int, rows: int, thread: int) -> None:
        near, far, two = cuda.local.array(1, int32), cuda.local.array(2, int32), cuda.local.array(2, int32)
        number = i.opaque(thread)
        twos = int32(rows * TWOS)
        while number < twos:
            row = by_twos(number)
            at = int32(number - row * TWOS)
            row = in_ring(int32(held + row))
            from_ = shared + FROM + row * SIZE + at * 4
            load_word(near, 0, from_)
            if EVEN:
                load_word(far, 0, from_ + STEP)
                two[0], two[1] = i.low_halves(near[0], far[0]), i.high_halves(near[0], far[0])
            else:
                load_word(far, 0, from_ + (STEP - 2))
                load_word(far, 1, from_ + (STEP + 2))
                two[0], two[1] = i.low_and_high(near[0], far[0]), i.high_and_low(near[0], far[1])
            store_two(shared + TO + row * (8 * TWOS) + at * 8, two)
            number = i.opaque(number + THREADS)

    return make
