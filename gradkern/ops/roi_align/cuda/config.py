"""What the kernels of ROI align's gradients are made of, and their arguments."""

from __future__ import annotations

from dataclasses import dataclass

ARGUMENTS = (
    "X", "D", "rois", "images", "best", "result", "N", "C", "H", "W", "R", "rows", "columns",
    "x_n", "x_c", "x_y", "x_x", "d_r", "d_c", "d_y", "d_x",
    "least", "most", "scale_x", "scale_y", "in_offset", "out_offset",
)  # fmt: skip
"""x: strides of X in bytes, of result in the kernel of the images. d: those of D."""


@dataclass(frozen=True, slots=True)
class RoiConfig:
    """Types, what is computed, and the pixels and channels of a block: `channels` in turn for each of its lanes."""

    dtype: str
    roi: str
    index: int  # bytes
    maximum: bool
    nearest: bool
    corners: bool
    tile: tuple[int, int] = (4, 32)
    lanes: int = 1
    channels: int = 8
    native_bfloat16: bool = True


FIRST = {"tile": (4, 32), "lanes": 1, "channels": 8}
LAST = {"tile": (1, 4), "lanes": 32, "channels": 4}
"""Of images whose channels are first, and last, in memory."""
