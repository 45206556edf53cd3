"""matrix[image, p, channel, tap] = tensor[image, channel, step*q + first + spacing*tap], and 0 outside the tensor.

p counts the positions q of a grid in row-major order. Strides are in bytes. A thread has one position and `chunk`
channels, `at_once` of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.ops.conv.cuda.gemm.positions import offset, positions, rows_of


def build(config: Im2colConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument an int64."""
    GROUPED, U, CHUNK = config.grouped, config.at_once, config.chunk
    WORD = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load, store = i.loader("global", config.word, 1), i.storer("global", config.word, 1, config.native_bfloat16)
    own, divided, unravelled = positions(INDEX, config.threads)
    start_of, row_of = rows_of(INDEX, GROUPED)

    def gather(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        blocks: int, grid1: int, grid2: int, size0: int, size1: int, size2: int,
        tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, taps0: int, taps1: int, taps2: int,
        first0: int, first1: int, first2: int, spacing0: int, spacing1: int, spacing2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        one, held = cuda.local.array(1, WORD), cuda.local.array(U, WORD)
        groups = group_channels, matrix_group, matrix_channel
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            q0, q1, q2 = unravelled(INDEX(p + INDEX(start)), grid1, grid2)
            x0 = INDEX(q0 * INDEX(step0) + INDEX(first0))
            x1 = INDEX(q1 * INDEX(step1) + INDEX(first1))
            x2 = INDEX(q2 * INDEX(step2) + INDEX(first2))
            at = tensor + image * tensor_image + offset((x0, x1, x2), (tensor0, tensor1, tensor2))
            to = matrix + image * matrix_image + p * matrix_position
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            while c < stop:
                column, at0, y0 = to + start_of(c, groups), at + c * tensor_channel, x0
                for _t0 in range(int32(taps0)):
                    at1, y1 = at0, x1
                    for _t1 in range(int32(taps1)):
                        at2, y2 = at1, x2
                        inside1 = y0 >= 0 and y0 < INDEX(size0) and y1 >= 0 and y1 < INDEX(size1)
                        for _t2 in range(int32(taps2)):
                            for u in range(U):
                                held[u] = WORD(0)
                            if inside1 and y2 >= 0 and y2 < INDEX(size2):
                                source = at2
                                for u in range(U):
                                    if c + u < stop:
                                        load(one, source)
                                        held[u] = one[0]
                                    source += tensor_channel
                            target = column
                            for u in range(U):
                                if c + u < stop:
                                    one[0] = held[u]
                                    store(column + row_of(c, u, groups) if GROUPED else target, one)
                                target += matrix_channel
                            column += matrix_tap
                            at2 += spacing2 * tensor2
                            y2 = INDEX(y2 + INDEX(spacing2))
                        at1 += spacing1 * tensor1
                        y1 = INDEX(y1 + INDEX(spacing1))
                    at0 += spacing0 * tensor0
                    y0 = INDEX(y0 + INDEX(spacing0))
                c = INDEX(c + U)

    return gather
