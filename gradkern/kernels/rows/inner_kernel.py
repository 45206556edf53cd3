"""The kernel of strided rows: along an axis that is not the last, of matrices of columns x inner elements.

A thread has vectors along `inner`, so that all accesses are whole sectors, at some places of the rows. It reduces each
element of the vector separately. Threads that share rows combine their totals by shuffles within a warp and through
shared memory beyond. Nothing is transposed, and a row's elements stay in registers as in rows_kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.access import NO_REDUCTION, NO_RESULTS, Reduction, RowArithmetic, picking, vector_access
from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.problem import RowsTypes
from gradkern.kernels.rows.totals import cluster_barriers, over_teams


def inner_kernel(types: RowsTypes, config: RowsConfig, arithmetic: RowArithmetic) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (problem.ARGUMENTS) an int64."""
    WIDTH, LANES, TEAMS, VECTORS, CLUSTER = config.width, config.lanes, config.teams, config.vectors, config.cluster
    HELD, STEP = config.held, config.teams * config.cluster
    WORDS = sum(max(1, WIDTH * ITEMSIZE[each] // 4) for each in types.inputs)
    I0, I1, I2 = (ITEMSIZE[each] for each in (*types.inputs, *types.inputs[:1] * 2)[:3])
    O0, O1 = (ITEMSIZE[each] for each in (*types.outputs, *types.inputs[:1] * 2)[:2])
    HELD_WORDS, INPUTS, OUTPUTS = VECTORS * WORDS, len(types.inputs), len(types.outputs)
    REDUCTIONS, PARAMETERS, SCALARS, RESULTS = (
        len(each) for each in (arithmetic.reductions, types.parameters, types.scalars, types.results)
    )
    R = max(1, arithmetic.values or SCALARS)
    pick = picking(INPUTS)
    FLOAT = float64 if types.compute == "float64" else float32
    finish, compute = arithmetic.finish, arithmetic.map
    first_reduction, second_reduction = (*arithmetic.reductions, *[NO_REDUCTION] * 2)[:2]
    load, unpack, store, _, load_parameters, load_scalars, store_results = vector_access(
        types, WIDTH, False, 1, arithmetic
    )
    combine_first = over_teams(types, config, first_reduction, 0)
    combine_second = over_teams(types, config, second_reduction, 1)
    begin_cluster = cluster_barriers(types, config)
    results_of, OWN_RESULTS = arithmetic.results, arithmetic.results is not NO_RESULTS

    @device_function
    def load_vectors(words: Any, place: int, last: int, a0: int, a1: int, a2: int, s0: int, s1: int, s2: int) -> None:
        a0, a1, a2 = a0 + place * s0, a1 + place * s1, a2 + place * s2
        for j in range(VECTORS):
            if place + j * STEP <= last:
                load(words, j * WORDS, a0, a1, a2)
            a0, a1, a2 = a0 + STEP * s0, a1 + STEP * s1, a2 + STEP * s2

    def reducing(reduction: Reduction) -> Callable[..., None]:
        terms, combine = reduction.terms, reduction.combine

        @device_function
        def reduce_vectors(
            first: Any, second: Any, totals: Any, words: Any, place: int, last: int, r: Any, p0: int, p1: int, p2: int
        ) -> None:
            x0, x1, x2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
            q0, q1, q2 = cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT)
            x, p, q = cuda.local.array(3, FLOAT), cuda.local.array(3, FLOAT), cuda.local.array(R, FLOAT)
            own = cuda.local.array(4, FLOAT)
            for j in range(VECTORS):
                n = int64(place + j * STEP)
                if n <= last:
                    unpack(x0, x1, x2, words, j * WORDS)
                    if PARAMETERS > 0:
                        load_parameters(q0, q1, q2, p0, p1, p2, n, last)
                        p[0], p[1], p[2] = q0[0], q1[0], q2[0]
                    for e in range(WIDTH):
                        pick(x, x0, x1, x2, e)
                        if REDUCTIONS > 1:
                            own[0], own[1] = totals[4 * e], totals[4 * e + 1]
                        for k in range(R):
                            q[k] = r[e * R + k]
                        one, other = terms(x, p, q, own, n)
                        first[e], second[e] = combine(first[e], second[e], one, other)

        return reduce_vectors

    def clearing(reduction: Reduction) -> Callable[..., None]:
        NONE, NOTHING = reduction.identity

        @device_function
        def clear(first: Any, second: Any) -> None:
            for e in range(WIDTH):
                first[e], second[e] = FLOAT(NONE), FLOAT(NOTHING)

        return clear

    reduce_first, reduce_second = reducing(first_reduction), reducing(second_reduction)
    clear_first, clear_second = clearing(first_reduction), clearing(second_reduction)

    @device_function
    def write_vectors(
        totals: Any, words: Any, place: int, last: int, r: Any, p0: int, p1: int, p2: int,
        b0: int, b1: int, s0: int, s1: int, inside: bool,
    ) -> None:  # fmt: skip
        x0, x1, x2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        y0, y1 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        q0, q1, q2 = cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT)
        x, y, p = cuda.local.array(3, FLOAT), cuda.local.array(2, FLOAT), cuda.local.array(3, FLOAT)
        own, q = cuda.local.array(4, FLOAT), cuda.local.array(R, FLOAT)
        b0, b1 = b0 + place * s0, b1 + place * s1
        for j in range(VECTORS):
            n = int64(place + j * STEP)
            if inside and n <= last:
                unpack(x0, x1, x2, words, j * WORDS)
                if PARAMETERS > 0:
                    load_parameters(q0, q1, q2, p0, p1, p2, n, last)
                    p[0], p[1], p[2] = q0[0], q1[0], q2[0]
                for e in range(WIDTH):
                    pick(x, x0, x1, x2, e)
                    for k in range(4):
                        own[k] = totals[4 * e + k]
                    for k in range(R):
                        q[k] = r[e * R + k]
                    compute(y, x, p, q, own, n)
                    y0[e] = y[0]
                    if OUTPUTS > 1:
                        y1[e] = y[1]
                store(b0, b1, y0, y1)
            b0, b1 = b0 + STEP * s0, b1 + STEP * s1

    def kernel(
        in_0: int, in_1: int, in_2: int, out_0: int, out_1: int, p_0: int, p_1: int, p_2: int,
        s_0: int, s_1: int, s_2: int, s_3: int, s_4: int, r_0: int, r_1: int,
        _rows: int, columns: int, inner: int, slices: int,
        in_0_stride: int, in_1_stride: int, in_2_stride: int, out_0_stride: int, out_1_stride: int,
        in_0_step: int, in_1_step: int, in_2_step: int, out_0_step: int, out_1_step: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        team = int32(thread // LANES)
        lane = int32(thread - team * LANES)
        block, rank = int32(cuda.blockIdx.x), int32(0)
        if CLUSTER > 1:
            rank = i.cluster_rank()
            block = int32(block // CLUSTER)
            if REDUCTIONS > 0:
                begin_cluster(thread)
        matrix = i.quotient(block, int32(slices))
        slice_ = int32(block - matrix * slices)
        begin = int64(rank * TEAMS + team)  # this thread's first place of a row
        column = int64(slice_) * (LANES * WIDTH) + lane * WIDTH
        inside = column < inner
        column = min(column, inner - WIDTH)
        a0 = i.row_address_long(in_0, int64(matrix), in_0_stride) + column * I0
        a1 = i.row_address_long(in_1, int64(matrix), in_1_stride) + column * I1
        a2 = i.row_address_long(in_2, int64(matrix), in_2_stride) + column * I2
        b0 = i.row_address_long(out_0, int64(matrix), out_0_stride) + column * O0
        b1 = i.row_address_long(out_1, int64(matrix), out_1_stride) + column * O1
        last = columns - 1

        words = cuda.local.array(HELD_WORDS, int32)
        totals, r = cuda.local.array(4 * WIDTH, FLOAT), cuda.local.array(R * WIDTH, FLOAT)
        first, second = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        own, q = cuda.local.array(4, FLOAT), cuda.local.array(R, FLOAT)
        values = cuda.local.array(2, FLOAT)
        load_vectors(words, begin, last, a0, a1, a2, in_0_step, in_1_step, in_2_step)
        if SCALARS > 0:
            for e in range(WIDTH):
                load_scalars(q, s_0, s_1, s_2, s_3, s_4, int64(matrix) * inner + column + e, columns)
                for k in range(R):
                    r[e * R + k] = q[k]

        if REDUCTIONS > 0:
            clear_first(first, second)
            place = begin
            while True:
                reduce_first(first, second, totals, words, place, last, r, p_0, p_1, p_2)
                place += VECTORS * STEP
                if HELD or place - begin > last:
                    break
                load_vectors(words, place, last, a0, a1, a2, in_0_step, in_1_step, in_2_step)
            combine_first(first, second, thread, lane, rank)
            for e in range(WIDTH):
                totals[4 * e], totals[4 * e + 1] = first[e], second[e]
        if REDUCTIONS > 1:
            clear_second(first, second)
            place = begin
            while True:
                if not HELD:
                    load_vectors(words, place, last, a0, a1, a2, in_0_step, in_1_step, in_2_step)
                reduce_second(first, second, totals, words, place, last, r, p_0, p_1, p_2)
                place += VECTORS * STEP
                if HELD or place - begin > last:
                    break
            combine_second(first, second, thread, lane, rank)
            for e in range(WIDTH):
                totals[4 * e + 2], totals[4 * e + 3] = first[e], second[e]
        for e in range(WIDTH):
            for k in range(4):
                own[k] = totals[4 * e + k]
            for k in range(R):
                q[k] = r[e * R + k]
            if OWN_RESULTS and RESULTS > 0 and inside and begin == 0:
                results_of(values, own, q, FLOAT(columns))
                store_results(r_0, r_1, values, int64(matrix) * inner + column + e)
            finish(own, q, FLOAT(columns))
            for k in range(4):
                totals[4 * e + k] = own[k]
            for k in range(R):
                r[e * R + k] = q[k]
            if not OWN_RESULTS and RESULTS > 0 and inside and begin == 0:
                store_results(r_0, r_1, own, int64(matrix) * inner + column + e)

        if OUTPUTS > 0:
            place = begin
            while True:
                if not HELD:
                    load_vectors(words, place, last, a0, a1, a2, in_0_step, in_1_step, in_2_step)
                write_vectors(totals, words, place, last, r, p_0, p_1, p_2, b0, b1, out_0_step, out_1_step, inside)
                place += VECTORS * STEP
                if HELD or place - begin > last:
                    break

    return kernel
