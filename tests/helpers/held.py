"""Arrays of any strides in memory that shows every stray access."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Tensor
from helpers.guarded import Guarded

__all__ = ["Held", "hold"]


class Held:
    """An array of any strides in guarded memory, `offset` elements behind 16 bytes, its last axis padded."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, offset: int = 0, spread: int = 0, axes: Any = None) -> None:
        axes = tuple(range(len(shape))) if axes is None else axes  # in memory order
        stored = tuple(shape[axis] for axis in axes) or (1,)
        item = np.dtype(dtype).itemsize
        columns = stored[-1]
        self.memory = Guarded((int(np.prod(stored[:-1])), columns), dtype, offset * item, (columns + spread) * item)
        strides = [item * (columns + spread) * int(np.prod(stored[n + 1 : -1])) for n in range(len(stored) - 1)]
        view = np.lib.stride_tricks.as_strided(self.memory.array, stored, (*strides, item))
        self.array = view.transpose(np.argsort(axes)) if shape else view.reshape(())
        self.address = self.memory.address

    @property
    def tensor(self) -> Tensor:
        alignment = next(each for each in (16, 8, 4, 2, 1) if self.address % each == 0)
        return Tensor(self.array.dtype, self.array.shape, self.array.strides, alignment)


def hold(array: np.ndarray, **how: Any) -> Held:
    """A copy of the array."""
    held = Held(array.shape, array.dtype, **how)
    held.array[...] = array
    return held
