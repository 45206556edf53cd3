"""The kernel of the dW of a convolution of few channels, on tensor cores. `build(form)` binds its constants.

How it goes: a block takes some filters and a run of the rows of dY, a row at a time, through shared memory. There two
columns of dY that follow each other make a word, as products take them, and so do the two elements of X that they meet
at the same tap. Rows of X stay until others need their places; those that come next are on their way to registers while
a row is multiplied. Each warp has a row of taps, and all the block's filters.

What lies outside the arrays is zero in shared memory: an infinity in X may make NaN of other taps of its filter. Tensor
cores cut off where others round; a run has so few rows that it does not count. At the end each run's sums are a row of
partial sums, see `grid_sum`: the same bits every time.
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
from gradkern.ops.conv.cuda.few_channels.form import COLUMNS, FILTERS, OCTET, PLACES, FewChannelsForm

__all__ = ["build"]


def build(form: FewChannelsForm) -> Callable[..., None]:
    """The kernel for `form`, as a function that Numba compiles with every argument an int64."""
    THREADS, GROUPS, ALL_FILTERS, BLOCK_FILTERS = form.threads, form.groups, form.filters, form.block_filters
    ROW_TAPS, ROWS, STEP_ROWS, AT_ONCE = form.taps[0], form.dY[0], form.steps[0], form.rows_at_once
    NEXT_ROWS = max(ROW_TAPS, STEP_ROWS)  # from the first row of X that a row of dY meets to the first that it does not
    X_WORDS, DY_WORDS, HALVES = form.X_words, 8 * form.dY_vectors, 2 * form.X_each
    TAPS, RUN, TILES, PLACE_TILES = form.all_taps, form.places, form.filter_tiles, form.place_tiles
    COLUMN_TILES, SUMS, PAIR_BYTES, NEXT = form.column_tiles, form.sums, 4 * form.dY_pitch, 8 * form.step
    PLACES_OF_ROW = PLACES * PLACE_TILES
    X_AT, X_ROW, SHARED = form.X_at, 4 * form.X_words, form.shared_bytes
    load_word, multiply = i.word_loader("shared", 4), i.matrix_product(form.dtype)
    store_zero, store_partial = i.storer("shared", "float32", 1), i.storer("global", "float32", 1)
    store_sums, load_sum = i.storer("shared", "float32", 2), i.loader("shared", "float32", 1)
    (load_dY, store_dY), (load_X, store_X) = _dY_row(form), _X_rows(form)
    filter_, row, column, channel = form.dW_strides
    add_over_blocks = sums_over_blocks(
        THREADS, ALL_FILTERS, (*form.taps, form.channels), (filter_, row, column, channel), form.dtype, True
    )

    @device_function
    def multiply_row(sums: Any, dY: int, X: int) -> None:
        """A row of dY times the row of X that the warp's row of taps meets; where this thread's words of both begin."""
        left, right = cuda.local.array(4, int32), cuda.local.array(2, int32)
        of_X = cuda.local.array(PLACE_TILES * 2, int32)
        tile = i.unseen(0)
        while tile < COLUMN_TILES:
            dY_at, X_at = dY + tile * (COLUMNS // 2 * PAIR_BYTES), X + tile * (COLUMNS // 2 * NEXT)
            for place in range(PLACE_TILES):
                for half in range(2):  # of the columns
                    load_word(of_X, place * 2 + half, X_at + (half * 4 * NEXT + place * (PLACES * 4)))
            for n in range(TILES):
                for half in range(2):
                    at = dY_at + (half * 4 * PAIR_BYTES + n * (FILTERS * 4))
                    load_word(left, 2 * half, at)
                    load_word(left, 2 * half + 1, at + FILTERS // 2 * 4)
                for place in range(PLACE_TILES):
                    right[0], right[1] = of_X[place * 2], of_X[place * 2 + 1]
                    multiply(sums, (n * PLACE_TILES + place) * 4, left, right)
            tile = i.unseen(tile + 1)

    def kernel(X: int, dY: int, dW: int, partial: int, counter: int, images: int, chunks: int) -> None:
        thread, shared = int32(cuda.threadIdx.x), i.shared_memory()
        warp, across, down = int32(thread >> 5), int32(thread >> 2 & 7), int32(thread & 3)
        rows = int32(images * ROWS)
        share = i.quotient(int32(rows + chunks - 1), int32(chunks))
        own_dY, own_X = shared + down * PAIR_BYTES + across * 4, shared + X_AT + down * NEXT + across * 4
        own_sums = shared + ((across * ROW_TAPS + warp) * PLACES_OF_ROW + down * 2) * 4
        of_dY, of_X = cuda.local.array(DY_WORDS, int32), cuda.local.array(HALVES, int32)
        sums, one, two = (cuda.local.array(SUMS, float32), cuda.local.array(1, float32), cuda.local.array(2, float32))

        item = int32(cuda.blockIdx.x)
        while item < GROUPS * chunks:
            chunk = i.quotient(item, int32(GROUPS))
            first_filter = int32((item - chunk * GROUPS) * BLOCK_FILTERS)
            here = int32(min(BLOCK_FILTERS, ALL_FILTERS - first_filter))
            one[0] = float32(0)
            at = i.unseen(thread * 4)
            while at < SHARED:  # what no row ever fills
                store_zero(shared + at, one)
                at = i.unseen(at + THREADS * 4)
            for n in range(SUMS):
                sums[n] = float32(0)
            number = int32(chunk * share)
            last = int32(min(number + share, rows))
            image = i.quotient(number, int32(ROWS))
            row, begins = int32(number - image * ROWS), True
            while number < last:
                begin = int32(row * STEP_ROWS)  # of X, with the pads
                if begins:  # a run, or an image: all rows of X that it meets
                    load_dY(of_dY, dY, image, row, first_filter, here, thread)
                    wait_for_block()
                    store_dY(of_dY, shared, thread)
                    met = i.unseen(0)
                    while met < ROW_TAPS:
                        words = int32(min(AT_ONCE, ROW_TAPS - met) * X_WORDS)
                        load_X(of_X, X, image, int32(begin + met), words, thread)
                        store_X(of_X, shared + X_AT, int32(begin + met), words, thread)
                        met = i.unseen(met + AT_ONCE)
                    wait_for_block()
                # the next rows are on their way while these are multiplied
                begins = number + 1 == last or row + 1 == ROWS
                if not begins:
                    load_dY(of_dY, dY, image, int32(row + 1), first_filter, here, thread)
                    load_X(of_X, X, image, int32(begin + NEXT_ROWS), AT_ONCE * X_WORDS, thread)
                met = int32(begin + warp)
                place = int32(met - i.quotient(met, int32(ROW_TAPS)) * ROW_TAPS)
                multiply_row(sums, own_dY, own_X + place * X_ROW)
                if not begins:
                    wait_for_block()
                    store_dY(of_dY, shared, thread)
                    store_X(of_X, shared + X_AT, int32(begin + NEXT_ROWS), AT_ONCE * X_WORDS, thread)
                    wait_for_block()
                number, row = int32(number + 1), int32(row + 1)
                if row == ROWS:
                    image, row = int32(image + 1), int32(0)

            wait_for_block()  # the sums take the rows' place
            for n in range(TILES * 2):  # half of a product's filters
                for tile in range(PLACE_TILES):
                    for word in range(2):
                        two[word] = sums[(n // 2 * PLACE_TILES + tile) * 4 + n % 2 * 2 + word]
                    store_sums(own_sums + (n * (FILTERS // 2 * ROW_TAPS * PLACES_OF_ROW) + tile * PLACES) * 4, two)
            wait_for_block()
            number = i.unseen(thread)
            while number < here * TAPS:
                row_of_taps = i.quotient(number, int32(RUN))  # of one filter
                place = int32(row_of_taps * PLACES_OF_ROW + number - row_of_taps * RUN)
                load_sum(one, shared + place * 4)
                store_partial(partial + ((int64(chunk) * ALL_FILTERS + first_filter) * TAPS + number) * 4, one)
                number = i.unseen(number + THREADS)
            wait_for_block()
            item = int32(item + cuda.gridDim.x)
        add_over_blocks(dW, partial, counter, chunks, thread, shared)

    return kernel


def _dY_row(form: FewChannelsForm) -> tuple[Callable[..., None], Callable[..., None]]:
    """load(words, dY, image, row, first filter, filters, thread): a thread's vectors of a row of dY, two columns each.
    store(words, shared, thread): in shared memory a word has both columns.
    """
    THREADS, OCTETS, COLUMNS_OF_DY = form.threads, form.block_filters // OCTET, form.dY[1]
    IMAGE, ROW, COLUMN = form.dY_strides
    PAIR_BYTES, VECTORS, EACH = 4 * form.dY_pitch, (COLUMNS_OF_DY + 1) // 2 * OCTETS, form.dY_vectors
    load_vector, store_four = i.word_loader("global", 16), i.word_storer("shared", 16)

    @device_function
    def load(words: Any, dY: int, image: int, row: int, first: int, here: int, thread: int) -> None:
        there = dY + int64(image) * IMAGE + int64(row) * ROW + first * 2
        for n in range(EACH):
            pair = i.quotient(int32(thread + n * THREADS), int32(OCTETS))
            octet = int32(thread + n * THREADS - pair * OCTETS)
            at = there + int64(pair) * (2 * COLUMN) + octet * (2 * OCTET)
            for word in range(8):
                words[8 * n + word] = int32(0)
            if octet * OCTET < here and pair * 2 < COLUMNS_OF_DY:
                load_vector(words, 8 * n, at)
                if pair * 2 + 1 < COLUMNS_OF_DY:
                    load_vector(words, 8 * n + 4, at + COLUMN)

    @device_function
    def store(words: Any, shared: int, thread: int) -> None:
        four = cuda.local.array(4, int32)
        for n in range(EACH):
            pair = i.quotient(int32(thread + n * THREADS), int32(OCTETS))
            to = shared + pair * PAIR_BYTES + (thread + n * THREADS - pair * OCTETS) * (OCTET * 4)
            if thread + n * THREADS < VECTORS:
                for half in range(2):
                    for word in range(2):
                        left, right = words[8 * n + 2 * half + word], words[8 * n + 4 + 2 * half + word]
                        four[2 * word], four[2 * word + 1] = i.low_halves(left, right), i.high_halves(left, right)
                    store_four(to + half * 16, four)

    return load, store


def _X_rows(form: FewChannelsForm) -> tuple[Callable[..., None], Callable[..., None]]:
    """load(halves, X, image, first, words, thread): a thread's part of so many words, from row `first` of X on, which
    is counted with the pads before it. store(halves, shared, first, words, thread): to the places of their rows.
    """
    THREADS, WORDS, ROW_TAPS, BEGIN = form.threads, form.X_words, form.taps[0], form.begins[0]
    LEAD, STEP, ELEMENTS, ROWS = form.begins[1] * form.channels, form.step, form.X[1] * form.channels, form.X[0]
    IMAGE, ROW = form.X_strides
    EACH = form.X_each
    load_half, store_word = i.word_loader("global", 2), i.word_storer("shared", 4)

    @device_function
    def load(halves: Any, X: int, image: int, first: int, words: int, thread: int) -> None:
        there = X + int64(image) * IMAGE
        for n in range(EACH):
            number = int32(thread + n * THREADS)
            row = i.quotient(number, int32(WORDS))
            element = int32(number - row * WORDS - LEAD)
            row = int32(first + row - BEGIN)
            inside = number < words and row >= 0 and row < ROWS
            at = there + int64(row) * ROW + int64(element) * 2
            for half in range(2):
                halves[2 * n + half] = int32(0)
                if inside and element + half * STEP >= 0 and element + half * STEP < ELEMENTS:
                    load_half(halves, 2 * n + half, at + half * (2 * STEP))

    @device_function
    def store(halves: Any, shared: int, first: int, words: int, thread: int) -> None:
        one = cuda.local.array(1, int32)
        for n in range(EACH):
            number = int32(thread + n * THREADS)
            row = i.quotient(number, int32(WORDS))
            word = int32(number - row * WORDS)
            row = int32(first + row)
            place = int32(row - i.quotient(row, int32(ROW_TAPS)) * ROW_TAPS)
            if number < words:
                one[0] = i.low_halves(halves[2 * n], halves[2 * n + 1])
                store_word(shared + (place * WORDS + word) * 4, one)

    return load, store
