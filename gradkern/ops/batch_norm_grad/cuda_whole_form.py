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
# As was best on an H200 with a cold L2: one block on a multiprocessor, with few threads, as every warp pays for each
# slot of the ring; and slots of about 50 KB, X and D together.
_THREADS = 256 + 32
_PART = 25 * 1024  # bytes of X in a slot
_SHORT, _MOST_GROUP = 512, 8  # bytes of a copy that is too short to be fast; channels at once, a warp each at least
_SLICES = (1, 2, 4, 8, 16)
_MOST_SLOTS = 64


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
    shared_bytes: int
    threads: int = _THREADS
    blocks_per_processor: int = 1

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
    """The forms that hold an item of N x C x L elements on the chip: that with the fewest slices, and that with twice
    as many, whose ring has room for a second item.
    """
    images, channels, length = sizes
    item = ITEMSIZE[data]
    group = 16 // gcd(16, length * item)  # so that every row begins at a multiple of 16 bytes
    if channels % group:
        return
    while group * length * item < _SHORT and group < _MOST_GROUP and channels % (2 * group) == 0:
        group *= 2
    width, row, image = gcd(16 // item, length), group * length * item, channels * length * item
    found = 0
    for slices in _SLICES:
        images_each = -(-images // slices)
        if slices > most_slices or images_each * (slices - 1) >= images or found == 2:
            return
        form = Form(data, parameter, statistic, outputs, width, group, slices, shared_bytes)
        batches = -(-images_each * row // _PART)
        batch = -(-images_each // batches)
        slots = min((shared_bytes - form.ring_at) // (2 * batch * row), _MOST_SLOTS)
        if slots * batch >= images_each:
            found += 1
            elements, items, plane = images * length, channels // group, length // width
            yield form, Shares(items, images, images_each, batch, slots, plane, row, image, elements)
