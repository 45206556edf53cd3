"""Compile-time constants of the persistent kernel, and how the channels of an array are distributed to clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import gcd, log2, prod

from gradkern.cuda.device_code.columns import ByElementType, round_up
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.kernels.channels.times import SinglePassTimes

ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "X", "scale", "mean", "deviation", "dX", "scale_sum", "bias_sum"),
    *("items", "channels", "images", "batch", "slots", "plane", "plane_bytes", "pitch", "image", "elements"),
)
UNIT = 16  # bytes of a vector; sizes and addresses of bulk copies are multiples
# The best on an H200 with a cold L2: one block on a multiprocessor, with few threads, as every warp has a cost for each
# slot of the ring; and slots of about 50 KB, X and D together.
_THREADS = 256 + 32
_PART = 25 * 1024  # bytes of X in a slot
_LEAST, _SHORT = 256, 512  # bytes of a copy: the minimum, and the minimum that needs no larger group
_MOST_GROUP = 8  # a warp each at least
_ITEM, _BUSY = 36 * 1024, 0.9  # bytes of an item, enough for the group if this share of the multiprocessors has one
_ALIGNED, _ALIGNED_WHOLE = 4096, 16384  # bytes of copies, at most, for larger groups that align them; of whole vectors
_WHOLE, _SMALL = 8, 160  # bytes of vectors that divide a plane, at least; elements of planes where any will do
_CLUSTER_SIZES = (1, 2, 4, 8, 16)
_FEWEST_SLOTS, _ENOUGH_SLOTS, _MOST_SLOTS = 2, 4, 64
_SHARPNESS = 6  # exponent of a smooth maximum of the memory's time and that of one block, in the cost model
_FEW_IMAGES = 8  # fewer make the streaming kernel slower
# An H100's memory has 0.68 of an H200's bandwidth. With that in the cost model, however, 17 of the 18 arrays with
# another choice took 3 to 17 % longer there: latencies in blocks are the same.


@dataclass(frozen=True, slots=True)
class PersistentConfig(ByElementType):
    """Compile-time constants. The sizes of Partition are launch arguments."""

    data: str  # type of D, X and dX
    parameter: str  # of scale and of the sums
    statistic: str  # of mean and deviation
    outputs: frozenset[str]  # of dX, scale_sum, bias_sum
    epsilon: float | None  # added to `deviation`, the variance; None: it is the inverse standard deviation
    centred: bool  # dX has the terms of the sums: channels stay in shared memory until these are known
    shared_bytes: int
    width: int = 1  # elements of a vector
    edges: bool = False  # planes are not a whole number of vectors
    shifted: bool = False  # an item's part of an image may not be aligned to units
    group: int = 1  # channels of an item; each has the same number of threads
    cluster_size: int = 1  # blocks of a cluster, each with a part of the images
    threads: int = _THREADS
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        shape = f"{self.cluster_size}x{self.group}x{self.width}" + "edges" * self.edges + "shifted" * self.shifted
        return kernel_name("channels_persistent", "_".join(sorted(self.outputs)), self.data, shape)

    @property
    def vector(self) -> int:
        """Bytes."""
        return self.width * self.data_itemsize

    @property
    def by_rows(self) -> bool:
        """The places of a channel's vectors depend on the row."""
        return self.edges or self.shifted

    @property
    def sums(self) -> bool:
        """Sums are requested, or needed."""
        return self.centred or bool(self.outputs & {"scale_sum", "bias_sum"})

    @property
    def parts(self) -> int:
        """Number of arrays that are read: D, and X if it is needed."""
        return 2 if self.centred or "scale_sum" in self.outputs else 1

    @property
    def compute_threads(self) -> int:
        """Threads that compute. The last warp copies."""
        return self.threads - 32

    @property
    def channel_threads(self) -> int:
        """Threads of one channel."""
        return self.compute_threads // self.group

    @property
    def exchanged(self) -> int:
        """Pairs of sums that the warps of a cluster exchange."""
        return self.cluster_size * self.compute_threads // 32

    # Shared memory: barriers of full slots, of free slots, of exchanges | exchanged pairs, twice | ring
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
    """Sizes of one launch. Most are arguments of the kernel with these names."""

    items: int  # groups of channels
    channels: int
    images: int
    images_each: int  # of a block, at most: others have one less
    batch: int  # images of an item in one slot of the ring
    slots: int
    plane: int  # vectors of one channel in one image, or one more
    plane_bytes: int
    pitch: int  # bytes of a slot for an item in one image
    image: int  # bytes from image to image
    elements: int  # of a channel

    def ring_bytes(self, config: PersistentConfig) -> int:
        return self.slots * config.parts * self.batch * self.pitch


Sizes = tuple[int, int, int]  # N x C x L elements


def resident_partitions(
    config: PersistentConfig, sizes: Sizes, max_cluster_size: int, processors: int
) -> Iterator[tuple[PersistentConfig, Partition]]:
    """The configs with an item in shared memory: that of the smallest cluster, and that of twice its size, with room
    for a second item. Types, outputs and memory are given.
    """
    images, channels, length = sizes
    one = images * length * config.data_itemsize * config.parts  # bytes of a channel
    group = 0
    for group in _groups(config, sizes):
        if group * one >= _ITEM or channels < _BUSY * 2 * group * processors:
            break
    cuts = _cuts(config, sizes, max_cluster_size, group) if group else ()
    yield from islice((each for each in cuts if each[1].slots * each[1].batch >= each[1].images_each), 2)


def single_pass_partition(
    config: PersistentConfig,
    sizes: Sizes,
    max_cluster_size: int,
    processors: int,
    of: SinglePassTimes,
) -> tuple[PersistentConfig, Partition] | None:
    """The fastest group and cluster size for a config that is not centred: it needs no element twice. None if
    the streaming kernel should be faster, or if a slot is too large.
    """
    found = single_pass_configs(config, sizes, min(max_cluster_size, processors))
    predicted = [single_pass_time(*each, processors, of) for each in found]
    if not predicted or min(predicted) >= streaming_time(config, sizes, of):
        return None
    return found[predicted.index(min(predicted))]


def single_pass_configs(
    config: PersistentConfig, sizes: Sizes, max_cluster_size: int
) -> list[tuple[PersistentConfig, Partition]]:
    """The config with every group and cluster size whose slots fit shared memory."""
    cuts = (each for group in _groups(config, sizes) for each in _cuts(config, sizes, max_cluster_size, group))
    return [each for each in cuts if each[1].slots >= _FEWEST_SLOTS]


def single_pass_time(config: PersistentConfig, partition: Partition, processors: int, of: SinglePassTimes) -> float:
    """Predicted microseconds."""
    row = config.group * partition.plane_bytes
    doublings, moved = log2(config.cluster_size), _arrays(config) * row
    slower = 1 + doublings * of.slower + (doublings + of.unclustered) * of.short_rows / row
    slower += of.cramped if partition.slots < _ENOUGH_SLOTS else 0
    together = partition.items * partition.images * moved / of.bandwidth * slower
    rounds = -(-partition.items // (processors // config.cluster_size))
    rate = of.block_bandwidth * (of.edges if config.edges and config.data_itemsize == 2 else 1)
    vectors = 0 if config.edges else config.group * partition.plane / of.block_vectors
    alone = rounds * partition.images_each * max(config.parts * of.copy, moved / rate, vectors)
    both = (together**_SHARPNESS + alone**_SHARPNESS) ** (1 / _SHARPNESS)
    return of.launch + of.doubling * doublings + of.round * rounds + both


def streaming_time(config: PersistentConfig, sizes: Sizes, of: SinglePassTimes) -> float:
    """Predicted microseconds of the streaming kernel."""
    moved = _arrays(config) * prod(sizes) * config.data_itemsize
    return of.streaming + moved / of.bandwidth * (of.few_streamed if sizes[0] < _FEW_IMAGES else 1)


def _arrays(config: PersistentConfig) -> int:
    """Number of arrays that a single pass reads and writes."""
    return config.parts + ("dX" in config.outputs)


def _groups(config: PersistentConfig, sizes: Sizes) -> Iterator[int]:
    """Numbers of channels of an item: from the least with long enough copies, aligned where that costs little."""
    _, channels, length = sizes
    plane_bytes, most = length * config.data_itemsize, min(_MOST_GROUP, channels)
    aligned = UNIT // gcd(UNIT, plane_bytes)
    largest = _ALIGNED if length % _width(config, length) else _ALIGNED_WHOLE
    group = aligned if channels % aligned == 0 and aligned * plane_bytes <= largest else 1
    while group * plane_bytes < _SHORT and 2 * group <= most:
        group *= 2
    while group * plane_bytes >= _LEAST and group <= most:
        yield group
        group *= 2


def _width(config: PersistentConfig, length: int) -> int:
    """Elements of a vector: the widest that divides a plane, unless it is narrow and planes are large."""
    item = config.data_itemsize
    whole = gcd(UNIT // item, length)
    return whole if whole * item >= _WHOLE or length < _SMALL else UNIT // item


def _cuts(
    config: PersistentConfig, sizes: Sizes, most: int, group: int
) -> Iterator[tuple[PersistentConfig, Partition]]:
    """The config with every cluster size."""
    images, channels, length = sizes
    width, plane_bytes = _width(config, length), length * config.data_itemsize
    row, image = group * plane_bytes, channels * plane_bytes
    shifted = row % UNIT > 0 or image % UNIT > 0
    pitch = round_up(row, UNIT) + UNIT if shifted else row
    for cluster_size in _CLUSTER_SIZES:
        if cluster_size > min(most, images):
            return
        images_each = -(-images // cluster_size)
        made = replace(
            config, width=width, edges=length % width > 0, shifted=shifted, group=group, cluster_size=cluster_size
        )
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
