"""The kernel of the three layer-norm gradients. `build(form)` binds its constants; see Form for their meaning.

    xh = (X - mean) * r                       r: inverse standard deviation of the row
    g  = Y_grad * scale,  s1 = sum g,  s2 = sum g * xh         over the columns of a row
    X_grad = r * (g - s1 / columns - xh * s2 / columns)        (no mean and no s1 for Simplified)
    scale_grad = sum Y_grad * xh,  bias_grad = sum Y_grad      over the rows

How it goes: one launch, whose blocks stay. A team of threads walks over its rows; a ring in shared memory, filled by
bulk copies some rows ahead, keeps memory busy while the team computes. Each thread owns fixed columns, so it keeps
their sums over rows in registers. The two sums of a row are exchanged once: by shuffles, then between the team's warps
through shared memory, or between the blocks of a cluster where a row is cut into slices. X and Y_grad are read once,
X_grad is written once. At the end (column_sums) each block adds its teams' column sums and writes one row of partial
sums; after a barrier over the grid all blocks add those rows up, in one fixed order: the same bits every time.

Wide rows leave registers no room for a row's values (not form.hold): the second pass reads the ring again, scale and
bias stay in shared memory as they came, and all X - mean of a row get their factor r in its sums.

Rows that fit no cluster take two launches: one for s1 and s2 (phase "sums"), one for the rest (phase "given").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.column_sums import column_sums
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.form import Form

__all__ = ["build"]


def build(form: Form) -> Callable[..., None]:
    """The kernel for `form`, as a function that Numba compiles with every argument an int64."""
    COLUMNS, WIDTH, LANES, VECTORS, SLICES = form.columns, form.width, form.lanes, form.vectors, form.slices
    TEAMS, TEAM, THREADS, WARPS = form.teams, form.team_threads, form.threads, form.team_threads // 32
    ROWS_AT_ONCE, STAGES, PER_THREAD = form.rows_at_once, form.stages, form.per_thread
    SLICE, HOLD = form.slice_columns, form.hold
    # Not held, it is asked for every vector whether it exists: without these branches the compiler puts off adding to
    # the sums over rows until it has loaded all the vectors, and runs out of registers.
    WHOLE_VECTORS = form.whole_vectors if HOLD else 0
    SCALE_HELD = form.scale_in_registers  # one thread's scales in its registers
    ALIGNED, PACKED = form.aligned, form.packed
    HAS_MEAN, INVERTIBLE, CENTRED = form.has_mean, form.invertible, form.centred
    BULK, ASYNC, RING = form.source == "bulk", form.source == "async", form.ring
    WHOLE, ROW_SUMS, GIVEN = form.phase == "whole", form.phase == "sums", form.phase == "given"
    X_GRAD = "X_grad" in form.outputs and not ROW_SUMS
    SCALE_GRAD = "scale_grad" in form.outputs and not ROW_SUMS
    BIAS_GRAD = "bias_grad" in form.outputs and not ROW_SUMS
    SUMS = 0 if ROW_SUMS else form.sums
    ROW_TERMS = X_GRAD or ROW_SUMS  # s1 and s2 are needed
    CLUSTER = SLICES > 1 and WHOLE
    EXCHANGE = ROW_TERMS and not GIVEN and (WARPS > 1 or CLUSTER)
    NEEDS_X = ROW_TERMS or SCALE_GRAD
    R_LATER = not HOLD and not INVERTIBLE  # multiply sums by r rather than each X - mean

    X_BYTES, D_BYTES, OUT_BYTES = form.data_itemsize, form.upstream_itemsize, form.result_itemsize
    X_VECTOR, D_VECTOR, OUT_VECTOR = WIDTH * X_BYTES, WIDTH * D_BYTES, WIDTH * OUT_BYTES
    PARAMETER, STATISTIC, HELD = form.parameter_itemsize, form.statistic_itemsize, ITEMSIZE[form.shared_parameter]
    (X_PITCH, D_PITCH), (X_SLOT, D_SLOT) = form.pitch, form.slots
    STAGE = X_SLOT + D_SLOT
    SLOTS, PAIR = form.exchange_slots, 2 * form.itemsize
    EXCHANGE_BARRIERS, PAIRS_AT, RING_AT = form.exchange_barriers_at, form.exchange_at, form.ring_at
    BIAS_AT = form.parameters_at
    INVERSE_AT = BIAS_AT + form.parameter_bytes  # not there if not held
    SCALE_AT = form.ring_at - form.parameter_bytes
    PACE, ALONE = form.pace, form.alone
    COPIES = 1 if ROWS_AT_ONCE == 1 or PACKED else ROWS_AT_ONCE

    SINGLE = form.compute == "float32"
    FLOAT = float32 if SINGLE else float64
    ROW = int64 if form.long_rows else int32
    MINUS_MEAN = -1.0 / COLUMNS
    memory = "shared" if RING else "global"
    load_X = i.loader(memory, form.data, WIDTH)
    load_D = i.loader(memory, form.upstream, WIDTH)
    load_parameter = i.loader("global", form.parameter, 1)
    SCALE_WIDTH = form.scale_width
    load_scales = i.loader("global", form.parameter, SCALE_WIDTH)
    AT_ONCE = min(4, -(-SLICE // (SCALE_WIDTH * THREADS)))
    SOME = AT_ONCE * SCALE_WIDTH
    load_statistic = i.loader("global", form.statistic, 1)
    QUAD = min(WIDTH, 16 // HELD)
    PLANES, PLANE = WIDTH // QUAD, LANES * VECTORS * QUAD * HELD
    load_quad = i.loader("shared", form.shared_parameter, QUAD)
    PIECE = min(QUAD, SCALE_WIDTH)
    store_piece = i.storer("shared", form.shared_parameter, PIECE, form.native_bfloat16)
    load_pair = i.loader("shared", form.compute, 2)
    load_global_pair = i.loader("global", form.compute, 2)
    load_4 = i.loader("shared", form.compute, 4)
    store_X_grad = i.storer("global", form.result, WIDTH, form.native_bfloat16)
    store_pair = i.storer("shared", form.compute, 2)
    store_global_pair = i.storer("global", form.compute, 2)
    shuffle_xor = i.shuffle_xor_double if form.compute == "float64" else i.shuffle_xor
    send_pair = i.send_pair_double if form.compute == "float64" else i.send_pair
    copy_X = i.async_copy(min(16, X_VECTOR)) if ASYNC else None
    copy_D = i.async_copy(min(16, D_VECTOR)) if ASYNC else None
    wait_for_copies = i.wait_for_copies(STAGES - 1)

    @device_function
    def divide_by_scale(part: int, column: int, value: Any, scale: int) -> Any:
        """The invertible norm adds up Y_grad * xh * scale."""
        one = cuda.local.array(1, FLOAT)
        if part == 0:
            load_parameter(one, scale + int64(column) * PARAMETER)
            value = value / one[0]
        return value

    add_over_block, add_over_grid = column_sums(
        form.column_sums, divide_by_scale if INVERTIBLE and SCALE_GRAD else None
    )

    @device_function
    def span(address: int, size: int) -> int:
        """Bytes of the 16-byte units that hold `size` bytes at `address`; they never leave an allocation's granule."""
        return size if ALIGNED else ((address + size + 15) & -16) - (address & -16)

    @device_function
    def fetch(
        slot: int, barrier: int, X: int, Y_grad: int, X_stride: int, D_stride: int, row: int, rows: int,
        member: int, lane: int, sub: int, columns: int,
    ) -> None:  # fmt: skip
        """The rows from `row` on, as many as a team takes at once, into the ring."""
        if BULK:  # noqa: SIM102  a branch that Numba prunes
            if member == 0 and row < rows:  # one thread; `barrier` counts the bytes
                count = int32(min(ROW(ROWS_AT_ONCE), rows - row))
                copies, rows_each = (1, count) if PACKED else (count, 1)
                x_size, d_size = rows_each * columns * X_BYTES, rows_each * columns * D_BYTES
                x_from, d_from = X + int64(row) * X_stride, Y_grad + int64(row) * D_stride
                total = 0
                for copy in range(COPIES):
                    if COPIES == 1 or copy < copies:
                        if NEEDS_X:
                            total += span(x_from + copy * X_stride, x_size)
                        total += span(d_from + copy * D_stride, d_size)
                i.arrive_and_expect(barrier, total)
                for copy in range(COPIES):
                    if COPIES == 1 or copy < copies:
                        if NEEDS_X:
                            at = x_from + copy * X_stride
                            i.bulk_copy(slot + copy * X_PITCH, at & -16, span(at, x_size), barrier)
                        at = d_from + copy * D_stride
                        i.bulk_copy(slot + X_SLOT + copy * D_PITCH, at & -16, span(at, d_size), barrier)
        if ASYNC:  # every thread copies its own vectors of one row; nobody else reads them
            mine = ROW(row + sub)
            if mine < rows:
                x_from, d_from = X + int64(mine) * X_stride, Y_grad + int64(mine) * D_stride
                for j in range(VECTORS):
                    v = lane + j * LANES
                    if j < WHOLE_VECTORS or v < columns // WIDTH:
                        if NEEDS_X:
                            copy_X(slot + sub * X_PITCH + v * X_VECTOR, x_from + v * X_VECTOR)
                        copy_D(slot + X_SLOT + sub * D_PITCH + v * D_VECTOR, d_from + v * D_VECTOR)
            i.commit_copies()

    @device_function
    def shared_parameter_at(column: int) -> int:
        """Parameters lie in planes of 16 bytes a vector, so that a warp's loads of 16 bytes meet no bank twice."""
        vector, e = column // WIDTH, column % WIDTH
        return (e // QUAD) * PLANE + (vector * QUAD + e % QUAD) * HELD

    @device_function
    def load_shared_parameter(values: Any, at: int, vector: int) -> None:
        quad = cuda.local.array(QUAD, FLOAT)
        for plane in range(PLANES):
            load_quad(quad, at + plane * PLANE + vector * (QUAD * HELD))
            for e in range(QUAD):
                values[plane * QUAD + e] = quad[e]

    @device_function
    def centre(value: Any, m: Any, bias: Any) -> Any:
        """X - mean, which is xh / r; for the invertible norm Y - bias, which is xh * scale."""
        if INVERTIBLE:
            return value - bias
        if HAS_MEAN:
            return value - m
        return value

    @device_function
    def inverse(value: Any) -> Any:
        """1 / value: within 1 or 2 units in the last place of a float32."""
        return i.reciprocal_approximate(value) if SINGLE else FLOAT(1) / value

    @device_function
    def sum_pair_over_lanes(pair: Any, lanes: int) -> None:
        """Both values of `pair`, over `lanes` neighbouring lanes; every lane gets the same sum."""
        distance = int32(lanes // 2)
        while distance > 0:
            if CENTRED:
                pair[0] += shuffle_xor(pair[0], distance)
            pair[1] += shuffle_xor(pair[1], distance)
            distance = int32(distance // 2)

    @device_function
    def team_ready(team: int) -> None:
        if WARPS > 1:
            i.team_barrier(1 + team, TEAM)
        else:
            i.warp_barrier()

    def kernel(
        Y_grad: int, X: int, scale: int, bias: int, mean: int, inv_std: int,
        X_grad: int, scale_grad: int, bias_grad: int, partial: int, row_sums: int, counter: int,
        rows: int, D_stride: int, X_stride: int, out_stride: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        team = int32(thread // TEAM)
        member = int32(thread - team * TEAM)
        lane, sub = member, int32(0)
        if ROWS_AT_ONCE > 1:
            lane, sub = int32(member % LANES), int32(member // LANES)
        warp, warp_lane = int32(member // 32), int32(member % 32)
        slice_ = int32(cuda.blockIdx.x % SLICES)
        walker, walkers = int32(cuda.blockIdx.x // SLICES), int32(cuda.gridDim.x // SLICES)
        if not HOLD:  # the same for its one team, in fewer registers: what is divided above might be negative
            team, member, lane = int32(0), thread, thread
            warp, warp_lane = int32(thread >> 5), int32(thread & 31)
            slice_ = i.cluster_rank()  # and the compiler cannot know from it that a slice has all its vectors

        if PACKED:  # constants need no registers
            X_stride, D_stride, out_stride = COLUMNS * X_BYTES, COLUMNS * D_BYTES, COLUMNS * OUT_BYTES
        first_column = slice_ * SLICE
        columns = min(SLICE, COLUMNS - first_column)
        vectors = int32(columns // WIDTH)
        X = X + int64(first_column) * X_BYTES
        Y_grad = Y_grad + int64(first_column) * D_BYTES
        X_grad = X_grad + int64(first_column) * OUT_BYTES
        rows = ROW(rows)
        # neighbouring teams take neighbouring rows, and all blocks together move through the rows as one front: with a
        # block's rows apart from each other, or a part of the rows for each block, it is 3 to 8 % slower
        first_row = ROW((ROW(walker) * TEAMS + team) * ROWS_AT_ONCE)
        step = ROW(walkers * (TEAMS * ROWS_AT_ONCE))

        shared = i.shared_memory()
        arrived = shared + team * (STAGES * 8)
        exchanged = shared + EXCHANGE_BARRIERS + team * 16
        pairs = shared + PAIRS_AT + team * (2 * SLOTS * PAIR)
        ring = shared + RING_AT + team * (STAGES * STAGE)

        x, d = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        one, pair, more = cuda.local.array(1, FLOAT), cuda.local.array(2, FLOAT), cuda.local.array(2, FLOAT)
        four = cuda.local.array(4, FLOAT)
        first, second, third = (
            cuda.local.array(WIDTH, FLOAT),
            cuda.local.array(WIDTH, FLOAT),
            cuda.local.array(WIDTH, FLOAT),
        )
        xh, g = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        scales = cuda.local.array(PER_THREAD, FLOAT)
        some_scales, some_biases = cuda.local.array(SOME, FLOAT), cuda.local.array(SOME, FLOAT)
        scale_sum, bias_sum = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        s1, s2 = cuda.local.array(2, FLOAT), cuda.local.array(2, FLOAT)

        # the first rows are asked for before all else: the memory waits for nobody
        if member == 0:
            if BULK:
                for stage in range(STAGES):
                    i.transaction_barrier_init(arrived + stage * 8, 1)
            if CLUSTER:
                i.transaction_barrier_init(exchanged, WARPS)
                i.transaction_barrier_init(exchanged + 8, WARPS)
            if BULK or CLUSTER:
                i.transaction_barrier_fence()
        if RING:
            stage = i.unseen(0)
            while stage < STAGES:
                fetch(ring + stage * STAGE, arrived + stage * 8, X, Y_grad, X_stride, D_stride,
                      ROW(first_row + stage * step), rows, member, lane, sub, columns)  # fmt: skip
                stage = i.unseen(stage + 1)

        m, r = FLOAT(0), FLOAT(0)
        next_m, next_r = FLOAT(0), FLOAT(0)
        row = first_row
        mine = ROW(row + sub)
        if mine < rows and NEEDS_X:
            load_statistic(one, inv_std + int64(mine) * STATISTIC)
            next_r = one[0]
            if HAS_MEAN:
                load_statistic(one, mean + int64(mine) * STATISTIC)
                next_m = one[0]

        for j in range(VECTORS):
            v = lane + j * LANES
            for e in range(WIDTH):
                n = j * WIDTH + e
                scale_sum[n] = FLOAT(0)
                bias_sum[n] = FLOAT(0)
                scales[n] = FLOAT(0)
            if SCALE_HELD and ROW_TERMS and (j < WHOLE_VECTORS or v < vectors):
                for part in range(WIDTH // SCALE_WIDTH):
                    at = first_column + v * WIDTH + part * SCALE_WIDTH
                    load_scales(x, scale + int64(at) * PARAMETER)
                    for e in range(SCALE_WIDTH):
                        scales[j * WIDTH + part * SCALE_WIDTH + e] = x[e]

        slot = i.unseen(thread)
        while slot < TEAMS * 2 * SLOTS:  # those that no warp writes stay zero
            pair[0] = pair[1] = FLOAT(0)
            store_pair(shared + PAIRS_AT + slot * PAIR, pair)
            slot = i.unseen(slot + THREADS)
        if not SCALE_HELD:
            column = i.unseen(thread * SCALE_WIDTH)
            while column < columns:
                for q in range(AT_ONCE):  # independent loads, so that their latencies overlap
                    of = first_column + min(column + q * (THREADS * SCALE_WIDTH), columns - SCALE_WIDTH)
                    load_scales(x, scale + int64(of) * PARAMETER)
                    for e in range(SCALE_WIDTH):
                        some_scales[q * SCALE_WIDTH + e] = x[e]
                    if INVERTIBLE:
                        load_scales(x, bias + int64(of) * PARAMETER)
                        for e in range(SCALE_WIDTH):
                            some_biases[q * SCALE_WIDTH + e] = x[e]
                for q in range(AT_ONCE):
                    of = min(column + q * (THREADS * SCALE_WIDTH), columns - SCALE_WIDTH)
                    for part in range(SCALE_WIDTH // PIECE):
                        at = shared_parameter_at(of + part * PIECE)
                        for e in range(PIECE):
                            first[e] = some_scales[q * SCALE_WIDTH + part * PIECE + e]
                        store_piece(shared + SCALE_AT + at, first)
                        if INVERTIBLE:
                            if HOLD:
                                for e in range(PIECE):
                                    first[e] = FLOAT(1) / first[e]
                                store_piece(shared + INVERSE_AT + at, first)
                            for e in range(PIECE):
                                first[e] = some_biases[q * SCALE_WIDTH + part * PIECE + e]
                            store_piece(shared + BIAS_AT + at, first)
                column = i.unseen(column + AT_ONCE * THREADS * SCALE_WIDTH)
        if CLUSTER:
            i.cluster_barrier()
        else:
            cuda.syncthreads()

        stage, parity = int32(0), int32(0)
        done_rounds, seen, progress = int32(0), int32(0), counter + 128
        buffer, exchange_parity = int32(0), int32(0)
        while row < rows:
            mine = ROW(row + sub)
            valid = ROWS_AT_ONCE == 1 or mine < rows
            m, r = next_m, next_r
            after = ROW(mine + step)
            if after < rows and NEEDS_X:
                load_statistic(one, inv_std + int64(after) * STATISTIC)
                next_r = one[0]
                if HAS_MEAN:
                    load_statistic(one, mean + int64(after) * STATISTIC)
                    next_m = one[0]

            x_at, d_at = X + int64(mine) * X_stride, Y_grad + int64(mine) * D_stride
            if RING:
                stage_at = int32(stage * STAGE)
                x_shift, d_shift = int64(0), int64(0)
                if BULK and not ALIGNED:
                    start = row if PACKED else mine
                    x_shift = (X + int64(start) * X_stride) & 15
                    d_shift = (Y_grad + int64(start) * D_stride) & 15
                x_at = ring + stage_at + sub * X_PITCH + x_shift
                d_at = ring + stage_at + X_SLOT + sub * D_PITCH + d_shift
            if BULK:
                i.wait(arrived + stage * 8, parity)
            elif ASYNC:
                wait_for_copies()

            # first pass: xh, g, the row's s1 and s2, and the sums over rows
            s1[0] = s1[1] = s2[0] = s2[1] = FLOAT(0)
            for j in range(VECTORS):
                v = lane + j * LANES
                if valid and (j < WHOLE_VECTORS or v < vectors):
                    if NEEDS_X:
                        load_X(x, x_at + v * X_VECTOR)
                    load_D(d, d_at + v * D_VECTOR)
                    if INVERTIBLE and NEEDS_X:
                        load_shared_parameter(first, shared + BIAS_AT, v)
                    if not SCALE_HELD and ROW_TERMS:
                        load_shared_parameter(second, shared + SCALE_AT, v)
                    for e in range(WIDTH):
                        n = j * WIDTH + e
                        if NEEDS_X:
                            h = centre(x[e], m, first[e])
                            if HOLD and not INVERTIBLE:
                                h = h * r
                            p = d[e] * h
                            if SCALE_GRAD:  # invertible: the division by scale comes later, and s2 does without
                                scale_sum[n] += p * r if R_LATER else p
                            if ROW_TERMS:
                                w = scales[n] if SCALE_HELD else second[e]
                                k = d[e] * w
                                if CENTRED:
                                    s1[n & 1] += k
                                if INVERTIBLE:
                                    s2[n & 1] += p
                                elif R_LATER:
                                    s2[n & 1] += p * w
                                else:
                                    s2[n & 1] += k * h
                                if HOLD:
                                    xh[n] = h
                                    g[n] = k
                        if BIAS_GRAD:
                            bias_sum[n] += d[e]

            # the row's s1 and s2, over all its threads
            pair[0], pair[1] = s1[0] + s1[1], s2[0] + s2[1]
            if R_LATER:
                pair[1] *= r
            if ROW_TERMS and not GIVEN:
                sum_pair_over_lanes(pair, min(LANES, 32))
            if EXCHANGE:
                at = pairs + buffer * (SLOTS * PAIR)
                if CLUSTER:
                    # Each warp sends to all blocks, and arrives at its own block's barrier when all its lanes have read
                    # the stage: who has waited there may refill the stage, too. racecheck orders only the lane that
                    # arrives, not those that the warp's barrier put before it, and reports their reads against the
                    # refill. (A numbered barrier instead of this was 2 to 6 % slower at 65536 columns.)
                    done = exchanged + buffer * 8
                    i.warp_barrier()
                    if warp_lane == 0:
                        i.arrive_and_expect(done, SLICES * PAIR)
                    if warp_lane < SLICES:
                        to = i.peer_address(at + (slice_ * WARPS + warp) * PAIR, warp_lane)
                        send_pair(to, pair[0], pair[1], i.peer_address(done, warp_lane))
                    i.wait_cluster(done, exchange_parity)
                    exchange_parity = int32(exchange_parity ^ buffer)
                else:
                    if warp_lane == 0:
                        store_pair(at + warp * PAIR, pair)
                    i.team_barrier(1 + team, TEAM)
                buffer = int32(1 - buffer)  # so one barrier a row is enough
                if SLOTS <= 8:
                    pair[0] = pair[1] = FLOAT(0)
                    for slot in range(SLOTS // 2):
                        load_4(four, at + slot * (2 * PAIR))
                        pair[0] += four[0] + four[2]
                        pair[1] += four[1] + four[3]
                else:
                    load_pair(pair, at + warp_lane % min(SLOTS, 32) * PAIR)
                    for slot in range(32, SLOTS, 32):
                        load_pair(more, at + (slot + warp_lane) * PAIR)
                        pair[0] += more[0]
                        pair[1] += more[1]
                    sum_pair_over_lanes(pair, min(SLOTS, 32))
            elif RING and HOLD:
                team_ready(team)  # everyone has read the stage (an exchange says so too)
            if GIVEN and X_GRAD:
                pair[0] = pair[1] = FLOAT(0)
                for other in range(warp_lane, SLICES, 32):
                    load_global_pair(more, row_sums + (int64(row) * SLICES + other) * PAIR)
                    pair[0] += more[0]
                    pair[1] += more[1]
                sum_pair_over_lanes(pair, 32)
            if ROW_SUMS and lane == 0 and valid:
                store_global_pair(row_sums + (int64(mine) * SLICES + slice_) * PAIR, pair)

            refill = ROW(row + STAGES * step)
            if PACE > 0 and member == 0:
                # who is PACE rounds ahead of the average leaves the memory to others: rows in flight stay neighbours
                expected = int32(walkers * SLICES) * int32(done_rounds - PACE)
                while seen < expected:
                    seen = i.look(progress)
                if team == 0:
                    i.report(progress)
                seen = i.look(progress)  # for the next round
                done_rounds = int32(done_rounds + 1)
            if RING and HOLD:
                fetch(ring + stage_at, arrived + stage * 8, X, Y_grad, X_stride, D_stride, refill, rows,
                      member, lane, sub, columns)  # fmt: skip

            # second pass: X_grad = g * r + (xh * k2 + k1)
            if X_GRAD:
                k1, k2 = pair[0] * r * FLOAT(MINUS_MEAN), pair[1] * r * FLOAT(MINUS_MEAN)
                if R_LATER:
                    k2 *= r
                out_at = X_grad + int64(mine) * out_stride
                for j in range(VECTORS):
                    v = lane + j * LANES
                    if valid and (j < WHOLE_VECTORS or v < vectors):
                        if INVERTIBLE and HOLD:
                            load_shared_parameter(third, shared + INVERSE_AT, v)
                        if not HOLD:
                            load_X(x, x_at + v * X_VECTOR)
                            load_D(d, d_at + v * D_VECTOR)
                            load_shared_parameter(second, shared + SCALE_AT, v)
                            if INVERTIBLE:
                                load_shared_parameter(first, shared + BIAS_AT, v)
                        for e in range(WIDTH):
                            n = j * WIDTH + e
                            if HOLD:
                                h, k = xh[n], g[n]
                            else:
                                h, k = centre(x[e], m, first[e]), d[e] * second[e]
                            if INVERTIBLE:
                                h = h * (third[e] if HOLD else inverse(second[e]))
                            if CENTRED:
                                x[e] = k * r + (h * k2 + k1)
                            else:
                                x[e] = k * r + h * k2
                        store_X_grad(out_at + v * OUT_VECTOR, x)

            if RING and not HOLD:
                team_ready(team)
                fetch(ring + stage_at, arrived + stage * 8, X, Y_grad, X_stride, D_stride, refill, rows,
                      member, lane, sub, columns)  # fmt: skip
            row = ROW(row + step)
            stage = int32(stage + 1)
            if stage == STAGES:
                stage, parity = int32(0), int32(parity ^ 1)

        if CLUSTER:
            i.cluster_barrier()  # no block leaves while another may still send to it
        if SUMS:
            # one sum alone comes first
            first_sum, first_grad = (scale_sum, scale_grad) if SCALE_GRAD else (bias_sum, bias_grad)
            add_over_block(first_sum, bias_sum, partial, scale, first_grad, bias_grad, slice_, walker, columns)
            if not ALONE:
                add_over_grid(partial, counter, scale, first_grad, bias_grad, rows, walkers)

    return kernel
