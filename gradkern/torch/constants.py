"""Small constant tensors, filled with one number. Nothing writes them."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.arrays.view import device_arrays
from gradkern.system.bounded import make_room
from gradkern.torch.direct import is_eager

_MOST = 256
_known: dict[Any, torch.Tensor] = {}


def filled(like: torch.Tensor, shape: tuple[int, ...], value: float, dtype: torch.dtype) -> torch.Tensor:
    """like.new_full(shape, value), for an autograd function, where no function transform is.

    To fill one is a launch, so in eager it is kept, for the stream that has filled it. Captured graphs have theirs.
    """
    if not is_eager() or type(like) is not torch.Tensor or (like.is_cuda and torch.cuda.is_current_stream_capturing()):
        return like.new_full(shape, value, dtype=dtype)
    stream = device_arrays().torch_kind(like.get_device()).stream() if like.is_cuda else 0
    key = shape, value, dtype, like.device, stream
    known = _known.get(key)
    if known is None:
        make_room(_known, _MOST)
        with torch.inference_mode(False):  # training would refuse to save an inference tensor
            known = _known[key] = like.new_full(shape, value, dtype=dtype)
    return known
