"""What group norms on the CPU share: their channels. Each channel of each sample is one of batch norm's channels, with
its own numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from gradkern.call import Call, Tensor
from gradkern.cpu.element_types import arithmetic
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.runs import Runs

Wide = np.ndarray[Any, np.dtype[np.float64]]
"""In float64, of shape (N, C), (N, 1) or (1, C)."""


class Channels:
    """Of a call with this data.

    order   of its axes in memory, as the kernels see them
    runs    of the channels of all samples
    count   elements of a group
    """

    def __init__(self, call: Call, X: Tensor) -> None:
        last = call.attributes.get("channels_last", 0)
        channel_axis = len(X.shape) - 1 if last else 1
        self.order, self.runs = Runs.of_tensor(X, [axis in (0, channel_axis) for axis in range(len(X.shape))])
        self.samples, self.channels = call.axes["N"], call.axes["C"]
        self.groups = call.axes.get("G", self.channels)
        self.count = prod(call.axes["spatial"]) * (self.channels // self.groups)
        self._compute = arithmetic(X.dtype)

    def of_groups(self, numbers: Wide) -> Wide:
        """The sum over the channels of each group, for each of these."""
        grouped = numbers.reshape(self.samples, self.groups, -1)
        return np.repeat(grouped.sum(2), self.channels // self.groups, 1)

    def of_channels(self, statistics: np.ndarray) -> Wide:
        """Statistics of groups, for each channel."""
        wide = statistics.astype(np.float64).reshape(self.samples, self.groups)
        return np.repeat(wide, self.channels // self.groups, 1)

    def flat(self, numbers: Wide) -> np.ndarray:
        """In the type of arithmetic, one for each channel of each sample, for a kernel."""
        return np.broadcast_to(numbers, (self.samples, self.channels)).astype(self._compute).reshape(-1)


def empty_plan(call: Call) -> FlatPlan:
    """Of a call without elements: every output is 0, or empty."""

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        for each in write:
            each[...] = 0

    return FlatPlan(call, kernel="empty", outputs=tuple(call.outputs), launch=launch)


def wide(call: Call, name: str, given: Mapping[str, np.ndarray], default: float = 0.0) -> Wide:
    """A parameter in float64; `default` where the call does not have it."""
    if name not in given:
        return np.full((1, 1), default)
    return given[name].view(call.inputs[name].dtype).astype(np.float64).reshape(-1, call.axes["C"])


def gain_and_bias(call: Call, given: Mapping[str, np.ndarray]) -> dict[str, Wide]:
    """What xh is multiplied by, and what is added, before the activation."""
    more = 1 + wide(call, "sample_scale", given)
    scale = wide(call, "gamma" if "gamma" in given else "scale", given, 1.0)
    bias = wide(call, next((name for name in ("beta", "B", "bias") if name in given), ""), given)
    return {"scale": scale * more, "bias": bias * more + wide(call, "sample_shift", given)}
