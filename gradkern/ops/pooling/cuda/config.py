"""How a kernel of max pooling runs."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device_code.columns import ByElementType

__all__ = ["MaxPoolConfig"]


@dataclass(frozen=True, slots=True)
class MaxPoolConfig(ByElementType):
    """last: channels are last in memory. lanes: elements of a thread, side by side in memory: channels, or columns of
    dX. local: indices are bytes, and count the elements of a window. dilated: dilations other than 1.
    values, indices: what a forward pass writes.
    """

    operator: str
    data: str
    last: bool
    lanes: int
    local: bool
    dilated: bool
    values: bool = True
    indices: bool = True
    native_bfloat16: bool = True
    threads: int = 256

    @property
    def name(self) -> str:
        kind = "local" if self.local else "index"
        return f"{'channels' if self.last else 'columns'}_{kind}_{self.lanes}{'_dilated' if self.dilated else ''}"
