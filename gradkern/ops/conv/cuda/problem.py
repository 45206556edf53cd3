"""One result of a convolution or of its gradient, for the candidates of the CUDA provider."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from gradkern.call import Tensor
from gradkern.ops.conv.geometry import Geometry
from gradkern.strides import end_to_end, is_dense


@dataclass(frozen=True, slots=True)
class Problem:
    """dX from (dY, W), dW from (dY, X), dB from (dY,), or Y from (X, W) or (X, W, B): inputs and output in this order.

    dY describes dY or Y, X describes X or dX, W describes W or dW, B describes B or dB: what `gradient` names is the
    output.
    """

    gradient: Literal["dX", "dW", "dB", "Y"]
    dY: Tensor
    X: Tensor
    W: Tensor
    geometry: Geometry
    B: Tensor | None = None

    @property
    def dtype(self) -> str:
        return self.dY.dtype.name

    @property
    def output(self) -> Tensor:
        made = {"dX": self.X, "dW": self.W, "dB": self.B, "Y": self.dY}[self.gradient]
        if made is None:
            raise TypeError("dB has no description")
        return made

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        if self.gradient == "Y":
            return (self.X, self.W) if self.B is None else (self.X, self.W, self.B)
        return {"dX": (self.dY, self.W), "dW": (self.dY, self.X), "dB": (self.dY,)}[self.gradient]

    @property
    def terms(self) -> int:
        """In the sum of one element."""
        if self.gradient in ("dW", "dB"):
            return self.dY.shape[0] * prod(self.dY.shape[2:])
        geometry = self.geometry
        return geometry.taps * geometry.filters if self.gradient == "dX" else geometry.taps * geometry.channels + 1

    @property
    def is_zero(self) -> bool:
        """Whether it has elements, and each is a sum without terms."""
        return self.output.size > 0 and not (self.dY.size if self.gradient == "dB" else self.geometry.multiplications)

    @property
    def sizes(self) -> str:
        if self.gradient == "dB":
            return _by(self.dY)
        groups = f" in {self.geometry.group} groups" if self.geometry.group > 1 else ""
        return f"{_by(self.X)} * {_by(self.W)}{groups}"

    @property
    def of_few_channels(self) -> bool:
        """A dW of 16-bit types that gradkern's own kernel may compute: two axes, one group and fewer channels than a
        vector has elements. cuDNN's engines for tensor cores pad these with zeros.
        """
        geometry = self.geometry
        few = geometry.group == 1 and geometry.channels < 8 and geometry.rank == 2
        return few and self.gradient == "dW" and self.dtype in ("float16", "bfloat16")

    @property
    def of_padded_groups(self) -> bool:
        """Whether cuDNN pads the channels of each group: channels-last arrays of 16-bit types in groups whose number of
        channels is no power of two.
        """
        geometry = self.geometry
        is_padded = geometry.group > 1 and geometry.channels.bit_count() > 1
        return is_padded and self.dY.dtype.itemsize == 2 and geometry.rank <= 3 and self.channels_last == self

    @property
    def of_many_taps(self) -> bool:
        """A depthwise dX or Y that tensor cores should compute fastest, from measurements on an H200. With few taps,
        short rows or little work, their overhead beside the products dominates.
        """
        geometry = self.geometry
        columns = (geometry.spatial if self.gradient == "dX" else geometry.out)[-1]
        return geometry.taps >= 25 and columns > 8 and geometry.multiplications >= 100_000_000

    @property
    def channels_last(self) -> Problem:
        """The same with every array channels-last, where tensor cores have kernels of their own for that."""
        if self.geometry.rank > 3 or self.dtype == "float64":
            return self
        return replace(self, **{name: _channels_last(getattr(self, name)) for name in ("dY", "X", "W")})


def _channels_last(tensor: Tensor) -> Tensor:
    order = (0, *range(2, len(tensor.shape)), 1)
    return tensor if is_dense(tensor, order) else end_to_end(tensor, order)


def _by(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))
