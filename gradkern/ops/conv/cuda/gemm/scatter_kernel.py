"""tensor[image, channel, x] = matrix[image, p, channel, slot], and 0 if the residue of x has no results.

Along an axis, p counts (x + before) // step, and the remainder is the residue of x. Strides are in bytes.
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

    def scatter(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        size1: int, size2: int, tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, before0: int, before1: int, before2: int, low0: int, low1: int, low2: int,
        slots0: int, slots1: int, slots2: int, live0: int, live1: int, live2: int, grid1: int, grid2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_slot: int,
    ) -> None:  # fmt: skip
        copy(
            tensor, matrix, images, channels, group_channels, count, blocks,
            (size1, size2), (tensor_image, tensor_channel), (tensor0, tensor1, tensor2),
            (step0, before0, low0, slots0, live0), (step1, before1, low1, slots1, live1),
            (step2, before2, low2, slots2, live2), (grid1, grid2),
            (matrix_image, matrix_position, matrix_group, matrix_channel, matrix_slot),
        )  # fmt: skip

    return scatter


def _positions(config: Im2colConfig) -> Callable[..., None]:
    """A thread has one position of the tensor and `chunk` channels, `at_once` of them at a time."""
    GROUPED, U, CHUNK = config.grouped, config.at_once, config.chunk
    WORD = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load, store = i.loader("global", config.word, 1), i.storer("global", config.word, 1, config.native_bfloat16)
    seen = _seen(INDEX)

    own, divided, unravelled = positions(INDEX, config.threads)

    @device_function
    def copy(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        sizes: Any, tensor_strides: Any, spatial_strides: Any, residues0: Any, residues1: Any, residues2: Any,
        grid: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, tensor_channel = tensor_strides
        matrix_image, matrix_position, matrix_group, matrix_channel, matrix_slot = matrix_strides
        one, held = cuda.local.array(1, WORD), cuda.local.array(U, WORD)
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, sizes[0], sizes[1])
            q0, s0, has0 = seen(x0, residues0)
            q1, s1, has1 = seen(x1, residues1)
            q2, s2, has2 = seen(x2, residues2)
            exists = has0 and has1 and has2
            at = matrix + image * matrix_image + ((q0 * grid[0] + q1) * grid[1] + q2) * matrix_position
            at += ((s0 * residues1[3] + s1) * residues2[3] + s2) * matrix_slot
            to = tensor + image * tensor_image + offset((x0, x1, x2), spatial_strides)
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            while c < stop:
                for u in range(U):
                    held[u] = WORD(0)
                    if exists and c + u < stop:
                        row = (c + u) * matrix_channel
                        if GROUPED:
                            group = INDEX(INDEX(c + u) // INDEX(group_channels))
                            row += group * (matrix_group - group_channels * matrix_channel)
                        load(one, at + row)
                        held[u] = one[0]
                for u in range(U):
                    if c + u < stop:
                        one[0] = held[u]
                        store(to + (c + u) * tensor_channel, one)
                c = INDEX(c + U)

    return copy


def _channels(config: Im2colConfig) -> Callable[..., None]:
    """A thread has `at_once` vectors, each of some channels of one position; channels are adjacent on both sides."""
    GROUPED, U, V, THREADS = config.grouped, config.at_once, config.words, config.threads
    CHANNELS, BYTES, HELD = config.vector_channels, config.vector_bytes, U * V
    WORD = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load, store = i.loader("global", config.word, V), i.storer("global", config.word, V, config.native_bfloat16)
    seen = _seen(INDEX)

    _, divided, unravelled = positions(INDEX, config.threads)

    @device_function
    def copy(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, _blocks: int,
        sizes: Any, tensor_strides: Any, spatial_strides: Any, residues0: Any, residues1: Any, residues2: Any,
        grid: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, _ = tensor_strides
        matrix_image, matrix_position, matrix_group, matrix_channel, matrix_slot = matrix_strides
        vector, held, to = cuda.local.array(V, WORD), cuda.local.array(HELD, WORD), cuda.local.array(U, int64)
        vectors = INDEX(INDEX(channels) // CHANNELS)
        last = INDEX(INDEX(images) * INDEX(count) * vectors)
        first = INDEX(INDEX(cuda.blockIdx.x) * (U * THREADS) + INDEX(cuda.threadIdx.x))
        for u in range(U):
            e = INDEX(first + u * THREADS)
            j, v = divided(e, vectors)
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, sizes[0], sizes[1])
            q0, s0, has0 = seen(x0, residues0)
            q1, s1, has1 = seen(x1, residues1)
            q2, s2, has2 = seen(x2, residues2)
            at = matrix + image * matrix_image + ((q0 * grid[0] + q1) * grid[1] + q2) * matrix_position + v * BYTES
            at += ((s0 * residues1[3] + s1) * residues2[3] + s2) * matrix_slot
            if GROUPED:
                group = INDEX(INDEX(v * CHANNELS) // INDEX(group_channels))
                at += group * (matrix_group - group_channels * matrix_channel)
            to[u] = tensor + image * tensor_image + v * BYTES + offset((x0, x1, x2), spatial_strides)
            for w in range(V):
                held[u * V + w] = WORD(0)
            if has0 and has1 and has2 and e < last:
                load(vector, at)
                for w in range(V):
                    held[u * V + w] = vector[w]
        for u in range(U):
            if first + u * THREADS < last:
                for w in range(V):
                    vector[w] = held[u * V + w]
                store(to[u], vector)

    return copy


def _seen(INDEX: Any) -> Callable[..., Any]:
    """For an element of an axis: its place in the grid, its slot, and whether that has a result."""

    @device_function
    def seen(x: int, residues: Any) -> tuple[int, int, bool]:
        step, before, low, slots, live = residues
        at = INDEX(x + INDEX(before))
        q = INDEX(at // INDEX(step))
        residue = INDEX(at - q * INDEX(step))
        slot = INDEX(residue - INDEX(low))
        return q, slot, slot >= 0 and slot < INDEX(slots) and (live >> int64(residue)) & 1 == 1

    return seen
