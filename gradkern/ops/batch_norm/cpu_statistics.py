"""The statistics of one part of a batch on the CPU, as one message: two passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.cpu.batch_norm_statistics import Statistics
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.runs import Runs

__all__ = ["plan"]


def plan(call: Call) -> FlatPlan:
    X = call.inputs["X"]
    order, runs = Runs.of_tensor(X, [axis == 1 for axis in range(len(X.shape))])
    statistics = Statistics(runs, X.dtype) if X.size else None
    channels = X.shape[1]

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        (message,) = write
        message[...] = 0
        if statistics is not None:
            with np.errstate(all="ignore"):  # infinities and NaN go where they go
                message[:channels], message[channels:-1] = statistics(read[0])
            message[-1] = runs.count

    return FlatPlan(
        call,
        kernel="statistics_columns" if runs.columns else "statistics_planes",
        outputs=("part_statistics",),
        launch=launch,
        orders={"X": order},
        scratch=(statistics.nbytes if statistics else 0) + 4 * 8 * channels,
    )
