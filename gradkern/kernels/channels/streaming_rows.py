"""A thread's own vectors of a row in the streaming kernel: into the ring, out of the ring, and to memory.

Only one thread reads a vector, so threads do not wait for each other. Arrays that both passes of a launch read are in
one ring; the others are in a second ring of `stages` rows. Arrays of the data's shape are one tuple, `data`: D, D2, X,
Y, Z, dX, dZ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.channels.streaming_config import StreamingConfig


def fetcher(config: StreamingConfig, names: tuple[str, ...]) -> Callable[..., None]:
    """The device function fetch(slot, data, at, vectors, end): copies one row of an item, from `at` on, of these arrays
    to their ring: every thread its own vectors.
    """
    THREADS, VECTORS, TAIL = config.threads, config.vectors, config.tail
    VECTOR = config.width * config.data_itemsize
    NEXT = THREADS * VECTOR  # bytes from one vector of a thread to its next
    X_IN, D_IN, D2_IN, Y_IN, Z_IN = (name in names for name in ("X", "D", "D2", "Y", "Z"))
    X_AT, D_AT, D2_AT, Y_AT, Z_AT = (place * config.tile_bytes for place in _places(names))
    D_IS_DZ = "dZ" in config.operands
    copy = i.async_copy(VECTOR) if config.ring else None

    @device_function
    def fetch(slot: int, data: Any, at: int, vectors: int, end: int) -> None:
        D, D2, X, Y, Z, _, dZ = data
        thread = int32(cuda.threadIdx.x)
        for j in range(VECTORS):
            here = at + j * NEXT
            if thread + j * THREADS < vectors and here < end and not (TAIL and here + VECTOR > end):
                to = slot + thread * VECTOR + j * NEXT
                if X_IN:
                    copy(to + X_AT, X + here)
                if D_IN:
                    copy(to + D_AT, (dZ if D_IS_DZ else D) + here)
                if D2_IN:
                    copy(to + D2_AT, D2 + here)
                if Y_IN:
                    copy(to + Y_AT, Y + here)
                if Z_IN:
                    copy(to + Z_AT, Z + here)

    return fetch


def loader(config: StreamingConfig) -> Callable[..., None]:
    """The device function load(x, d, d2, y, z, j, data, here, end, taken, passing): loads this thread's vector j of
    a row of all arrays that the config reads, from the rings (the row is at `taken` and `passing`) or from memory at
    `here`.
    """
    READS_X, READS_D, READS_D2, READS_Y, READS_Z = (name in config.reads for name in ("X", "D", "D2", "Y", "Z"))
    D2_HELD, Y_HELD, Z_HELD = (name in config.held for name in ("D2", "Y", "Z"))
    D_IS_DZ = "dZ" in config.operands
    load_x, load_d, load_d2, load_y, load_z = (_one_loader(config, at) for at in _in_rings(config))

    @device_function
    def load(
        x: Any, d: Any, d2: Any, y: Any, z: Any, j: int, data: Any, here: int, end: int, taken: int, passing: int
    ) -> None:
        D, D2, X, Y, Z, _, dZ = data
        if READS_X:
            load_x(x, j, X, here, end, taken)
        if READS_D:
            load_d(d, j, dZ if D_IS_DZ else D, here, end, taken)
        if READS_D2:
            load_d2(d2, j, D2, here, end, taken if D2_HELD else passing)
        if READS_Y:
            load_y(y, j, Y, here, end, taken if Y_HELD else passing)
        if READS_Z:
            load_z(z, j, Z, here, end, taken if Z_HELD else passing)

    return load


def _one_loader(config: StreamingConfig, at: int) -> Callable[..., None]:
    """The device function load_one(values, j, array, here, end, row), for the array at byte `at` of its ring's row."""
    WIDTH, TAIL, RING, ITEM = config.width, config.tail, config.ring, config.data_itemsize
    VECTOR, NEXT = WIDTH * ITEM, config.threads * WIDTH * ITEM
    FLOAT = float64 if config.compute == "float64" else float32
    load_vector = i.loader("shared" if RING else "global", config.data, WIDTH)
    load_element = i.loader("global", config.data, 1)

    @device_function
    def load_one(values: Any, j: int, array: int, here: int, end: int, row: int) -> None:
        vector, one = cuda.local.array(WIDTH, FLOAT), cuda.local.array(1, FLOAT)
        if TAIL and here + VECTOR > end:  # the array ends within the vector
            valid = (end - here) // ITEM
            for e in range(WIDTH):
                vector[e] = FLOAT(0)
                if e < valid:
                    load_element(one, array + here + e * ITEM)
                    vector[e] = one[0]
        else:
            load_vector(vector, row + int32(cuda.threadIdx.x) * VECTOR + j * NEXT + at if RING else array + here)
        for e in range(WIDTH):
            values[j * WIDTH + e] = vector[e]

    return load_one


def storer(config: StreamingConfig) -> Callable[..., None]:
    """The device function store(array, vector, here, end)."""
    WIDTH, TAIL, ITEM = config.width, config.tail, config.data_itemsize
    VECTOR = WIDTH * ITEM
    FLOAT = float64 if config.compute == "float64" else float32
    store_vector = i.storer("global", config.data, WIDTH, config.native_bfloat16)
    store_element = i.storer("global", config.data, 1, config.native_bfloat16)

    @device_function
    def store(array: int, vector: Any, here: int, end: int) -> None:
        one = cuda.local.array(1, FLOAT)
        if TAIL and here + VECTOR > end:
            for e in range(WIDTH):
                if here + e * ITEM < end:
                    one[0] = vector[e]
                    store_element(array + here + e * ITEM, one)
        else:
            store_vector(array + here, vector)

    return store


def rounder(config: StreamingConfig) -> Callable[..., None]:
    """The device function write_and_round(d, j, dZ, here, end, taken): writes dZ and rounds D to its
    type. In the ring D replaces the array that it was computed from, for the second pass.
    """
    WIDTH, TAIL, RING, ITEM = config.width, config.tail, config.ring, config.data_itemsize
    VECTOR, NEXT = WIDTH * ITEM, config.threads * WIDTH * ITEM
    _, D_AT, _, _, _ = _in_rings(config)
    FLOAT = float64 if config.compute == "float64" else float32
    store = storer(config)
    store_in_ring = i.storer("shared", config.data, WIDTH, config.native_bfloat16)
    load_from_ring = i.loader("shared", config.data, WIDTH)
    load_vector = i.loader("global", config.data, WIDTH)
    load_element = i.loader("global", config.data, 1)

    @device_function
    def write_and_round(d: Any, j: int, dZ: int, here: int, end: int, taken: int) -> None:
        vector, one = cuda.local.array(WIDTH, FLOAT), cuda.local.array(1, FLOAT)
        for e in range(WIDTH):
            vector[e] = d[j * WIDTH + e]
        store(dZ, vector, here, end)
        if TAIL and here + VECTOR > end:
            for e in range(WIDTH):
                if here + e * ITEM < end:
                    load_element(one, dZ + here + e * ITEM)
                    vector[e] = one[0]
        elif RING:
            place = taken + D_AT + int32(cuda.threadIdx.x) * VECTOR + j * NEXT
            store_in_ring(place, vector)
            load_from_ring(vector, place)
        else:
            load_vector(vector, dZ + here)
        for e in range(WIDTH):
            d[j * WIDTH + e] = vector[e]

    return write_and_round


def _places(names: tuple[str, ...]) -> list[int]:
    """Places of X, D, D2, Y and Z among these arrays; 0 for those that are missing."""
    return [names.index(name) if name in names else 0 for name in ("X", "D", "D2", "Y", "Z")]


def _in_rings(config: StreamingConfig) -> list[int]:
    """The byte where each of X, D, D2, Y and Z begins in a row of its ring."""
    held, passing = _places(config.held), _places(config.reads[len(config.held) :])
    return [(one + other) * config.tile_bytes for one, other in zip(held, passing, strict=True)]
