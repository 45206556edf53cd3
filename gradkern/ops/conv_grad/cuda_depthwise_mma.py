"""The kernel of a depthwise convolution's dW on tensor cores. `build(form)` binds its constants; see MmaForm.

    dW[k, l] = sum over images, rows h and columns w of dY[h, w] * X[h * stride + k - begin, w * stride + l - begin]

One channel has no matrices, but its shifts make some: for two rows h and h + 1 of dY, the eight rows of X that they
meet, and 16 columns j of X,

    A[(d, l), j] = dY[h + d, the w with w * stride + l - begin = j]      16 x 16: every shift of both rows
    B[j, i]      = X[h * stride + i - begin, j]                          16 x 8
    (A B)[(d, l), i] = sum over j of what belongs to dW[i - d * stride, l]

so one product of matrices of a warp does what 32 threads would take 64 multiply-adds for. 7 of 8 are used for 7x7 taps.

How it goes: a block takes some channels of a run of rows of all images (see MmaForm), a few rows at a time. A thread
has a vector of 8 channels of four columns in registers while the block works on the rows before, then turns it over in
registers (two columns of one channel make a word) and puts it into shared memory: X into a ring of rows; dY twice, at
even and at odd columns, so that every shift begins at a word. The matrices' columns j are numbered such that a thread's
four are side by side. What waits in the end is shared memory: six accesses of a warp for a product.

Tensor cores cut off where others round, so their sums are short: after each step they are added to those of float32.
What lies outside the arrays is zero in shared memory. An infinity in X makes NaN of each of its channel's taps.

At the end each block writes one row of partial sums, see cuda_depthwise_sums: the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, int32, int64

from gradkern.cuda import intrinsics as i
from gradkern.ops.conv_grad.cuda_depthwise_mma_form import PRODUCT, WARP_CHANNELS, MmaForm
from gradkern.ops.conv_grad.cuda_depthwise_sums import sums_over_blocks

__all__ = ["build"]

inline = cuda.jit(device=True, inline="always")


def build(form: MmaForm) -> Callable[..., None]:
    """The kernel for `form`, as a function that Numba compiles with every argument an int64."""
    GROUPS, CHANNELS, TOTAL_CHANNELS, THREADS = form.groups, form.channels, form.total_channels, form.threads
    OCTETS, SIDES, PERIOD, STEP_ROWS = form.octets, form.sides, form.period, form.step_rows
    STRIDE, SOURCE_STEP, SOURCE_PERIOD = form.strides[0], form.source_step, form.strides[0] * form.period
    AHEAD, ARRIVALS, RING = form.ahead, form.arrivals, form.ring
    SOURCE_ROWS, SOURCE_COLUMNS = form.source
    STRIP_ROWS, STRIP_COLUMNS = form.strip
    SOURCE_IMAGE, SOURCE_ROW, SOURCE_COLUMN = form.source_strides
    STRIP_IMAGE, STRIP_ROW, STRIP_COLUMN = form.strip_strides
    SOURCE_QUADS, STRIP_QUADS = form.source_quads, form.strip_quads
    SOURCE_ACROSS, STRIP_ACROSS = SIDES * form.source_quads, SIDES * form.strip_quads
    SOURCE_PITCH, SOURCE_CHANNEL = 4 * form.source_pitch, 4 * form.source_channel  # from here on in bytes
    STRIP_PITCH, STRIP_CHANNEL, REGION = 4 * form.strip_pitch, 4 * form.strip_channel, 4 * form.region
    SOURCE_OCTET, STRIP_OCTET = 8 * SOURCE_CHANNEL + 4 * form.octet_pad, 8 * STRIP_CHANNEL + 4 * form.octet_pad
    STRIP_AT, SHARED = 4 * form.source_words, form.shared_bytes
    SPREAD = form.strides[1] == 2  # zeros between the columns of dY
    ORIGIN, FIRST = form.origin, form.origin - form.begins[1]
    PIXELS, STRIP_PIXELS, BEFORE = 4, 2 if SPREAD else 5, 0 if SPREAD else 1
    WORDS = 4 * (PIXELS + STRIP_PIXELS)
    ROWS, COLUMNS, _ = PRODUCT
    TAPS, COLUMN_TAPS, SUMS = form.all_taps, form.taps[1], 4 * WARP_CHANNELS
    MATRIX = ROWS * COLUMNS * 4  # bytes of the sums of one channel

    load_vector = i.word_loader("global", 16)
    store_two, store_four = i.word_storer("shared", 8), i.word_storer("shared", 16)
    store_zeros = i.storer("shared", "float32", 4)
    store_sums, load_sum = i.storer("shared", "float32", 2), i.loader("shared", "float32", 1)
    store_partial = i.storer("global", "float32", 1)
    multiply = i.shared_products(form.dtype, form.products)
    add_over_blocks = sums_over_blocks(
        THREADS, TOTAL_CHANNELS, form.taps, form.filter_strides, form.dtype, native_bfloat16=True
    )

    @inline
    def fetch_source(words: Any, start: int, step: int, row: int, side: int, column: int, mine: bool, images: int) -> None:
        """Four columns of X, of the rows that arrive in this step."""
        for n in range(4 * PIXELS):
            words[n] = int32(0)
        tall = int32(step * SOURCE_STEP + AHEAD + row)
        stack = int32(tall // SOURCE_PERIOD)
        row = int32(tall - stack * SOURCE_PERIOD)
        image = int32(stack * SIDES + side)
        if mine and tall >= 0 and row < SOURCE_ROWS and image < images:
            at = start + int64(image) * SOURCE_IMAGE + int64(row) * SOURCE_ROW + int64(column) * SOURCE_COLUMN
            for pixel in range(PIXELS):
                if column + pixel < SOURCE_COLUMNS:
                    load_vector(words, 4 * pixel, at + pixel * SOURCE_COLUMN)

    @inline
    def fetch_strip(words: Any, start: int, step: int, row: int, side: int, column: int, mine: bool, images: int) -> None:
        """Of dY the columns that make four elements, and the one before them, of this step's rows."""
        for n in range(4 * STRIP_PIXELS):
            words[4 * PIXELS + n] = int32(0)
        tall = int32(step * STEP_ROWS + row)
        stack = int32(tall // PERIOD)
        row = int32(tall - stack * PERIOD)
        image = int32(stack * SIDES + side)
        if mine and row < STRIP_ROWS and image < images:
            at = start + int64(image) * STRIP_IMAGE + int64(row) * STRIP_ROW + int64(column) * STRIP_COLUMN
            for pixel in range(STRIP_PIXELS):
                here = column + pixel - BEFORE
                if here >= 0 and here < STRIP_COLUMNS:
                    load_vector(words, 4 * (PIXELS + pixel), at + (pixel - BEFORE) * STRIP_COLUMN)

    @inline
    def put_source(at: int, words: Any, two: Any) -> None:
        """Words of two columns of one channel each, from words of two channels of one column."""
        for n in range(4):
            two[0] = i.low_halves(words[n], words[4 + n])
            two[1] = i.low_halves(words[8 + n], words[12 + n])
            store_two(at + 2 * n * SOURCE_CHANNEL, two)
            two[0] = i.high_halves(words[n], words[4 + n])
            two[1] = i.high_halves(words[8 + n], words[12 + n])
            store_two(at + (2 * n + 1) * SOURCE_CHANNEL, two)

    @inline
    def put_strip(at: int, words: Any, four: Any) -> None:
        """The same of elements (0, 1), (-1, 0), (2, 3) and (1, 2)."""
        for n in range(4):
            p = 16 + n
            if SPREAD:
                zero = int32(0)
                four[0] = i.low_halves(words[p], zero)
                four[1] = i.low_halves(zero, words[p])
                four[2] = i.low_halves(words[p + 4], zero)
                four[3] = i.low_halves(zero, words[p + 4])
            else:
                four[0] = i.low_halves(words[p + 4], words[p + 8])
                four[1] = i.low_halves(words[p], words[p + 4])
                four[2] = i.low_halves(words[p + 12], words[p + 16])
                four[3] = i.low_halves(words[p + 8], words[p + 12])
            store_four(at + 2 * n * STRIP_CHANNEL, four)
            if SPREAD:
                zero = int32(0)
                four[0] = i.high_halves(words[p], zero)
                four[1] = i.high_halves(zero, words[p])
                four[2] = i.high_halves(words[p + 4], zero)
                four[3] = i.high_halves(zero, words[p + 4])
            else:
                four[0] = i.high_halves(words[p + 4], words[p + 8])
                four[1] = i.high_halves(words[p], words[p + 4])
                four[2] = i.high_halves(words[p + 12], words[p + 16])
                four[3] = i.high_halves(words[p + 8], words[p + 12])
            store_four(at + (2 * n + 1) * STRIP_CHANNEL, four)

    def kernel(source: int, strip: int, filters: int, partial: int, counter: int, images: int, chunks: int) -> None:
        thread, images = int32(cuda.threadIdx.x), int32(images)
        group, chunk = int32(cuda.blockIdx.x % GROUPS), int32(cuda.blockIdx.x // GROUPS)
        first_channel = int32(group * CHANNELS)
        here = int32(min(CHANNELS, TOTAL_CHANNELS - first_channel))
        shared = i.shared_memory()
        # the steps of this block
        stacks = int32((images + SIDES - 1) // SIDES)
        steps = int32(((stacks - 1) * PERIOD + STRIP_ROWS + STEP_ROWS - 1) // STEP_ROWS)
        share = int32((steps + chunks - 1) // chunks)
        first = int32(chunk * share)
        last = int32(min(first + share, steps))

        # what this thread moves
        octet, place = int32(thread % OCTETS), int32(thread // OCTETS)
        source_row, source_quad = int32(place // SOURCE_ACROSS), int32(place % SOURCE_ACROSS)
        strip_row, strip_quad = int32(place // STRIP_ACROSS), int32(place % STRIP_ACROSS)
        source_side, strip_side = int32(source_quad // SOURCE_QUADS), int32(strip_quad // STRIP_QUADS)
        source_column = int32(4 * (source_quad - source_side * SOURCE_QUADS))
        strip_element = int32(4 * (strip_quad - strip_side * STRIP_QUADS))
        strip_column = int32(strip_element // 2) if SPREAD else strip_element
        moves_source, moves_strip = source_row < SOURCE_STEP, strip_row < STEP_ROWS
        mine = octet * 8 < here
        source_from = source + (int64(first_channel) + octet * 8) * 2
        strip_from = strip + (int64(first_channel) + octet * 8) * 2
        source_to = (
            shared + octet * SOURCE_OCTET + source_row * SOURCE_PITCH + source_side * 16 + source_column * 2
        )
        strip_to = (
            shared + STRIP_AT + octet * STRIP_OCTET
            + strip_row * STRIP_PITCH + strip_side * REGION + (strip_element + FIRST) * 4
        )  # fmt: skip

        # what it multiplies: row `across` of B and rows of A at shift `across`, from its column `down` of A on
        warp, across, down = int32(thread // 32), int32(thread % 32 // 4), int32(thread % 4)
        warp_octet = int32(warp * WARP_CHANNELS // 8)
        source_at = (
            shared + warp_octet * SOURCE_OCTET + (warp * WARP_CHANNELS - warp_octet * 8) * SOURCE_CHANNEL + down * 8
        )
        shift = int32(ORIGIN - across)
        column = int32(down // 2 * (REGION // 4) + down % 2 * 4) if SIDES > 1 else int32(down * 4)
        strip_at = (
            shared + STRIP_AT + warp_octet * STRIP_OCTET + (warp * WARP_CHANNELS - warp_octet * 8) * STRIP_CHANNEL
            + (column + shift + 2 * (shift % 2)) * 4
        )  # fmt: skip

        words, two, four = cuda.local.array(WORDS, int32), cuda.local.array(2, int32), cuda.local.array(4, int32)
        zeros, one, pair = cuda.local.array(4, float32), cuda.local.array(1, float32), cuda.local.array(2, float32)
        short, sums = cuda.local.array(SUMS, float32), cuda.local.array(SUMS, float32)
        for n in range(SUMS):
            sums[n] = float32(0)
        for n in range(4):
            zeros[n] = float32(0)
        at = i.unseen(thread * 16)
        while at < SHARED:  # what lies outside the arrays
            store_zeros(shared + at, zeros)
            at = i.unseen(at + THREADS * 16)
        cuda.syncthreads()

        step, slot = int32(first - (ARRIVALS - 1)), int32(0)  # before the first there are rows of X alone
        fetch_source(words, source_from, step, source_row, source_side, source_column, mine and moves_source, images)
        fetch_strip(
            words, strip_from, step, strip_row, strip_side, strip_column,
            mine and moves_strip and step >= first, images,
        )  # fmt: skip
        while step < last:
            if moves_source:
                put_source(source_to + slot * (SOURCE_STEP * SOURCE_PITCH), words, two)
            if moves_strip:
                put_strip(strip_to, words, four)
            following = int32(step + 1)
            more = mine and following < last
            fetch_source(
                words, source_from, following, source_row, source_side, source_column, more and moves_source, images
            )
            fetch_strip(
                words, strip_from, following, strip_row, strip_side, strip_column,
                more and moves_strip and following >= first, images,
            )  # fmt: skip
            cuda.syncthreads()
            if step >= first:
                for n in range(SUMS):
                    short[n] = float32(0)
                for two_rows in range(STEP_ROWS // 2):
                    row = int32(slot * SOURCE_STEP + STRIDE * (2 * two_rows + 2) - COLUMNS + across)
                    if row < 0:
                        row = int32(row + RING)
                    multiply(short, strip_at + two_rows * (2 * STRIP_PITCH), source_at + row * SOURCE_PITCH)
                for n in range(SUMS):
                    sums[n] += short[n]
            cuda.syncthreads()
            slot = int32(slot + 1) if slot < ARRIVALS - 1 else int32(0)
            step = following

        # sums 0 and 1 of a channel are at row `across` of its matrix, 2 and 3 eight rows below: the other row of dY
        for channel in range(WARP_CHANNELS):
            place = shared + (warp * WARP_CHANNELS + channel) * MATRIX + (across * COLUMNS + down * 2) * 4
            for half in range(2):
                pair[0], pair[1] = sums[4 * channel + 2 * half], sums[4 * channel + 2 * half + 1]
                store_sums(place + half * (MATRIX // 2), pair)
        cuda.syncthreads()
        number = i.unseen(thread)
        while number < here * TAPS:
            whose, tap = int32(number // TAPS), int32(number % TAPS)
            row_tap, column_tap = int32(tap // COLUMN_TAPS), int32(tap % COLUMN_TAPS)
            place = shared + whose * MATRIX + (column_tap * COLUMNS + row_tap) * 4
            load_sum(one, place)
            total = one[0]
            load_sum(one, place + MATRIX // 2 + STRIDE * 4)
            one[0] = total + one[0]
            store_partial(partial + (int64(chunk) * (TOTAL_CHANNELS * TAPS) + first_channel * TAPS + number) * 4, one)
            number = i.unseen(number + THREADS)
        add_over_blocks(filters, partial, counter, chunks, thread, shared)

    return kernel
