"""How the streaming kernel cuts an array whose axes are kept (they tell channels apart) or reduced. No Numba here.

In memory, axes of one kind beside each other are one axis, so the axes alternate. The innermost three are

    reps (reduced) x inner (kept) x length (reduced), together a slab; the axes around them make `outer` slabs:

N C H W is N x C x HW; channels-last and matrices are N x C x 1; one mean for all is N x 1 x 1; and so on. A slab is
seen as rows: a row is `fold` repetitions, as many as fill a block's threads, or fewer where one is enough. A row is cut
into tiles of equal width; a block takes a tile and, of the rows, every `groups`-th. So a thread keeps its own places
within the row, whose channels do not change: it loads their parameters once, adds up in registers, and all blocks
together move through memory as one dense front. An item is that work: (slab, group, tile), in the order of memory.

At an item's end its block adds the sums of each run (`length` elements of one channel) and writes them to a partial
row, one sum for each channel; a run that several tiles share has several partial rows. The rows are added up in the
order of their numbers, by gradkern/cuda/device_code/column_sums: the same bits every time.

Where dX needs the sums, a second pass goes over the items. In one launch every block then takes its own items again,
the last row first: what the first pass has read last is still in the block's shared memory, and what it has read before
that in the L2 cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

from gradkern.cuda.device_code.columns import last_step, round_up
from gradkern.kernels.channels.streaming_config import StreamingConfig

__all__ = ["ARGUMENTS", "Slabs", "Tiling", "best_tiling", "choose_tiling", "fitted"]

NEST = ("n1", "n2", "n3", "n4", "n5")  # sizes of the axes around a slab from the innermost: kept, reduced, kept, ...
ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "D2", "X", "Y", "Z", "dX", "dZ"),
    *("scale", "bias", "mean", "deviation", "scale_total", "bias_total", "shift", "scale_sum", "bias_sum"),
    *("input_mean", "input_var", "running_mean", "running_var", "counts", "partial", "counter"),
    *("count", "inner", "length", "row", "tile", "tiles", "rows_each", "rows_over", "groups", "items"),
    *("lane_bits", "repeats", "parts", "partial_rows", "elements", *NEST, "channels"),
    *("apart", "first_sample", "second_sample", "third_sample", "epsilon", "momentum", "correction"),
)

_FLUSH = {False: 0.5, True: 1.5}  # what the end of an item costs, in units of one tile of one row; split or not
_MOST_GROUPS = 4096
_MOST_ADDED = 256  # by one thread one after another: the errors of a sum in float32 grow as the root of its length
_HUGE, _LARGE = 16, 4  # tiles of a plane that is cut by itself; the latter where there are few images
_FEW_IMAGES = 8
_LEAST_VECTOR = 4  # bytes, of a ring's copies
_LEAST_ROWS = 4  # for which wide vectors pay: with fewer, narrower ones took 0.54 to 0.87 of the time
_LINE = 128  # bytes: where a warp's accesses do not begin at a line, they take one more


@dataclass(frozen=True, slots=True)
class Slabs:
    """The merged axes of a dense array: see the module."""

    nest: tuple[int, ...]  # axes around a slab, from the innermost: kept, reduced, kept, ...
    reps: int
    inner: int
    length: int

    @staticmethod
    def of(axes: list[tuple[int, bool]]) -> Slabs:
        """From (size, is kept) of each axis in memory order, neighbours of one kind merged."""
        rest = list(axes)
        length = rest.pop()[0] if rest and not rest[-1][1] else 1
        inner = rest.pop()[0] if rest else 1
        reps = rest.pop()[0] if rest else 1
        return Slabs(tuple(size for size, _ in reversed(rest)), reps, inner, length)

    @property
    def count(self) -> int:
        """Elements of a slab."""
        return self.reps * self.inner * self.length

    @property
    def outer(self) -> int:
        return prod(self.nest)

    @property
    def outer_kept(self) -> int:
        return prod(self.nest[0::2])

    @property
    def channels(self) -> int:
        return self.outer_kept * self.inner

    @property
    def reduced(self) -> bool:
        """Some channel has more than one element."""
        return self.outer * self.count > self.channels


@dataclass(frozen=True, slots=True)
class Tiling:
    """The sizes of one launch: arguments of the kernel by these names."""

    count: int  # elements of a slab
    inner: int
    length: int
    row: int  # elements of a row; the last row of a slab may have fewer
    tile: int  # elements of a tile; the last of a row may have fewer
    tiles: int  # of a row
    rows_each: int  # of a group
    rows_over: int  # so many groups have one row more
    groups: int
    items: int
    lane_bits: int  # 1 << lane_bits threads add up one run at an item's end
    repeats: int  # repetitions in a row
    parts: int  # tiles that one run may touch
    partial_rows: int
    nest: tuple[int, ...] = (1,) * len(NEST)

    @property
    def channels(self) -> int:
        return self.inner * prod(self.nest[0::2])

    @property
    def numbers(self) -> dict[str, int]:
        named = {name: getattr(self, name) for name in ARGUMENTS if name in Tiling.__slots__}
        return {**named, **dict(zip(NEST, self.nest, strict=True)), "channels": self.channels}


def choose_tiling(
    config: StreamingConfig, slabs: Slabs, processors: int, shared_bytes: int
) -> tuple[StreamingConfig, Tiling]:
    """`config` with its threads and stages, and the tiling; types, outputs, width, source and alignment are given."""
    made = _threads(fitted(config, slabs))
    while made.shared_bytes * made.blocks_per_processor > shared_bytes:
        if made.stages > 3:
            made = replace(made, stages=made.stages - 1)
        elif made.blocks_per_processor > 1:
            made = replace(made, blocks_per_processor=made.blocks_per_processor - 1)
        else:
            made = replace(made, stages=made.stages - 1)
    found = best_tiling(made, slabs, processors * made.blocks_per_processor)
    chunk, rows_in_flight = last_step(max(1, made.sums) * slabs.channels, found.partial_rows, made.threads, processors)
    with_last = replace(made, chunk=chunk, rows_in_flight=rows_in_flight)
    if with_last.shared_bytes * made.blocks_per_processor <= shared_bytes:
        made = with_last
    return replace(made, nested=prod(found.nest) > 1), found


def _threads(config: StreamingConfig) -> StreamingConfig:
    """Threads, vectors and stages: as was best on an H200 with a cold L2, of those without a spilled register.

    That is 64 to 128 KB of rows in flight on a multiprocessor, with many small blocks where parameters and sums need
    few registers, and few where they need many.
    """
    vectors = 16 // (config.width * config.data_itemsize)
    if config.source == "plain":
        return replace(config, vectors=vectors if config.split else max(vectors, 2), blocks_per_processor=2)
    if config.split:
        stages, blocks = 8, 2
    else:
        stages, blocks = (4, 2) if config.long or vectors > 1 else (3, 3)  # with 3 blocks these spill registers
    arrays = len(config.held) + config.passing_arrays
    if not config.split and (arrays > 2 or config.statistics or config.normalises):  # that is for D and X
        stages = max(3, 2 * stages // arrays)
    return replace(config, vectors=vectors, stages=stages, blocks_per_processor=blocks)


def fitted(config: StreamingConfig, slabs: Slabs) -> StreamingConfig:
    """`config` with what follows from the axes alone."""
    config = replace(config, width=_width_of_planes(config, slabs) or _width_of_few(config, slabs))
    split = slabs.length % config.width != 0 and (slabs.inner > 1 or not slabs.reduced)
    return replace(
        config,
        split=split,
        columns=config.columns and split and slabs.length == 1 and slabs.inner % config.width == 0,
        tail=slabs.count % config.width != 0,
        direct=not slabs.reduced and not config.totals,
        long=max(slabs.count, 2 * slabs.channels) * 8 >= 1 << 31,
    )


def _width_of_planes(config: StreamingConfig, slabs: Slabs) -> int:
    """The elements of a vector where each plane of N C H W is better a slab of its own; 0 where it is not.

    An image in one row makes items of as many rows as there are images. Where these are few, an item is over before its
    channels' parameters are paid for; then planes of narrower vectors, so that they are whole ones, take less time.
    """
    few = slabs.reps < _FEW_IMAGES
    if slabs.nest or slabs.inner == 1 or config.direct:
        return 0
    if slabs.length * config.data_itemsize < (_LARGE if few else _HUGE) * config.threads * 16:
        return 0
    whole = gcd(slabs.length, config.width)
    return whole if whole == config.width or (few and whole * config.data_itemsize >= _LEAST_VECTOR) else 0


def _width_of_few(config: StreamingConfig, slabs: Slabs) -> int:
    """The elements of a vector: a row is as many repetitions as make whole ones. Where there are hardly as many, items
    are of one row, over before their channels' parameters are paid for, or most of a row's tiles are empty.
    """
    width, one = config.width, slabs.inner * slabs.length
    while (
        width * config.data_itemsize > _LEAST_VECTOR
        and (step := width // gcd(one, width)) > 1
        and _LEAST_ROWS * step > slabs.reps
    ):
        width //= 2
    return width


def best_tiling(config: StreamingConfig, slabs: Slabs, blocks: int) -> Tiling:
    """The tiling for so many blocks at a time: the folds, tiles and groups with which they are done first."""
    if _width_of_planes(config, slabs):
        slabs = Slabs((slabs.inner, slabs.reps), 1, 1, slabs.length)  # each plane a slab: fewer parts
    width, most = config.width, config.tile
    reps, length = slabs.reps, slabs.length
    if slabs.inner == 1 and not config.direct:  # a slab is all of one channel: a row is a tile
        reps, length = -(-slabs.count // most), most
    one = slabs.inner * length  # elements of a repetition
    step = width // gcd(one, width)  # so many make whole vectors
    folds = {max(step, min(most // one, reps) // step * step)}
    if one > most // 2:
        folds |= {step * times for times in range(1, 9) if step * times <= max(step, reps)}
    best: tuple[float, Tiling] | None = None
    for fold in sorted(folds):
        row = fold * one
        rows = -(-slabs.count // row)
        fewest_groups = (
            -(-rows // max(1, _MOST_ADDED * config.adders // (config.vectors * width))) if config.sums else 1
        )
        fewest = -(-row // most)
        for tiles in range(fewest, fewest + min(fewest // 8, 32) + 1):
            tile = round_up(-(-row // tiles), min(_LINE // config.data_itemsize, most))
            if tile * (tiles - 1) >= row:
                continue
            runs = slabs.inner if tiles == 1 else -(-tile // length) + 1
            parts = 1 if tiles == 1 else min(tiles, -(-(length - 1) // tile) + 1)
            rows_each = slabs.outer // slabs.outer_kept * (fold if tiles > 1 else 1) * parts
            for groups in _groups(rows, slabs.outer * tiles, blocks, fewest_groups):
                items = slabs.outer * groups * tiles
                units = -(-items // blocks) * (-(-rows // groups) + (_FLUSH[config.split] if config.sums else 0))
                cost = units * (tile / most + 0.1)
                if best is None or cost < best[0]:
                    best = (
                        cost,
                        Tiling(
                            count=slabs.count,
                            inner=slabs.inner,
                            length=length,
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
                            nest=(*slabs.nest, *(1,) * len(NEST))[: len(NEST)],
                        ),
                    )
    assert best is not None
    return best[1]


def _groups(rows: int, items: int, blocks: int, fewest: int) -> list[int]:
    """How many groups to try, of so many rows, where one group makes `items`: those that fill whole rounds."""
    filled = (rounds * blocks // items for rounds in range(1, 17))
    return sorted({fewest, *(min(max(fewest, groups), rows, max(fewest, _MOST_GROUPS)) for groups in filled)})
