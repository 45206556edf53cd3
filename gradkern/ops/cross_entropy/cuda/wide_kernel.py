"""The kernel of CrossEntropy for wide rows of 16 bits: losses and gradients of labels, without smoothing. It caps no
logits; they may be capped already.

A row waits in shared memory as in the row block, and its parts wait for each other once. The label's logit, and what is
beyond the row, become minus infinity there, so that loops over vectors have no special cases: 10 instructions for an
element, where the row block has 17 to 20. The label's gradient is written behind those of its vector.

Of rows that begin anywhere a warp's vectors are four whole lines of memory, so that no sector is moved by two warps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, int32, int64, uint32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.access import Reduction, vector_access
from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.problem import VECTOR, RowsTypes
from gradkern.kernels.rows.totals import cluster_barriers, over_lanes_of, over_row
from gradkern.ops.cross_entropy.cuda.config import LINE, LossConfig
from gradkern.ops.cross_entropy.cuda.kernel import LEAST, forward_arithmetic
from gradkern.ops.cross_entropy.cuda.labels import ZERO_ROW

_WIDTH, _WORDS = 8, 4  # of a vector


def build(types: RowsTypes, config: RowsConfig, loss: LossConfig) -> Callable[..., None]:
    """The kernel for these types and a config that is staged."""
    LANES, VECTORS, CLUSTER, SHIFTED = config.lanes, config.vectors, config.cluster, config.shifted
    STEP, STAGE, STAGE_AT = LANES * CLUSTER, LANES * VECTOR, config.stage_at(types)
    SECOND_LAST = max(0, VECTORS - 2)
    KIND, ENTROPY, RESULTS, CAPPED = types.inputs[0], loss.entropy, len(types.results), loss.softcap > 0
    NOTHING = -0x7F0080 if KIND == "bfloat16" else -0x3FF0400  # two minus infinities
    LOG2_E, LOWEST, LEAST_EXPONENT = float32(1 / math.log(2)), float32(-1e38), float32(LEAST)
    INVERSE_CAP, ONE = float32(1 / (loss.softcap or 1)), float32(1)
    arithmetic = forward_arithmetic(types, config, loss)
    finish, results_of = arithmetic.finish, arithmetic.results
    _, _, store, store_some, _, load_scalars, store_results = vector_access(types, _WIDTH, False, _WIDTH, arithmetic)
    copy, wait_for_copies = i.async_copy(VECTOR), i.wait_for_copies(0)
    read, write = i.word_loader("shared", VECTOR), i.word_storer("shared", VECTOR)
    read_one, write_one = i.loader("shared", KIND, 1), i.storer("shared", KIND, 1)
    store_one = i.storer("global", KIND, 1)
    quotient = i.quotient_by(STEP)
    unpack, unpack_pair, largest = i.unpacker(KIND, _WIDTH), i.unpacker(KIND, 2), i.largest_halves(KIND)

    @device_function
    def shift_of(most: Any) -> Any:
        return max(most, LOWEST) * LOG2_E

    @device_function
    def rescale(first: Any, second: Any, part: Any, total: Any) -> Any:
        less = shift_of(part) - shift_of(total)
        power = i.exp2_approximate(less)
        return first * power, (second + first * less) * power

    maximum = arithmetic.reductions[0]
    sums = Reduction(arithmetic.reductions[1].terms, rescale=rescale, single=not ENTROPY)
    begin_cluster = cluster_barriers(types, config)
    send_maximum, maximum_of_row = over_row(types, config, maximum, 0)
    send_sums, sums_of_row = over_row(types, config, sums, 1, True)
    maximum_of_warp, sums_of_warp = over_lanes_of(types, maximum), over_lanes_of(types, sums)

    @device_function
    def largest_of(stage: int) -> Any:
        words, x = cuda.local.array(_WORDS, int32), cuda.local.array(2, float32)
        found = cuda.local.array(1, int32)
        first, second = int32(NOTHING), int32(NOTHING)
        for j in range(int32(VECTORS)):
            read(words, 0, stage + j * STAGE)
            first = largest(first, largest(words[0], words[1]))
            second = largest(second, largest(words[2], words[3]))
        found[0] = largest(first, second)
        unpack_pair(x, found, int32(0))
        return max(x[0], x[1])

    @device_function
    def sums_of(stage: int, shift: Any) -> Any:
        """Of the exponentials, and of their products with exponents."""
        words, x = cuda.local.array(_WORDS, int32), cuda.local.array(_WIDTH, float32)
        even, odd, products = float32(0), float32(0), float32(0)
        for j in range(int32(VECTORS)):
            read(words, 0, stage + j * STAGE)
            unpack(x, words, int32(0))
            for e in range(_WIDTH):
                exponent = x[e] * LOG2_E - shift
                x[e] = i.exp2_approximate(exponent)
                if ENTROPY:
                    products += x[e] * max(exponent, LEAST_EXPONENT)
            for e in range(0, _WIDTH, 2):
                even, odd = even + x[e], odd + x[e + 1]
        return even + odd, products

    @device_function
    def slopes_of(y: Any, at: int, factor: Any, shift: Any) -> None:
        """A vector of the gradient."""
        words = cuda.local.array(_WORDS, int32)
        read(words, 0, at)
        unpack(y, words, int32(0))
        for e in range(_WIDTH):
            slope = factor * i.exp2_approximate(y[e] * LOG2_E - shift)
            if CAPPED:
                slope *= ONE - (y[e] * INVERSE_CAP) * (y[e] * INVERSE_CAP)
            y[e] = slope

    @device_function
    def fill(at: int, word: int) -> None:
        """A vector with this word."""
        words = cuda.local.array(_WORDS, int32)
        for k in range(_WORDS):
            words[k] = word
        write(at, words)

    def kernel(
        in_0: int, _in_1: int, _in_2: int, out_0: int, _out_1: int, _p_0: int, _p_1: int, _p_2: int,
        s_0: int, s_1: int, s_2: int, s_3: int, s_4: int, r_0: int, r_1: int,
        _rows: int, classes: int, _inner: int, _slices: int,
        in_0_stride: int, _in_1_stride: int, _in_2_stride: int, out_0_stride: int, _out_1_stride: int,
        _in_0_step: int, _in_1_step: int, _in_2_step: int, _out_0_step: int, _out_1_step: int,
    ) -> None:  # fmt: skip
        thread, block, rank, columns = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x), int32(0), int32(classes)
        if CLUSTER > 1:
            rank = i.cluster_rank()
            block = int32(block // CLUSTER)
            begin_cluster(thread)
        row = int64(block)
        a, b = i.row_address_long(in_0, row, in_0_stride), i.row_address_long(out_0, row, out_0_stride)
        shift = int32(0)  # elements before the row in its first line
        if SHIFTED:
            shift = int32(a & (LINE - 1)) // 2
            a, b = a - 2 * shift, b - 2 * shift
        last = int32(shift + columns - 1)
        first_vector, last_vector = int32(shift >> 3), int32(last >> 3)
        begin, end = int32(shift & 7), int32((last & 7) + 1)  # of their elements that are the row's
        v0 = int32(rank * LANES + thread)
        stage = i.shared_memory() + int32(STAGE_AT + thread * VECTOR)
        for j in range(int32(VECTORS)):
            v = min(max(int32(v0 + j * STEP), first_vector), last_vector)
            copy(stage + j * STAGE, a + int64(v) * VECTOR)
        i.commit_copies()
        totals, r, values = cuda.local.array(4, float32), cuda.local.array(4, float32), cuda.local.array(2, float32)
        y, one = cuda.local.array(_WIDTH, float32), cuda.local.array(1, float32)
        load_scalars(r, s_0, s_1, s_2, s_3, s_4, row, classes)
        wait_for_copies()

        place = quotient(last_vector)
        at_last, has_first, has_last = (
            stage + place * STAGE,
            v0 == first_vector,
            v0 == int32(last_vector - place * STEP),
        )
        if SHIFTED and v0 < first_vector:
            fill(stage, int32(NOTHING))
        for j in range(int32(SECOND_LAST), int32(VECTORS)):  # the threads have 7 vectors more than a row at most
            if v0 + j * STEP > last_vector:
                fill(stage + j * STAGE, int32(NOTHING))
        one[0] = float32(-math.inf)
        if SHIFTED and has_first:
            for e in range(begin):
                write_one(stage + 2 * e, one)
        if SHIFTED and has_last:
            for e in range(end, int32(_WIDTH)):
                write_one(at_last + 2 * e, one)
        first, second = float32(-math.inf), float32(0)
        label = int32(max(int32(r[0]), int32(0)) + shift)
        place = quotient(int32(label >> 3))
        has_label = r[0] >= 0 and v0 == int32((label >> 3) - place * STEP)
        if has_label:
            at = stage + (place * STAGE + (label & 7) * 2)
            read_one(values, at)
            first = second = values[0]
            write_one(at, one)

        first, second = maximum_of_warp(max(first, largest_of(stage)), second, 32)
        send_maximum(first, second, thread, rank)
        total, products = sums_of(stage, shift_of(first))
        total, products = sums_of_warp(total, products, 32)
        send_sums(total, products, thread, rank)
        totals[0], totals[1] = maximum_of_row(first, second, thread, first)
        totals[2], totals[3] = sums_of_row(total, products, thread, totals[0])
        if ENTROPY and r[0] >= 0:
            exponent = totals[1] * LOG2_E - shift_of(totals[0])
            totals[3] += i.exp2_approximate(exponent) * max(exponent, LEAST_EXPONENT)
        if RESULTS > 0 and v0 == 0:
            results_of(values, totals, r, float32(columns))
            store_results(r_0, r_1, values, row)
        finish(totals, r, float32(columns))

        factor, whole, count = totals[2], first_vector, int32(last_vector + 1 - first_vector)  # vectors written whole
        if r[0] == ZERO_ROW:  # 0 and not NaN, whatever the logits are
            factor, r[3] = float32(0), float32(0)
            for j in range(int32(VECTORS)):
                fill(stage + j * STAGE, int32(0))
        if SHIFTED and begin > 0:
            whole, count = int32(whole + 1), int32(count - 1)
            if has_first:
                slopes_of(y, stage, factor, r[3])
                store_some(b + int64(first_vector) * VECTOR, b, y, y, begin, int32(_WIDTH))
        if SHIFTED and end < _WIDTH:
            count = int32(count - 1)
            if has_last:
                slopes_of(y, at_last, factor, r[3])
                store_some(b + int64(last_vector) * VECTOR, b, y, y, int32(0), end)
        for j in range(int32(VECTORS)):
            v = int32(v0 + j * STEP)
            slopes_of(y, stage + j * STAGE, factor, r[3])
            if uint32(int32(v - whole)) < uint32(count):
                store(b + int64(v) * VECTOR, b, y, y)
        if has_label:
            one[0] = totals[3]
            store_one(b + int64(label) * 2, one)

    return kernel
