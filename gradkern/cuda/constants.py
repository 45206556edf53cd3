"""Arrays of one value on a device, for inputs that a caller leaves out."""

from __future__ import annotations

from functools import cache

import numpy as np

from gradkern.cuda.device import Device, activate, check, driver


@cache
def filled(device: Device, value: float, shape: tuple[int, ...], dtype: np.dtype) -> int:
    """The address of an array filled with this value, complete before any stream can read it.

    It is made once and never freed. It is not in a framework's memory pool: a pool that belongs to a graph must not
    contain anything that outlives the graph.
    """
    array = np.full(shape, value, dtype)
    with activate(device):
        address = int(check(driver.cuMemAlloc(max(array.nbytes, 1)), f"allocating {array.nbytes} bytes"))
        if array.nbytes:
            apart = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "creating a stream")
            check(driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, apart), "copying an array")
            check(driver.cuStreamSynchronize(apart), "copying an array")
            check(driver.cuStreamDestroy(apart), "destroying a stream")
    return address
