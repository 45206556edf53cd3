"""Shared by both kernels of the row block: vectors of several arrays, and an operator's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.problem import RowsTypes


@device_function
def _sums(first: Any, second: Any, more: Any, other: Any) -> Any:
    return first + more, second + other


@device_function
def _nothing(totals: Any, r: Any, columns: Any) -> None:
    pass


@device_function
def not_rescaled(first: Any, second: Any, part: Any, total: Any) -> Any:
    """In the place of a Reduction's `rescale` that there is not."""
    return first, second


@device_function
def _never(r: Any, column: int) -> Any:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """Two values of each row. Where RowsTypes.pairs is False the second is not combined and means nothing.

    terms     (x, p, r, totals, column) -> the two values of one element; see RowArithmetic for the arguments
    combine   (first, second, more, other) -> the two values of two parts of a row: their sums, unless given
    identity  the values of no elements: `combine` with them returns the other part
    plain     `terms` of an element that is not apart, where the operator has such elements; see RowArithmetic.apart
    rescale   of the second reduction: (first, second, part, total) -> the two values as with the first reduction's
              first value of the row, `total`, of those that were computed with its value of a part, `part`. With it
              the parts of a row wait for each other once, not twice
    single    the second value means nothing, whatever RowsTypes.pairs says
    """

    terms: Callable[..., Any]
    combine: Callable[..., Any] = _sums
    identity: tuple[float, float] = (0.0, 0.0)
    plain: Callable[..., Any] | None = None
    rescale: Callable[..., Any] | None = None
    single: bool = False


@device_function
def _no_terms(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
    return x[0], x[0]


@device_function
def _no_results(values: Any, totals: Any, r: Any, columns: Any) -> None:
    pass


NO_REDUCTION, NO_RESULTS = Reduction(_no_terms), _no_results
"""In the place of what an operator does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class RowArithmetic:
    """An operator's device functions.

    reductions  at most two; the terms of the second know the totals of the first
    map         (y, x, p, r, totals, column): sets y, one element of every output
    finish      (totals, r, columns), once a row, when all totals are known: may change them, and r. The row's results
                are the first of them
    scalars     (r, s0, s1, s2, s3, s4, row, columns), once a row: sets r, `values` numbers, from the
                addresses of the scalars. None: r has the scalars themselves
    apart       (r, column) -> whether the vector that begins at this column has an element apart, as the class of a
                label: all others are reduced and mapped by the plain functions; these need not tell elements apart.
                Before `finish` and behind it; only where elements are adjacent in memory
    plain       `map` of an element that is not apart
    results     (values, totals, r, columns), before `finish`, only in threads that write a row's results: sets them.
                Without it they are the first of the totals that `finish` leaves

    x has one element of every input, p one number of every parameter, r the row's scalars, totals the values of the
    first reduction (0 and 1) and of the second (2 and 3); column is the element's number in its row. All are local
    arrays of the type of arithmetic.
    """

    reductions: tuple[Reduction, ...]
    map: Callable[..., None]
    finish: Callable[..., None] = _nothing
    scalars: Callable[..., None] | None = None
    values: int = 0
    apart: Callable[..., Any] = _never
    plain: Callable[..., None] | None = None
    results: Callable[..., None] = NO_RESULTS


def picking(count: int) -> Callable[..., None]:
    """The device function pick(x, x0, x1, x2, e): x becomes element e of the first `count` of x0, x1 and x2."""

    @device_function
    def pick(x: Any, x0: Any, x1: Any, x2: Any, e: int) -> None:
        if count > 0:
            x[0] = x0[e]
        if count > 1:
            x[1] = x1[e]
        if count > 2:
            x[2] = x2[e]

    return pick


def vector_access(
    types: RowsTypes, width: int, whole: bool, along: int, arithmetic: RowArithmetic
) -> tuple[Callable[..., Any], ...]:
    """Device functions for a thread's vectors of `width` elements. A vector covers `along` columns; if `whole`, all its
    elements are of one row:

    load(words, place, a0, a1, a2)               the inputs' vectors at these addresses, into words[place:]
    unpack(x0, x1, x2, words, place)             their elements
    store(b0, b1, y0, y1)                        the outputs' vectors
    store_some(b0, b1, y0, y1, low, high)        their elements from `low` to before `high`
    parameters(q0, q1, q2, p0, p1, p2, column, last)   the numbers of `along` columns, in a row that ends at `last`
    scalars(r, s0, s1, s2, s3, s4, row, columns)  the numbers of one row
    results(r0, r1, totals, row)                 writes the row's results
    """
    native = types.native_bfloat16
    INPUTS, OUTPUTS, FLOAT = len(types.inputs), len(types.outputs), float64 if types.compute == "float64" else float32
    kinds = (*types.inputs, *(types.inputs[:1] * 2))[:3]
    sizes = [width * ITEMSIZE[each] for each in kinds]
    load_0, load_1, load_2 = (i.word_loader("global", each) for each in sizes)
    unpack_0, unpack_1, unpack_2 = (i.unpacker(each, width) for each in kinds)
    WORDS_0, WORDS_1 = (max(1, each // 4) for each in sizes[:2])
    written = (*types.outputs, *types.inputs[:1] * 2)[:2]
    store_0, store_1 = (i.storer("global", each, width, native) for each in written)
    one_0, one_1 = (i.storer("global", each, 1, native) for each in written)
    BYTES_0, BYTES_1 = (ITEMSIZE[each] for each in written)

    @device_function
    def load(words: Any, place: int, a0: int, a1: int, a2: int) -> None:
        load_0(words, place, a0)
        if INPUTS > 1:
            load_1(words, place + WORDS_0, a1)
        if INPUTS > 2:
            load_2(words, place + WORDS_0 + WORDS_1, a2)

    @device_function
    def unpack(x0: Any, x1: Any, x2: Any, words: Any, place: int) -> None:
        unpack_0(x0, words, place)
        if INPUTS > 1:
            unpack_1(x1, words, place + WORDS_0)
        if INPUTS > 2:
            unpack_2(x2, words, place + WORDS_0 + WORDS_1)

    @device_function
    def store(b0: int, b1: int, y0: Any, y1: Any) -> None:
        store_0(b0, y0)
        if OUTPUTS > 1:
            store_1(b1, y1)

    @device_function
    def store_some(b0: int, b1: int, y0: Any, y1: Any, low: int, high: int) -> None:
        one = cuda.local.array(1, FLOAT)
        for e in range(width):
            if low <= e < high:
                one[0] = y0[e]
                one_0(b0 + e * BYTES_0, one)
                if OUTPUTS > 1:
                    one[0] = y1[e]
                    one_1(b1 + e * BYTES_1, one)

    numbers = _numbers(types, whole and types.whole_parameters, along, arithmetic.scalars)
    return load, unpack, store, store_some, *numbers


def _numbers(
    types: RowsTypes, whole: bool, along: int, own_scalars: Callable[..., None] | None
) -> tuple[Callable[..., None], ...]:
    """The last three of vector_access."""
    PARAMETERS, RESULTS = len(types.parameters), len(types.results)
    SCALARS = 0 if own_scalars else len(types.scalars)
    FLOAT = float64 if types.compute == "float64" else float32

    def filled(kinds: tuple[str, ...], count: int) -> tuple[str, ...]:
        return (*kinds, *["float32"] * count)[:count]

    parameters, scalars = filled(types.parameters, 3), filled(types.scalars[:SCALARS], 2)
    results = filled(types.results, 2)
    load_0, load_1, load_2 = (i.loader("global", each, along if whole else 1) for each in parameters)
    scalar_0, scalar_1 = (i.loader("global", each, 1) for each in scalars)
    store_0, store_1 = (i.storer("global", each, 1, types.native_bfloat16) for each in results)
    P0, P1, P2 = (ITEMSIZE[each] for each in parameters)
    S0, S1 = (ITEMSIZE[each] for each in scalars)
    R0, R1 = (ITEMSIZE[each] for each in results)

    @device_function
    def load_parameters(q0: Any, q1: Any, q2: Any, p0: int, p1: int, p2: int, column: int, last: int) -> None:
        if whole:
            column = min(column, last + 1 - along)
            load_0(q0, p0 + column * P0)
            if PARAMETERS > 1:
                load_1(q1, p1 + column * P1)
            if PARAMETERS > 2:
                load_2(q2, p2 + column * P2)
        else:
            one = cuda.local.array(1, FLOAT)
            for e in range(along):
                n = min(max(column + e, int64(0)), last)
                load_0(one, p0 + n * P0)
                q0[e] = one[0]
                if PARAMETERS > 1:
                    load_1(one, p1 + n * P1)
                    q1[e] = one[0]
                if PARAMETERS > 2:
                    load_2(one, p2 + n * P2)
                    q2[e] = one[0]

    @device_function
    def load_scalars(r: Any, s0: int, s1: int, _s2: int, _s3: int, _s4: int, row: int, _columns: int) -> None:
        one = cuda.local.array(1, FLOAT)
        if SCALARS > 0:
            scalar_0(one, s0 + int64(row) * S0)
            r[0] = one[0]
        if SCALARS > 1:
            scalar_1(one, s1 + int64(row) * S1)
            r[1] = one[0]

    @device_function
    def store_results(r0: int, r1: int, totals: Any, row: int) -> None:
        one = cuda.local.array(1, FLOAT)
        if RESULTS > 0:
            one[0] = totals[0]
            store_0(r0 + int64(row) * R0, one)
        if RESULTS > 1:
            one[0] = totals[1]
            store_1(r1 + int64(row) * R1, one)

    return load_parameters, own_scalars or load_scalars, store_results
