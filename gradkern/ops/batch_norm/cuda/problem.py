"""A batch norm's gradient, for the candidates of the CUDA provider."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gradkern.call import Tensor


@dataclass(frozen=True, slots=True)
class Problem:
    """The requested outputs of dX, dScale, dBias and dZ, from dY, X, Scale, saved_mean and saved_inv_std and the
    optional B, Y and dY2, in this order.

    A tensor's strides are in bytes. `activation` is as from with_alpha.
    """

    dY: Tensor
    X: Tensor
    Scale: Tensor
    saved_mean: Tensor
    saved_inv_std: Tensor
    dX: Tensor | None = None
    dScale: Tensor | None = None
    dBias: Tensor | None = None
    B: Tensor | None = None
    Y: Tensor | None = None
    dY2: Tensor | None = None
    dZ: Tensor | None = None
    activation: str = "none"

    @property
    def dtype(self) -> str:
        return self.X.dtype.name

    @property
    def positions(self) -> int:
        """Positions of an image: 1 where there are no spatial axes."""
        return prod(self.X.shape[2:])

    @property
    def elements(self) -> int:
        """Elements of a channel."""
        return self.X.shape[0] * self.positions

    @property
    def activation_recomputable(self) -> bool:
        """The activation's input, if any, is recomputed from X, Scale and B: no other array is read or written."""
        return self.Y is None and self.dY2 is None and self.dZ is None

    @property
    def given(self) -> dict[str, Tensor]:
        """Inputs by name."""
        names = ("dY", "X", "Scale", "saved_mean", "saved_inv_std", "B", "Y", "dY2")
        return {name: tensor for name in names if (tensor := getattr(self, name)) is not None}

    @property
    def wanted(self) -> dict[str, Tensor]:
        """Outputs by name."""
        names = ("dX", "dScale", "dBias", "dZ")
        return {name: tensor for name in names if (tensor := getattr(self, name)) is not None}

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(self.given.values())

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.wanted.values())
