"""What an array is to gradkern: its kind (whose it is, and how to make another) and its view (what a plan may know)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from gradkern.call import HOST, Tensor
from gradkern.system.importing import load

Maker = Callable[[int | None], tuple[Any, Any]]
"""Makes an array, for use on a stream (None: the framework's current one), and the buffer a plan writes it through."""


class Kind(Protocol):
    """One framework's arrays on one device."""

    @property
    def device(self) -> str:
        """HOST, or "cuda:0"."""
        ...

    def stream(self) -> int | None:
        """The framework's current stream on the device; None on the host."""
        ...

    def maker(self, tensor: Tensor) -> Maker:
        """What makes new uninitialised arrays of this type, shape and memory order."""
        ...

    @property
    def finish(self) -> Callable[[Any], Any] | None:
        """The function that turns a written array into the caller's; None where the two are the same."""
        ...


class TensorKind(Kind, Protocol):
    """PyTorch's tensors on one GPU."""

    def allocator(self, tensors: Sequence[Tensor]) -> Callable[[], list[Any]]:
        """A function that makes several at once, for use on the current stream."""
        ...


class View(NamedTuple):
    """One array: what a plan may know of it (tensor), what it runs on (buffer), and its library and device (kind)."""

    tensor: Tensor
    buffer: Any  # NumPy array on the host, address on a GPU
    device: str
    kind: Kind
    writable: bool = True


# --- memory --------------------------------------------------------------------------------------------------------


def overlap(one: View, other: View) -> bool:
    """Whether two arrays on one device have a byte in common. Where that is too hard to decide, the answer is yes.

    On a GPU only the outermost bytes are compared, so that arrays interleaved in one buffer count as overlapping.
    """
    if not may_overlap(one.tensor, one.buffer, other.tensor, other.buffer):
        return False
    if one.device != HOST:
        return True
    try:
        return bool(np.shares_memory(one.buffer, other.buffer, max_work=100_000))  # pyright: ignore[reportArgumentType]
    except np.exceptions.TooHardError:
        return True


def may_overlap(tensor: tuple[Any, ...], buffer: Any, other_tensor: tuple[Any, ...], other_buffer: Any) -> bool:
    """Whether two arrays on one device may share a byte, by the ranges of their addresses."""
    if not isinstance(buffer, int):
        return np.may_share_memory(buffer, other_buffer)  # ten times as fast as reading an address from NumPy
    start, end = _span(tensor, buffer)
    other_start, other_end = _span(other_tensor, other_buffer)
    return start < other_end and other_start < end


def _span(tensor: tuple[Any, ...], buffer: Any) -> tuple[int, int]:
    """The addresses of the first byte of an array, and of the one after its last."""
    low, high = _extent(tensor)
    address = buffer if isinstance(buffer, int) else buffer.__array_interface__["data"][0]
    return address + low, address + high


@lru_cache(maxsize=4096)
def _extent(tensor: tuple[Any, ...]) -> tuple[int, int]:
    return Tensor(*tensor).extent


def same_memory(one: View, other: View) -> bool:
    """Whether two views are the same elements in the same order."""
    same = one.tensor[:3] == other.tensor[:3] and one.device == other.device
    return same and _span(one.tensor, one.buffer) == _span(other.tensor, other.buffer)


# --- types ---------------------------------------------------------------------------------------------------------


@cache
def _bfloat16() -> np.dtype:
    return np.dtype(load("ml_dtypes").bfloat16)


def dtype_of(name: str) -> np.dtype:
    """The NumPy dtype of a registry type name; bfloat16 is ml_dtypes'."""
    return _bfloat16() if name == "bfloat16" else np.dtype(name)


def type_name(value: Any) -> str:
    kind = cast(type[Any], type(value))
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
