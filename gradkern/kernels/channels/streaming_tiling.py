"""How the streaming kernel divides an array whose axes are channel axes or reduced axes. No Numba here.

Neighbouring axes of one kind are merged in memory order, so that the two kinds alternate. The innermost three
dimensions are batch (reduced) x inner_channels x spatial (reduced), the inner array. The outer dimensions make
`outer_count` inner arrays. N C H W is N x C x HW; channels-last arrays and matrices are N x C x 1; one mean for all
elements is N x 1 x 1.

An inner array is treated as rows. A row is `fold` repetitions of inner_channels x spatial elements: as many as fill a
block's threads, or one. A row is divided into tiles of equal width. A block takes a tile of every `groups`-th row. Each
thread has fixed places within the row, and so fixed channels: it loads their parameters once and adds up in registers,
and all blocks together move through memory as one dense front. This work is an item: (inner array, group, tile), in the
order of memory.

At the end of an item its block adds the sums of each run (`spatial` elements of one channel) and writes them to a
partial row with one sum for each channel. A run that several tiles share has several partial rows. These rows are added
in a fixed order, by gradkern/cuda/device_code/column_sums: results are deterministic.

Where dX needs the sums, a second pass goes over the items. In a single launch every block takes its own items again,
last row first: the rows read last are still in the block's shared memory, and earlier ones in the L2 cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

from gradkern.cuda.device_code.columns import last_step, round_up
from gradkern.kernels.channels.streaming_config import StreamingConfig

OUTER_SIZES = (
    "n1",
    "n2",
    "n3",
    "n4",
    "n5",
)  # sizes of the axes around a slab from the innermost: kept, reduced, kept, ...
ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "D2", "X", "Y", "Z", "dX", "dZ"),
    *("scale", "bias", "mean", "deviation", "scale_total", "bias_total", "shift", "scale_sum", "bias_sum"),
    *("input_mean", "input_var", "running_mean", "running_var", "counts", "partial", "counter"),
    *("count", "inner_channels", "spatial", "row", "tile", "tiles", "rows_each", "rows_over", "groups", "items"),
    *("lane_bits", "repeats", "parts", "partial_rows", "elements", *OUTER_SIZES, "channels"),
    *("apart", "first_sample", "second_sample", "third_sample", "epsilon", "momentum", "correction"),
)

_FLUSH = {False: 0.5, True: 1.5}  # cost of the end of an item, in units of one tile of one row; by `split`
_MOST_GROUPS = 4096
_MOST_ADDED = 256  # elements that a thread adds in sequence: errors of a float32 sum grow as the root of its length
_HUGE, _LARGE = 16, 4  # tiles of a plane, at least, if each plane is an inner array; _LARGE for few images
_FEW_IMAGES = 8
_LEAST_VECTOR = 4  # bytes of a copy into a ring
_LEAST_ROWS = 4  # for wide vectors: with fewer, narrower ones took 0.54 to 0.87 of the time
_LINE = 128  # bytes: an access of a warp that is not aligned to lines takes one more


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The merged axes of a dense array: see the module."""

    outer_sizes: tuple[int, ...]  # outer dimensions from the innermost: channels, reduced, channels, ...
    batch: int
    inner_channels: int
    spatial: int

    @staticmethod
    def of(axes: list[tuple[int, bool]]) -> Dimensions:
        """From (size, is a channel axis) of each axis in memory order, with neighbours of one kind merged."""
        rest = list(axes)
        spatial = rest.pop()[0] if rest and not rest[-1][1] else 1
        inner_channels = rest.pop()[0] if rest else 1
        batch = rest.pop()[0] if rest else 1
        return Dimensions(tuple(size for size, _ in reversed(rest)), batch, inner_channels, spatial)

    @property
    def count(self) -> int:
        """Elements of an inner array."""
        return self.batch * self.inner_channels * self.spatial

    @property
    def outer_count(self) -> int:
        return prod(self.outer_sizes)

    @property
    def outer_channels(self) -> int:
        return prod(self.outer_sizes[0::2])

    @property
    def channels(self) -> int:
        return self.outer_channels * self.inner_channels

    @property
    def has_reduction(self) -> bool:
        """Some channel has more than one element."""
        return self.outer_count * self.count > self.channels


@dataclass(frozen=True, slots=True)
class Tiling:
    """The sizes of one launch: arguments of the kernel by these names."""

    count: int  # elements of an inner array
    inner_channels: int
    spatial: int
    row: int  # elements of a row; the last of an inner array may have fewer
    tile: int  # elements of a tile; the last of a row may have fewer
    tiles: int  # of a row
    rows_each: int  # of a group
    rows_over: int  # groups with one row more
    groups: int
    items: int
    lane_bits: int  # log2 of the threads that add one run at an item's end
    repeats: int  # repetitions in a row
    parts: int  # tiles that one run may extend over
    partial_rows: int
    outer_sizes: tuple[int, ...] = (1,) * len(OUTER_SIZES)

    @property
    def channels(self) -> int:
        return self.inner_channels * prod(self.outer_sizes[0::2])

    @property
    def numbers(self) -> dict[str, int]:
        named = {name: getattr(self, name) for name in ARGUMENTS if name in Tiling.__slots__}
        return {**named, **dict(zip(OUTER_SIZES, self.outer_sizes, strict=True)), "channels": self.channels}


def choose_tiling(
    config: StreamingConfig, dims: Dimensions, processors: int, shared_bytes: int
) -> tuple[StreamingConfig, Tiling]:
    """`config` with its threads and stages, and the tiling; types, outputs, width, source and alignment are given."""
    made = _threads(fitted(config, dims))
    while made.shared_bytes * made.blocks_per_processor > shared_bytes:
        if made.stages > 3:
            made = replace(made, stages=made.stages - 1)
        elif made.blocks_per_processor > 1:
            made = replace(made, blocks_per_processor=made.blocks_per_processor - 1)
        else:
            made = replace(made, stages=made.stages - 1)
    found = best_tiling(made, dims, processors * made.blocks_per_processor)
    chunk, rows_in_flight = last_step(max(1, made.sums) * dims.channels, found.partial_rows, made.threads, processors)
    with_last = replace(made, chunk=chunk, rows_in_flight=rows_in_flight)
    if with_last.shared_bytes * made.blocks_per_processor <= shared_bytes:
        made = with_last
    return replace(made, has_outer=prod(found.outer_sizes) > 1), found


def _threads(config: StreamingConfig) -> StreamingConfig:
    """Threads, vectors and stages: the best on an H200 with a cold L2 among those that spill no register.

    These have 64 to 128 KB of rows in flight on a multiprocessor, with many small blocks where parameters and sums take
    few registers, and few blocks where they take many.
    """
    vectors = 16 // (config.width * config.data_itemsize)
    if config.source == "plain":
        return replace(config, vectors=vectors if config.split else max(vectors, 2), blocks_per_processor=2)
    if config.split:
        stages, blocks = 8, 2
    else:
        stages, blocks = (4, 2) if config.long or vectors > 1 else (3, 3)  # with 3 blocks these spill registers
    arrays = len(config.held) + config.passing_arrays
    if not config.split and (arrays > 2 or config.statistics or config.normalises):  # the numbers above are for D and X
        stages = max(3, 2 * stages // arrays)
    return replace(config, vectors=vectors, stages=stages, blocks_per_processor=blocks)


def fitted(config: StreamingConfig, dims: Dimensions) -> StreamingConfig:
    """`config` with the fields that follow from the dimensions alone."""
    config = replace(config, width=_width_of_planes(config, dims) or _width_of_few(config, dims))
    split = dims.spatial % config.width != 0 and (dims.inner_channels > 1 or not dims.has_reduction)
    return replace(
        config,
        split=split,
        columns=config.columns and split and dims.spatial == 1 and dims.inner_channels % config.width == 0,
        tail=dims.count % config.width != 0,
        direct=not dims.has_reduction and not config.totals,
        long=max(dims.count, 2 * dims.channels) * 8 >= 1 << 31,
    )


def _width_of_planes(config: StreamingConfig, dims: Dimensions) -> int:
    """Elements of a vector if each plane of N C H W should be an inner array; 0 if not.

    With a row for each image, items have as many rows as there are images. Where images are few, loading the parameters
    of an item's channels dominates. Planes are then faster, with narrower vectors if these divide a plane.
    """
    few = dims.batch < _FEW_IMAGES
    if dims.outer_sizes or dims.inner_channels == 1 or config.direct:
        return 0
    if dims.spatial * config.data_itemsize < (_LARGE if few else _HUGE) * config.threads * 16:
        return 0
    whole = gcd(dims.spatial, config.width)
    return whole if whole == config.width or (few and whole * config.data_itemsize >= _LEAST_VECTOR) else 0


def _width_of_few(config: StreamingConfig, dims: Dimensions) -> int:
    """Elements of a vector. A row is a whole number of vectors, and so perhaps several repetitions. If a row had nearly
    all repetitions, items would have one row and loading parameters would dominate, or most tiles would be empty.
    """
    width, one = config.width, dims.inner_channels * dims.spatial
    while (
        width * config.data_itemsize > _LEAST_VECTOR
        and (step := width // gcd(one, width)) > 1
        and _LEAST_ROWS * step > dims.batch
    ):
        width //= 2
    return width


def best_tiling(config: StreamingConfig, dims: Dimensions, blocks: int) -> Tiling:
    """The fastest tiling for this many concurrent blocks: of all folds, tiles and groups."""
    if _width_of_planes(config, dims):
        dims = Dimensions(
            (dims.inner_channels, dims.batch), 1, 1, dims.spatial
        )  # each plane an inner array: fewer parts
    width, most = config.width, config.tile
    batch, spatial = dims.batch, dims.spatial
    if dims.inner_channels == 1 and not config.direct:  # an inner array has one channel: a row is a tile
        batch, spatial = -(-dims.count // most), most
    one = dims.inner_channels * spatial  # elements of a repetition
    step = width // gcd(one, width)  # repetitions that make whole vectors
    folds = {max(step, min(most // one, batch) // step * step)}
    if one > most // 2:
        folds |= {step * times for times in range(1, 9) if step * times <= max(step, batch)}
    best: tuple[float, Tiling] | None = None
    for fold in sorted(folds):
        row = fold * one
        rows = -(-dims.count // row)
        fewest_groups = (
            -(-rows // max(1, _MOST_ADDED * config.adders // (config.vectors * width))) if config.sums else 1
        )
        fewest = -(-row // most)
        for tiles in range(fewest, fewest + min(fewest // 8, 32) + 1):
            tile = round_up(-(-row // tiles), min(_LINE // config.data_itemsize, most))
            if tile * (tiles - 1) >= row:
                continue
            runs = dims.inner_channels if tiles == 1 else -(-tile // spatial) + 1
            parts = 1 if tiles == 1 else min(tiles, -(-(spatial - 1) // tile) + 1)
            rows_each = dims.outer_count // dims.outer_channels * (fold if tiles > 1 else 1) * parts
            for groups in _groups(rows, dims.outer_count * tiles, blocks, fewest_groups):
                items = dims.outer_count * groups * tiles
                units = -(-items // blocks) * (-(-rows // groups) + (_FLUSH[config.split] if config.sums else 0))
                cost = units * (tile / most + 0.1)
                if best is None or cost < best[0]:
                    best = (
                        cost,
                        Tiling(
                            count=dims.count,
                            inner_channels=dims.inner_channels,
                            spatial=spatial,
                            row=row,
                            tile=tile,
                            tiles=tiles,
                            rows_each=rows // groups,
                            rows_over=rows % groups,
                            groups=groups,
                            items=items,
                            lane_bits=min(5, max(0, (config.threads // runs).bit_length() - 1)),
                            repeats=fold,
                            parts=parts,
                            partial_rows=rows_each * groups,
                            outer_sizes=(*dims.outer_sizes, *(1,) * len(OUTER_SIZES))[: len(OUTER_SIZES)],
                        ),
                    )
    assert best is not None
    return best[1]


def _groups(rows: int, items: int, blocks: int, fewest: int) -> list[int]:
    """Numbers of groups to try: those that fill whole rounds of blocks. rows: of all groups; items: of one group."""
    filled = (rounds * blocks // items for rounds in range(1, 17))
    return sorted({fewest, *(min(max(fewest, groups), rows, max(fewest, _MOST_GROUPS)) for groups in filled)})
