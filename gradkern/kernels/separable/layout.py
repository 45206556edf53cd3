"""Which elements of an array of N, C and three spatial axes a thread has: the numbers that a launch gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device_code.columns import ITEMSIZE, reciprocal
from gradkern.strides import channels_last, is_dense

VECTOR = 16  # bytes of one access, at most
_MOST = (1 << 31) - 1
ITEMS = (
    "blocks", "blocks_m", "blocks_s", "items", "group", "images", "inner", "inner_m", "inner_s",
    "columns", "columns_m", "columns_s", "size0_m", "size0_s", "rows", "rows_m", "rows_s",
)  # fmt: skip
"""Arguments for a thread to find its own elements."""


def lifted(shape: Sequence[int]) -> tuple[int, ...]:
    """Three spatial axes: axes of one element come before an array's own."""
    return (*(1,) * (5 - len(shape)), *shape[2:])


def with_reciprocals(**divisors: int) -> dict[str, int]:
    """Numbers, with those that `divided` takes under NAME_m and NAME_s."""
    found: dict[str, int] = {}
    for name, divisor in divisors.items():
        found |= {name: divisor, **dict(zip((f"{name}_m", f"{name}_s"), reciprocal(max(1, divisor)), strict=True))}
    return found


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of memory of arrays of N, C and spatial axes, and the elements of a thread, `lanes` of them side by
    side: channels, where these are last in memory, or columns.
    """

    last: bool
    lanes: int

    @staticmethod
    def of(model: Tensor, tensors: dict[str, Tensor], vectors: Sequence[str]) -> Layout:
        """Of arrays that are all dense in one order; lanes are of the model, in `vectors` each one access of at most 16
        bytes. Raises Refusal.
        """
        last = next((each for each in map(channels_last, (model, *tensors.values())) if each is not None), False)
        rank = len(model.shape)
        order = (0, *range(2, rank), 1) if last else tuple(range(rank))
        scattered = [name for name, each in tensors.items() if not is_dense(each, order)]
        if scattered:
            raise Refusal(f"{', '.join(scattered)}: not dense in the order of memory of the others")
        length = model.shape[1] if last else model.shape[-1]
        widest = max((tensors[name].dtype.itemsize for name in vectors), default=1)
        lanes = VECTOR // ITEMSIZE[model.dtype.name]
        aligned = min((tensors[name].alignment for name in vectors), default=VECTOR)
        while lanes > 1 and (length % lanes or aligned < min(VECTOR, lanes * widest)):
            lanes //= 2
        return Layout(last, lanes)

    def images(self, shape: Sequence[int]) -> int:
        """Samples where channels are last, else planes."""
        return shape[0] if self.last else prod(shape[:2])

    def numbers(self, shape: Sequence[int], threads: int, patch: tuple[int, int, int]) -> tuple[dict[str, int], int]:
        """ITEMS, and the blocks, for an array of this shape. A thread has `patch` positions along the axes: of `lanes`
        channels, where these are last. Some patches end beyond the array.

        Images are taken in groups whose items 32 bits can count.
        """
        sizes, images = lifted(shape), self.images(shape)
        inner = shape[1] // self.lanes if self.last else 1
        planes, rows, columns = (-(-size // of_thread) for size, of_thread in zip(sizes, patch, strict=True))
        each = planes * rows * columns * inner
        step = shape[1] * 8 if self.last else 1  # bytes from position to position, of an index at most
        if max(each * prod(patch), prod(sizes), step) > _MOST:
            raise Refusal(f"an image of {prod(sizes) * (shape[1] if self.last else 1)} elements is too large")
        group = min(images, max(1, (_MOST - threads) // max(1, each)))
        blocks = -(-group * each // threads)
        grid = blocks * -(-images // group)
        if grid > _MOST:
            raise Refusal(f"{grid} blocks are more than a launch can have")
        found = with_reciprocals(blocks=blocks, inner=inner, columns=columns, size0=planes, rows=rows)
        return {**found, "items": group * each, "group": group, "images": images}, grid
