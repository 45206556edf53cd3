"""Arrays on a GPU as PyTorch's tensors, and back: NumPy's of bfloat16, which PyTorch does not take, by their bits."""

from __future__ import annotations

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
