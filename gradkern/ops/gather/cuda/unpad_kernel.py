"""The kernel of FlattenAndUnpad: each thread copies one vector of a row."""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.numbers import integer_access


def build(size: int, threads: int) -> Callable[..., None]:
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
