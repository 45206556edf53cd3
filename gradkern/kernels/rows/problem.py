"""A call as a problem of the row block: the types that a kernel is compiled for, the sizes and strides of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gradkern.call import Refusal, Tensor

MOST_INPUTS, MOST_OUTPUTS, MOST_PARAMETERS, MOST_SCALARS, MOST_RESULTS = 3, 2, 3, 5, 2

ARGUMENTS = (  # of the kernels: addresses, then numbers; strides are in bytes
    *(f"input_{n}" for n in range(MOST_INPUTS)),
    *(f"output_{n}" for n in range(MOST_OUTPUTS)),
    *(f"parameter_{n}" for n in range(MOST_PARAMETERS)),
    *(f"scalar_{n}" for n in range(MOST_SCALARS)),
    *(f"result_{n}" for n in range(MOST_RESULTS)),
    *("rows", "columns", "inner", "slices"),
    *(f"{kind}_{n}_stride" for kind, most in (("input", MOST_INPUTS), ("output", MOST_OUTPUTS)) for n in range(most)),
    *(f"{kind}_{n}_step" for kind, most in (("input", MOST_INPUTS), ("output", MOST_OUTPUTS)) for n in range(most)),
)

VECTOR = 16  # bytes of one access, at most
_LEAST_SHIFTED = 4  # whole vectors; of shorter rows the elements at both ends, stored one by one, are too many


@dataclass(frozen=True, slots=True)
class RowsTypes:
    """What an operator's kernel is compiled for, besides its config.

    operator    the contract's name, for the operator's own builder and for the kernel's name
    inputs      types of the arrays of rows that are read, at most three
    outputs     types of the arrays of rows that are written, at most two
    parameters  types of the arrays with one number for each column, at most three
    scalars     types of the arrays with one number for each row that are read, at most two; at most five where the
                operator's own function reads them: then of any type and size, the last perhaps a number itself
    results     types of the arrays with one number for each row that are written, at most two
    whole_parameters  vectors of the parameters can be read where the rows have whole vectors
    reductions  over each row, at most two
    pairs       a reduction has two values; else the second is nothing
    registers   that a thread needs with 128 bytes of inputs to keep, as the assembler reports them

    All types are float64, or none is.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    whole_parameters: bool = False
    reductions: int = 1
    pairs: bool = False
    registers: int = 64
    native_bfloat16: bool = True  # compute capability 8.0 and newer convert to bfloat16 themselves

    @property
    def compute(self) -> str:
        """The type of arithmetic."""
        return "float64" if self.inputs[0] == "float64" else "float32"


@dataclass(frozen=True, slots=True)
class RowsProblem:
    """Rows of `columns` elements. Without `inner` the elements of a row are adjacent in memory, and rows have strides.
    With it the rows are columns of matrices in memory: `rows` matrices of columns x inner elements, adjacent along
    `inner`.

    strides  bytes from row to row of the inputs, then of the outputs; from matrix to matrix where there is `inner`
    steps    bytes from element to element of a row; the element sizes without `inner`
    width    elements of a vector; all arrays can be read and written in such vectors
    shifted  without `inner`: vectors begin at multiples of their size, and rows anywhere between them
    """

    types: RowsTypes
    rows: int
    columns: int
    inner: int  # 0: there is none
    strides: tuple[int, ...]
    steps: tuple[int, ...]
    width: int
    shifted: bool

    @property
    def vectors(self) -> int:
        """Of a row, at most."""
        return -(-self.columns // self.width) + self.shifted


class RowsAxis(NamedTuple):
    """Of several arrays of one shape."""

    size: int
    strides: tuple[int, ...]  # of each tensor


def problem_of(types: RowsTypes, tensors: Mapping[str, Tensor], first: int, last: int) -> RowsProblem:
    """The problem of rows that have the axes from `first` to before `last` of these inputs and outputs.

    Raises Refusal, with the array's name, where strides fit neither of the two layouts of RowsProblem.
    """
    arrays = list(tensors.values())
    axes = [RowsAxis(size, tuple(each.strides[n] for each in arrays)) for n, size in enumerate(arrays[0].shape)]
    names = ", ".join(tensors)
    row = merged([axis for n, axis in enumerate(axes) if first <= n < last and axis.size > 1])
    others = [axis for n, axis in enumerate(axes) if not first <= n < last and axis.size > 1]
    if not (types.scalars or types.results):  # else rows are in the order of their numbers, whatever the memory's
        others.sort(key=lambda axis: -axis.strides[0])
    others = merged(others)
    items = tuple(each.dtype.itemsize for each in arrays)
    if len(row) > 1 or any(stride < 0 for axis in (*row, *others) for stride in axis.strides):
        raise Refusal(f"{names}: the elements of a row are not at one positive distance; pass contiguous copies")
    columns, steps = row[0] if row else RowsAxis(1, items)
    inner = 0
    if steps != items:
        if others and others[-1].strides == items:
            inner = others.pop().size
        elif not others:
            inner = 1
        else:
            raise Refusal(f"{names}: no axis has its elements side by side in memory; pass contiguous copies")
    if len(others) > 1:
        raise Refusal(f"{names}: the rows are not at one distance in memory; pass contiguous copies")
    rows, strides = others[0] if others else RowsAxis(1, tuple(columns * step for step in steps))
    width, shifted = _vectors(arrays, columns, inner, rows, strides, steps)
    return RowsProblem(types, rows, columns, inner, strides, steps, width, shifted)


def merged(axes: Sequence[RowsAxis]) -> list[RowsAxis]:
    """With neighbours that are one axis in all arrays as one."""
    merged: list[RowsAxis] = []
    for axis in axes:
        if merged and merged[-1].strides == tuple(axis.size * stride for stride in axis.strides):
            merged[-1] = RowsAxis(merged[-1].size * axis.size, axis.strides)
        else:
            merged.append(axis)
    return merged


def _vectors(
    arrays: Sequence[Tensor],
    columns: int,
    inner: int,
    rows: int,
    strides: tuple[int, ...],
    steps: tuple[int, ...],
) -> tuple[int, bool]:
    """RowsProblem.width and shifted."""
    items = [each.dtype.itemsize for each in arrays]
    most = VECTOR // max(items)

    def whole(width: int) -> bool:
        """Every row, or every line of `inner` elements, is so many elements or a multiple, and begins with a vector."""
        along = [strides] * (rows > 1) + [steps] * (inner > 0)
        return (inner or columns) % width == 0 and all(
            each.alignment % (width * item) == 0 and all(distances[n] % (width * item) == 0 for distances in along)
            for n, (each, item) in enumerate(zip(arrays, items, strict=True))
        )

    width = next(each for each in _halves(most) if each == 1 or whole(each))
    if width == most or inner or len(set(items)) > 1 or columns < _LEAST_SHIFTED * most:
        return width, False
    alike = next(
        (
            each
            for each in _halves(most)
            if all(array.alignment % (each * items[0]) == 0 for array in arrays)
            and (rows == 1 or len({stride % (each * items[0]) for stride in strides}) == 1)
        ),
        1,
    )
    return (alike, True) if alike > width else (width, False)


def _halves(most: int) -> list[int]:
    return [most >> n for n in range(most.bit_length())]
