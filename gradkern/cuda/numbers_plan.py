"""Plans of launches whose arguments have numbers: those of attributes once, those on the host at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradkern.cuda.device_code.columns import bits_of
from gradkern.cuda.launch import Launch

Numbers = Callable[[Mapping[str, Any]], Sequence[float]]
"""What an operator's arithmetic takes, of its attributes and of the numbers on the host, by name."""


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
