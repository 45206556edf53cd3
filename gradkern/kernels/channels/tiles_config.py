"""Compile-time constants of the tiles kernel, and their choice for a shape, types and a device.

Nothing here imports Numba.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, hypot, log2
from typing import Self, TypeVar

from gradkern.cuda.device_code.columns import ByColumns, ByElementType, ColumnSums, last_step, reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words

ARGUMENTS = (  # of the kernel: addresses, then numbers (strides in bytes from row to row)
    *("D", "X", "first_parameter", "dX", "first_sum", "partial", "counter"),
    *("rows", "tail", "D_stride", "X_stride", "dX_stride"),
    *("columns", "repeat"),  # of the kernel's row, and the period of the parameters
    *("slices", "multiplier", "shift"),  # the last two divide by `slices`
    *("large", "times"),  # the first `large` tiles of each slice have `times` as many rows as the others
    *("second_parameter", "third_parameter", "second_sum"),  # addresses, if there are such
)

BLOCKS = 2  # of a multiprocessor, with sums
_LAST_STEPS = (16, 6), (4, 4), (1, 4)  # chunk and rows_in_flight; few choices, as each is a kernel
LINE = 128  # bytes of a cache line
VECTOR = 16  # bytes, at most
_LONG_ROW, _LONGEST_ROW = 16384, 65536  # bytes; from the latter on slices have 1024 bytes
_MOST_LANES = 128  # of a slice
_FEW_TILES = 12  # of a slice
_TIMES, _TIMES_SHORT = 2, 4  # rows of a slice's first tiles over those of others; and for rows of at most a line
_SMALL = 2  # small tiles of each block, in units of a large tile
# One tile for each slice: up to so many rows in any case, but of short vectors not more than so many in all
_FEW_ROWS, _FEW_VECTORS = 128, 4 << 20
_MOST_GROUPS, _BATCH_ROWS = 16, 4  # its warps; and, with more rows, rows of a thread at a time
# The cost models of one tile and of many tiles, in microseconds and bytes, fitted to times on an H200 (cold L2) of 27
# sizes of 0.2 to 60 MB in both operators; their root mean square error is 7 %. The choice was 2 % slower than the best
# on average, 14 % at worst; many tiles alone had been 18 % slower.
_LAUNCH, _BATCH = 4.5, 1.15  # of a launch; of the rows that a block has at a time, without arithmetic
_BANDWIDTH, _SHORT_SLICES = 3.3e6, 13  # overhead of a row's part, in bytes
_TILES, _TILED = 6.4, 3.35e6  # of many tiles
_MOST_FOLDED, _LEAST_FOLDED = 64, 4096  # rows of the array in a kernel's row, at most; rows of the kernel, at least
_LEAST_OF_LINES, _LONGEST_OF_LINES = 768, 49152  # for kernel rows of whole lines: rows, at least, and bytes, at most


@dataclass(frozen=True, slots=True)
class TilesConfig(ByColumns, ByElementType):
    """Compile-time constants. The numbers of columns and of slices of columns are launch arguments. A slice has as many
    columns as the lanes of a row process at a time; the last slice has the rest.

    A row of the kernel may be several rows of the array (folded), so that it is a whole number of vectors.
    """

    operator: str
    data: str  # type of D, X and dX
    parameter: str  # type of the parameters and of the results of the sums
    outputs: tuple[str, ...]  # dX; the others are sums
    width: int
    lanes: int = 1
    groups_per_block: int = 1
    whole: bool = False  # no slice is partial
    unroll: int = 1  # rows that a thread loads at a time
    folded: bool = False  # a row of the kernel is several rows of the array
    fold: int = 1  # how many, with sums; the rest of the kernel has it as a launch argument
    parameters_at_once: int = 1  # columns whose parameters a thread loads at a time
    single_block: bool = False  # one tile has all rows of its columns: its sums are the result
    long_rows: bool = False  # row or column numbers, or the bytes from row to row, need 64 bits
    native_bfloat16: bool = True  # compute capability 8.0 or newer
    blocks_per_processor: int = 1
    chunk: int = 8  # and `rows_in_flight`: of the last step of the sums, as in ColumnSums
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
        """Microseconds of arithmetic for the rows of a block at a time, if all rows are one tile: see _one_tile."""
        return 0

    @property
    def bound_by_arithmetic(self) -> bool:
        """It is bound by instructions: a folded row needs more of them and allows fewer threads. That costs more than
        aligned lines gain.
        """
        return False

    def with_width(self, width: int) -> Self:
        """The config with narrower vectors, of a power of two elements."""
        return replace(self, width=width, parameters_at_once=min(width, self.parameters_at_once))

    @property
    def tile_rows(self) -> int:
        return self.groups_per_block * self.group_rows * self.unroll

    @property
    def sums(self) -> int:
        """Number of sums: 0, 1 or 2."""
        return len([name for name in self.outputs if name != "dX"])

    @property
    def persistent(self) -> bool:
        """Blocks process tiles in turn and add the tiles' sums at the end."""
        return self.sums > 0 and not self.single_block

    @property
    def column_sums(self) -> ColumnSums:
        """The reduction of the sums."""
        return ColumnSums(
            **{name: getattr(self, name) for name in ("width", "lanes", "vectors", "groups_per_block")},
            unpredicated_vectors=1 if self.whole else 0,
            sums=max(1, self.sums),
            compute=self.compute,
            result=self.parameter,
            at=16,  # after the number of the next tile
            chunk=self.chunk,
            rows_in_flight=self.rows_in_flight,
            single_block=self.single_block,
            fold=self.fold,
            counts_progress=self.persistent,
            evict_last=self.persistent and self.native_bfloat16,  # the hint of compute capability 8.0 and newer
            long=self.long_rows,
            native_bfloat16=self.native_bfloat16,
        )

    @property
    def shared_bytes(self) -> int:
        return self.column_sums.at + self.column_sums.shared_bytes if self.sums else 0

    def slices(self, columns: int) -> int:
        return -(-columns // self.most_columns)

    def chunks(self, rows: int) -> int:
        """Number of equal tiles of each slice for `rows` rows of the kernel; the last may be short."""
        return -(-rows // self.tile_rows)

    def heights(self, columns: int, rows: int, blocks: int) -> tuple[int, int, int]:
        """For `blocks` persistent blocks: the number of tiles of each slice, the number of large tiles among them (the
        first), and the ratio of their rows to those of the others.

        Large tiles reduce the overhead, and the small ones at the end let blocks finish together. Even larger tiles
        would spread accesses over too much memory, except where rows are short.
        """
        if self.single_block:
            return 1, 1, self.chunks(rows)
        times = _TIMES_SHORT if columns // self.fold * self.data_itemsize <= LINE else _TIMES
        small = -(-_SMALL * times * blocks // self.slices(columns))
        large = max(0, self.chunks(rows) - small) // times if self.persistent else 0
        return self.chunks(rows) - large * (times - 1), large, times

    def sizes(self, columns: int) -> dict[str, int]:
        """The launch arguments that depend on the width of a kernel's row and its slices."""
        slices = self.slices(columns)
        multiplier, shift = reciprocal(slices)
        return {"columns": columns, "slices": slices, "multiplier": multiplier, "shift": shift}


Config = TypeVar("Config", bound=TilesConfig)


def _one_tile(config: Config, columns: int, rows: int, processors: int) -> Config | None:
    """`config`, not folded, with all rows of a slice in one tile, where that is faster than many: no sums over blocks
    and no grid-wide barrier.
    """
    if rows <= _FEW_ROWS:
        if config.width * config.data_itemsize < VECTOR and rows * columns // config.width > _FEW_VECTORS:
            return None
        lanes = _lanes_of_line(config)
        chosen = with_lanes(config, columns, (lanes // 2, lanes), 32)
        unrolls = (each for each in (2, 4, 8) if -(-rows // (each * chosen.group_rows)) <= _MOST_GROUPS)
        return _of_one_tile(chosen, rows, next(unrolls))
    slices = [lanes for lanes in (4, 8, 16) if lanes * config.width % 8 == 0]
    made = (with_lanes(config, columns, (lanes,), 32) for lanes in slices)
    time, best = min(
        ((_one_tile_time(each, columns, rows, processors), each) for each in made), key=lambda each: each[0]
    )
    many = _TILES + 3 * rows * columns * config.data_itemsize / _TILED
    return _of_one_tile(best, rows, _BATCH_ROWS) if time < many else None


def with_fold(config: Config, columns: int, rows: int, processors: int) -> tuple[Config, int]:
    """For a config with sums and a dense array of `rows` and `columns`: the config, and the number of the array's rows
    in a row of the kernel. If that is one, vectors may be narrower.
    """
    fold = config.width // gcd(columns, config.width)
    unfolded = config.with_width(config.width // fold)
    if rows < fold or _one_tile(unfolded, columns, rows, processors):
        return unfolded, 1
    return config, fold_of_sums(config, rows, columns, fold)


def _of_one_tile(config: Config, rows: int, unroll: int) -> Config:
    groups = min(_MOST_GROUPS, -(-rows // (unroll * config.group_rows)))
    return replace(config, groups_per_block=groups, unroll=unroll, single_block=True)


def _one_tile_time(config: TilesConfig, columns: int, rows: int, processors: int) -> float:
    """Predicted microseconds."""
    vector = config.width * config.data_itemsize
    rounds = -(-config.slices(columns) // processors)
    batches = max(0.5, rows / (_MOST_GROUPS * config.group_rows * _BATCH_ROWS))
    alone = rounds * batches * hypot(_BATCH, config.batch_time) * (vector / VECTOR) ** 0.3
    moved = 3 * rows * columns * config.data_itemsize
    together = moved / _BANDWIDTH * (1 + _SHORT_SLICES / (config.lanes * vector))
    return _LAUNCH + (alone**4 + together**4) ** (1 / 4)


def tiles_of_sums(config: Config, columns: int, rows: int, processors: int, threads: int, unroll: int) -> Config:
    """`config` (with sums) with its lanes and groups, for the kernel's `rows` and `columns`; width, fold and types are
    given. threads: of a block, at most; unroll: rows of a thread.

    From measurements on an H200 with a cold L2: slices of 256 bytes. Tiles then have many rows and few partial sums,
    but are small enough that blocks finish together (1024 bytes: 5 % slower; 64 bytes: 8 %). Where rows are not a
    multiple of a cache line, two slices share lines: slices of 512 bytes if rows are long (1 to 2 % faster).
    """
    if not config.folded and (found := _one_tile(config, columns, rows, processors)):
        return found
    chosen = replace(_with_lanes_of_sums(config, columns, rows, threads), unroll=unroll, blocks_per_processor=BLOCKS)
    chosen = _filled(_widened(chosen, columns, rows, processors), rows)
    blocks = BLOCKS * processors
    results, partial_rows = chosen.sums * columns // chosen.fold, chosen.heights(columns, rows, blocks)[0] * chosen.fold
    chunk, rows_in_flight = last_step(results, partial_rows, chosen.threads, blocks, _LAST_STEPS)
    return replace(chosen, chunk=chunk, rows_in_flight=rows_in_flight)


def _widened(config: Config, columns: int, rows: int, processors: int) -> Config:
    """Wider slices, if half of a tile would be beyond the last row and every multiprocessor still has a slice."""
    while 2 * rows <= config.tile_rows:
        wider = with_lanes(config, columns, (2 * config.lanes,), config.threads)
        if wider.lanes > _MOST_LANES or wider.slices(columns) < 2 * processors:
            break
        config = wider
    return config


def _filled(config: Config, rows: int) -> Config:
    """Fewer groups, where a slice has few tiles and much of the last is beyond the last row, if better filled tiles
    gain more than fewer loads in flight cost.
    """
    most = config.groups_per_block
    if config.chunks(rows) > _FEW_TILES:
        return config

    def filled(fewer: int) -> float:
        each = replace(config, groups_per_block=most - fewer)
        return rows / (each.chunks(rows) * each.tile_rows) - 0.3 * fewer / most

    return replace(config, groups_per_block=most - max(range(min(3, most)), key=filled))


def fold_of_sums(config: TilesConfig, rows: int, columns: int, vectors: int) -> int:
    """Rows of the array in a row of the kernel, a multiple of `vectors`. Kernel rows of whole cache lines took 2 to 15
    % less time on an H200 than those whose slices share lines, unless rows get few or long. Narrow rows are combined
    until few lanes of a slice are idle. Where arithmetic takes longer than memory, whole vectors are enough.
    """
    if config.bound_by_arithmetic:
        return vectors
    row_bytes = columns * config.data_itemsize
    lines = LINE // gcd(LINE, row_bytes)
    if lines <= _MOST_FOLDED and lines * row_bytes <= _LONGEST_OF_LINES and rows >= lines * _LEAST_OF_LINES:
        vectors = max(vectors, lines)
    folds = [vectors << doublings for doublings in range(6)]
    folds = [fold for fold in folds if fold == vectors or (fold <= _MOST_FOLDED and rows >= _LEAST_FOLDED * fold)]

    def filled(fold: int) -> float:
        each = _with_lanes_of_sums(config, columns * fold, rows // fold, 32)
        share = columns * fold / (each.slices(columns * fold) * each.most_columns)
        return share - 0.02 * (log2(fold / vectors) + (each.lanes < 2 * _lanes_of_line(config)))

    return max(folds, key=filled)


def _with_lanes_of_sums(config: Config, columns: int, rows: int, threads: int) -> Config:
    """Slices of 256 bytes, or of 128 where 256 leave many lanes idle. Where rows are not a multiple of cache lines, the
    edges of slices cost time: long rows have half as many slices, others have 128 bytes only if 256 leave more lanes
    idle. The longest rows have slices of 1024 bytes, in tiles of fewer rows that fill the last tile better: twelve
    gradients of GELU took 0.983 of the time on average on an H200 (0.95 to 1.005). Not for few rows: these are one
    tile, nor in float64, where the instructions of GELU take longer than memory.
    """
    lanes, penalty, row_bytes = _lanes_of_line(config), 0.02, columns * config.data_itemsize
    if config.compute != "float64":
        whole_lines = row_bytes % LINE == 0
        penalty = 0.02 if whole_lines else 0.06
        if rows > _FEW_ROWS and config.width * config.data_itemsize == VECTOR:
            lanes *= 4 if row_bytes >= _LONGEST_ROW else 2 if row_bytes >= _LONG_ROW and not whole_lines else 1
    return with_lanes(config, columns, (2 * lanes, lanes), threads, penalty)


def _lanes_of_line(config: TilesConfig) -> int:
    """Lanes that cover 128 bytes."""
    return max(8, LINE // (config.width * config.data_itemsize))


def with_lanes(config: Config, columns: int, lanes: tuple[int, ...], threads: int, penalty: float = 0.02) -> Config:
    """The config with the first of these numbers of lanes that leaves few idle, or fewer for a narrow row, and its
    groups. penalty: the share of idle lanes that is accepted before the next number is tried.
    """

    def candidates() -> Iterator[tuple[float, Config]]:
        for order, each in enumerate((*lanes, 4, 2, 1)):
            step = each * config.width
            if step < columns and (step % 8 or each not in lanes):  # slices are multiples of 8 columns
                continue
            made = replace(config, lanes=each, whole=columns % step == 0)
            yield columns / (made.slices(columns) * step) - penalty * order, made

    chosen = max(candidates(), key=lambda each: each[0])[1]
    return replace(chosen, groups_per_block=max(1, threads // chosen.group_threads))
