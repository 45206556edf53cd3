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
    add = _positions(config) if config.lanes == "positions" else _channels(config)

    def col2im(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        size1: int, size2: int, tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, begin0: int, begin1: int, begin2: int,
        dilation0: int, dilation1: int, dilation2: int, taps0: int, taps1: int, taps2: int,
        hop0: int, hop1: int, hop2: int, back0: int, back1: int, back2: int, grid0: int, grid1: int, grid2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        add(
            tensor, matrix, images, channels, group_channels, count, blocks,
            (size1, size2), (tensor_image, tensor_channel), (tensor0, tensor1, tensor2),
            (step0, begin0, dilation0, taps0, hop0), (step1, begin1, dilation1, taps1, hop1),
            (step2, begin2, dilation2, taps2, hop2), (back0, back1, back2), (grid0, grid1, grid2),
            (matrix_image, matrix_position, matrix_group, matrix_channel, matrix_tap),
        )  # fmt: skip

    return col2im


def _positions(config: Im2colConfig) -> Callable[..., None]:
    """A thread has one position and `chunk` channels, `at_once` of them at a time."""
    GROUPED, U, CHUNK = config.grouped, config.at_once, config.chunk
    FLOAT = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load = i.loader("global", config.word, 1)
    store = i.storer("global", config.result, 1, config.native_bfloat16)
    first_tap = _first_tap(INDEX)

    own, divided, unravelled = positions(INDEX, config.threads)

    @device_function
    def add(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        sizes: Any, tensor_strides: Any, spatial_strides: Any, axis0: Any, axis1: Any, axis2: Any,
        backs: Any, grid: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, tensor_channel = tensor_strides
        matrix_image, matrix_position, matrix_group, matrix_channel, matrix_tap = matrix_strides
        _, _, _, taps0, hop0 = axis0
        _, _, _, taps1, hop1 = axis1
        _, _, _, taps2, hop2 = axis2
        one, held, total = cuda.local.array(1, FLOAT), cuda.local.array(U, FLOAT), cuda.local.array(CHUNK, FLOAT)
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, sizes[0], sizes[1])
            first = INDEX(chunk * CHUNK)
            here = INDEX(min(CHUNK, INDEX(channels) - first))
            for n in range(CHUNK):
                total[n] = FLOAT(0)
            at = matrix + image * matrix_image
            if not GROUPED:
                at += first * matrix_channel
            first_t0, first_q0 = first_tap(x0, axis0)
            first_t1, first_q1 = first_tap(x1, axis1)
            first_t2, first_q2 = first_tap(x2, axis2)
            t0, q0 = first_t0, first_q0
            while t0 < taps0:
                if q0 >= 0 and q0 < grid[0]:
                    t1, q1 = first_t1, first_q1
                    while t1 < taps1:
                        if q1 >= 0 and q1 < grid[1]:
                            t2, q2 = first_t2, first_q2
                            while t2 < taps2:
                                if q2 >= 0 and q2 < grid[2]:
                                    column = at + ((q0 * grid[1] + q1) * grid[2] + q2) * matrix_position
                                    column += ((t0 * taps1 + t1) * taps2 + t2) * matrix_tap
                                    for start in range(0, CHUNK, U):
                                        for u in range(U):
                                            held[u] = FLOAT(0)
                                            if start + u < here:
                                                row = (start + u) * matrix_channel
                                                if GROUPED:
                                                    c = INDEX(first + start + u)
                                                    group = INDEX(c // INDEX(group_channels))
                                                    row = c * matrix_channel
                                                    row += group * (matrix_group - group_channels * matrix_channel)
                                                load(one, column + row)
                                                held[u] = one[0]
                                        for u in range(U):
                                            total[start + u] += held[u]
                                t2, q2 = INDEX(t2 + INDEX(hop2)), INDEX(q2 - INDEX(backs[2]))
                        t1, q1 = INDEX(t1 + INDEX(hop1)), INDEX(q1 - INDEX(backs[1]))
                t0, q0 = INDEX(t0 + INDEX(hop0)), INDEX(q0 - INDEX(backs[0]))
            to = tensor + image * tensor_image + first * tensor_channel
            to += offset((x0, x1, x2), spatial_strides)
            for n in range(CHUNK):
                if n < here:
                    one[0] = total[n]
                    store(to + n * tensor_channel, one)

    return add


def _channels(config: Im2colConfig) -> Callable[..., None]:
    """A thread has one vector of channels of one position; channels are adjacent on both sides."""
    GROUPED, V, THREADS = config.grouped, config.words, config.threads
    FLOAT = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    READ, WRITTEN = config.vector_bytes, config.words * config.result_itemsize
    load = i.loader("global", config.word, V)
    store = i.storer("global", config.result, V, config.native_bfloat16)
    first_tap = _first_tap(INDEX)

    _, divided, unravelled = positions(INDEX, config.threads)

    @device_function
    def add(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, _blocks: int,
        sizes: Any, tensor_strides: Any, spatial_strides: Any, axis0: Any, axis1: Any, axis2: Any,
        backs: Any, grid: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, _ = tensor_strides
        matrix_image, matrix_position, matrix_group, matrix_channel, matrix_tap = matrix_strides
        _, _, _, taps0, hop0 = axis0
        _, _, _, taps1, hop1 = axis1
        _, _, _, taps2, hop2 = axis2
        vector, total = cuda.local.array(V, FLOAT), cuda.local.array(V, FLOAT)
        vectors = INDEX(INDEX(channels) // V)
        e = INDEX(INDEX(cuda.blockIdx.x) * THREADS + INDEX(cuda.threadIdx.x))
        if e < INDEX(INDEX(images) * INDEX(count) * vectors):
            j, v = divided(e, vectors)
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, sizes[0], sizes[1])
            at = matrix + image * matrix_image + v * READ
            if GROUPED:
                group = INDEX(INDEX(v * V) // INDEX(group_channels))
                at += group * (matrix_group - group_channels * matrix_channel)
            for n in range(V):
                total[n] = FLOAT(0)
            first_t0, first_q0 = first_tap(x0, axis0)
            first_t1, first_q1 = first_tap(x1, axis1)
            first_t2, first_q2 = first_tap(x2, axis2)
            t0, q0 = first_t0, first_q0
            while t0 < taps0:
                if q0 >= 0 and q0 < grid[0]:
                    t1, q1 = first_t1, first_q1
                    while t1 < taps1:
                        if q1 >= 0 and q1 < grid[1]:
                            t2, q2 = first_t2, first_q2
                            while t2 < taps2:
                                if q2 >= 0 and q2 < grid[2]:
                                    column = at + ((q0 * grid[1] + q1) * grid[2] + q2) * matrix_position
                                    load(vector, column + ((t0 * taps1 + t1) * taps2 + t2) * matrix_tap)
                                    for n in range(V):
                                        total[n] += vector[n]
                                t2, q2 = INDEX(t2 + INDEX(hop2)), INDEX(q2 - INDEX(backs[2]))
                        t1, q1 = INDEX(t1 + INDEX(hop1)), INDEX(q1 - INDEX(backs[1]))
                t0, q0 = INDEX(t0 + INDEX(hop0)), INDEX(q0 - INDEX(backs[0]))
            to = tensor + image * tensor_image + offset((x0, x1, x2), spatial_strides)
            store(to + v * WRITTEN, total)

    return add


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
