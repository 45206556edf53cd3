"""A depthwise convolution's dX, dW or Y as its kernels take it: two spatial axes, and strides they can walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradkern.call import Tensor
from gradkern.ops.conv.cuda.problem import ForwardProblem, Problem
from gradkern.ops.conv.geometry import Geometry
from gradkern.search.candidate import Unfit

__all__ = ["DepthwiseProblem", "Plane"]


@dataclass(frozen=True, slots=True)
class Plane:
    """Where the elements of dY (or Y) or X lie; strides, in bytes, are those of images, channels, rows and columns."""

    strides: tuple[int, int, int, int]
    alignment: int


@dataclass(frozen=True, slots=True)
class DepthwiseProblem:
    """What is per axis is (rows, columns). W and dW: bytes from channel to channel, and from tap to tap. bias_stride:
    those of Y's bias, from channel to channel.
    """

    gradient: Literal["dX", "dW", "Y"]
    dtype: str
    geometry: Geometry
    channels_last: bool
    dY: Plane
    X: Plane
    W_strides: tuple[int, int, int]
    bias_stride: int | None = None

    @classmethod
    def of(cls, problem: Problem) -> DepthwiseProblem:
        """Raises Unfit where the problem is not one that the kernels solve."""
        dY, X, W, geometry = problem.dY, problem.X, problem.W, problem.geometry
        if geometry.channels != 1 or geometry.filters != 1:
            raise Unfit("depthwise kernels take one filter for each channel")
        if geometry.rank > 2:
            raise Unfit("depthwise kernels take one or two spatial axes")
        if 0 in X.shape or 0 in dY.shape or 0 in W.shape:
            raise Unfit("depthwise kernels take no empty arrays")
        item = X.dtype.itemsize
        if all(each.shape[-1] == 1 or each.strides[-1] == item for each in (dY, X)):
            last = False
        elif all(each.shape[1] == 1 or each.strides[1] == item for each in (dY, X)):
            last = True
        else:
            raise Unfit("depthwise kernels take arrays whose channels or columns lie end to end, all the same way")
        first, *taps = W.strides[0], *(0,) * (2 - geometry.rank), *W.strides[2:]
        return cls(
            problem.gradient,
            problem.dtype,
            geometry.lifted(2),
            last,
            _plane(dY, last),
            _plane(X, last),
            (first, taps[0], taps[1]),
            problem.B.strides[0] if isinstance(problem, ForwardProblem) and problem.B is not None else None,
        )

    @property
    def images(self) -> int:
        return self.geometry.images

    @property
    def channels(self) -> int:
        return self.geometry.group


def _plane(tensor: Tensor, last: bool) -> Plane:
    """With two spatial axes; the stride of an axis of one element is what makes the array contiguous."""
    missing = 4 - len(tensor.shape)
    sizes = (*tensor.shape[:2], *(1,) * missing, *tensor.shape[2:])
    strides = [*tensor.strides[:2], *(0,) * missing, *tensor.strides[2:]]
    expected = tensor.dtype.itemsize
    for axis in (1, 3, 2, 0) if last else (3, 2, 1, 0):
        if sizes[axis] == 1:
            strides[axis] = expected
        if strides[axis] < 0:
            raise Unfit("depthwise kernels take arrays whose strides are not negative")
        expected = strides[axis] * sizes[axis]
    image, channel, row, column = strides
    return Plane((image, channel, row, column), tensor.alignment)
