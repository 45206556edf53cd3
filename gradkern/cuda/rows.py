"""Shared by plans of kernels over rows: requirements on layouts, and the plan of a call without elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device, activate, check, driver, get_device
from gradkern.strides import is_aligned, is_dense


@dataclass(frozen=True, slots=True)
class EmptyPlan:
    """The plan of a call without elements: sums over no rows are zero, other outputs are empty.

    sizes   bytes of outputs
    fills   the byte that each is filled with; none: 0
    copies  of each, the place of the input that it is a copy of, or None; none: there are none
    """

    kernel: str
    scratch: int
    device: Device
    sizes: tuple[int, ...]
    fills: tuple[int, ...] = ()
    copies: tuple[int | None, ...] = ()

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        with activate(self.device):
            sources = [None if place is None else inputs[place] for place in self.copies] or [None] * len(outputs)
            fills = self.fills or [0] * len(outputs)
            for address, size, fill, source in zip(outputs, self.sizes, fills, sources, strict=True):
                if size and source is None:
                    check(driver.cuMemsetD8Async(address, fill, size, stream), "filling outputs")
                elif size and source is not None and source != address:
                    check(driver.cuMemcpyDtoDAsync(address, source, size, stream), "copying an input")


def device_of(call: Call) -> Device:
    """The device of the call's arrays."""
    return get_device(int(call.device.partition(":")[2] or 0))


def size_of(axis: int | tuple[int, ...]) -> int:
    """The number of elements along an axis of a call, or along all axes of a group."""
    return prod(axis) if isinstance(axis, tuple) else axis


def row_stride(name: str, tensor: Tensor, row_axes: int) -> int:
    """Bytes from row to row; 0 of an empty array. Axes from `row_axes` on must be contiguous, and rows equidistant."""
    if 0 in tensor.shape:
        return 0
    expected = tensor.dtype.itemsize
    for size, stride in zip(tensor.shape[row_axes:][::-1], tensor.strides[row_axes:][::-1], strict=True):
        if size > 1 and stride != expected:
            raise Refusal(f"{name}: its columns do not lie end to end in memory; pass a contiguous copy")
        expected *= size
    distance = None
    for size, stride in zip(tensor.shape[:row_axes][::-1], tensor.strides[:row_axes][::-1], strict=True):
        if size <= 1:
            continue
        if distance is None:
            distance = expected = stride
        if stride != expected or stride < 0:
            raise Refusal(f"{name}: its rows do not lie at one distance in memory; pass a contiguous copy")
        expected = stride * size
    return expected if distance is None else distance


def require_flat(name: str, tensor: Tensor) -> None:
    """Refuse an array that is not contiguous, or whose elements an access would not be aligned to."""
    if not is_aligned(tensor):
        raise Refusal(
            f"{name}: an element's address is no multiple of {tensor.dtype.alignment}; pass a contiguous copy"
        )
    if not is_dense(tensor):
        raise Refusal(f"{name}: it does not lie end to end in memory; pass a contiguous copy")
