"""One gradient of one convolution, or its forward pass, as the candidates of the CUDA provider see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradkern.call import Tensor
from gradkern.ops.conv.geometry import Geometry

__all__ = ["BiasProblem", "ForwardProblem", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """dX from (dY, W), or dW from (dY, X): inputs and output in this order.

    X describes X or dX, W describes W or dW: the one that `gradient` names is the output.
    """

    gradient: Literal["dX", "dW", "Y"]
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
class ForwardProblem(Problem):
    """Y from (X, W), or (X, W, B): `gradient` is "Y", and dY describes Y."""

    B: Tensor | None = None

    @property
    def output(self) -> Tensor:
        return self.dY

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.X, self.W) if self.B is None else (self.X, self.W, self.B)


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
