"""The gradient of a slice on the CPU, by NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradkern.call import Call

__all__ = ["SlicePlan", "plan"]


@dataclass(frozen=True, slots=True)
class SlicePlan:
    places: tuple[slice, ...]
    kernel: str = "numpy"
    scratch: int = 0

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        dX = outputs[0]
        dX[...] = 0
        dX[self.places] = inputs[0]


def plan(call: Call) -> SlicePlan:
    bounds = zip(call.attributes["starts"], call.attributes["ends"], call.attributes["steps"], strict=True)
    return SlicePlan(tuple(slice(start, None if end < 0 else end, step) for start, end, step in bounds))
