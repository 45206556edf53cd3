"""Units of 16 bytes: bulk copies consist of whole units."""

from __future__ import annotations

from gradkern.cuda.device_code.function import device_function


@device_function
def bytes_spanned(address: int, size: int) -> int:
    """The bytes of all units that contain the `size` bytes at `address`. These are within the allocation's granule."""
    return ((address + size + 15) & -16) - (address & -16)
