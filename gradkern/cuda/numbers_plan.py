"""Plans of launches whose arguments have numbers: those of attributes once, those on the host at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_double, c_float, c_int32, c_int64
from dataclasses import dataclass
from typing import Any

from gradkern.cuda.launch import Launch

__all__ = ["Numbers", "NumbersPlan", "bits_of"]

Numbers = Callable[[Mapping[str, Any]], Sequence[float]]
"""What an operator's arithmetic takes, of its attributes and of the numbers on the host, by name."""


def bits_of(number: float, compute: str) -> int:
    """A number as the argument of a kernel that reads it by float_of_bits. Beyond the type's it is infinite."""
    if compute == "float64":
        return c_int64.from_buffer(c_double(number)).value
    return c_int32.from_buffer(c_float(number)).value


@dataclass(frozen=True, slots=True)
class NumbersPlan:
    """A launch whose numbers each call computes from those that it has on the host. Its changing arguments are the
    inputs' addresses, the numbers and the outputs' addresses.
    """

    kernel: str
    launch: Launch
    scalars: tuple[str, ...]
    attributes: Mapping[str, Any]
    numbers: Numbers
    compute: str
    scratch: int = 0

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self.launch,)

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[int, ...], stream: int) -> None:
        arrays = len(inputs) - len(self.scalars)
        values = {**self.attributes, **dict(zip(self.scalars, inputs[arrays:], strict=True))}
        given = [bits_of(each, self.compute) for each in self.numbers(values)]
        self.launch((*inputs[:arrays], *given, *outputs), stream)
