"""matrix[image, p, channel, tap] = tensor[image, channel, step*q + first + spacing*tap], and 0 outside the tensor.

p counts the positions q of a grid in row-major order. Strides are in bytes.
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
    copy = _positions(config) if config.lanes == "positions" else _channels(config)

    def gather(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        blocks: int, grid1: int, grid2: int, size0: int, size1: int, size2: int,
        tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, taps0: int, taps1: int, taps2: int,
        first0: int, first1: int, first2: int, spacing0: int, spacing1: int, spacing2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        copy(
            tensor, matrix, images, channels, group_channels, start, count, blocks,
            (grid1, grid2), (size0, size1, size2), (tensor_image, tensor_channel), (tensor0, tensor1, tensor2),
            (step0, step1, step2), (taps0, taps1, taps2), (first0, first1, first2), (spacing0, spacing1, spacing2),
            (matrix_image, matrix_position, matrix_group, matrix_channel, matrix_tap),
        )  # fmt: skip

    return gather


def _positions(config: Im2colConfig) -> Callable[..., None]:
    """A thread has one position and `chunk` channels, `at_once` of them at a time.

    Channels of all groups are equidistant in the matrix, because their taps are between them.
    """
    if config.grouped:
        raise ValueError("channels of a matrix of positions are equidistant")
    U, CHUNK = config.at_once, config.chunk
    WORD = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load, store = i.loader("global", config.word, 1), i.storer("global", config.word, 1, config.native_bfloat16)

    own, divided, unravelled = positions(INDEX, config.threads)

    @device_function
    def copy(
        tensor: int, matrix: int, images: int, channels: int, _group_channels: int, start: int, count: int,
        blocks: int, grid: Any, sizes: Any, tensor_strides: Any, spatial_strides: Any,
        steps: Any, taps: Any, firsts: Any, spacings: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, tensor_channel = tensor_strides
        matrix_image, matrix_position, _, matrix_channel, matrix_tap = matrix_strides
        one, held = cuda.local.array(1, WORD), cuda.local.array(U, WORD)
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            q0, q1, q2 = unravelled(INDEX(p + INDEX(start)), grid[0], grid[1])
            x0 = INDEX(q0 * INDEX(steps[0]) + INDEX(firsts[0]))
            x1 = INDEX(q1 * INDEX(steps[1]) + INDEX(firsts[1]))
            x2 = INDEX(q2 * INDEX(steps[2]) + INDEX(firsts[2]))
            at = tensor + image * tensor_image + offset((x0, x1, x2), spatial_strides)
            to = matrix + image * matrix_image + p * matrix_position
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            while c < stop:
                column, at0, y0 = to + c * matrix_channel, at + c * tensor_channel, x0
                for _t0 in range(int32(taps[0])):
                    at1, y1 = at0, x1
                    for _t1 in range(int32(taps[1])):
                        at2, y2 = at1, x2
                        inside1 = y0 >= 0 and y0 < INDEX(sizes[0]) and y1 >= 0 and y1 < INDEX(sizes[1])
                        for _t2 in range(int32(taps[2])):
                            for u in range(U):
                                held[u] = WORD(0)
                            if inside1 and y2 >= 0 and y2 < INDEX(sizes[2]):
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
                                    store(target, one)
                                target += matrix_channel
                            column += matrix_tap
                            at2 += spacings[2] * spatial_strides[2]
                            y2 = INDEX(y2 + INDEX(spacings[2]))
                        at1 += spacings[1] * spatial_strides[1]
                        y1 = INDEX(y1 + INDEX(spacings[1]))
                    at0 += spacings[0] * spatial_strides[0]
                    y0 = INDEX(y0 + INDEX(spacings[0]))
                c = INDEX(c + U)

    return copy


def _channels(config: Im2colConfig) -> Callable[..., None]:
    """A thread has `at_once` vectors, each of some channels of one position; channels are adjacent on both sides."""
    GROUPED, U, V, THREADS = config.grouped, config.at_once, config.words, config.threads
    CHANNELS, BYTES, HELD = config.vector_channels, config.vector_bytes, U * V
    WORD = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load, store = i.loader("global", config.word, V), i.storer("global", config.word, V, config.native_bfloat16)

    _, divided, unravelled = positions(INDEX, config.threads)

    @device_function
    def copy(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        _blocks: int, grid: Any, sizes: Any, tensor_strides: Any, spatial_strides: Any,
        steps: Any, taps: Any, firsts: Any, spacings: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, _ = tensor_strides
        matrix_image, matrix_position, matrix_group, matrix_channel, matrix_tap = matrix_strides
        vector, held = cuda.local.array(V, WORD), cuda.local.array(HELD, WORD)
        at, to = cuda.local.array(U, int64), cuda.local.array(U, int64)
        x0, x1, x2 = cuda.local.array(U, INDEX), cuda.local.array(U, INDEX), cuda.local.array(U, INDEX)
        vectors = INDEX(INDEX(channels) // CHANNELS)
        last = INDEX(INDEX(images) * INDEX(count) * vectors)
        first = INDEX(INDEX(cuda.blockIdx.x) * (U * THREADS) + INDEX(cuda.threadIdx.x))
        for u in range(U):
            e = INDEX(first + u * THREADS)
            j, v = divided(e, vectors)
            image, p = divided(j, count)
            q0, q1, q2 = unravelled(INDEX(p + INDEX(start)), grid[0], grid[1])
            x0[u] = INDEX(q0 * INDEX(steps[0]) + INDEX(firsts[0]))
            x1[u] = INDEX(q1 * INDEX(steps[1]) + INDEX(firsts[1]))
            x2[u] = INDEX(q2 * INDEX(steps[2]) + INDEX(firsts[2]))
            at[u] = tensor + image * tensor_image + v * BYTES + offset((x0[u], x1[u], x2[u]), spatial_strides)
            to[u] = matrix + image * matrix_image + p * matrix_position + v * BYTES
            if GROUPED:
                group = INDEX(INDEX(v * CHANNELS) // INDEX(group_channels))
                to[u] += group * (matrix_group - group_channels * matrix_channel)
        column = int64(0)
        for t0 in range(int32(taps[0])):
            for t1 in range(int32(taps[1])):
                for t2 in range(int32(taps[2])):
                    away = offset((t0 * spacings[0], t1 * spacings[1], t2 * spacings[2]), spatial_strides)
                    for u in range(U):
                        y0, y1 = INDEX(x0[u] + t0 * spacings[0]), INDEX(x1[u] + t1 * spacings[1])
                        y2 = INDEX(x2[u] + t2 * spacings[2])
                        inside = y0 >= 0 and y0 < INDEX(sizes[0]) and y1 >= 0 and y1 < INDEX(sizes[1])
                        for w in range(V):
                            held[u * V + w] = WORD(0)
                        if inside and y2 >= 0 and y2 < INDEX(sizes[2]) and first + u * THREADS < last:
                            load(vector, at[u] + away)
                            for w in range(V):
                                held[u * V + w] = vector[w]
                    for u in range(U):
                        if first + u * THREADS < last:
                            for w in range(V):
                                vector[w] = held[u * V + w]
                            store(to[u] + column, vector)
                    column += matrix_tap

    return copy
