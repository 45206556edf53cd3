"""What kernels read tensors by, line by line: positions of a grid, strides in elements.

Positions of a grid are counted in one number, (image, q0, q1, q2) in row-major order, so that any range of them can be
a slice.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.extending import intrinsic

from gradkern.cpu.compile import INLINE


@njit(**INLINE)
def position(start: int, grid: Any) -> tuple[int, int, int, int]:
    rest, q2 = divmod(start, grid[2])
    rest, q1 = divmod(rest, grid[1])
    image, q0 = divmod(rest, grid[0])
    return image, q0, q1, q2


@njit(**INLINE)
def next_line(image: int, q0: int, q1: int, grid: Any) -> tuple[int, int, int, int]:
    q1 += 1
    if q1 == grid[1]:
        q1 = 0
        q0 += 1
        if q0 == grid[0]:
            q0 = 0
            image += 1
    return image, q0, q1, 0


@njit(**INLINE)
def spacing_of(array: Any) -> tuple[int, int, int, int, int]:
    """The strides in elements."""
    s, item = array.strides, array.itemsize
    return s[0] // item, s[1] // item, s[2] // item, s[3] // item, s[4] // item


def _contiguous(typing: Any, line: Any) -> Any:
    """The same line, typed as contiguous: its elements are then read and written by load and store, at any spacing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if context.enable_nrt:
            context.nrt.incref(builder, signature.args[0], arguments[0])
        return arguments[0]

    return line.copy(layout="C")(line), generate


contiguous: Any = intrinsic(_contiguous)  # a type checker would see _contiguous's own arguments
