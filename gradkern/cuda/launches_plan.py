"""The plans of launches with scratch memory."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device import Device, activate, check, driver, in_turn
from gradkern.cuda.launch import Launch, LaunchPlan
from gradkern.cuda.scratch import scratch


@dataclass(frozen=True, slots=True)
class LaunchesPlan:
    """Launches in turn, each with the places of its addresses among inputs, outputs and scratch memory.

    places   none: every launch takes all addresses
    offsets  of what is in scratch memory; none: it is not needed
    counted  the stream's counter comes last
    copied   places of an output and of its copy, and bytes
    alike    the calls differ in nothing but their addresses
    """

    kernel: str
    scratch: int
    launches: tuple[Launch, ...]
    places: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    device: Device
    counted: bool = False
    copied: tuple[int, int, int] | None = None
    alike: bool = True

    @property
    def REPEATABLE(self) -> bool:
        """See gradkern.call.Repeatable."""
        return self.alike and self.copied is None

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        values = (*inputs, *outputs)
        if self.offsets:
            counter, buffer = scratch(self.device, stream, self.scratch)
            values = (*values, *[buffer + offset for offset in self.offsets], *[counter] * self.counted)
        if len(self.launches) == 1 and not (self.places or self.copied):
            self.launches[0](values, stream)
            return
        with in_turn:
            for n, launch in enumerate(self.launches):
                launch([values[place] for place in self.places[n]] if self.places else values, stream)
            if self.copied is not None:
                source, target, size = self.copied
                with activate(self.device):
                    check(driver.cuMemcpyDtoDAsync(values[target], values[source], size, stream), "copying a result")


def scratch_plan(
    kernel: str, scratch: int, launch: Launch, device: Device, offsets: tuple[int, ...] = (0,)
) -> LaunchesPlan:
    """The plan of one launch. Its addresses are those of the inputs and outputs, of the buffer at `offsets`, and of the
    counter.
    """
    return LaunchesPlan(kernel, scratch, (launch,), (), offsets, device, counted=True)


def plan_of(kernel: str, scratch: int, launch: Launch, device: Device) -> LaunchPlan | LaunchesPlan:
    """The plan of one launch. Only with scratch memory it takes the addresses of the buffer and of the counter."""
    return scratch_plan(kernel, scratch, launch, device) if scratch else LaunchPlan(kernel, launch)
