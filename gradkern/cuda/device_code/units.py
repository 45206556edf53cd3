"""Memory's units of 16 bytes, of which bulk copies have whole ones."""

from __future__ import annotations

from collections.abc import Callable

from gradkern.cuda.device_code.function import device_function

__all__ = ["bytes_spanned"]


def bytes_spanned() -> Callable[[int, int], int]:
    """The device function spanned(address, size): bytes of the units that hold `size` bytes at `address`; they never
    leave an allocation's granule.
    """

    @device_function
    def spanned(address: int, size: int) -> int:
        return ((address + size + 15) & -16) - (address & -16)

    return spanned
