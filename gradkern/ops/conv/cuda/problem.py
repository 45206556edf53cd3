"""One gradient of one convolution, as the candidates of the CUDA provider see it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from gradkern.call import Tensor

__all__ = ["Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """dX from (dY, W), dW from (dY, X), or dB from (dY): inputs and output in this order, W and X as `call` has them.

    Y, X, W and B describe dY, X or dX, W or dW, and dB: whichever of them `gradient` names is the output. For dB there
    are only Y and B. What is per spatial axis is a tuple of one to three; strides of tensors are in bytes.
    """

    gradient: Literal["dX", "dW", "dB"]
    Y: Tensor
    X: Tensor | None
    W: Tensor | None
    B: Tensor | None = None
    group: int = 1
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()

    @property
    def dtype(self) -> str:
        return self.Y.dtype.name

    @property
    def output(self) -> Tensor:
        output = {"dX": self.X, "dW": self.W, "dB": self.B}[self.gradient]
        if output is None:
            raise ValueError(f"a problem of {self.gradient} needs its tensors")
        return output

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        other = {"dX": self.W, "dW": self.X, "dB": None}[self.gradient]
        return (self.Y,) if other is None else (self.Y, other)

    @property
    def multiplications(self) -> int:
        """Multiply-adds of the gradient, those with padding counted too."""
        if self.W is None:
            return 0
        filters, *rest = self.W.shape
        return self.Y.shape[0] * prod(self.Y.shape[2:]) * filters * prod(rest)
