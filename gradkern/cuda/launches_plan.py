"""The plans of launches with scratch memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gradkern.cuda.device import Device, activate, check, driver, in_turn
from gradkern.cuda.launch import Launch, LaunchPlan
from gradkern.cuda.scratch import scratch

__all__ = ["LaunchesPlan", "ScratchPlan", "plan_of"]


@dataclass(frozen=True, slots=True)
class ScratchPlan:
    """One launch. Its addresses are those of the inputs and outputs, of the buffer at `offsets`, and of the counter."""

    REPEATABLE: ClassVar[bool] = True  # see gradkern.call.Repeatable
    kernel: str
    scratch: int
    launch: Launch
    device: Device
    offsets: tuple[int, ...] = (0,)

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self.launch,)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        counter, buffer = scratch(self.device, stream, self.scratch)
        self.launch((*inputs, *outputs, *[buffer + offset for offset in self.offsets], counter), stream)


def plan_of(kernel: str, scratch: int, launch: Launch, device: Device) -> LaunchPlan | ScratchPlan:
    """The plan of one launch. Only with scratch memory it takes the addresses of the buffer and of the counter."""
    return ScratchPlan(kernel, scratch, launch, device) if scratch else LaunchPlan(kernel, launch)


@dataclass(frozen=True, slots=True)
class LaunchesPlan:
    """Launches in turn, each with the places of its addresses among inputs, outputs and scratch memory.

    offsets  of what is in scratch memory
    cleared  bytes of the output that are set to zero first
    """

    kernel: str
    scratch: int
    launches: tuple[Launch, ...]
    places: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    device: Device
    cleared: int = 0

    @property
    def REPEATABLE(self) -> bool:
        """See gradkern.call.Repeatable."""
        return not self.cleared

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        _, buffer = scratch(self.device, stream, self.scratch)
        values = (*inputs, *outputs, *[buffer + offset for offset in self.offsets])
        with in_turn:
            if self.cleared:
                with activate(self.device):
                    check(driver.cuMemsetD8Async(outputs[0], 0, self.cleared, stream), "writing zeros")
            for launch, places in zip(self.launches, self.places, strict=True):
                launch([values[place] for place in places], stream)
