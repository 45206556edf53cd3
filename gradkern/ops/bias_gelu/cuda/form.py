"""The constants one compiled GELU kernel is made for, and how they follow from the shape, the types and the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gradkern.cuda.device_code.columns import ITEMSIZE, ByColumns, ColumnSums, chunk_of
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words

__all__ = ["ARGUMENTS", "Form", "choose"]

ARGUMENTS = (  # of the kernel: addresses, then numbers (strides in bytes from row to row)
    *("dY", "X", "B", "dX", "dB", "partial", "counter"),
    *("rows", "tail", "dY_stride", "X_stride", "dX_stride"),
)


@dataclass(frozen=True, slots=True)
class Form(ByColumns):
    """All that is bound when the kernel is compiled. Everything else is an argument of the launch.

    A row of the kernel is `fold` rows of the array: so it has whole vectors where the array's rows have not.
    """

    operator: str
    data: str  # type of dY, X and dX
    parameter: str  # type of B and dB
    columns: int
    outputs: tuple[str, ...]
    width: int
    lanes: int = 1
    teams: int = 1
    slices: int = 1
    unroll: int = 1  # rows of a thread, all on their way at once
    fold: int = 1
    bias_width: int = 1  # elements of B a thread loads at once
    alone: bool = False  # a task has all rows of its columns, so that its sums are the result
    packed: bool = True  # rows lie end to end
    long_rows: bool = False  # row numbers need 64 bits
    native: bool = True  # compute capability 8.0 or newer
    blocks_per_processor: int = 1
    chunk: int = 8  # last sums: threads side by side, of 4 columns each

    @property
    def name(self) -> str:
        """In a profiler."""
        outputs = "_".join(self.outputs)
        shape = f"{self.slices}x{self.lanes}x{self.unroll}x{self.width}"
        return kernel_name(operator_words(self.operator), outputs, self.data, self.columns, shape)

    @property
    def vectors(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1

    @property
    def fast(self) -> bool:
        return self.operator == "BiasFastGeluGrad_dX"

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.data == "float64" else "float32"

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.data]

    @property
    def task_rows(self) -> int:
        return self.teams * self.rows_at_once * self.unroll

    @property
    def stays(self) -> bool:
        """Blocks take one task after the other, and add up the tasks' sums at the end."""
        return "dB" in self.outputs and not self.alone

    @property
    def column_sums(self) -> ColumnSums:
        """How dB is added up."""
        return ColumnSums(
            **{name: getattr(self, name) for name in ("columns", "width", "lanes", "vectors", "teams", "slices")},
            sums=1,
            compute=self.compute,
            result=self.parameter,
            at=16,  # the number of the next task lies before
            chunk=self.chunk,
            alone=self.alone,
            fold=self.fold,
            paced=self.stays,
            native_bfloat16=self.native,
        )

    @property
    def shared_bytes(self) -> int:
        return self.column_sums.at + self.column_sums.shared_bytes if "dB" in self.outputs else 0

    def tasks(self, rows: int) -> int:
        """Tasks of so many of the kernel's rows."""
        return -(-rows // self.task_rows) * self.slices


def choose(form: Form, rows: int, processors: int) -> Form:
    """`form` with its threads, slices and unrolling filled in; width, fold and types are given.

    As measured on an H200 with a cold L2. dX alone: 128 threads side by side, 4 rows each, with few enough registers
    for 1024 threads on a multiprocessor. dB: slices of 256 bytes, so that a task has many rows and its partial sums
    are few, and yet tasks are small, so that all blocks end together (of 1024 bytes: 5 % slower; of 64 bytes: 8 %).
    """
    wide = form.compute == "float64"
    if "dB" not in form.outputs:
        made = _laid_out(form, (128, 64, 32, 16, 8), 128)
        # biases one by one, and strides, need more registers
        blocks = 4 if wide else 8 if form.fold == 1 and form.packed else 6
        return replace(made, unroll=2 if wide else 4, blocks_per_processor=blocks)
    lanes = max(8, 128 // (form.width * form.itemsize))
    if rows <= 128 and form.fold == 1:  # one task for each slice: no sums over blocks, and no barrier
        made = _laid_out(form, (lanes // 2, lanes), 32)
        teams = -(-rows // (2 * made.rows_at_once))
        if teams <= 16:
            return replace(made, teams=teams, unroll=2, alone=True)
    made = _laid_out(form, (2 * lanes, lanes), 256 if wide else 320)
    made = replace(made, unroll=2 if wide else 4, blocks_per_processor=3 if wide else 2)
    return replace(made, chunk=chunk_of(1, made.columns, made.threads, made.blocks_per_processor * processors))


def _laid_out(form: Form, lanes: tuple[int, ...], threads: int) -> Form:
    """The first of these numbers of lanes that wastes little, or fewer for a narrow row; with its slices and teams."""

    def candidates() -> Iterator[tuple[float, Form]]:
        for order, each in enumerate((*lanes, 4, 2, 1)):
            step = each * form.width
            if step < form.columns and (step % 8 or each not in lanes):  # slices are of 8 columns or a multiple
                continue
            slices = -(-form.columns // step)
            yield form.columns / (slices * step) - 0.02 * order, replace(form, lanes=each, slices=slices)

    made = max(candidates(), key=lambda each: each[0])[1]
    return replace(made, teams=max(1, threads // made.team_threads))
