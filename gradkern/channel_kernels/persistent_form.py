"""What is bound when the persistent kernel is compiled, and how the channels of an array are shared out to clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import gcd, log2, prod

from gradkern.cuda.device_code.columns import ITEMSIZE, up
from gradkern.cuda.device_code.kernel_name import kernel_name

__all__ = ["ARGUMENTS", "Partition", "PersistentForm", "Sizes", "resident_partitions", "single_pass_partition"]

ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "X", "scale", "mean", "deviation", "dX", "scale_sum", "bias_sum"),
    *("items", "images", "images_each", "batch", "slots", "plane", "row", "image", "elements"),
)
# As was best on an H200 with a cold L2: one block on a multiprocessor, with few threads, as every warp pays for each
# slot of the ring; and slots of about 50 KB, X and D together.
_THREADS = 256 + 32
_PART = 25 * 1024  # bytes of X in a slot
_LEAST, _SHORT = 256, 512  # bytes of a copy: what is worth it, and what is better made longer by a larger group
_MOST_GROUP = 8  # a warp each at least
_SLICES = (1, 2, 4, 8, 16)
_FEWEST_SLOTS, _ENOUGH_SLOTS, _MOST_SLOTS = 2, 4, 64
# What a single pass takes, in microseconds and bytes. Fitted to an H200's times (cold L2) of 73 arrays of 2 to 720 MB,
# of bfloat16, float32 and float64: each streamed, and with one to four numbers of slices. Of what was measured, the
# choice is the best in the median, 0.2 % slower on average and 5 % at worst; fitted without a fifth of the shapes and
# asked for these, 0.6 and 9 %. The times are 4.5 % off in the median. Then it took one slice of 64 items of 230 MB and
# more, too, which had not been measured: 128 x 64 x 112 x 112 of bfloat16 took 178 microseconds, where it was expected
# to take 165 and two slices had taken 155. Hence _SHARPNESS, which was not fitted to the 73. _BLOCK_VECTORS was not,
# either: it is what two of a sweep's arrays of odd planes took, which the 73 have none of. Nor was _CRAMPED: of 33
# arrays of 1 to 64 images, most with planes of 30 to 50 KB, the choice is 0.8 % slower than the best on average, and 14
# % at worst. Few such images took up to 1.7 times as long where they were streamed, which the model does not know.
#
# An H100's memory has 0.68 of the bandwidth, but with that in place of _BANDWIDTH 17 of 18 arrays for which the choice
# is another one then took 3 to 17 % longer there: what blocks wait for is the same.
_BANDWIDTH = 3.9e6
_STREAMING = 10.5  # of the streaming kernel, besides its bytes: its launch, and sums that blocks add up through memory
_PERSISTENT = 6.5  # of this one
_ROUND = 0.6  # for every item of a block: its first bytes, its sums
_DOUBLING = 0.8  # for every doubling of the slices: blocks wait for each other
_SLOWER = 0.03  # share of the bandwidth that such a doubling costs: images far apart are read at once
_SHORT_ROWS, _UNSLICED = 100, 0.2  # this / bytes of a copy besides, as _UNSLICED doublings cost where there is none
_BLOCK_BANDWIDTH = 0.07e6  # of one block
_COPY = 0.028  # of one block, whatever its bytes
_CRAMPED = 0.02  # share of the bandwidth that a ring of fewer slots than _ENOUGH_SLOTS costs
_BLOCK_VECTORS = 5000.0  # added up by one block: it waits for those of single elements, and never for those of 16 bytes
_SHARPNESS = 6  # where the memory's time and that of one block are alike, it takes longer than either


@dataclass(frozen=True, slots=True)
class PersistentForm:
    """All that is bound when the kernel is compiled. The sizes of Partition are arguments of the launch."""

    data: str  # type of D, X and dX
    parameter: str  # of scale and of the sums
    statistic: str  # of mean and deviation
    outputs: frozenset[str]  # of dX, scale_sum, bias_sum
    epsilon: float | None  # deviation is the variance, to which this is added; None: it is 1/standard deviation
    centred: bool  # dX has the terms of the sums: channels stay on the chip until these are known
    shared_bytes: int
    width: int = 1  # elements of a vector, all of one channel
    group: int = 1  # channels that a block has at a time, with as many threads each
    slices: int = 1  # blocks of a cluster, each with a part of the images
    threads: int = _THREADS
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        shape = f"{self.slices}x{self.group}x{self.width}"
        return kernel_name("channels_persistent", "_".join(sorted(self.outputs)), self.data, shape)

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.data == "float64" else "float32"

    @property
    def itemsize(self) -> int:
        """Of the type of arithmetic."""
        return ITEMSIZE[self.compute]

    @property
    def sums(self) -> bool:
        """Sums are wanted, or needed."""
        return self.centred or bool(self.outputs & {"scale_sum", "bias_sum"})

    @property
    def parts(self) -> int:
        """Arrays that are read: D, and X if somebody needs it."""
        return 2 if self.centred or "scale_sum" in self.outputs else 1

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
class Partition:
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

    def ring_bytes(self, form: PersistentForm) -> int:
        return self.slots * form.parts * self.batch * self.row


Sizes = tuple[int, int, int]  # N x C x L elements


def resident_partitions(
    form: PersistentForm, sizes: Sizes, most_slices: int
) -> Iterator[tuple[PersistentForm, Partition]]:
    """The forms that hold an item on the chip: that with the fewest slices, and that with twice as many, whose ring
    has room for a second item. Types, outputs and memory are given.
    """
    fit = (each for each in _cuts(form, sizes, most_slices) if each[1].slots * each[1].batch >= each[1].images_each)
    yield from islice(fit, 2)


def single_pass_partition(
    form: PersistentForm, sizes: Sizes, most_slices: int, processors: int
) -> tuple[PersistentForm, Partition] | None:
    """For a form that is not centred, and so can forget what it has read: with the slices that should take least time.
    None where the streaming kernel should take less, or a slot is too large.
    """
    found = [each for each in _cuts(form, sizes, min(most_slices, processors)) if each[1].slots >= _FEWEST_SLOTS]
    times = [_single_pass_time(*each, processors) for each in found]
    moved = _arrays(form) * prod(sizes) * ITEMSIZE[form.data]
    if not times or min(times) >= _STREAMING + moved / _BANDWIDTH:
        return None
    return found[times.index(min(times))]


def _single_pass_time(form: PersistentForm, partition: Partition, processors: int) -> float:
    """Microseconds that it should take."""
    doublings, moved = log2(form.slices), _arrays(form) * partition.row
    slower = 1 + doublings * _SLOWER + (doublings + _UNSLICED) * _SHORT_ROWS / partition.row
    slower += _CRAMPED if partition.slots < _ENOUGH_SLOTS else 0
    together = partition.items * partition.images * moved / _BANDWIDTH * slower
    rounds = -(-partition.items // (processors // form.slices))
    vectors = form.group * partition.plane / _BLOCK_VECTORS
    alone = rounds * partition.images_each * max(form.parts * _COPY, moved / _BLOCK_BANDWIDTH, vectors)
    both = (together**_SHARPNESS + alone**_SHARPNESS) ** (1 / _SHARPNESS)
    return _PERSISTENT + _DOUBLING * doublings + _ROUND * rounds + both


def _arrays(form: PersistentForm) -> int:
    """Read and written by a single pass."""
    return form.parts + ("dX" in form.outputs)


def _cuts(form: PersistentForm, sizes: Sizes, most: int) -> Iterator[tuple[PersistentForm, Partition]]:
    """The form with every number of slices; none where rows cannot be copied, or are too short to be worth it."""
    images, channels, length = sizes
    item = ITEMSIZE[form.data]
    group = 16 // gcd(16, length * item)  # so that every row begins at a multiple of 16 bytes
    while group * length * item < _SHORT and group < _MOST_GROUP and channels % (2 * group) == 0:
        group *= 2
    row = group * length * item
    if channels % group or row < _LEAST:
        return
    for slices in _SLICES:
        images_each = -(-images // slices)
        if slices > most or images_each * (slices - 1) >= images:
            return
        made = replace(form, width=gcd(16 // item, length), group=group, slices=slices)
        batches = -(-images_each // max(1, _PART // row))
        batch = -(-images_each // batches)
        slots = min((form.shared_bytes - made.ring_at) // (form.parts * batch * row), _MOST_SLOTS)
        yield (
            made,
            Partition(
                items=channels // group,
                images=images,
                images_each=images_each,
                batch=batch,
                slots=slots,
                plane=length // made.width,
                row=row,
                image=channels * length * item,
                elements=images * length,
            ),
        )
