"""Scratch memory on a GPU for candidates that a test runs by themselves."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["WORKSPACE", "poisoned"]

WORKSPACE = 1 << 28
_POISON = 0xFF


def poisoned() -> Iterator[int]:
    """The address of WORKSPACE bytes in which every number is NaN; freed when the iterator goes on."""
    from gradkern.cuda.device import activate, check, get_device
    from helpers.driver import driver

    with activate(get_device(0)):
        address = int(check(driver.cuMemAlloc(WORKSPACE), "allocating a workspace"))
        check(driver.cuMemsetD8(address, _POISON, WORKSPACE), "poisoning it")
        yield address
        driver.cuMemFree(address)
