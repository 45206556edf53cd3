"""Units of 16 bytes: bulk copies consist of whole units."""

from __future__ import annotations

from collections.abc import Callable

from gradkern.cuda.device_code.function import device_function

__all__ = ["bytes_spanned"]


def bytes_spanned() -> Callable[[int, int], int]:
    """The device function spanned(address, size): the bytes of all units that contain the `size` bytes at `address`.
    These are within the allocation's granule.
    """

    @device_function
    def spanned(address: int, size: int) -> int:
        return ((address + size + 15) & -16) - (address & -16)

    return spanned
