"""What the kernel of a slice's gradient is compiled for."""

from __future__ import annotations

from dataclasses import dataclass

OF_AXIS = ("size", "multiplier", "shift", "first", "count", "step", "step_multiplier", "step_shift", "stride")


@dataclass(frozen=True, slots=True)
class SliceConfig:
    """size: bytes of an element; written, read: elements of a store and of a load; axes: of dX, from the slowest to the
    fastest.
    """

    size: int
    written: int
    read: int
    axes: int
    threads: int = 256

    @property
    def name(self) -> str:
        return f"{self.size}_bytes_{self.read}x{self.written}_{self.axes}_axes"

    @property
    def vectors(self) -> int:
        """Of a thread, in flight: up to 8 loads and 64 bytes."""
        return max(1, min(8 * self.read // self.written, 64 // (self.size * self.written)))


def arguments(axes: int) -> tuple[str, ...]:
    """Along an axis of `size` elements, or vectors if it is the last, element first + step k is the k-th of `count` of
    dY, `stride` bytes apart. multiplier and shift divide by the size, those of the step by the step. The
    element of dY that all axes have first is `offset` bytes behind dY.
    """
    return ("dY", "dX", "offset", "vectors", *(f"{name}_{axis}" for axis in range(axes) for name in OF_AXIS))
