"""What kernels read tensors by, line by line: positions of a grid, strides in elements, sums of planes.

Positions of a grid are counted in one number, (image, q0, q1, q2) in row-major order, so that any range of them can be
a slice.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.extending import intrinsic

from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import load
from gradkern.cpu.threads import take

__all__ = ["contiguous", "next_line", "position", "spacing_of", "sum_planes"]

BLOCK = 2048


@kernel
def sum_planes(queue: Any, source: Any, sums: Any) -> None:
    """sums[row] = the sum of source[image, row, position] over images and positions: float64, in blocks."""
    size = source.shape[4]
    spacing = source.strides[4] // source.itemsize
    row = take(queue)
    while row >= 0:
        total = 0.0
        for image in range(source.shape[0]):
            for i0 in range(source.shape[2]):
                for i1 in range(source.shape[3]):
                    line = contiguous(source[image, row, i0, i1])
                    for start in range(0, size, BLOCK):
                        block = 0.0
                        if spacing == 1:
                            for j in range(start, min(start + BLOCK, size)):
                                block += load(line, j)
                        else:
                            for j in range(start, min(start + BLOCK, size)):
                                block += load(line, j * spacing)
                        total += block
        sums[row] = total
        row = take(queue)


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
