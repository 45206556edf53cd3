"""One gradient of a batch norm, as the candidates of the CUDA provider see it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from gradkern.call import Tensor

__all__ = ["Mode", "Problem"]

Mode = Literal["auto", "spatial", "spatial_persistent"]


@dataclass(frozen=True, slots=True)
class Problem:
    """The wanted of dX, dScale and dBias, from dY, X, Scale, saved_mean and saved_inv_std, in this order.

    A tensor's strides are in bytes. `mode` pins cuDNN's mode; `in_place`: dX is written over dY or X.
    """

    dY: Tensor
    X: Tensor
    Scale: Tensor
    saved_mean: Tensor
    saved_inv_std: Tensor
    dX: Tensor | None = None
    dScale: Tensor | None = None
    dBias: Tensor | None = None
    mode: Mode = "auto"
    in_place: bool = False

    @property
    def dtype(self) -> str:
        return self.X.dtype.name

    @property
    def work(self) -> str:
        """The type of the arithmetic."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def channels(self) -> int:
        return self.X.shape[1]

    @property
    def positions(self) -> int:
        """Positions of an image: 1 where there are no spatial axes."""
        return prod(self.X.shape[2:])

    @property
    def elements(self) -> int:
        """Elements of a channel."""
        return self.X.shape[0] * self.positions

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.dY, self.X, self.Scale, self.saved_mean, self.saved_inv_std

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(each for each in (self.dX, self.dScale, self.dBias) if each is not None)
