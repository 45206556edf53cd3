"""The constants one compiled GELU kernel is made for, and how they follow from the shape, the types and the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log2

from gradkern.cuda.device_code.columns import ITEMSIZE, ByColumns, ColumnSums, loads_ahead, reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words

__all__ = ["ARGUMENTS", "LINE", "BiasGeluForm", "choose", "fold_of_sums"]

ARGUMENTS = (  # of the kernel: addresses, then numbers (strides in bytes from row to row)
    *("dY", "X", "B", "dX", "dB", "partial", "counter"),
    *("rows", "tail", "dY_stride", "X_stride", "dX_stride"),
    *("columns", "repeat"),  # of the kernel's row, and after how many of them B comes again
    *("slices", "multiplier", "shift"),  # the last two divide by `slices`
)

_CHUNKS = (16, 4, 1)  # few, as each is a kernel
LINE = 128  # bytes of a cache line
_LONG_ROW = 16384  # bytes
_MOST_LANES = 128  # of a slice
_FEW_TILES = 12  # one below another
_MOST_FOLDED, _LEAST_FOLDED = 16, 4096  # rows of the array in one of the kernel's, and the fewest of those


@dataclass(frozen=True, slots=True)
class BiasGeluForm(ByColumns):
    """All that is bound when the kernel is compiled. Everything else is an argument of the launch, also the columns and
    the slices that they are cut into: each has as many columns as a row's lanes have at once, the last slice the rest.

    A row of the kernel may be several of the array: so it has whole vectors where the array's rows have not.
    """

    operator: str
    data: str  # type of dY, X and dX
    parameter: str  # type of B and dB
    outputs: tuple[str, ...]  # in the gradients' words: GELU itself writes dX, and reads no dY
    width: int
    lanes: int = 1
    warp_groups: int = 1
    whole: bool = False  # every slice has all its columns
    unroll: int = 1  # rows of a thread, all on their way at once
    folded: bool = False  # a row of the kernel is several of the array
    fold: int = 1  # so many, where there are sums; an argument of the launch says it to the rest of the kernel
    bias_width: int = 1  # elements of B a thread loads at once
    single_block: bool = False  # a tile has all rows of its columns, so that its sums are the result
    long_rows: bool = False  # row or column numbers, or the bytes from row to row, need 64 bits
    native_bfloat16: bool = True  # compute capability 8.0 or newer
    blocks_per_processor: int = 1
    chunk: int = 8  # last sums: threads side by side, of 4 columns each

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
    def fast(self) -> bool:
        return self.operator.startswith("BiasFast")

    @property
    def forward(self) -> bool:
        """GELU itself, and no gradient."""
        return "Grad" not in self.operator

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.data == "float64" else "float32"

    @property
    def finest(self) -> str:
        """The type of all outputs; float32 where they have two, or are sums of many numbers that are not rounded."""
        return self.data if "dB" not in self.outputs or self.parameter == self.data else "float32"

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.data]

    @property
    def tile_rows(self) -> int:
        return self.warp_groups * self.group_rows * self.unroll

    @property
    def persistent(self) -> bool:
        """Blocks take one tile after the other, and add up the tiles' sums at the end."""
        return "dB" in self.outputs and not self.single_block

    @property
    def column_sums(self) -> ColumnSums:
        """How dB is added up."""
        return ColumnSums(
            **{name: getattr(self, name) for name in ("width", "lanes", "vectors", "warp_groups")},
            certain_vectors=1 if self.whole else 0,
            sums=1,
            compute=self.compute,
            result=self.parameter,
            at=16,  # the number of the next tile lies before
            chunk=self.chunk,
            single_block=self.single_block,
            fold=self.fold,
            counts_progress=self.persistent,
            kept=self.persistent and self.native_bfloat16,  # which tells that the device can be asked
            long=self.long_rows,
            native_bfloat16=self.native_bfloat16,
        )

    @property
    def shared_bytes(self) -> int:
        return self.column_sums.at + self.column_sums.shared_bytes if "dB" in self.outputs else 0

    def slices(self, columns: int) -> int:
        return -(-columns // self.most_columns)

    def chunks(self, rows: int) -> int:
        """Tiles of so many of the kernel's rows, the last short one too, in each slice."""
        return -(-rows // self.tile_rows)

    def sizes(self, columns: int) -> dict[str, int]:
        """The arguments of a launch that say how wide a row of the kernel is and how it is cut."""
        slices = self.slices(columns)
        multiplier, shift = reciprocal(slices)
        return {"columns": columns, "slices": slices, "multiplier": multiplier, "shift": shift}


def choose(form: BiasGeluForm, columns: int, rows: int, processors: int) -> BiasGeluForm:
    """`form` with its threads and unrolling filled in, for so many of the kernel's rows and columns; width, fold and
    types are given.

    As measured on an H200 with a cold L2. dX alone: 128 threads side by side, 4 rows each, fewer where there are not
    two blocks for each multiprocessor, with few enough registers for 1024 threads on one, in float64 384. dB: slices of
    256 bytes, so that a tile has many rows and its partial sums are few, and yet tiles are small, so that all blocks
    end together (of 1024 bytes: 5 % slower; of 64 bytes: 8 %); where rows are no whole cache lines, so that two slices
    share one, of 512 if rows are long (1 to 2 % faster).
    """
    wide = form.compute == "float64"
    if "dB" not in form.outputs:
        chosen = _with_lanes(form, columns, (128, 64, 32, 16, 8), 128)
        blocks = 3 if wide else 6 if form.folded else 8  # biases one by one need more registers
        chosen = replace(chosen, unroll=4, blocks_per_processor=blocks)
        while chosen.unroll > 1 and chosen.chunks(rows) * chosen.slices(columns) < 2 * processors:
            chosen = replace(chosen, unroll=chosen.unroll // 2)
        return chosen
    if rows <= 128 and not form.folded:  # one tile for each slice: no sums over blocks, and no barrier
        lanes = _lanes_of_line(form)
        chosen = _with_lanes(form, columns, (lanes // 2, lanes), 32)
        warp_groups = -(-rows // (2 * chosen.group_rows))
        if warp_groups <= 16:
            return replace(chosen, warp_groups=warp_groups, unroll=2, single_block=True)
    chosen = _with_lanes_of_sums(form, columns, rows, 256 if wide else 320)
    unroll, blocks = 4, 2
    if wide and form.folded and not form.fast:  # again for the registers
        unroll = 3
    chosen = _widened(replace(chosen, unroll=unroll, blocks_per_processor=blocks), columns, rows, processors)
    chosen = _filled(chosen, rows)
    return replace(chosen, chunk=_chunk(chosen, columns // form.fold, rows, blocks * processors))


def _widened(form: BiasGeluForm, columns: int, rows: int, processors: int) -> BiasGeluForm:
    """Where half of a tile would lie beyond the last row: with wider slices, of which there must be enough for all
    multiprocessors.
    """
    while 2 * rows <= form.tile_rows:
        wider = _with_lanes(form, columns, (2 * form.lanes,), form.threads)
        if wider.lanes > _MOST_LANES or wider.slices(columns) < 2 * processors:
            break
        form = wider
    return form


def _filled(form: BiasGeluForm, rows: int) -> BiasGeluForm:
    """Where tiles are few, one below another, and much of the last lies beyond the last row: with fewer groups, if they
    are better filled by more than it costs that less is under way.
    """
    most = form.warp_groups
    if form.chunks(rows) > _FEW_TILES:
        return form

    def filled(fewer: int) -> float:
        each = replace(form, warp_groups=most - fewer)
        return rows / (each.chunks(rows) * each.tile_rows) - 0.3 * fewer / most

    return replace(form, warp_groups=most - max(range(min(3, most)), key=filled))


def _chunk(form: BiasGeluForm, results: int, rows: int, blocks: int) -> int:
    """ColumnSums.chunk for the last sums, which blocks share out by columns: few threads side by side where there are
    few columns and many partial rows, as then more blocks take part.
    """
    partial_rows = form.chunks(rows) * form.fold
    blocks = 1 << round(log2(blocks))  # so that boards of one architecture take the same kernels

    def rounds(chunk: int) -> int:
        """Of loads, one after another, and about two more for the end of every share."""
        shares = -(-results // (4 * chunk))
        summers = form.threads // chunk
        return -(-shares // blocks) * (-(-partial_rows // (summers * loads_ahead(summers))) + 2)

    return min(_CHUNKS, key=rounds)


def fold_of_sums(form: BiasGeluForm, rows: int, columns: int, vectors: int) -> int:
    """Rows of the array in one of the kernel's, a multiple of `vectors`: where so narrow a row would leave lanes of a
    slice without columns, several side by side leave fewer.
    """
    folds = [vectors << doublings for doublings in range(4)]
    folds = [fold for fold in folds if fold == vectors or (fold <= _MOST_FOLDED and rows >= _LEAST_FOLDED * fold)]

    def filled(fold: int) -> float:
        each = _with_lanes_of_sums(form, columns * fold, rows // fold, 32)
        share = columns * fold / (each.slices(columns * fold) * each.most_columns)
        return share - 0.02 * (log2(fold / vectors) + (each.lanes < 2 * _lanes_of_line(form)))

    return max(folds, key=filled)


def _with_lanes_of_sums(form: BiasGeluForm, columns: int, rows: int, threads: int) -> BiasGeluForm:
    """Slices of 256 bytes, or of 128 where those waste much. Where rows are no whole cache lines the edges of slices
    cost time: long rows have half as many, others 128 bytes only if 256 waste more. Not where rows are few, which are
    one tile then, nor in float64, where the instructions take longer than memory.
    """
    lanes, penalty, row_bytes = _lanes_of_line(form), 0.02, columns * form.itemsize
    if form.compute != "float64" and row_bytes % LINE:
        penalty = 0.06
        if row_bytes >= _LONG_ROW and rows > 128 and form.width * form.itemsize == 16:
            lanes *= 2
    return _with_lanes(form, columns, (2 * lanes, lanes), threads, penalty)


def _lanes_of_line(form: BiasGeluForm) -> int:
    """Threads that have 128 bytes."""
    return max(8, LINE // (form.width * form.itemsize))


def _with_lanes(
    form: BiasGeluForm, columns: int, lanes: tuple[int, ...], threads: int, penalty: float = 0.02
) -> BiasGeluForm:
    """The first of these numbers of lanes that wastes little, or fewer for a narrow row; with its groups. penalty: what
    share of the lanes may be without columns rather than that the next number is taken.
    """

    def candidates() -> Iterator[tuple[float, BiasGeluForm]]:
        for order, each in enumerate((*lanes, 4, 2, 1)):
            step = each * form.width
            if step < columns and (step % 8 or each not in lanes):  # slices are of 8 columns or a multiple
                continue
            made = replace(form, lanes=each, whole=columns % step == 0)
            yield columns / (made.slices(columns) * step) - penalty * order, made

    chosen = max(candidates(), key=lambda each: each[0])[1]
    return replace(chosen, warp_groups=max(1, threads // chosen.group_threads))
