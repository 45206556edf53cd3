"""Convolutions in words that pass between processes, and the problems they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes  # noqa: F401  NumPy then knows bfloat16
import numpy as np

from gradkern.call import Tensor
from gradkern.ops.conv import geometry as sizes
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.strides import c_strides, end_to_end

__all__ = ["Case", "Geometry"]

Layout = Literal["first", "last", "gaps", "reversed", "swapped"]


@dataclass(frozen=True)
class Geometry:
    """A convolution's sizes; strides, dilations and pads have one number per spatial axis, or none for the default."""

    X: tuple[int, ...]
    W: tuple[int, ...]
    group: int = 1
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()

    @property
    def axes(self) -> list[tuple[int, int, int, int, int, int]]:
        """Per spatial axis: size, kernel, stride, dilation, and the pads before and after."""
        rank = len(self.X) - 2
        begin = self.pads_begin or (0,) * rank
        given = (self.strides or (1,) * rank, self.dilations or (1,) * rank, begin, self.pads_end or begin)
        return list(zip(self.X[2:], self.W[2:], *given, strict=True))

    @property
    def Y(self) -> tuple[int, ...]:
        out = ((x + a + b - (k - 1) * d - 1) // s + 1 for x, k, s, d, a, b in self.axes)
        return (self.X[0], self.W[0], *out)


@dataclass(frozen=True)
class Case:
    """A convolution or one gradient of it: of a type, in a layout, at addresses that are multiples of `alignment`.

    first, last: channels before or after the positions; gaps: channels first, every row longer than is used, but in W,
    which cuDNN wants whole; reversed: the first axis lies innermost; swapped: channels last, and the last position
    outside of the others.
    """

    gradient: Literal["dX", "dW", "Y"]
    geometry: Geometry
    dtype: str = "float32"
    layout: Layout = "first"
    alignment: int = 16
    layout_of_W: Layout | None = None
    biased: bool = False

    @classmethod
    def of(cls, words: dict[str, Any]) -> Case:
        geometry: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in words["geometry"].items()
        }
        return cls(**{**words, "geometry": Geometry(**geometry)})

    def problem(self) -> Problem:
        _, _, strides, dilations, begin, end = zip(*self.geometry.axes, strict=True)
        Y, X = (self._tensor(each, self.layout) for each in (self.geometry.Y, self.geometry.X))
        whole = "first" if self.layout == "gaps" else self.layout
        W = self._tensor(self.geometry.W, self.layout_of_W or whole)
        geometry = self.geometry
        axes = {"N": geometry.X[0], "M": geometry.W[0], "C_per_group": geometry.W[1]}
        axes |= {"spatial": geometry.X[2:], "kernel": geometry.W[2:], "out": geometry.Y[2:]}
        attributes = {"group": geometry.group, "strides": strides, "dilations": dilations, "pads": begin + end}
        resolved = sizes.Geometry.of(axes, attributes)
        if self.gradient == "Y":
            B = Tensor(Y.dtype, (geometry.W[0],), (Y.dtype.itemsize,), self.alignment) if self.biased else None
            return Problem("Y", Y, X, W, resolved, B)
        return Problem(self.gradient, Y, X, W, resolved)

    def _tensor(self, sizes: tuple[int, ...], layout: Layout) -> Tensor:
        kind = np.dtype(self.dtype)
        if layout == "last":
            batch, *positions, channels = c_strides((sizes[0], *sizes[2:], sizes[1]), kind.itemsize)
            strides = (batch, channels, *positions)
        elif layout == "swapped":
            order = (0, len(sizes) - 1, *range(2, len(sizes) - 1), 1)
            strides = end_to_end(Tensor(kind, sizes, (), self.alignment), order).strides
        elif layout == "reversed":
            strides = tuple(reversed(c_strides(tuple(reversed(sizes)), kind.itemsize)))
        else:
            longer = (*sizes[:-1], sizes[-1] + 3) if layout == "gaps" else sizes
            strides = c_strides(longer, kind.itemsize)
        return Tensor(kind, sizes, strides, self.alignment)
