"""col2im: dX from the products of all filter taps. Each element is the sum of those that meet it, in a fixed order.

    tensor[image, channel, x] = sum over taps t of matrix[image, q, channel, t],  q*step = x + begin - t*dilation

It is bound by memory, as the kernels in `im2col_kernel` are, and built like them: the place of a tap's q serves all
channels of a thread, whose sums are in registers. On each axis the taps that meet x are `hop` apart, their q `back`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.ops.conv.cuda.gemm.positions import offset, positions

__all__ = ["build"]


def build(config: Im2colConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument an int64."""
    place, add, write = (_channel_by_channel if config.lanes == "positions" else _vectors)(config)
    SUMS = config.chunk if config.lanes == "positions" else config.words
    FLOAT, INDEX = _types(config)
    first_tap, (_, divided, unravelled) = _first_tap(INDEX), positions(INDEX, config.threads)

    def col2im(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        size1: int, size2: int, tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, begin0: int, begin1: int, begin2: int,
        dilation0: int, dilation1: int, dilation2: int, taps0: int, taps1: int, taps2: int,
        hop0: int, hop1: int, hop2: int, back0: int, back1: int, back2: int, grid0: int, grid1: int, grid2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        total, groups = cuda.local.array(SUMS, FLOAT), (group_channels, matrix_group, matrix_channel)
        j, first, row, to = place(channels, blocks, tensor_channel, groups)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, size1, size2)
            here = INDEX(min(SUMS, INDEX(channels) - first))
            for n in range(SUMS):
                total[n] = FLOAT(0)
            at = matrix + image * matrix_image + row
            first_t0, first_q0 = first_tap(x0, (step0, begin0, dilation0, taps0, hop0))
            first_t1, first_q1 = first_tap(x1, (step1, begin1, dilation1, taps1, hop1))
            first_t2, first_q2 = first_tap(x2, (step2, begin2, dilation2, taps2, hop2))
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
                                    add(total, column, first, here, groups)
                                t2, q2 = INDEX(t2 + INDEX(hop2)), INDEX(q2 - INDEX(back2))
                        t1, q1 = INDEX(t1 + INDEX(hop1)), INDEX(q1 - INDEX(back1))
                t0, q0 = INDEX(t0 + INDEX(hop0)), INDEX(q0 - INDEX(back0))
            to += tensor + image * tensor_image + offset((x0, x1, x2), (tensor0, tensor1, tensor2))
            write(to, total, here, tensor_channel)

    return col2im


def _types(config: Im2colConfig) -> tuple[Any, Any]:
    """Of sums and of indices."""
    return float64 if config.word == "float64" else float32, int64 if config.wide else int32


def _channel_by_channel(config: Im2colConfig) -> tuple[Callable[..., Any], ...]:
    """A thread has one position and `chunk` channels, `at_once` of them at a time. Three device functions.

    place(channels, blocks, tensor's step, groups)   the thread's position, its first channel, and where that is in a
                                                     column and in the tensor, in bytes
    add(total, column, first, here, groups)          adds `here` elements of a column from the first channel on
    write(to, total, here, tensor's step)            the sums
    """
    GROUPED, U, CHUNK = config.grouped, config.at_once, config.chunk
    FLOAT, INDEX = _types(config)
    load = i.loader("global", config.word, 1)
    store = i.storer("global", config.result, 1, config.native_bfloat16)
    own, _, _ = positions(INDEX, config.threads)

    @device_function
    def place(_channels: int, blocks: int, tensor_channel: int, groups: Any) -> Any:
        chunk, j = own(blocks)
        first = INDEX(chunk * CHUNK)
        return j, first, int64(0) if GROUPED else first * groups[2], first * tensor_channel

    @device_function
    def add(total: Any, column: int, first: int, here: int, groups: Any) -> None:
        one, held = cuda.local.array(1, FLOAT), cuda.local.array(U, FLOAT)
        group_channels, matrix_group, matrix_channel = groups
        for start in range(0, CHUNK, U):
            for u in range(U):
                held[u] = FLOAT(0)
                if start + u < here:
                    row = (start + u) * matrix_channel
                    if GROUPED:
                        c = INDEX(first + start + u)
                        group = INDEX(c // INDEX(group_channels))
                        row = c * matrix_channel + group * (matrix_group - group_channels * matrix_channel)
                    load(one, column + row)
                    held[u] = one[0]
            for u in range(U):
                total[start + u] += held[u]

    @device_function
    def write(to: int, total: Any, here: int, tensor_channel: int) -> None:
        one = cuda.local.array(1, FLOAT)
        for n in range(CHUNK):
            if n < here:
                one[0] = total[n]
                store(to + n * tensor_channel, one)

    return place, add, write


def _vectors(config: Im2colConfig) -> tuple[Callable[..., Any], ...]:
    """A thread has one vector of channels of one position; channels are adjacent on both sides. The same functions."""
    GROUPED, V, THREADS = config.grouped, config.words, config.threads
    FLOAT, INDEX = _types(config)
    READ, WRITTEN = config.vector_bytes, config.words * config.result_itemsize
    load = i.loader("global", config.word, V)
    store = i.storer("global", config.result, V, config.native_bfloat16)
    _, divided, _ = positions(INDEX, THREADS)

    @device_function
    def place(channels: int, _blocks: int, _tensor_channel: int, groups: Any) -> Any:
        group_channels, matrix_group, matrix_channel = groups
        j, v = divided(INDEX(INDEX(cuda.blockIdx.x) * THREADS + INDEX(cuda.threadIdx.x)), INDEX(INDEX(channels) // V))
        row = int64(v * READ)
        if GROUPED:
            group = INDEX(INDEX(v * V) // INDEX(group_channels))
            row += group * (matrix_group - group_channels * matrix_channel)
        return j, INDEX(v * V), row, int64(v * WRITTEN)

    @device_function
    def add(total: Any, column: int, _first: int, _here: int, _groups: Any) -> None:
        vector = cuda.local.array(V, FLOAT)
        load(vector, column)
        for n in range(V):
            total[n] += vector[n]

    @device_function
    def write(to: int, total: Any, _here: int, _tensor_channel: int) -> None:
        store(to, total)

    return place, add, write


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
