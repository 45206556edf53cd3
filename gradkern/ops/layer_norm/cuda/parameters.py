"""Scale and bias in a kernel: in a thread's registers, in shared memory, or, for one row, prefetched to registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.row_config import RowConfig


def parameter_vector(config: RowConfig) -> Callable[..., None]:
    """The device function load(values, parameter, first_column, vector): loads a vector of a parameter."""
    WIDTH, SCALE_WIDTH, PARAMETER = config.width, config.scale_width, config.parameter_itemsize
    FLOAT = float32 if config.compute == "float32" else float64
    load_some = i.loader("global", config.parameter, SCALE_WIDTH)

    @device_function
    def load(values: Any, parameter: int, first_column: int, vector: int) -> None:
        some = cuda.local.array(SCALE_WIDTH, FLOAT)
        for part in range(WIDTH // SCALE_WIDTH):
            at = first_column + vector * WIDTH + part * SCALE_WIDTH
            load_some(some, parameter + int64(at) * PARAMETER)
            for e in range(SCALE_WIDTH):
                values[part * SCALE_WIDTH + e] = some[e]

    return load


def register_parameter(config: RowConfig, wanted: bool) -> Callable[..., None]:
    """The device function load(values, parameter, first_column, columns, lane, vectors): loads a thread's part of a
    parameter; zero beyond the columns, and for a parameter that is not needed.
    """
    WIDTH, LANES = config.width, config.lanes
    VECTORS, UNPREDICATED_VECTORS = config.vectors, config.unpredicated_vectors
    ALIGNED_VECTORS, PARAMETER = config.aligned_vectors, config.parameter_itemsize
    FLOAT = float32 if config.compute == "float32" else float64
    load_vector = parameter_vector(config)
    load_one = i.loader("global", config.parameter, 1)

    @device_function
    def load(values: Any, parameter: int, first_column: int, columns: int, lane: int, vectors: int) -> None:
        some = cuda.local.array(WIDTH, FLOAT)
        for j in range(VECTORS):
            v = lane + j * LANES
            for e in range(WIDTH):
                values[j * WIDTH + e] = FLOAT(0)
            if ALIGNED_VECTORS and wanted:
                first = i.opaque(int32(v * WIDTH))  # else the addresses of all vectors are computed at once
                for e in range(WIDTH):
                    column = first + e
                    inside = min(max(column, -first_column), columns - 1)  # independent loads without branches
                    load_one(some, parameter + (first_column + int64(inside)) * PARAMETER)
                    values[j * WIDTH + e] = some[0] if inside == column else FLOAT(0)
            elif wanted and (j < UNPREDICATED_VECTORS or v < vectors):
                load_vector(some, parameter, first_column, v)
                for e in range(WIDTH):
                    values[j * WIDTH + e] = some[e]

    return load


def parameter_words(config: RowConfig) -> tuple[Callable[..., None], Callable[..., None]]:
    """Two device functions that prefetch a thread's part of a parameter into config.parameter_words registers:

    load(words, parameter, first_column, lane, vectors)   issues all loads
    unpack(values, words, j)                              converts vector j
    """
    WIDTH, LANES = config.width, config.lanes
    VECTORS, UNPREDICATED_VECTORS = config.vectors, config.unpredicated_vectors
    PARAMETER = config.parameter_itemsize
    PIECE = min(16, config.scale_width * PARAMETER)  # bytes of a load
    ELEMENTS, WORDS = PIECE // PARAMETER, max(1, PIECE // 4)
    PIECES = WIDTH // ELEMENTS
    FLOAT = float32 if config.compute == "float32" else float64
    load_words, unpack_piece = i.word_loader("global", PIECE), i.unpacker(config.parameter, ELEMENTS)

    @device_function
    def load(words: Any, parameter: int, first_column: int, lane: int, vectors: int) -> None:
        for j in range(VECTORS):
            v = lane + j * LANES
            if j < UNPREDICATED_VECTORS or v < vectors:
                for piece in range(PIECES):
                    at = first_column + v * WIDTH + piece * ELEMENTS
                    load_words(words, (j * PIECES + piece) * WORDS, parameter + int64(at) * PARAMETER)

    @device_function
    def unpack(values: Any, words: Any, j: int) -> None:
        some = cuda.local.array(ELEMENTS, FLOAT)
        for piece in range(PIECES):
            unpack_piece(some, words, (j * PIECES + piece) * WORDS)
            for e in range(ELEMENTS):
                values[piece * ELEMENTS + e] = some[e]

    return load, unpack


def shared_parameters(config: RowConfig) -> tuple[Callable[..., None], Callable[..., None]]:
    """Two device functions: copy(scale, bias, first_column, columns, thread) copies the parameters that
    config.shared_parameters counts to shared memory, by all threads of a block, with zeros around them for aligned
    vectors; load(values, at, vector) loads a vector of the parameter that begins at this byte.

    Parameters are in planes of 16 bytes a vector, so that a warp's loads of 16 bytes have no bank conflicts.
    """
    WIDTH, LANES, VECTORS = config.width, config.lanes, config.vectors
    THREADS, ALIGNED_VECTORS = config.threads, config.aligned_vectors
    BIAS, INVERSE = config.shared_bias, config.shared_inverse
    ITEM, PARAMETER, SCALE_WIDTH = ITEMSIZE[config.shared_parameter], config.parameter_itemsize, config.scale_width
    MOST_COLUMNS = config.most_columns
    AT_ONCE = min(max(4, 16 // SCALE_WIDTH), -(-config.most_columns // (SCALE_WIDTH * THREADS)))
    SOME = AT_ONCE * SCALE_WIDTH
    QUAD = min(WIDTH, 16 // ITEM)
    PLANES, PLANE = WIDTH // QUAD, LANES * VECTORS * QUAD * ITEM
    PIECE = min(QUAD, SCALE_WIDTH)
    SCALE_AT, BIAS_AT, INVERSE_AT = config.scale_at, config.bias_at, config.inverse_scale_at
    FLOAT = float32 if config.compute == "float32" else float64
    load_scales = i.loader("global", config.parameter, SCALE_WIDTH)
    load_quad = i.loader("shared", config.shared_parameter, QUAD)
    store_piece = i.storer("shared", config.shared_parameter, PIECE, config.native_bfloat16)

    @device_function
    def place(column: int) -> int:
        vector, e = column // WIDTH, column % WIDTH
        return (e // QUAD) * PLANE + (vector * QUAD + e % QUAD) * ITEM

    @device_function
    def load(values: Any, at: int, vector: int) -> None:
        quad = cuda.local.array(QUAD, FLOAT)
        for plane in range(PLANES):
            load_quad(quad, at + plane * PLANE + vector * (QUAD * ITEM))
            for e in range(QUAD):
                values[plane * QUAD + e] = quad[e]

    @device_function
    def copy(scale: int, bias: int, first_column: int, columns: int, thread: int) -> None:
        shared = i.shared_memory()
        some, piece = cuda.local.array(SCALE_WIDTH, FLOAT), cuda.local.array(PIECE, FLOAT)
        scales, biases = cuda.local.array(SOME, FLOAT), cuda.local.array(SOME, FLOAT)
        column, end = i.opaque(thread * SCALE_WIDTH), MOST_COLUMNS if ALIGNED_VECTORS else columns
        while column < end:
            for q in range(AT_ONCE):  # independent loads, so that their latencies overlap
                of = first_column + min(column + q * (THREADS * SCALE_WIDTH), columns - SCALE_WIDTH)
                if ALIGNED_VECTORS:
                    of = max(of, 0)
                load_scales(some, scale + int64(of) * PARAMETER)
                for e in range(SCALE_WIDTH):
                    scales[q * SCALE_WIDTH + e] = some[e]
                if BIAS:
                    load_scales(some, bias + int64(of) * PARAMETER)
                    for e in range(SCALE_WIDTH):
                        biases[q * SCALE_WIDTH + e] = some[e]
            for q in range(AT_ONCE):
                of = min(column + q * (THREADS * SCALE_WIDTH), end - SCALE_WIDTH)
                outside = ALIGNED_VECTORS and (of >= columns or first_column + of < 0)
                for part in range(SCALE_WIDTH // PIECE):
                    at = place(of + part * PIECE)
                    for e in range(PIECE):
                        piece[e] = FLOAT(0) if outside else scales[q * SCALE_WIDTH + part * PIECE + e]
                    store_piece(shared + SCALE_AT + at, piece)
                    if INVERSE:
                        for e in range(PIECE):
                            piece[e] = FLOAT(1) / piece[e]
                        store_piece(shared + INVERSE_AT + at, piece)
                    if BIAS:
                        for e in range(PIECE):
                            piece[e] = FLOAT(0) if outside else biases[q * SCALE_WIDTH + part * PIECE + e]
                        store_piece(shared + BIAS_AT + at, piece)
            column = i.opaque(column + AT_ONCE * THREADS * SCALE_WIDTH)

    return copy, load
