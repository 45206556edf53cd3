"""Operation graphs: tensors with their layout, and operations between them."""

from __future__ import annotations

from gradkern.cudnn.api import ADDITION, CROSS_CORRELATION, DATA_TYPES
from gradkern.cudnn.descriptor import Descriptor


def tensor(
    number: int, dtype: str, sizes: tuple[int, ...], strides: tuple[int, ...], alignment: int, **virtual: bool
) -> Descriptor:
    """A tensor that a plan finds by its number; strides are in elements, alignment is in bytes. virtual=True: it is
    between two operations, never in memory.
    """
    layout = {"sizes": sizes, "strides": strides, "alignment": alignment}
    return Descriptor("tensor", id=number, data_type=DATA_TYPES[dtype], **layout, **virtual)


def addition(compute: str, X: Descriptor, B: Descriptor, Y: Descriptor) -> Descriptor:
    """The operation Y = X + B, in type `compute`; axes of one element of B count for all of X."""
    what = Descriptor("pointwise", mode=ADDITION, compute_type=DATA_TYPES[compute])
    return Descriptor("pointwise_operation", pointwise=what, X=X, B=B, Y=Y)


def convolution(
    compute: str,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads_begin: tuple[int, ...],
    pads_end: tuple[int, ...],
) -> Descriptor:
    """What an operation of convolution does along each spatial axis, adding up in type `compute`."""
    return Descriptor(
        "convolution",
        compute_type=DATA_TYPES[compute],
        mode=CROSS_CORRELATION,
        spatial_axes=len(strides),
        strides=strides,
        dilations=dilations,
        pads_begin=pads_begin,
        pads_end=pads_end,
    )


def graph(*operations: Descriptor) -> Descriptor:
    """The graph of operations that a plan computes in one go. It belongs to no device."""
    return Descriptor("operation_graph", operations=operations)
