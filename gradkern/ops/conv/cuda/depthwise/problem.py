"""A depthwise convolution's dX, dW or Y in the terms of its kernels: planes and strides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradkern.call import Refusal, Tensor
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Plane:
    """The layout of dY (or Y) or X: strides in bytes of images, channels, rows and columns. apart: bytes from plane to
    plane of an image, 0 for one plane.
    """

    strides: tuple[int, int, int, int]
    alignment: int
    apart: int


@dataclass(frozen=True, slots=True)
class DepthwiseProblem:
    """geometry: of a plane, with axes (rows, columns). depth: of the axis of planes. W_strides: of W or dW, in bytes
    from channel to channel and from tap to tap along rows and columns; W_depth_stride: along depth. bias_stride: from
    channel to channel of Y's bias.
    """

    gradient: Literal["dX", "dW", "Y"]
    dtype: str
    geometry: Geometry
    depth: Geometry
    channels_last: bool
    dY: Plane
    X: Plane
    W_strides: tuple[int, int, int]
    W_depth_stride: int
    bias_stride: int | None = None

    @classmethod
    def of(cls, problem: Problem) -> DepthwiseProblem:
        """Raises Refusal for problems that the kernels do not solve."""
        dY, X, W, geometry = problem.dY, problem.X, problem.W, problem.geometry
        if problem.gradient == "dB" or geometry.channels != 1 or geometry.filters != 1:
            raise Refusal("depthwise kernels take one filter for each channel")
        if geometry.rank > 3:
            raise Refusal("depthwise kernels take one, two or three spatial axes")
        if 0 in X.shape or 0 in dY.shape or 0 in W.shape:
            raise Refusal("depthwise kernels take no empty arrays")
        item = X.dtype.itemsize
        if all(each.shape[-1] == 1 or each.strides[-1] == item for each in (dY, X)):
            last = False
        elif all(each.shape[1] == 1 or each.strides[1] == item for each in (dY, X)):
            last = True
        else:
            raise Refusal(
                "depthwise kernels take arrays with contiguous channels or contiguous columns, the same in all arrays"
            )
        first, *taps = W.strides[0], *(0,) * (3 - geometry.rank), *W.strides[2:]
        lifted = geometry.lifted(3)
        return cls(
            problem.gradient,
            problem.dtype,
            lifted.of_axes(slice(1, 3)),
            lifted.of_axes(slice(1)),
            last,
            _plane(dY, last),
            _plane(X, last),
            (first, taps[1], taps[2]),
            taps[0],
            None if problem.B is None else problem.B.strides[0],
        )

    @property
    def images(self) -> int:
        return self.geometry.images

    @property
    def channels(self) -> int:
        return self.geometry.group


def _plane(tensor: Tensor, last: bool) -> Plane:
    """With three spatial axes. The stride of an axis of one element is set as in a contiguous array."""
    missing = 5 - len(tensor.shape)
    sizes = (*tensor.shape[:2], *(1,) * missing, *tensor.shape[2:])
    strides = [*tensor.strides[:2], *(0,) * missing, *tensor.strides[2:]]
    expected = tensor.dtype.itemsize
    for axis in (1, 4, 3, 2, 0) if last else (4, 3, 2, 1, 0):
        if sizes[axis] == 1:
            strides[axis] = expected
        if strides[axis] < 0:
            raise Refusal("depthwise kernels take arrays without negative strides")
        expected = strides[axis] * sizes[axis]
    image, channel, plane, row, column = strides
    return Plane((image, channel, row, column), tensor.alignment, plane if sizes[2] > 1 else 0)
