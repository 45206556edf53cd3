"""One gradient of one convolution, as the candidates of the CUDA provider see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradkern.call import Tensor
from gradkern.ops.conv.geometry import Geometry

__all__ = ["BiasProblem", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """dX from (dY, W), or dW from (dY, X): inputs and output in this order.

    X describes X or dX, W describes W or dW: the one that `gradient` names is the output.
    """

    gradient: Literal["dX", "dW"]
    dY: Tensor
    X: Tensor
    W: Tensor
    geometry: Geometry

    @property
    def dtype(self) -> str:
        return self.dY.dtype.name

    @property
    def output(self) -> Tensor:
        return self.X if self.gradient == "dX" else self.W

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.dY, self.W if self.gradient == "dX" else self.X)


@dataclass(frozen=True, slots=True)
class BiasProblem:
    """dB from dY."""

    dY: Tensor
    dB: Tensor

    @property
    def gradient(self) -> Literal["dB"]:
        return "dB"

    @property
    def dtype(self) -> str:
        return self.dY.dtype.name

    @property
    def output(self) -> Tensor:
        return self.dB

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.dY,)
