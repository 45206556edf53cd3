"""The gradient of a slice on the CPU, by NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.ops.gather import ranges_of


@dataclass(frozen=True, slots=True)
class SlicePlan:
    places: tuple[slice, ...]
    kernel: str = "numpy"
    scratch: int = 0

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        dX = outputs[0]
        dX[...] = 0
        if inputs[0].size:  # an empty range backwards is no slice
            dX[self.places] = inputs[0]


def plan(call: Call) -> SlicePlan:
    ranges = ranges_of(call.attributes, next(iter(call.outputs.values())).shape)
    return SlicePlan(tuple(slice(each.start, None if each.stop < 0 else each.stop, each.step) for each in ranges))
