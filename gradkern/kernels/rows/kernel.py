"""The kernel of rows whose elements are adjacent in memory, for a config and an operator's arithmetic.

Every thread loads all its vectors of a row, of all inputs, before it uses the first. Blocks are not persistent: some
wait for memory while others compute or write. A row's totals are combined over lanes by shuffles, then over warps
through shared memory, and over the blocks of a cluster through distributed shared memory. The loaded vectors stay
packed in registers until the totals are known, or in shared memory, where more blocks fit a multiprocessor.

Shifted rows begin anywhere between vectors. A row's first and last vector may have elements of other rows: they are
ignored. Reading them is safe: allocators hand out whole units of 16 bytes, and an aligned vector stays within one.
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
from gradkern.kernels.rows.problem import VECTOR, RowsTypes
from gradkern.kernels.rows.totals import cluster_barriers, identity_of, over_lanes_of, over_row


def rows_kernel(types: RowsTypes, config: RowsConfig, arithmetic: RowArithmetic) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (problem.ARGUMENTS) an int64."""
    WIDTH, LANES, TEAMS, VECTORS, CLUSTER = config.width, config.lanes, config.teams, config.vectors, config.cluster
    HELD, SHIFTED, STEP = config.held, config.shifted, config.lanes * config.cluster
    STAGED, STAGE_AT, STAGE = config.staged, config.stage_at(types), config.threads * VECTOR
    BYTES = [WIDTH * ITEMSIZE[each] for each in (*types.inputs, *types.inputs[:1] * 2)[:3]]
    V0, V1, V2 = BYTES
    W0, W1 = (WIDTH * ITEMSIZE[each] for each in (*types.outputs, *types.inputs[:1] * 2)[:2])
    WORDS = sum(max(1, each // 4) for each in BYTES[: len(types.inputs)])
    ITEM, HELD_WORDS = ITEMSIZE[types.inputs[0]], WORDS if config.staged else VECTORS * WORDS
    copy, read_stage = i.async_copy(VECTOR), i.word_loader("shared", VECTOR)
    wait_for_copies = i.wait_for_copies(0)
    INPUTS, OUTPUTS, REDUCTIONS = len(types.inputs), len(types.outputs), len(arithmetic.reductions)
    PARAMETERS, SCALARS, RESULTS = len(types.parameters), len(types.scalars), len(types.results)
    R = max(1, arithmetic.values or SCALARS)
    pick, pick_parameters = picking(INPUTS), picking(PARAMETERS)
    FLOAT = float64 if types.compute == "float64" else float32
    finish, compute = arithmetic.finish, arithmetic.map
    apart, compute_plain = arithmetic.apart, arithmetic.plain or arithmetic.map
    load, unpack, store, store_some, load_parameters, load_scalars, store_results = vector_access(
        types, WIDTH, not SHIFTED, WIDTH, arithmetic
    )
    begin_cluster = cluster_barriers(types, config)
    results_of, OWN_RESULTS = arithmetic.results, arithmetic.results is not NO_RESULTS
    first_reduction, second_reduction = (*arithmetic.reductions, *[NO_REDUCTION] * 2)[:2]
    ONCE, IN_WARP = second_reduction.rescale is not None, min(LANES, 32)
    send_first, first_of_row = over_row(types, config, first_reduction, 0)
    send_second, second_of_row = over_row(types, config, second_reduction, 1, ONCE)
    first_of_warp, second_of_warp = over_lanes_of(types, first_reduction), over_lanes_of(types, second_reduction)
    first_identity, second_identity = identity_of(types, first_reduction), identity_of(types, second_reduction)

    @device_function
    def load_vectors(words: Any, first: int, last: int, a0: int, a1: int, a2: int) -> None:
        """A place beyond the row's last vector repeats it."""
        stage = i.shared_memory() + int32(cuda.threadIdx.x * VECTOR + STAGE_AT)
        for j in range(int32(VECTORS)):
            v = int64(min(int32(first + j * STEP), last))
            if STAGED:
                copy(stage + j * INPUTS * STAGE, a0 + v * V0)
                if INPUTS > 1:
                    copy(stage + (j * INPUTS + 1) * STAGE, a1 + v * V1)
                if INPUTS > 2:
                    copy(stage + (j * INPUTS + 2) * STAGE, a2 + v * V2)
            else:
                load(words, j * WORDS, a0 + v * V0, a1 + v * V1, a2 + v * V2)
        if STAGED:
            i.commit_copies()

    @device_function
    def read_vector(words: Any, j: int) -> Any:
        """Where its words are."""
        if STAGED:
            stage = i.shared_memory() + int32(cuda.threadIdx.x * VECTOR + STAGE_AT) + j * INPUTS * STAGE
            for k in range(INPUTS):
                read_stage(words, k * 4, stage + k * STAGE)
            return int32(0)
        return int32(j * WORDS)

    @device_function
    def is_edge(v: int, vectors: int) -> Any:
        """Where every warp has edges, all vectors are treated alike."""
        return SHIFTED and (LANES < 32 or v == 0 or v == vectors - 1)

    @device_function
    def inside_of(start: int, columns: int) -> Any:
        """The bounds of a vector's elements that are the row's."""
        low, high = int32(0), int32(WIDTH)
        if SHIFTED:
            low, high = int32(max(int64(0), -start)), int32(min(int64(WIDTH), columns - start))
        return low, high

    def terms_of_one(terms: Callable[..., Any]) -> Callable[..., Any]:
        @device_function
        def terms_of(
            x0: Any, x1: Any, x2: Any, q0: Any, q1: Any, q2: Any, e: int, r: Any, totals: Any, column: int
        ) -> Any:
            x, p = cuda.local.array(3, FLOAT), cuda.local.array(3, FLOAT)
            pick(x, x0, x1, x2, e)
            pick_parameters(p, q0, q1, q2, e)
            return terms(x, p, r, totals, column)

        return terms_of

    def reducing(reduction: Reduction) -> Callable[..., Any]:
        combine, identity = reduction.combine, identity_of(types, reduction)
        terms_of, plain_terms_of = terms_of_one(reduction.terms), terms_of_one(reduction.plain or reduction.terms)

        @device_function
        def reduce_vectors(
            first: Any, second: Any, totals: Any, words: Any, v0: int, vectors: int, shift: int, columns: int, r: Any,
            p0: int, p1: int, p2: int,
        ) -> Any:  # fmt: skip
            """The two values of this thread's vectors, combined with those that it has."""
            x0, x1, x2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
            q0, q1, q2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
            none, nothing = identity()
            for j in range(int32(VECTORS)):
                v = int32(v0 + j * STEP)
                if v < vectors:
                    start = int64(v) * WIDTH - shift
                    unpack(x0, x1, x2, words, read_vector(words, j))
                    if PARAMETERS > 0:
                        load_parameters(q0, q1, q2, p0, p1, p2, start, columns - 1)
                    if is_edge(v, vectors) or apart(r, start):
                        low, high = inside_of(start, columns)
                        for e in range(WIDTH):
                            one, other = terms_of(x0, x1, x2, q0, q1, q2, e, r, totals, start + e)
                            inside = low <= e < high
                            first, second = combine(
                                first, second, one if inside else none, other if inside else nothing
                            )
                    else:
                        for e in range(WIDTH):
                            one, other = plain_terms_of(x0, x1, x2, q0, q1, q2, e, r, totals, start + e)
                            first, second = combine(first, second, one, other)
            return first, second

        return reduce_vectors

    reduce_first, reduce_second = reducing(first_reduction), reducing(second_reduction)

    def mapping(compute: Callable[..., None]) -> Callable[..., None]:
        @device_function
        def map_vector(
            y0: Any, y1: Any, x0: Any, x1: Any, x2: Any, q0: Any, q1: Any, q2: Any, r: Any, totals: Any, start: int
        ) -> None:
            x, y, p = cuda.local.array(3, FLOAT), cuda.local.array(2, FLOAT), cuda.local.array(3, FLOAT)
            for e in range(WIDTH):
                pick(x, x0, x1, x2, e)
                pick_parameters(p, q0, q1, q2, e)
                compute(y, x, p, r, totals, start + e)
                y0[e] = y[0]
                if OUTPUTS > 1:
                    y1[e] = y[1]

        return map_vector

    map_vector, map_plain = mapping(compute), mapping(compute_plain)

    @device_function
    def write_vectors(
        totals: Any, words: Any, v0: int, vectors: int, shift: int, columns: int, r: Any,
        p0: int, p1: int, p2: int, b0: int, b1: int,
    ) -> None:  # fmt: skip
        x0, x1, x2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        y0, y1 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        q0, q1, q2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        for j in range(int32(VECTORS)):
            v = int32(v0 + j * STEP)
            if v < vectors:
                start = int64(v) * WIDTH - shift
                unpack(x0, x1, x2, words, read_vector(words, j))
                if PARAMETERS > 0:
                    load_parameters(q0, q1, q2, p0, p1, p2, start, columns - 1)
                if apart(r, start):
                    map_vector(y0, y1, x0, x1, x2, q0, q1, q2, r, totals, start)
                else:
                    map_plain(y0, y1, x0, x1, x2, q0, q1, q2, r, totals, start)
                if SHIFTED and (v == 0 or v == vectors - 1):
                    low, high = inside_of(start, columns)
                    store_some(b0 + int64(v) * W0, b1 + int64(v) * W1, y0, y1, low, high)
                else:
                    store(b0 + int64(v) * W0, b1 + int64(v) * W1, y0, y1)

    def kernel(
        in_0: int, in_1: int, in_2: int, out_0: int, out_1: int, p_0: int, p_1: int, p_2: int,
        s_0: int, s_1: int, s_2: int, s_3: int, s_4: int, r_0: int, r_1: int,
        rows: int, columns: int, _inner: int, _slices: int,
        in_0_stride: int, in_1_stride: int, in_2_stride: int, out_0_stride: int, out_1_stride: int,
        _in_0_step: int, _in_1_step: int, _in_2_step: int, _out_0_step: int, _out_1_step: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        team, lane, block = int32(0), thread, int32(cuda.blockIdx.x)
        if TEAMS > 1:
            team = int32(thread // LANES)
            lane = int32(thread - team * LANES)
        rank = int32(0)
        if CLUSTER > 1:
            rank = i.cluster_rank()
            block = int32(block // CLUSTER)
            if REDUCTIONS > 0:
                begin_cluster(thread)
        row = int64(block) * TEAMS + team
        valid = TEAMS == 1 or row < rows
        row = min(row, rows - 1)  # all lanes of a warp take part in its shuffles
        a0 = i.row_address_long(in_0, row, in_0_stride)
        a1 = i.row_address_long(in_1, row, in_1_stride)
        a2 = i.row_address_long(in_2, row, in_2_stride)
        b0 = i.row_address_long(out_0, row, out_0_stride)
        b1 = i.row_address_long(out_1, row, out_1_stride)
        shift = int64(0)
        if SHIFTED:
            shift = (a0 & (V0 - 1)) // ITEM
            a0, a1, a2, b0, b1 = a0 & -V0, a1 & -V1, a2 & -V2, b0 & -W0, b1 & -W1
        vectors = int32((shift + columns + (WIDTH - 1)) // WIDTH)
        last = int32(vectors - 1)

        words = cuda.local.array(HELD_WORDS, int32)
        totals, r = cuda.local.array(4, FLOAT), cuda.local.array(R, FLOAT)
        values = cuda.local.array(2, FLOAT)
        v0 = int32(rank * LANES + lane)
        load_vectors(words, v0, last, a0, a1, a2)
        if SCALARS > 0:
            load_scalars(r, s_0, s_1, s_2, s_3, s_4, row, columns)

        if STAGED:
            wait_for_copies()
        if REDUCTIONS > 0:
            first, second = first_identity()
            v = v0
            while True:
                first, second = reduce_first(first, second, totals, words, v, vectors, shift, columns, r, p_0, p_1, p_2)
                v = int32(v + VECTORS * STEP)
                if HELD or v - lane > last:
                    break
                load_vectors(words, v, last, a0, a1, a2)
            first, second = first_of_warp(first, second, IN_WARP)
            send_first(first, second, thread, rank)
            if not ONCE:
                first, second = first_of_row(first, second, thread, first)
            totals[0], totals[1] = first, second
        if REDUCTIONS > 1:
            first, second = second_identity()
            v = v0
            while True:
                if not HELD:
                    load_vectors(words, v, last, a0, a1, a2)
                first, second = reduce_second(
                    first, second, totals, words, v, vectors, shift, columns, r, p_0, p_1, p_2
                )  # fmt: skip
                v = int32(v + VECTORS * STEP)
                if HELD or v - lane > last:
                    break
            first, second = second_of_warp(first, second, IN_WARP)
            send_second(first, second, thread, rank)
            if ONCE:
                totals[0], totals[1] = first_of_row(totals[0], totals[1], thread, first)
            totals[2], totals[3] = second_of_row(first, second, thread, totals[0])
        if OWN_RESULTS and RESULTS > 0 and valid and v0 == 0:
            results_of(values, totals, r, FLOAT(columns))
            store_results(r_0, r_1, values, row)
        finish(totals, r, FLOAT(columns))
        if not OWN_RESULTS and RESULTS > 0 and valid and v0 == 0:
            store_results(r_0, r_1, totals, row)

        if OUTPUTS > 0:
            if not valid:
                vectors = int32(0)
            v = v0
            while True:
                if not HELD:
                    load_vectors(words, v, last, a0, a1, a2)
                write_vectors(totals, words, v, vectors, shift, columns, r, p_0, p_1, p_2, b0, b1)
                v = int32(v + VECTORS * STEP)
                if HELD or v - lane > last:
                    break

    return kernel
