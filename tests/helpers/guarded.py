"""Arrays in memory that shows every stray access: poison around them, and in them before they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradkern.call import Tensor

GUARD = 64


class Guarded:
    """An array `offset` bytes after a 16-byte boundary, rows `stride` bytes apart, in a buffer of poison."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, offset: int = 0, stride: int | None = None) -> None:
        kind = np.dtype(dtype)
        row = int(np.prod(shape[1:])) * kind.itemsize
        step = row if stride is None else stride
        self.size = step * max(0, shape[0] - 1) + row if shape[0] else 0
        self.buffer = np.full(self.size + 2 * GUARD + 32, 0xFF, np.uint8)
        self.start = -(-(self.buffer.ctypes.data + GUARD) // 16) * 16 - self.buffer.ctypes.data + offset
        strides = (step, *(kind.itemsize,) * (len(shape) - 1))
        self.array = np.ndarray(shape, kind, self.buffer, self.start, strides)
        self.address = self.buffer.ctypes.data + self.start
        self._frozen: np.ndarray | None = None

    def freeze(self) -> None:
        """What is in it now must stay: an input."""
        self._frozen = self.buffer.copy()

    def poison(self) -> None:
        """As before anything was written: an output that a second run must write again."""
        self.buffer[...] = 0xFF

    def check(self) -> None:
        if self._frozen is not None and (self.buffer != self._frozen).any():
            raise AssertionError("an input was written")
        outside = np.ones(self.buffer.size, bool)
        index = np.ndarray(
            (*self.array.shape, self.array.itemsize), bool, outside, self.start, (*self.array.strides, 1)
        )
        index[...] = False
        if (self.buffer[outside] != 0xFF).any():
            raise AssertionError("written outside the array")


def described(held: Guarded, shape: tuple[int, ...], order: Sequence[int]) -> Tensor:
    """A flat guarded array as one of `shape`, dense with its axes in memory order `order`, slowest first."""
    strides, step = [0] * len(shape), held.array.itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    alignment = next(each for each in (16, 8, 4, 2, 1) if held.address % each == 0)
    return Tensor(held.array.dtype, shape, tuple(strides), alignment)


class OnDevice:
    """A guarded array's copy on the current GPU, guards and poison included."""

    def __init__(self, host: Guarded) -> None:
        from gradkern.cuda.device import check
        from helpers.driver import driver

        self._driver, self._check, self.host = driver, check, host
        self._start = int(check(driver.cuMemAlloc(host.buffer.size + 16), "allocating an array"))
        # the same distance from a 16-byte boundary as on the host
        self._base = self._start + (host.address - host.start - self._start) % 16
        self.address = self._base + host.start
        check(driver.cuMemcpyHtoD(self._base, host.buffer.ctypes.data, host.buffer.size), "copying an array there")
        # it returns before all has come, and a stream that does not wait for the default one may write meanwhile
        check(driver.cuCtxSynchronize(), "copying an array there")

    def poison(self, stream: int = 0) -> None:
        """As before anything was written, from there on the stream: an output that another run must write again."""
        written = self._driver.cuMemsetD8Async(self._base, 0xFF, self.host.buffer.size, stream)
        self._check(written, "poisoning an array")

    def fetch(self) -> np.ndarray:
        """The array as it is now, after a look at its guards; an input that was frozen must be what it was."""
        self._check(self._driver.cuCtxSynchronize(), "computing")
        copied = self._driver.cuMemcpyDtoH(self.host.buffer.ctypes.data, self._base, self.host.buffer.size)
        self._check(copied, "copying an array back")
        self.host.check()
        return self.host.array

    def free(self) -> None:
        self._driver.cuMemFree(self._start)
