"""Large workspaces lent by PyTorch's allocator, in processes where PyTorch manages the GPU's memory.

Scratch memory is kept for the lifetime of the process and adds to the peak memory of a training step. Large workspaces
are those of convolutions' gradients, most of them near the end of a backward pass, after activations were freed: from
PyTorch's cache they cost no extra memory. A workspace is returned as soon as the kernels are enqueued, like PyTorch's
own: its next user comes later on the same stream.
"""

from __future__ import annotations

import sys

from gradkern.cuda.device import Device, OutOfMemoryError, check, driver
from gradkern.cuda.scratch import LEGACY, PER_THREAD

LARGE = 32 << 20
"""Bytes of a workspace, at most, for the stream's scratch memory, free of cost for a call: the most that cuBLAS needs.
"""


def borrow(device: Device, stream: int, size: int) -> int | None:
    """The address of `size` bytes for the work that is enqueued on the stream next. `device` is the current one.

    None if PyTorch does not use the GPU. Also None for a captured stream, because a graph needs its memory as long as
    it is replayed, and for the per-thread default stream, whose handle is the same in every thread.

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
    """Return memory from `borrow`, after all work that uses it is enqueued."""
    sys.modules["torch"].cuda.caching_allocator_delete(address)
