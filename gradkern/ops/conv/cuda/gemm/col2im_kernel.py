"""col2im: dX from the products of all filter taps. Each element is the sum of those that meet it, in a fixed order.

    tensor[image, channel, x] = sum over taps t of matrix[image, q, channel, t],  q*step = x + begin - t*dilation

It is bound by memory, as the kernels in `im2col_kernel` are, and built like them: a thread has one position and `chunk`
channels, `at_once` of them at a time, whose sums are in registers; the place of a tap's q serves all of them. On each
axis the taps that meet x are `hop` apart, their q `back`. If no two taps meet an element (`single`) nothing is summed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.ops.conv.cuda.gemm.positions import offset, positions, rows_of


def build(config: Im2colConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument an int64."""
    SINGLE, U, CHUNK = config.single, config.at_once, config.chunk
    FLOAT = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load = i.loader("global", config.word, 1)
    store = i.storer("global", config.result, 1, config.native_bfloat16)
    own, divided, unravelled = positions(INDEX, config.threads)
    (start_of, row_of), first_tap = rows_of(INDEX, config.grouped), _first_tap(INDEX)

    @device_function
    def fetch(held: Any, column: int, first: int, here: int, groups: Any) -> None:
        """U elements of a column from channel `first` on, where there are `here`; zeros for others."""
        one = cuda.local.array(1, FLOAT)
        for u in range(U):
            held[u] = FLOAT(0)
            if u < here:
                load(one, column + row_of(first, u, groups))
                held[u] = one[0]

    @device_function
    def write(to: int, values: Any, here: int, tensor_channel: int) -> None:
        one = cuda.local.array(1, FLOAT)
        for u in range(U):
            if u < here:
                one[0] = values[u]
                store(to + u * tensor_channel, one)

    def col2im(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        size1: int, size2: int, tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, begin0: int, begin1: int, begin2: int,
        dilation0: int, dilation1: int, dilation2: int, taps0: int, taps1: int, taps2: int,
        hop0: int, hop1: int, hop2: int, back0: int, back1: int, back2: int, grid0: int, grid1: int, grid2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        total, held = cuda.local.array(U, FLOAT), cuda.local.array(U, FLOAT)
        groups = group_channels, matrix_group, matrix_channel
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, size1, size2)
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            at = matrix + image * matrix_image
            to = tensor + image * tensor_image + offset((x0, x1, x2), (tensor0, tensor1, tensor2))
            first_t0, first_q0 = first_tap(x0, (step0, begin0, dilation0, taps0, hop0))
            first_t1, first_q1 = first_tap(x1, (step1, begin1, dilation1, taps1, hop1))
            first_t2, first_q2 = first_tap(x2, (step2, begin2, dilation2, taps2, hop2))
            if SINGLE:
                exists0 = first_t0 < taps0 and first_q0 >= 0 and first_q0 < grid0
                exists1 = first_t1 < taps1 and first_q1 >= 0 and first_q1 < grid1
                exists2 = first_t2 < taps2 and first_q2 >= 0 and first_q2 < grid2
                at += ((first_q0 * grid1 + first_q1) * grid2 + first_q2) * matrix_position
                at += ((first_t0 * taps1 + first_t1) * taps2 + first_t2) * matrix_tap
                while c < stop:
                    here = INDEX(stop - c)
                    there = here if exists0 and exists1 and exists2 else INDEX(0)
                    fetch(held, at + start_of(c, groups), c, there, groups)
                    write(to + c * tensor_channel, held, here, tensor_channel)
                    c = INDEX(c + U)
            else:  # CHUNK is U
                at += start_of(c, groups)
                for u in range(U):
                    total[u] = FLOAT(0)
                t0, q0 = first_t0, first_q0
                while t0 < taps0:
                    if q0 >= 0 and q0 < grid0:
                        t1, q1 = first_t1, first_q1
                        while t1 < taps1:
                            if q1 >= 0 and q1 < grid1:
                                t2, q2 = first_t2, first_q2
                                while t2 < taps2:
                                    if q2 >= 0 and q2 < grid2:
                                        column = at + ((q0 * grid1 + q1) * grid2 + q2) * matrix_position
                                        column += ((t0 * taps1 + t1) * taps2 + t2) * matrix_tap
                                        fetch(held, column, c, INDEX(stop - c), groups)
                                        for u in range(U):
                                            total[u] += held[u]
                                    t2, q2 = INDEX(t2 + INDEX(hop2)), INDEX(q2 - INDEX(back2))
                            t1, q1 = INDEX(t1 + INDEX(hop1)), INDEX(q1 - INDEX(back1))
                    t0, q0 = INDEX(t0 + INDEX(hop0)), INDEX(q0 - INDEX(back0))
                write(to + c * tensor_channel, total, INDEX(stop - c), tensor_channel)

    return col2im


def _first_tap(INDEX: Any) -> Callable[..., Any]:
    """The first tap of an axis that reaches element x, and its output; `taps` if there is none.

    The others that do are `hop` taps apart, and their outputs `back`: so one division serves all taps.
    """

    @device_function
    def first_tap(x: int, axis: Any) -> tuple[int, int]:
        step, begin, dilation, taps, hop = axis
        at = INDEX(x + INDEX(begin))
        t, q = INDEX(0), at
        if INDEX(step) != 1:
            q = INDEX(at // INDEX(step))
            while INDEX(q * INDEX(step)) != at and t < INDEX(hop):
                t, at = INDEX(t + 1), INDEX(at - INDEX(dilation))
                q = INDEX(at // INDEX(step))
            if t == INDEX(hop):
                t = INDEX(taps)
        return t, q

    return first_tap
