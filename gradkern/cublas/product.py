"""A matrix product on arrays without copies, from strides to the arguments of cuBLAS.

cuBLAS describes matrices by columns: elements of a column are adjacent, columns a leading dimension apart. A
matrix of ours has two strides, one of them 1; these determine whether cuBLAS gets it or its transpose.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product as combinations

from gradkern.call import Refusal
from gradkern.cublas.library import Handle

_CUDA_TYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType
_ITEMSIZE = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_NORMAL, _TRANSPOSED = 0, 1  # cublasOperation_t
_DEFAULT_ALGORITHM = -1  # cublasGemmAlgo_t
_SCALARS = {"float32": (ctypes.c_float * 2)(0, 1), "float64": (ctypes.c_double * 2)(0, 1)}


@dataclass(frozen=True, slots=True)
class Matrix:
    """Element (i, j) is `start` bytes and i*row + j*column elements after the address of operand `operand`."""

    operand: int
    start: int
    row: int
    column: int

    @property
    def transposed(self) -> Matrix:
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Batch:
    """`count` products; each matrix of the next one is so many elements after that of the previous one."""

    count: int
    left: int
    right: int
    result: int


@dataclass(frozen=True, slots=True)
class Product:
    """result[i, j] = sum over k of left[i, k] * right[k, j], added to what is there if `accumulate`; all of a batch.

    dtype is that of left and right. Sums are in float32, float64 for float64. tf32 lets float32 be multiplied in TF32.
    """

    rows: int
    columns: int
    inner: int
    left: Matrix
    right: Matrix
    result: Matrix
    dtype: str
    result_dtype: str
    batches: tuple[Batch, ...] = ()
    accumulate: bool = False
    tf32: bool = False


class Gemm:
    """One call of cuBLAS with everything but the addresses and the handle kept ready."""

    __slots__ = ("_arguments", "_batched", "_places")

    def __init__(self, what: Product, batch: Batch | None) -> None:
        # cuBLAS's A, B, C, of m x k, k x n and m x n: ours where the result's columns are adjacent elements, ...
        m, n, left, right, result = what.rows, what.columns, what.left, what.right, what.result
        steps = (batch.left, batch.right, batch.result) if batch else (0, 0, 0)
        if not _by_columns(result, m, n):  # ... else transposed: C^T = B^T A^T
            m, n, left, right, result = n, m, right.transposed, left.transposed, result.transposed
            steps = steps[1], steps[0], steps[2]
            if not _by_columns(result, m, n):
                raise Refusal("its result is not a matrix with adjacent elements")
        operation_a, leading_a = _seen(left, m, what.inner)
        operation_b, leading_b = _seen(right, what.inner, n)
        scale = "float64" if what.dtype == "float64" else "float32"
        zero = ctypes.addressof(_SCALARS[scale])
        one = zero + _ITEMSIZE[scale]
        kind, result_kind = _CUDA_TYPE[what.dtype], _CUDA_TYPE[what.result_dtype]
        self._batched = batch is not None
        self._places = ((left.operand, left.start), (right.operand, right.start), (result.operand, result.start))
        step_a, step_b, step_c = ((step,) for step in steps) if batch else ((), (), ())
        count = (batch.count,) if batch else ()
        self._arguments = (
            (operation_a, operation_b, m, n, what.inner, one),
            (kind, leading_a, *step_a),
            (kind, leading_b, *step_b, one if what.accumulate else zero),
            (result_kind, _leading(result, m, n), *step_c, *count, _compute_type(what), _DEFAULT_ALGORITHM),
        )

    def __call__(self, handle: Handle, addresses: tuple[int, ...]) -> None:
        """Enqueue on the handle's stream; addresses are those of the operands."""
        cublas = handle.cublas
        call = cublas.gemm_strided_batched_ex_64 if self._batched else cublas.gemm_ex_64
        (a, at_a), (b, at_b), (c, at_c) = self._places
        first, then, between, last = self._arguments
        a, b, c = addresses[a] + at_a, addresses[b] + at_b, addresses[c] + at_c
        call(handle.address, *first, a, *then, b, *between, c, *last)


def gemms(what: Product) -> Iterator[Gemm]:
    """The calls that make up the product: cuBLAS takes one batch at one distance, what is more is a loop."""
    if not min(what.rows, what.columns, what.inner):
        raise Refusal("there is nothing to multiply")
    batches = _merged([each for each in what.batches if each.count != 1])
    inside = max(batches, key=lambda each: each.count, default=None)
    around = [each for each in batches if each is not inside]
    item, result_item = _ITEMSIZE[what.dtype], _ITEMSIZE[what.result_dtype]
    for places in combinations(*(range(each.count) for each in around)):
        left = sum(place * each.left for place, each in zip(places, around, strict=True)) * item
        right = sum(place * each.right for place, each in zip(places, around, strict=True)) * item
        result = sum(place * each.result for place, each in zip(places, around, strict=True)) * result_item
        yield Gemm(
            replace(
                what,
                left=replace(what.left, start=what.left.start + left),
                right=replace(what.right, start=what.right.start + right),
                result=replace(what.result, start=what.result.start + result),
            ),
            inside,
        )


def _merged(batches: list[Batch]) -> list[Batch]:
    """Two batches as one where the outer goes on at the distance of the inner, in all three matrices."""
    for outer, inner in combinations(batches, batches):
        steps = zip((outer.left, outer.right, outer.result), (inner.left, inner.right, inner.result), strict=True)
        if outer is not inner and all(far == inner.count * near for far, near in steps):
            rest = [each for each in batches if each is not outer and each is not inner]
            return _merged([*rest, replace(inner, count=outer.count * inner.count)])
    return batches


def _by_columns(matrix: Matrix, rows: int, columns: int) -> bool:
    """Whether cuBLAS sees the matrix as it is: elements of a column adjacent, columns that do not overlap."""
    return (rows == 1 or matrix.row == 1) and (columns == 1 or matrix.column >= rows)


def _seen(matrix: Matrix, rows: int, columns: int) -> tuple[int, int]:
    """The operation that makes what cuBLAS sees into the matrix, and its leading dimension."""
    if _by_columns(matrix, rows, columns):
        return _NORMAL, _leading(matrix, rows, columns)
    if _by_columns(matrix.transposed, columns, rows):
        return _TRANSPOSED, _leading(matrix.transposed, columns, rows)
    raise Refusal("its operands are no matrices with adjacent elements")


def _leading(matrix: Matrix, rows: int, columns: int) -> int:
    return max(rows, 1) if columns == 1 else matrix.column


def _compute_type(what: Product) -> int:
    """cublasComputeType_t: 32F is IEEE float32 for float32 operands, and exact products for 16-bit ones."""
    if what.dtype == "float64":
        return 70  # 64F
    return 77 if what.tf32 and what.dtype == "float32" else 68  # 32F_FAST_TF32, 32F
