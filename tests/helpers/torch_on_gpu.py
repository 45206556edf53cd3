"""Arrays on a GPU as PyTorch's tensors, and back: NumPy's of bfloat16, which PyTorch does not take, by their bits; and
steps that may not wait for the GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def there(array: np.ndarray, last: bool = False) -> Any:
    """The array on the GPU, in its own type; channels last in memory if `last`."""
    import torch

    narrow = array.dtype == "bfloat16"
    bits = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if narrow else torch.from_numpy(array)
    tensor: Any = bits.cuda()
    if last and tensor.ndim > 2:
        order = (0, *range(2, tensor.ndim), 1)
        tensor = tensor.permute(order).contiguous().permute(*np.argsort(order).tolist())
    return tensor


def back(tensor: Any) -> np.ndarray:
    import torch

    host = tensor.cpu()
    narrow = host.dtype == torch.bfloat16
    return host.contiguous().view(torch.int16).numpy().view("bfloat16") if narrow else host.numpy()


@contextmanager
def no_synchronization() -> Iterator[None]:
    """Here PyTorch raises an error where the host waits for the GPU."""
    import torch

    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # that this is a prototype, once a process
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
