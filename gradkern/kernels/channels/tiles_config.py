"""What is bound when the tiles kernel is compiled, and how that follows from the shape, the types and the device.

Nothing here imports Numba.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, hypot, log2
from typing import Self, TypeVar

from gradkern.cuda.device_code.columns import ITEMSIZE, ByColumns, ColumnSums, last_step, reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words

__all__ = [
    "ARGUMENTS",
    "BLOCKS",
    "LINE",
    "VECTOR",
    "TilesConfig",
    "fold_of_sums",
    "lanes_of_line",
    "one_tile",
    "tiles_of_sums",
    "with_fold",
    "with_lanes",
]

ARGUMENTS = (  # of the kernel: addresses, then numbers (strides in bytes from row to row)
    *("D", "X", "first_parameter", "dX", "first_sum", "partial", "counter"),
    *("rows", "tail", "D_stride", "X_stride", "dX_stride"),
    *("columns", "repeat"),  # of the kernel's row, and after how many of them the parameters come again
    *("slices", "multiplier", "shift"),  # the last two divide by `slices`
    *("large", "times"),  # the first so many tiles of each slice are so many times as high as the others
    *("second_parameter", "third_parameter", "second_sum"),  # addresses, for those who have them
)

BLOCKS = 2  # of a multiprocessor, where there are sums
_LAST_STEPS = (16, 6), (4, 4), (1, 4)  # chunk and rows_in_flight; few, as each is a kernel
LINE = 128  # bytes of a cache line
VECTOR = 16  # bytes, at most
_LONG_ROW, _LONGEST_ROW = 16384, 65536  # bytes; from the latter on slices are of 1024
_MOST_LANES = 128  # of a slice
_FEW_TILES = 12  # one below another
_TIMES, _TIMES_SHORT = 2, 4  # as high as others are a slice's first tiles; and where a row is at most a line
_SMALL = 2  # tiles for each block that are as high as one of those
# One tile for each slice: up to so many rows in any case, but of short vectors not more than so many in all
_FEW_ROWS, _FEW_VECTORS = 128, 4 << 20
_MOST_GROUPS, _BATCH_ROWS = 16, 4  # its warps; and where rows are more, those of a thread at a time
# What that takes, in microseconds and bytes, and what many tiles do: fitted to an H200's times (cold L2) of 27 sizes of
# 0.2 to 60 MB in both operators, 7 % off in the root of the mean square. What is chosen was 2 % slower than the best on
# average, 14 % at worst; with many tiles alone it had been 18 % slower.
_LAUNCH, _BATCH = 4.5, 1.15  # in any case; for the rows that a block's threads have at a time, arithmetic apart
_BANDWIDTH, _SHORT_SLICES = 3.3e6, 13  # bytes that a row's part costs besides its own
_TILES, _TILED = 6.4, 3.35e6  # of many tiles
_MOST_FOLDED, _LEAST_FOLDED = 64, 4096  # rows of the array in one of the kernel's, and the fewest of those
_LEAST_OF_LINES, _LONGEST_OF_LINES = 768, 49152  # rows of the kernel that are whole lines: the fewest, and most bytes


@dataclass(frozen=True, slots=True)
class TilesConfig(ByColumns):
    """All that is bound when the kernel is compiled. Everything else is an argument of the launch, also the columns and
    the slices that they are cut into: each has as many columns as a row's lanes have at once, the last slice the rest.

    A row of the kernel may be several of the array: so it has whole vectors where the array's rows have not.
    """

    operator: str
    data: str  # type of D, X and dX
    parameter: str  # of the columns' numbers and the results of the sums
    outputs: tuple[str, ...]  # dX, and the others are sums
    width: int
    lanes: int = 1
    groups_per_block: int = 1
    whole: bool = False  # every slice has all its columns
    unroll: int = 1  # rows of a thread, all on their way at once
    folded: bool = False  # a row of the kernel is several of the array
    fold: int = 1  # so many, where there are sums; an argument of the launch says it to the rest of the kernel
    parameters_at_once: int = 1  # columns whose numbers a thread loads at once
    single_block: bool = False  # a tile has all rows of its columns, so that its sums are the result
    long_rows: bool = False  # row or column numbers, or the bytes from row to row, need 64 bits
    native_bfloat16: bool = True  # compute capability 8.0 or newer
    blocks_per_processor: int = 1
    chunk: int = 8  # and `rows_in_flight`: of the last sums, as in ColumnSums
    rows_in_flight: int = 4

    @property
    def name(self) -> str:
        """In a profiler."""
        outputs = "_".join(self.outputs)
        shape = f"{self.lanes}x{self.unroll}x{self.width}"
        return kernel_name(operator_words(self.operator), outputs, self.data, shape)

    @property
    def vectors(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1

    @property
    def reads_D(self) -> bool:
        """There is an upstream gradient."""
        return "Grad" in self.operator

    @property
    def batch_time(self) -> float:
        """Microseconds of arithmetic for the rows that a block has at a time where all are one tile: see one_tile."""
        return 0

    @property
    def bound_by_arithmetic(self) -> bool:
        """Its instructions take longer than memory does: a folded row's, which are more, and leave room for fewer
        threads, cost more than whole lines gain.
        """
        return False

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.data == "float64" else "float32"

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.data]

    def with_width(self, width: int) -> Self:
        """With narrower vectors, of a power of two elements."""
        return replace(self, width=width, parameters_at_once=min(width, self.parameters_at_once))

    @property
    def tile_rows(self) -> int:
        return self.groups_per_block * self.group_rows * self.unroll

    @property
    def sums(self) -> int:
        """0, 1 or 2."""
        return len([name for name in self.outputs if name != "dX"])

    @property
    def persistent(self) -> bool:
        """Blocks take one tile after the other, and add up the tiles' sums at the end."""
        return self.sums > 0 and not self.single_block

    @property
    def column_sums(self) -> ColumnSums:
        """How the sums are added up."""
        return ColumnSums(
            **{name: getattr(self, name) for name in ("width", "lanes", "vectors", "groups_per_block")},
            unpredicated_vectors=1 if self.whole else 0,
            sums=max(1, self.sums),
            compute=self.compute,
            result=self.parameter,
            at=16,  # the number of the next tile lies before
            chunk=self.chunk,
            rows_in_flight=self.rows_in_flight,
            single_block=self.single_block,
            fold=self.fold,
            counts_progress=self.persistent,
            evict_last=self.persistent and self.native_bfloat16,  # which tells that the device can be asked
            long=self.long_rows,
            native_bfloat16=self.native_bfloat16,
        )

    @property
    def shared_bytes(self) -> int:
        return self.column_sums.at + self.column_sums.shared_bytes if self.sums else 0

    def slices(self, columns: int) -> int:
        return -(-columns // self.most_columns)

    def chunks(self, rows: int) -> int:
        """Tiles of so many of the kernel's rows in each slice if all are equal, the last short one too."""
        return -(-rows // self.tile_rows)

    def heights(self, columns: int, rows: int, blocks: int) -> tuple[int, int, int]:
        """Of persistent blocks, so many at a time: how many tiles each slice is cut into, and how many of these, the
        first, are how many times as high as the others.

        What a tile costs besides its rows is paid less often so, and small tiles come last, so that blocks end
        together. Higher ones would be further apart in memory than it can serve as fast, but where rows are short.
        """
        if self.single_block:
            return 1, 1, self.chunks(rows)
        times = _TIMES_SHORT if columns // self.fold * self.itemsize <= LINE else _TIMES
        small = -(-_SMALL * times * blocks // self.slices(columns))
        large = max(0, self.chunks(rows) - small) // times if self.persistent else 0
        return self.chunks(rows) - large * (times - 1), large, times

    def sizes(self, columns: int) -> dict[str, int]:
        """The arguments of a launch that say how wide a row of the kernel is and how it is cut."""
        slices = self.slices(columns)
        multiplier, shift = reciprocal(slices)
        return {"columns": columns, "slices": slices, "multiplier": multiplier, "shift": shift}


Config = TypeVar("Config", bound=TilesConfig)


def one_tile(config: Config, columns: int, rows: int, processors: int) -> Config | None:
    """`config`, not folded, with all rows of a slice in one tile, where that is better than many: without sums over
    blocks, and without a barrier.
    """
    if rows <= _FEW_ROWS:
        if config.width * config.itemsize < VECTOR and rows * columns // config.width > _FEW_VECTORS:
            return None
        lanes = lanes_of_line(config)
        chosen = with_lanes(config, columns, (lanes // 2, lanes), 32)
        unrolls = (each for each in (2, 4, 8) if -(-rows // (each * chosen.group_rows)) <= _MOST_GROUPS)
        return _of_one_tile(chosen, rows, next(unrolls))
    slices = [lanes for lanes in (4, 8, 16) if lanes * config.width % 8 == 0]
    made = (with_lanes(config, columns, (lanes,), 32) for lanes in slices)
    time, best = min(
        ((_one_tile_time(each, columns, rows, processors), each) for each in made), key=lambda each: each[0]
    )
    many = _TILES + 3 * rows * columns * config.itemsize / _TILED
    return _of_one_tile(best, rows, _BATCH_ROWS) if time < many else None


def with_fold(config: Config, columns: int, rows: int, processors: int) -> tuple[Config, int]:
    """`config`, which has sums, and how many rows of a dense array, whose rows and columns are given, are one of the
    kernel's; with narrower vectors where that is one row.
    """
    fold = config.width // gcd(columns, config.width)
    unfolded = config.with_width(config.width // fold)
    if rows < fold or one_tile(unfolded, columns, rows, processors):
        return unfolded, 1
    return config, fold_of_sums(config, rows, columns, fold)


def _of_one_tile(config: Config, rows: int, unroll: int) -> Config:
    groups = min(_MOST_GROUPS, -(-rows // (unroll * config.group_rows)))
    return replace(config, groups_per_block=groups, unroll=unroll, single_block=True)


def _one_tile_time(config: TilesConfig, columns: int, rows: int, processors: int) -> float:
    """Microseconds that it should take."""
    vector = config.width * config.itemsize
    rounds = -(-config.slices(columns) // processors)
    batches = max(0.5, rows / (_MOST_GROUPS * config.group_rows * _BATCH_ROWS))
    alone = rounds * batches * hypot(_BATCH, config.batch_time) * (vector / VECTOR) ** 0.3
    moved = 3 * rows * columns * config.itemsize
    together = moved / _BANDWIDTH * (1 + _SHORT_SLICES / (config.lanes * vector))
    return _LAUNCH + (alone**4 + together**4) ** (1 / 4)


def tiles_of_sums(config: Config, columns: int, rows: int, processors: int, threads: int, unroll: int) -> Config:
    """`config`, which has sums, with its lanes and groups filled in, for so many of the kernel's rows and columns;
    width, fold and types are given. threads: of a block, at most; unroll: rows of a thread.

    As measured on an H200 with a cold L2: slices of 256 bytes, so that a tile has many rows and its partial sums are
    few, and yet tiles are small, so that all blocks end together (of 1024 bytes: 5 % slower; of 64 bytes: 8 %); where
    rows are no whole cache lines, so that two slices share one, of 512 if rows are long (1 to 2 % faster).
    """
    if not config.folded and (found := one_tile(config, columns, rows, processors)):
        return found
    chosen = replace(_with_lanes_of_sums(config, columns, rows, threads), unroll=unroll, blocks_per_processor=BLOCKS)
    chosen = _filled(_widened(chosen, columns, rows, processors), rows)
    blocks = BLOCKS * processors
    results, partial_rows = chosen.sums * columns // chosen.fold, chosen.heights(columns, rows, blocks)[0] * chosen.fold
    chunk, rows_in_flight = last_step(results, partial_rows, chosen.threads, blocks, _LAST_STEPS)
    return replace(chosen, chunk=chunk, rows_in_flight=rows_in_flight)


def _widened(config: Config, columns: int, rows: int, processors: int) -> Config:
    """Where half of a tile would lie beyond the last row: with wider slices, of which there must be enough for all
    multiprocessors.
    """
    while 2 * rows <= config.tile_rows:
        wider = with_lanes(config, columns, (2 * config.lanes,), config.threads)
        if wider.lanes > _MOST_LANES or wider.slices(columns) < 2 * processors:
            break
        config = wider
    return config


def _filled(config: Config, rows: int) -> Config:
    """Where tiles are few, one below another, and much of the last lies beyond the last row: with fewer groups, if they
    are better filled by more than it costs that less is under way.
    """
    most = config.groups_per_block
    if config.chunks(rows) > _FEW_TILES:
        return config

    def filled(fewer: int) -> float:
        each = replace(config, groups_per_block=most - fewer)
        return rows / (each.chunks(rows) * each.tile_rows) - 0.3 * fewer / most

    return replace(config, groups_per_block=most - max(range(min(3, most)), key=filled))


def fold_of_sums(config: TilesConfig, rows: int, columns: int, vectors: int) -> int:
    """Rows of the array in one of the kernel's, a multiple of `vectors`: so many as are whole cache lines, which took 2
    to 15 % less on an H200 than vectors that share theirs with other slices, unless the rows get few or long; and where
    so narrow a row would leave lanes of a slice without columns, several side by side leave fewer. Whole vectors do
    where arithmetic takes longer than memory.
    """
    if config.bound_by_arithmetic:
        return vectors
    row_bytes = columns * config.itemsize
    lines = LINE // gcd(LINE, row_bytes)
    if lines <= _MOST_FOLDED and lines * row_bytes <= _LONGEST_OF_LINES and rows >= lines * _LEAST_OF_LINES:
        vectors = max(vectors, lines)
    folds = [vectors << doublings for doublings in range(6)]
    folds = [fold for fold in folds if fold == vectors or (fold <= _MOST_FOLDED and rows >= _LEAST_FOLDED * fold)]

    def filled(fold: int) -> float:
        each = _with_lanes_of_sums(config, columns * fold, rows // fold, 32)
        share = columns * fold / (each.slices(columns * fold) * each.most_columns)
        return share - 0.02 * (log2(fold / vectors) + (each.lanes < 2 * lanes_of_line(config)))

    return max(folds, key=filled)


def _with_lanes_of_sums(config: Config, columns: int, rows: int, threads: int) -> Config:
    """Slices of 256 bytes, or of 128 where those waste much. Where rows are no whole cache lines the edges of slices
    cost time: long rows have half as many, others 128 bytes only if 256 waste more. The longest have slices of 1024
    bytes, in tiles of fewer rows, the last of which are fuller: twelve gradients of GELU took 0.983 of the time on
    average on an H200 (0.95 to 1.005). Not where rows are few, which are one tile then, nor in float64, where the
    instructions of GELU take longer than memory.
    """
    lanes, penalty, row_bytes = lanes_of_line(config), 0.02, columns * config.itemsize
    if config.compute != "float64":
        whole_lines = row_bytes % LINE == 0
        penalty = 0.02 if whole_lines else 0.06
        if rows > _FEW_ROWS and config.width * config.itemsize == VECTOR:
            lanes *= 4 if row_bytes >= _LONGEST_ROW else 2 if row_bytes >= _LONG_ROW and not whole_lines else 1
    return with_lanes(config, columns, (2 * lanes, lanes), threads, penalty)


def lanes_of_line(config: TilesConfig) -> int:
    """Threads that have 128 bytes."""
    return max(8, LINE // (config.width * config.itemsize))


def with_lanes(config: Config, columns: int, lanes: tuple[int, ...], threads: int, penalty: float = 0.02) -> Config:
    """The first of these numbers of lanes that wastes little, or fewer for a narrow row; with its groups. penalty: what
    share of the lanes may be without columns rather than that the next number is taken.
    """

    def candidates() -> Iterator[tuple[float, Config]]:
        for order, each in enumerate((*lanes, 4, 2, 1)):
            step = each * config.width
            if step < columns and (step % 8 or each not in lanes):  # slices are of 8 columns or a multiple
                continue
            made = replace(config, lanes=each, whole=columns % step == 0)
            yield columns / (made.slices(columns) * step) - penalty * order, made

    chosen = max(candidates(), key=lambda each: each[0])[1]
    return replace(chosen, groups_per_block=max(1, threads // chosen.group_threads))
