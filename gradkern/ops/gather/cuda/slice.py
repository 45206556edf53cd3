"""The gradient of a slice on a GPU: zeros, and a copy with strides."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.call import Call, Tensor
from gradkern.cuda.contiguous import copy_launch
from gradkern.cuda.device import Device, activate, check, driver
from gradkern.cuda.launch import Launch
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.ops.gather import ranges_of

__all__ = ["SlicePlan", "plan"]


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """zeros: bytes that are set to 0 before. offset: of the first element of dX that is copied to, in bytes."""

    kernel: str
    launch: Launch
    device: Device
    zeros: int
    offset: int
    scratch: int = 0

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self.launch,)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        if self.zeros:
            with activate(self.device):
                check(driver.cuMemsetD8Async(outputs[0], 0, self.zeros, stream), "writing zeros")
        self.launch((inputs[0], outputs[0] + self.offset), stream)


def plan(call: Call) -> SlicePlan | EmptyPlan:
    (dY,), (dX,) = call.inputs.values(), call.outputs.values()
    device = device_of(call)
    if dY.size == 0:
        return EmptyPlan("empty", 0, device, (dX.nbytes,))
    require_flat(next(iter(call.outputs)), dX)
    along = list(zip(ranges_of(call.attributes, dX.shape), dX.strides, strict=True))
    offset = sum(each.start * stride for each, stride in along)
    strides = tuple(each.step * stride for each, stride in along)
    alignment = min(dX.alignment, offset & -offset) if offset else dX.alignment
    launch = copy_launch(dY, Tensor(dX.dtype, dY.shape, strides, alignment), device)
    return SlicePlan("slice_grad_copy", launch, device, dX.nbytes if dY.size < dX.size else 0, offset)
