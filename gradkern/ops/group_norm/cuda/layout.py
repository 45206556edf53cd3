"""The layout of a group norm's data in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from gradkern.call import Refusal, Tensor
from gradkern.strides import is_dense

_VECTOR = 16  # bytes of one access, at most


@dataclass(frozen=True, slots=True)
class Layout:
    """All arrays of data have one layout and no gaps.

    lines  the channels of a position are adjacent in memory; else the positions of a channel are
    width  elements of a vector, a divisor of the adjacent elements
    """

    lines: bool
    samples: int
    channels: int
    positions: int
    width: int

    @property
    def run(self) -> int:
        """Adjacent elements of one kind."""
        return self.channels if self.lines else self.positions

    @property
    def vectors(self) -> int:
        """Of a run."""
        return self.run // self.width


def layout_of(tensors: Mapping[str, Tensor], channels_last: bool) -> Layout:
    """Of arrays of one shape. Raises Refusal for gaps, and for arrays of different layouts."""
    names = ", ".join(tensors)
    first = next(iter(tensors.values()))
    axis = len(first.shape) - 1 if channels_last else 1
    samples, channels, size = first.shape[0], first.shape[axis], prod(first.shape)
    positions = size // max(1, samples * channels)
    others = [n for n in range(1, len(first.shape)) if n != axis]
    orders = {False: [0, axis, *others], True: [0, *others, axis]}
    for lines in (positions == 1, True, False):  # a channel of one position has no plane
        if all(is_dense(each, orders[lines]) for each in tensors.values()):
            run = channels if lines else positions
            width = min(
                _VECTOR // first.dtype.itemsize, *(each.alignment // each.dtype.itemsize for each in tensors.values())
            )
            while run % width:
                width //= 2
            return Layout(lines, samples, channels, positions, width)
    raise Refusal(f"{names}: neither the positions of every channel nor the channels of every position lie end to end")
