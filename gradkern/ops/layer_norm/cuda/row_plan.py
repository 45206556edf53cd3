"""The plan of a layer norm or of its gradient, and decisions that both share, from the layout of the arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from gradkern.call import Tensor
from gradkern.cuda.device import Device, in_turn
from gradkern.cuda.launch import Launch
from gradkern.cuda.scratch import scratch
from gradkern.ops.layer_norm.cuda.row_config import LINE, RowConfig

__all__ = ["NormPlan", "layout_of", "may_align_vectors", "plan_name"]

Rows = tuple[Tensor, int]


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


def layout_of(
    device: Device, read: list[Rows], written: list[Rows], parameters: list[Tensor], rows: int, columns: int
) -> dict[str, Any]:
    """The fields of a config that follow from the arrays of rows, each with its bytes from row to row, and from scale,
    bias and so on; for one thread of one block.
    """
    matrices = [*read, *written]
    width = _vector_width(matrices, rows, columns)
    starts, scale_width = min(each.alignment for each in parameters), width
    while scale_width > 1 and starts % min(16, scale_width * parameters[0].dtype.itemsize):
        scale_width //= 2
    narrowest = width * min(each.dtype.itemsize for each, _ in read[:2])
    source = "async" if device.capability >= (8, 0) and narrowest >= 4 else "plain"
    source = "bulk" if device.capability >= (9, 0) else source
    aligned = all(
        each.alignment % 16 == 0 and step % 16 == 0 and columns * each.dtype.itemsize % 16 == 0 for each, step in read
    )
    return {
        "width": width,
        "lanes": 1,
        "vectors": 1,
        "groups_per_block": 1,
        "scale_width": scale_width,
        "source": source,
        "aligned": aligned,
        "line_aligned_stages": source == "bulk" and any(step % LINE for _, step in read),
        "packed": all(step == columns * each.dtype.itemsize for each, step in matrices),
        "long_rows": max(rows, 16 * columns, *(step for _, step in matrices)) > 1 << 30,
        "native_bfloat16": device.capability >= (8, 0),
    }


def _vector_width(matrices: list[Rows], rows: int, columns: int) -> int:
    """Elements of a vector, at most 16 bytes of the widest type, such that every row is aligned to vectors and a whole
    number of them.
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


def plan_name(kind: str, config: RowConfig) -> str:
    """A name with the kernel's shape: source of rows, blocks per row x lanes x vectors x width, groups, stages."""
    shape = f"{config.blocks_per_row}x{config.lanes}x{config.vectors}x{config.width}"
    return f"{kind}_{config.source}_{config.phase}_{shape}_groups{config.groups_per_block}_stages{config.stages}"
