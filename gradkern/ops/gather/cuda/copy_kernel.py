"""The kernels of copies: of a slice's gradient, where each thread writes vectors of dX, elements of dY and zeros, and
of FlattenAndUnpad, where each copies one vector of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import integer_access
from gradkern.ops.gather.cuda.config import OF_AXIS, SliceConfig


def _along(axis: int) -> Callable[..., Any]:
    """A device function of an element's place along this axis and the numbers of all: whether it is one of dY, and how
    far it is from the first, in bytes.
    """
    FIRST, COUNT, STEP, MULTIPLIER, SHIFT, STRIDE = (len(OF_AXIS) * axis + n for n in range(3, 9))

    @device_function
    def along(place: int, numbers: Any) -> Any:
        distance = int32(place - int32(numbers[FIRST]))
        k = i.divided(max(distance, int32(0)), int32(numbers[MULTIPLIER]), int32(numbers[SHIFT]))
        inside = distance == k * int32(numbers[STEP]) and k < int32(numbers[COUNT])
        return inside, int64(k) * numbers[STRIDE]

    return along


def _up_to(axis: int) -> Callable[..., Any]:
    """A device function of the number of an element, in order, along all axes up to this one, as `_along` has it."""

    @device_function
    def nothing(number: int, numbers: Any) -> Any:
        return True, int64(0)

    if axis < 0:
        return nothing
    along, before = _along(axis), _up_to(axis - 1)
    SIZE, MULTIPLIER, SHIFT = (len(OF_AXIS) * axis + n for n in range(3))

    @device_function
    def up_to(number: int, numbers: Any) -> Any:
        rest = i.divided(number, int32(numbers[MULTIPLIER]), int32(numbers[SHIFT]))
        inside, distance = along(int32(number - rest * int32(numbers[SIZE])), numbers)
        within, more = before(rest, numbers)
        return inside and within, distance + more

    return up_to


def build_slice(config: SliceConfig) -> Callable[..., None]:
    """The kernel of this config, of int64 arguments as `arguments` names them."""
    WRITTEN, READ, THREADS, VECTORS = config.written, config.read, config.threads, config.vectors
    IN, OUT, LOADS = config.size * config.read, config.size * config.written, config.written // config.read
    WORDS, STORED, HALVES = max(1, IN // 4), max(1, OUT // 4), IN == 2 and WRITTEN > 1
    HELD, LAST = VECTORS * LOADS * WORDS, config.axes - 1
    SIZE, MULTIPLIER, SHIFT = (len(OF_AXIS) * LAST + n for n in range(3))
    load, store = i.word_loader("global", IN), i.word_storer("global", OUT)
    along, others = _along(LAST), _up_to(LAST - 1)

    def kernel(dY: int, dX: int, offset: int, vectors: int, *numbers: int) -> None:
        first = int64(cuda.blockIdx.x) * (VECTORS * THREADS) + int32(cuda.threadIdx.x)
        words, one = cuda.local.array(HELD, int32), cuda.local.array(STORED, int32)
        for n in range(HELD):
            words[n] = int32(0)
        for j in range(VECTORS):
            v = first + j * THREADS
            if v < vectors:
                row = i.divided(int32(v), int32(numbers[MULTIPLIER]), int32(numbers[SHIFT]))
                column = int32((int32(v) - row * int32(numbers[SIZE])) * WRITTEN)
                inside, source = others(row, numbers)
                for n in range(LOADS):
                    within, distance = along(int32(column + n * READ), numbers)
                    if inside and within:
                        load(words, (j * LOADS + n) * WORDS, dY + offset + source + distance)
        for j in range(VECTORS):
            v = first + j * THREADS
            if v < vectors:
                for n in range(STORED):
                    if HALVES:
                        at = j * LOADS + 2 * n
                        one[n] = i.low_halves(words[at], words[at + 1])
                    else:
                        one[n] = words[j * STORED + n]
                store(dX + v * OUT, one)

    return kernel


def build_rows(size: int, threads: int) -> Callable[..., None]:
    """The kernel (plan.ARGUMENTS) for vectors of so many bytes, 1 to 16. `columns` is a row's number of vectors."""
    SIZE, THREADS, WORDS = size, threads, max(1, size // 4)
    load, (load_index, _), store = i.word_loader("global", size), integer_access(True), i.word_storer("global", size)

    def kernel(
        data: int, indices: int, output: int, rows: int, vectors: int, columns: int, multiplier: int, shift: int
    ) -> None:
        v = int64(cuda.blockIdx.x) * THREADS + int32(cuda.threadIdx.x)
        words = cuda.local.array(WORDS, int32)
        if v < vectors:
            n = int64(i.divided(int32(v), int32(multiplier), int32(shift)))
            row = load_index(indices, n)
            for w in range(WORDS):
                words[w] = 0
            if row >= 0 and row < rows:
                load(words, 0, data + (row * columns + v - n * columns) * SIZE)
            store(output + v * SIZE, words)

    return kernel
