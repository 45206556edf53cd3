"""What is bound when the kernel for whole channels is compiled, and how the channels of an array are shared out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from gradkern.cuda.columns import ITEMSIZE, up

__all__ = ["ARGUMENTS", "Form", "Shares", "forms"]

ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "X", "scale", "mean", "spread", "dX", "scale_sum", "bias_sum"),
    *("items", "images", "images_each", "batch", "slots", "plane", "row", "image", "elements"),
)
_SLICES = (1, 2, 4, 8, 16)
_MOST_SLOTS = 64
_THREADS = {"float32": 768, "float64": 512}  # on a multiprocessor, by the type of arithmetic: with more, registers spill
_RESERVED = 1024  # bytes of shared memory that the system takes for each block


@dataclass(frozen=True, slots=True)
class Form:
    """All that is bound when the kernel is compiled. The sizes of Shares are arguments of the launch."""

    data: str  # type of D, X and dX
    parameter: str  # of scale and of the sums
    statistic: str  # of mean and spread
    outputs: frozenset[str]  # dX, and of scale_sum and bias_sum what is wanted
    width: int  # elements of a vector, all of one channel
    group: int  # channels that a block has at a time, with as many threads each
    slices: int  # blocks of a cluster, each with a part of the images
    threads: int
    blocks_per_processor: int
    shared_bytes: int

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.data == "float64" else "float32"

    @property
    def itemsize(self) -> int:
        """Of the type of arithmetic."""
        return ITEMSIZE[self.compute]

    @property
    def adders(self) -> int:
        """Threads that compute; those of the last warp copy."""
        return self.threads - 32

    @property
    def team_threads(self) -> int:
        """Of one channel."""
        return self.adders // self.group

    @property
    def exchanged(self) -> int:
        """Pairs of sums that the warps of a cluster exchange."""
        return self.slices * self.adders // 32

    # Shared memory: barriers of full slots, of free ones, of exchanges | exchanged pairs, twice | ring
    @property
    def free_barriers_at(self) -> int:
        return _MOST_SLOTS * 8

    @property
    def exchange_barriers_at(self) -> int:
        return 2 * _MOST_SLOTS * 8

    @property
    def pairs_at(self) -> int:
        return self.exchange_barriers_at + 2 * 8

    @property
    def ring_at(self) -> int:
        return up(self.pairs_at + 2 * self.exchanged * 2 * self.itemsize, 128)


@dataclass(frozen=True, slots=True)
class Shares:
    """The sizes of one launch: arguments of the kernel by these names."""

    items: int  # groups of channels
    images: int
    images_each: int  # of a block; the last of a cluster may have fewer
    batch: int  # images that one slot of the ring holds of an item
    slots: int
    plane: int  # vectors of one channel in one image
    row: int  # bytes of an item in one image
    image: int  # bytes from image to image
    elements: int  # of a channel

    @property
    def ring_bytes(self) -> int:
        return self.slots * 2 * self.batch * self.row


def forms(
    data: str,
    parameter: str,
    statistic: str,
    outputs: frozenset[str],
    sizes: tuple[int, int, int],
    shared_bytes: int,
    most_slices: int,
) -> Iterator[tuple[Form, Shares]]:
    """Every form that holds its channels on the chip, for N x C x L elements: few blocks with much memory, and many
    with less; of either the one with the fewest slices, and the one with twice as many, which reads further ahead.
    """
    images, channels, length = sizes
    item = ITEMSIZE[data]
    group = 16 // gcd(16, length * item)  # so that every row begins at a multiple of 16 bytes
    if channels % group:
        return
    width = gcd(16 // item, length)
    row, most = group * length * item, _THREADS["float64" if data == "float64" else "float32"]
    for blocks in (1, 2):
        found, threads = 0, 32 + (most // blocks - 32) // (32 * group) * (32 * group)
        shared = (shared_bytes + _RESERVED) // blocks - _RESERVED
        for slices in _SLICES:
            images_each = -(-images // slices)
            if slices > most_slices or images_each * (slices - 1) >= images or found == 2:
                break
            form = Form(data, parameter, statistic, outputs, width, group, slices, threads, blocks, shared)
            free = shared - form.ring_at
            batches = -(-images_each // max(1, form.adders * 16 // row))
            batch = -(-images_each // batches)
            slots = min(free // (2 * batch * row), _MOST_SLOTS)
            if slots < -(-images_each // batch):
                continue
            found += 1
            plane = length // width
            image = channels * length * item
            elements = images * length
            yield form, Shares(channels // group, images, images_each, batch, slots, plane, row, image, elements)
