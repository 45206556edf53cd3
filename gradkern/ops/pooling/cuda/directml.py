"""DirectML's gradients of pools on a GPU: that of max pooling by two launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gradkern.call import Call
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, LaunchPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.cuda.scratch import scratch
from gradkern.ops.pooling.cuda import average as averages
from gradkern.ops.pooling.cuda import max as maxima
from gradkern.ops.pooling.directml import average, maximum

__all__ = ["plan"]


@dataclass(frozen=True, slots=True)
class _MaxPlan:
    """The indices of the first launch are in scratch memory."""

    REPEATABLE: ClassVar[bool] = True  # see gradkern.call.Repeatable
    kernel: str
    scratch: int
    launches: tuple[Launch, Launch]
    device: Device

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        (X, dY), (forward, gradient) = inputs, self.launches
        indices = scratch(self.device, stream, self.scratch)[1]
        forward((X, indices), stream)
        gradient((dY, indices, *outputs), stream)


def plan(call: Call) -> LaunchPlan | EmptyPlan | _MaxPlan:
    if "Input" not in call.inputs:
        return averages.plan(average(call))
    first, second = maximum(call)
    gradient = maxima.plan(second)
    if isinstance(gradient, EmptyPlan):
        return gradient
    forward = maxima.plan(first)
    assert isinstance(forward, LaunchPlan)  # where there is a gradient to spread there are windows
    launches = forward.launch, gradient.launch
    return _MaxPlan(gradient.kernel, second.inputs["Indices"].nbytes, launches, device_of(call))
