"""The kernel of CrossEntropy for few classes along an axis that is not the last, of 16 bits: losses and gradients of
labels, without smoothing or softcap.

A thread has all classes of some pixels in registers, so that none waits for another. Loops over classes are unrolled:
labels are compared with constants, and an element takes 25 instructions, where the row block has 47.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.kernels.rows.access import vector_access
from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.problem import RowsTypes
from gradkern.ops.cross_entropy.cuda.config import LossConfig
from gradkern.ops.cross_entropy.cuda.kernel import LEAST, forward_arithmetic
from gradkern.ops.cross_entropy.cuda.labels import ZERO_ROW


def build(types: RowsTypes, config: RowsConfig, loss: LossConfig) -> Callable[..., None]:
    """The kernel for these types and a config of one team: a thread has `vectors` classes of `width` pixels."""
    WIDTH, LANES, CLASSES, WORDS = config.width, config.lanes, config.vectors, config.width // 2
    KIND, ENTROPY, RESULTS = types.inputs[0], loss.entropy, len(types.results)
    LOG2_E, LOWEST, LEAST_EXPONENT = float32(1 / math.log(2)), float32(-1e38), float32(LEAST)
    arithmetic = forward_arithmetic(types, config, loss)
    finish, results_of = arithmetic.finish, arithmetic.results
    *_, load_scalars, store_results = vector_access(types, WIDTH, False, 1, arithmetic)
    load, unpack, largest = i.word_loader("global", 2 * WIDTH), i.unpacker(KIND, WIDTH), i.largest_halves(KIND)
    store = i.storer("global", KIND, WIDTH)

    def kernel(
        in_0: int, _in_1: int, _in_2: int, out_0: int, _out_1: int, _p_0: int, _p_1: int, _p_2: int,
        s_0: int, s_1: int, s_2: int, s_3: int, s_4: int, r_0: int, r_1: int,
        _rows: int, classes: int, inner: int, slices: int,
        in_0_stride: int, _in_1_stride: int, _in_2_stride: int, out_0_stride: int, _out_1_stride: int,
        in_0_step: int, _in_1_step: int, _in_2_step: int, out_0_step: int, _out_1_step: int,
    ) -> None:  # fmt: skip
        block = int32(cuda.blockIdx.x)
        matrix = i.quotient(block, int32(slices))
        slice_ = int32(block - matrix * slices)
        column = int64(slice_) * (LANES * WIDTH) + int32(cuda.threadIdx.x * WIDTH)
        inside = column < inner
        column = min(column, inner - WIDTH)
        a = i.row_address_long(in_0, int64(matrix), in_0_stride) + column * 2
        b = i.row_address_long(out_0, int64(matrix), out_0_stride) + column * 2
        pixel = int64(matrix) * inner + column
        words, found = cuda.local.array(CLASSES * WORDS, int32), cuda.local.array(WORDS, int32)
        x, labels, r = cuda.local.array(WIDTH, float32), cuda.local.array(WIDTH, int32), cuda.local.array(4, float32)
        totals, values, scalars = (
            cuda.local.array(4, float32), cuda.local.array(2, float32), cuda.local.array(4 * WIDTH, float32)
        )  # fmt: skip
        most, of_label = cuda.local.array(WIDTH, float32), cuda.local.array(WIDTH, float32)
        total, products = cuda.local.array(WIDTH, float32), cuda.local.array(WIDTH, float32)
        shift, factor = cuda.local.array(WIDTH, float32), cuda.local.array(WIDTH, float32)
        exact = cuda.local.array(WIDTH, float32)
        for c in range(CLASSES):
            load(words, int32(c * WORDS), i.row_address(a, int32(c), int32(in_0_step)))
        for e in range(WIDTH):
            load_scalars(r, s_0, s_1, s_2, s_3, s_4, pixel + e, classes)
            for k in range(4):
                scalars[4 * e + k] = r[k]
            labels[e] = int32(r[0])
            total[e], of_label[e], products[e] = float32(0), float32(0), float32(0)

        for k in range(WORDS):
            found[k] = words[k]
        for c in range(1, CLASSES):
            for k in range(WORDS):
                found[k] = largest(found[k], words[c * WORDS + k])
        unpack(most, found, int32(0))
        for e in range(WIDTH):
            shift[e] = max(most[e], LOWEST) * LOG2_E
        for c in range(CLASSES):
            unpack(x, words, int32(c * WORDS))
            for e in range(WIDTH):
                of_label[e] = x[e] if labels[e] == c else of_label[e]
                exponent = x[e] * LOG2_E - shift[e]
                power = i.exp2_approximate(exponent)
                total[e] = i.add_unless(total[e], power, labels[e], int32(c))
                if ENTROPY:
                    products[e] += power * max(exponent, LEAST_EXPONENT)

        zero = False
        for e in range(WIDTH):
            totals[0], totals[1], totals[2], totals[3] = most[e], of_label[e], total[e], products[e]
            for k in range(4):
                r[k] = scalars[4 * e + k]
            if RESULTS > 0:
                results_of(values, totals, r, float32(classes))
                if inside:
                    store_results(r_0, r_1, values, pixel + e)
            finish(totals, r, float32(classes))
            factor[e], exact[e], shift[e] = totals[2], totals[3], r[3]
            if r[0] == ZERO_ROW:
                zero = True
                factor[e], shift[e] = float32(0), float32(0)
            labels[e] = int32(r[0])
        if zero:  # the gradient is 0 and not NaN, whatever the logits are
            for k in range(WORDS):
                counts = int32(0)
                if labels[2 * k] != ZERO_ROW:
                    counts |= int32(0xFFFF)
                if labels[2 * k + 1] != ZERO_ROW:
                    counts |= int32(-0x10000)
                for c in range(CLASSES):
                    words[c * WORDS + k] &= counts
        if inside:
            for c in range(CLASSES):
                unpack(x, words, int32(c * WORDS))
                for e in range(WIDTH):
                    slope = factor[e] * i.exp2_approximate(x[e] * LOG2_E - shift[e])
                    x[e] = exact[e] if labels[e] == c else slope
                store(i.row_address(b, int32(c), int32(out_0_step)), x)

    return kernel
