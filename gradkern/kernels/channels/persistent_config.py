"""What is bound when the persistent kernel is compiled, and how the channels of an array are shared out to clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import gcd, log2, prod

from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.cuda.device_code.kernel_name import kernel_name

__all__ = [
    "ARGUMENTS",
    "UNIT",
    "Partition",
    "PersistentConfig",
    "Sizes",
    "resident_partitions",
    "single_pass_partition",
]

ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "X", "scale", "mean", "deviation", "dX", "scale_sum", "bias_sum"),
    *("items", "channels", "images", "batch", "slots", "plane", "plane_bytes", "pitch", "image", "elements"),
)
UNIT = 16  # bytes of a vector, and of what copies are whole numbers of
# As was best on an H200 with a cold L2: one block on a multiprocessor, with few threads, as every warp pays for each
# slot of the ring; and slots of about 50 KB, X and D together.
_THREADS = 256 + 32
_PART = 25 * 1024  # bytes of X in a slot
_LEAST, _SHORT = 256, 512  # bytes of a copy: what is worth it, and what is better made longer by a larger group
_MOST_GROUP = 8  # a warp each at least
_ITEM, _BUSY = 36 * 1024, 0.9  # bytes of an item that are enough; share of the multiprocessors that have one then
_ALIGNED, _ALIGNED_WHOLE = 4096, 16384  # bytes of copies that larger groups may make begin with units; of whole vectors
_WHOLE, _SMALL = 8, 160  # bytes of vectors that are worth it if they are whole; elements of planes with any such
_SLICES = (1, 2, 4, 8, 16)
_FEWEST_SLOTS, _ENOUGH_SLOTS, _MOST_SLOTS = 2, 4, 64
# What a single pass takes, in microseconds and bytes. Fitted to an H200's times (cold L2) of 73 arrays of 2 to 720 MB,
# of bfloat16, float32 and float64: each streamed, and with one to four numbers of slices. Of what was measured, the
# choice is the best in the median, 0.2 % slower on average and 5 % at worst; fitted without a fifth of the shapes and
# asked for these, 0.6 and 9 %. The times are 4.5 % off in the median. Then it took one slice of 64 items of 230 MB and
# more, too, which had not been measured: 128 x 64 x 112 x 112 of bfloat16 took 178 microseconds, where it was expected
# to take 165 and two slices had taken 155. Hence _SHARPNESS, which was not fitted to the 73. _CRAMPED was not, either:
# of 33 arrays of 1 to 64 images, most with planes of 30 to 50 KB, the choice is 0.8 % slower than the best on average,
# and 14 % at worst.
#
# Nor were the group, _EDGES, _BLOCK_VECTORS and _FEW_STREAMED: of 81 arrays of 2 to 310 MB, of which 61 have planes of
# no whole units, each streamed and in up to twelve configs, the choice is 2.1 % slower than the best on average, and 22
# % at worst; the times of configs with edges are 8 % off in the median.
#
# An H100's memory has 0.68 of the bandwidth, but with that in place of _BANDWIDTH 17 of 18 arrays for which the choice
# is another one then took 3 to 17 % longer there: what blocks wait for is the same.
_BANDWIDTH = 3.9e6
_STREAMING = 10.5  # of the streaming kernel, besides its bytes: its launch, and sums that blocks add up through memory
_FEW_IMAGES, _FEW_STREAMED = 8, 1.3  # so many times as long for its bytes with fewer images, at the least
_PERSISTENT = 6.5  # of this one
_ROUND = 0.6  # for every item of a block: its first bytes, its sums
_DOUBLING = 0.8  # for every doubling of the slices: blocks wait for each other
_SLOWER = 0.03  # share of the bandwidth that such a doubling costs: images far apart are read at once
_SHORT_ROWS, _UNSLICED = 100, 0.2  # this / bytes of a copy besides, as _UNSLICED doublings cost where there is none
_BLOCK_BANDWIDTH = 0.07e6  # of one block
_COPY = 0.028  # of one block, whatever its bytes
_CRAMPED = 0.02  # share of the bandwidth that a ring of fewer slots than _ENOUGH_SLOTS costs
_EDGES = 0.65  # share of it that is left where a plane of elements of 2 bytes has edges
_BLOCK_VECTORS = 4200.0  # added up by one block: it waits for those of single elements, and never for those of 16 bytes
_SHARPNESS = 6  # where the memory's time and that of one block are alike, it takes longer than either


@dataclass(frozen=True, slots=True)
class PersistentConfig:
    """All that is bound when the kernel is compiled. The sizes of Partition are arguments of the launch."""

    data: str  # type of D, X and dX
    parameter: str  # of scale and of the sums
    statistic: str  # of mean and deviation
    outputs: frozenset[str]  # of dX, scale_sum, bias_sum
    epsilon: float | None  # deviation is the variance, to which this is added; None: it is 1/standard deviation
    centred: bool  # dX has the terms of the sums: channels stay on the chip until these are known
    shared_bytes: int
    width: int = 1  # elements of a vector
    edges: bool = False  # planes are no whole number of vectors
    shifted: bool = False  # an item's part of an image may begin anywhere within a unit
    group: int = 1  # channels that a block has at a time, with as many threads each
    slices: int = 1  # blocks of a cluster, each with a part of the images
    threads: int = _THREADS
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        shape = f"{self.slices}x{self.group}x{self.width}" + "edges" * self.edges + "shifted" * self.shifted
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
    def vector(self) -> int:
        """Bytes."""
        return self.width * ITEMSIZE[self.data]

    @property
    def by_rows(self) -> bool:
        """Where a channel's vectors are depends on the row."""
        return self.edges or self.shifted

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
        return round_up(self.pairs_at + 2 * self.exchanged * 2 * self.itemsize, 128)


@dataclass(frozen=True, slots=True)
class Partition:
    """The sizes of one launch, most of them arguments of the kernel by these names."""

    items: int  # groups of channels
    channels: int
    images: int
    images_each: int  # of a block, at most: some may have one less
    batch: int  # images that one slot of the ring holds of an item
    slots: int
    plane: int  # vectors of one channel in one image, or one more
    plane_bytes: int
    pitch: int  # bytes that a slot has for an item in one image
    image: int  # bytes from image to image
    elements: int  # of a channel

    def ring_bytes(self, config: PersistentConfig) -> int:
        return self.slots * config.parts * self.batch * self.pitch


Sizes = tuple[int, int, int]  # N x C x L elements


def resident_partitions(
    config: PersistentConfig, sizes: Sizes, most_slices: int, processors: int
) -> Iterator[tuple[PersistentConfig, Partition]]:
    """The configs that hold an item on the chip: that with the fewest slices, and that with twice as many, whose ring
    has room for a second item. Types, outputs and memory are given.
    """
    images, channels, length = sizes
    one = images * length * ITEMSIZE[config.data] * config.parts  # bytes of a channel
    group = 0
    for group in _groups(config, sizes):
        if group * one >= _ITEM or channels < _BUSY * 2 * group * processors:
            break
    cuts = _cuts(config, sizes, most_slices, group) if group else ()
    yield from islice((each for each in cuts if each[1].slots * each[1].batch >= each[1].images_each), 2)


def single_pass_partition(
    config: PersistentConfig, sizes: Sizes, most_slices: int, processors: int, most_time: float | None = None
) -> tuple[PersistentConfig, Partition] | None:
    """For a config that is not centred, and so can forget what it has read: with the group and the slices that should
    take least time. None where that is not less than most_time, in microseconds, which by default is that of the
    streaming kernel; or a slot is too large.
    """
    most = min(most_slices, processors)
    cuts = (each for group in _groups(config, sizes) for each in _cuts(config, sizes, most, group))
    found = [each for each in cuts if each[1].slots >= _FEWEST_SLOTS]
    times = [_single_pass_time(*each, processors) for each in found]
    if most_time is None:
        moved = _arrays(config) * prod(sizes) * ITEMSIZE[config.data]
        slower = _FEW_STREAMED if sizes[0] < _FEW_IMAGES else 1
        most_time = _STREAMING + moved / _BANDWIDTH * slower
    if not times or min(times) >= most_time:
        return None
    return found[times.index(min(times))]


def _single_pass_time(config: PersistentConfig, partition: Partition, processors: int) -> float:
    """Microseconds that it should take."""
    row = config.group * partition.plane_bytes
    doublings, moved = log2(config.slices), _arrays(config) * row
    slower = 1 + doublings * _SLOWER + (doublings + _UNSLICED) * _SHORT_ROWS / row
    slower += _CRAMPED if partition.slots < _ENOUGH_SLOTS else 0
    together = partition.items * partition.images * moved / _BANDWIDTH * slower
    rounds = -(-partition.items // (processors // config.slices))
    rate = _BLOCK_BANDWIDTH * (_EDGES if config.edges and ITEMSIZE[config.data] == 2 else 1)
    vectors = 0 if config.edges else config.group * partition.plane / _BLOCK_VECTORS
    alone = rounds * partition.images_each * max(config.parts * _COPY, moved / rate, vectors)
    both = (together**_SHARPNESS + alone**_SHARPNESS) ** (1 / _SHARPNESS)
    return _PERSISTENT + _DOUBLING * doublings + _ROUND * rounds + both


def _arrays(config: PersistentConfig) -> int:
    """Read and written by a single pass."""
    return config.parts + ("dX" in config.outputs)


def _groups(config: PersistentConfig, sizes: Sizes) -> Iterator[int]:
    """Of channels: from the least whose copies are worth it, and begin with units where that costs little."""
    _, channels, length = sizes
    plane_bytes, most = length * ITEMSIZE[config.data], min(_MOST_GROUP, channels)
    aligned = UNIT // gcd(UNIT, plane_bytes)
    largest = _ALIGNED if length % _width(config, length) else _ALIGNED_WHOLE
    group = aligned if channels % aligned == 0 and aligned * plane_bytes <= largest else 1
    while group * plane_bytes < _SHORT and 2 * group <= most:
        group *= 2
    while group * plane_bytes >= _LEAST and group <= most:
        yield group
        group *= 2


def _width(config: PersistentConfig, length: int) -> int:
    """Whole vectors are best of all, if they are not much narrower than units, or planes are small."""
    item = ITEMSIZE[config.data]
    whole = gcd(UNIT // item, length)
    return whole if whole * item >= _WHOLE or length < _SMALL else UNIT // item


def _cuts(
    config: PersistentConfig, sizes: Sizes, most: int, group: int
) -> Iterator[tuple[PersistentConfig, Partition]]:
    """The config with every number of slices."""
    images, channels, length = sizes
    width, plane_bytes = _width(config, length), length * ITEMSIZE[config.data]
    row, image = group * plane_bytes, channels * plane_bytes
    shifted = row % UNIT > 0 or image % UNIT > 0
    pitch = round_up(row, UNIT) + UNIT if shifted else row
    for slices in _SLICES:
        if slices > min(most, images):
            return
        images_each = -(-images // slices)
        made = replace(config, width=width, edges=length % width > 0, shifted=shifted, group=group, slices=slices)
        batches = -(-images_each // max(1, _PART // row))
        batch = -(-images_each // batches)
        slots = min((config.shared_bytes - made.ring_at) // (config.parts * batch * pitch), _MOST_SLOTS)
        yield (
            made,
            Partition(
                items=-(-channels // group),
                channels=channels,
                images=images,
                images_each=images_each,
                batch=batch,
                slots=slots,
                plane=length // width,
                plane_bytes=plane_bytes,
                pitch=pitch,
                image=image,
                elements=images * length,
            ),
        )
