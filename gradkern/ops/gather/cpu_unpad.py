"""The rows that FlattenAndUnpad keeps, on the CPU."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.errors import DataError


def plan(call: Call) -> FlatPlan:
    rows, columns = prod((call.axes["d0"], call.axes["d1"])), prod(call.axes["after"])
    count = call.axes["total"]

    def launch(read: list[Any], write: list[Any]) -> None:
        data, indices = read
        outside = np.flatnonzero((indices < 0) | (indices >= rows))
        if outside.size:
            raise DataError(
                f"input indices has {outside.size} numbers out of range, the first {indices[outside[0]]} at "
                f"{outside[0]}; expected 0 to {rows - 1}"
            )
        if count and columns:
            np.take(data.reshape(rows, columns), indices, 0, write[0].reshape(count, columns), "clip")

    return FlatPlan(call, kernel="rows", outputs=("output",), launch=launch)
