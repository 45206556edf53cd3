"""The windows of a max pool, with three spatial axes."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from gradkern.call import Call

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PoolWindows:
    kernel: Axes
    outputs: Axes
    strides: Axes
    dilations: Axes
    begins: Axes
    inputs: Axes

    @staticmethod
    def of(call: Call) -> PoolWindows:
        """Of a call whose attributes are resolved; axes of one element come before its own."""
        inputs, attributes = call.axes["spatial"], call.attributes
        rank = len(inputs)
        ones, zeros = (1,) * (3 - rank), (0,) * (3 - rank)
        return PoolWindows(
            (*ones, *attributes["kernel_shape"]),
            (*ones, *call.axes["out"]),
            (*ones, *attributes["strides"]),
            (*ones, *attributes["dilations"]),
            (*zeros, *attributes["pads"][:rank]),
            (*ones, *inputs),
        )

    @property
    def numbers(self) -> Axes:
        """All of them, one after another."""
        return tuple(number for axes in astuple(self) for number in axes)
