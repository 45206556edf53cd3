"""The plan of several launches that pass something on in scratch memory."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device import Device, activate, check, driver, in_turn
from gradkern.cuda.launch import Launch
from gradkern.cuda.scratch import scratch

__all__ = ["LaunchesPlan"]


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
