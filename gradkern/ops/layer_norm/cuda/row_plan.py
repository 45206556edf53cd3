"""The plan of a layer norm or of its gradient, and decisions that both share, from the layout of the arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from gradkern.call import Tensor
from gradkern.cuda.device import Device, in_turn
from gradkern.cuda.launch import Launch
from gradkern.cuda.scratch import scratch
from gradkern.ops.layer_norm.cuda.row_config import LINE, RowConfig

__all__ = [
    "NormPlan",
    "may_align_vectors",
    "parameter_width",
    "plan_name",
    "rows_begin_within_lines",
    "source_of_rows",
    "vector_width",
]


@dataclass(frozen=True, slots=True)
class NormPlan:
    """One launch, or two where a row is too wide for a cluster, with scratch memory if it is needed: sums of rows, and
    for a gradient, before these, `partial_bytes` of partial sums over rows, and a counter.
    """

    REPEATABLE: ClassVar[bool] = True  # see gradkern.call.Repeatable
    kernel: str
    scratch: int
    launches: tuple[Launch, ...]
    device: Device
    partial_bytes: int | None = None

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        if not self.scratch:
            self.launches[0]((*inputs, *outputs), stream)
            return
        counter, buffer = scratch(self.device, stream, self.scratch)
        own = (buffer,) if self.partial_bytes is None else (buffer, buffer + self.partial_bytes, counter)
        values = (*inputs, *outputs, *own)
        if len(self.launches) == 1:
            self.launches[0](values, stream)
        else:
            with in_turn:
                for launch in self.launches:
                    launch(values, stream)


def may_align_vectors(
    config: RowConfig, matrices: Iterable[Tensor], device: Device, rows: int, columns: int, least: int
) -> bool:
    """Whether vectors aligned in memory (RowConfig.aligned_vectors) are possible and useful. They are not where rows
    are aligned to vectors anyway, nor for fewer columns than `least`.
    """
    size = config.data_itemsize
    alike = all(each.dtype.itemsize == size and each.alignment % 16 == 0 for each in matrices)
    many = rows > 2 * device.processors and columns >= least
    return alike and many and config.packed and config.source == "bulk" and size <= 4 and config.width * size < 16


def vector_width(matrices: Collection[tuple[Tensor, int]], rows: int, columns: int) -> int:
    """Elements of a vector, at most 16 bytes of the widest type, such that every row is aligned to vectors and a whole
    number of them.

    matrices: the arrays of rows, each with its bytes from row to row.
    """
    width = 16 // max(each.dtype.itemsize for each, _ in matrices)
    while width > 1 and not all(
        columns % width == 0
        and each.alignment % min(16, width * each.dtype.itemsize) == 0
        and (rows == 1 or step % min(16, width * each.dtype.itemsize) == 0)
        for each, step in matrices
    ):
        width //= 2
    return width


def parameter_width(width: int, parameters: Iterable[Tensor]) -> int:
    """Elements of scale, bias and so on that a thread loads at a time: `width`, or less if alignment requires."""
    known = list(parameters)
    starts, itemsize = min(each.alignment for each in known), known[0].dtype.itemsize
    while width > 1 and starts % min(16, width * itemsize):
        width //= 2
    return width


def source_of_rows(device: Device, narrowest: int) -> str:
    """How rows reach a block, with vectors of at least this many bytes: see `source` of the configs."""
    if device.capability >= (9, 0):
        return "bulk"
    return "async" if device.capability >= (8, 0) and narrowest >= 4 else "plain"


def rows_begin_within_lines(source: str, strides: Iterable[int]) -> bool:
    """Whether rows with these strides, copied in bulk, are not aligned to 128-byte lines: see RowConfig."""
    return source == "bulk" and any(each % LINE for each in strides)


def plan_name(kind: str, config: RowConfig) -> str:
    """A name with the kernel's shape: source of rows, blocks per row x lanes x vectors x width, groups, stages."""
    shape = f"{config.blocks_per_row}x{config.lanes}x{config.vectors}x{config.width}"
    return f"{kind}_{config.source}_{config.phase}_{shape}_groups{config.groups_per_block}_stages{config.stages}"
