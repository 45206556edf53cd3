"""Large workspaces lent by PyTorch's allocator, in processes where PyTorch manages the GPU's memory.

Scratch memory is kept for as long as the process runs, and so counts on top of all that a training step needs at its
peak. Large workspaces are those of convolutions' gradients, most of them near the end of a backward pass, when the
activations are gone: from PyTorch's cache they cost no memory at all. A workspace goes back as soon as the kernels are
enqueued, as PyTorch's own do: what has the same memory next comes after them on the same stream.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from gradkern.cuda.device import Device, OutOfMemoryError, check
from gradkern.cuda.scratch import LEGACY, PER_THREAD

driver: Any = import_module("cuda.bindings.driver")  # it has no types

__all__ = ["LARGE", "borrow", "give_back"]

LARGE = 32 << 20
"""Bytes of a workspace, at most, for the stream's scratch memory, free of cost for a call: the most that cuBLAS needs.
"""


def borrow(device: Device, stream: int, size: int) -> int | None:
    """The address of so many bytes for what is enqueued on the stream next. `device` is the current one.

    None where PyTorch does not use the GPU. None as well for a stream that is captured, as a graph needs its memory for
    as long as it is replayed, and for one that in every thread is another but has the same name.

    Raises OutOfMemoryError.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized() or stream == PER_THREAD:
        return None
    if stream > LEGACY and check(driver.cuStreamIsCapturing(stream), "asking for a stream's capture"):
        return None
    try:
        return cuda.caching_allocator_alloc(size, device.index, 0 if stream == LEGACY else stream)
    except cuda.OutOfMemoryError as error:
        raise OutOfMemoryError(f"CUDA: allocating {size:,} bytes of workspace failed: {error}") from error


def give_back(address: int) -> None:
    """What `borrow` has lent, once all that uses it is enqueued."""
    sys.modules["torch"].cuda.caching_allocator_delete(address)
