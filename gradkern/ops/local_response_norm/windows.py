"""The windows of local response normalization in memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from gradkern.call import Tensor
from gradkern.strides import channels_last


class Windows(NamedTuple):
    """An array in memory as (outer, w0, w1, w2, inner), whose windows are along the three axes w.

    order: of its axes in memory. before, behind: elements of a window on each side of its own along each of w.
    """

    order: tuple[int, ...]
    outer: int
    sizes: tuple[int, int, int]
    inner: int
    before: int
    behind: int

    @staticmethod
    def of(tensor: Tensor, attributes: Mapping[str, Any]) -> Windows:
        images, channels, *spatial = tensor.shape
        last = bool(channels_last(tensor))
        order = (0, *range(2, len(tensor.shape)), 1) if last else tuple(range(len(tensor.shape)))
        extra, most = attributes["LocalSize"] - 1, max(tensor.shape)  # a window ends where the array does
        around = min(extra // 2, most), min(extra - extra // 2, most)
        if attributes["CrossChannel"]:
            outer, inner = (images * prod(spatial), 1) if last else (images, prod(spatial))
            return Windows(order, outer, (1, 1, channels), inner, *around)
        outer, inner = (images, channels) if last else (images * channels, 1)
        w0, w1, w2 = (1, 1, 1, *spatial)[-3:]
        return Windows(order, outer, (w0, w1, w2), inner, *around)
