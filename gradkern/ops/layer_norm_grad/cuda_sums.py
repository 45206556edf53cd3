"""The end of the layer-norm kernel: the sums over rows, from each thread's registers to scale_grad and bias_grad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda import intrinsics as i
from gradkern.ops.layer_norm_grad.cuda_form import Form

__all__ = ["column_sums"]


def column_sums(form: Form) -> tuple[Callable[..., None], Callable[..., None]]:
    """The device functions add_over_block and add_over_grid for `form`."""
    COLUMNS, WIDTH, LANES, VECTORS = form.columns, form.width, form.lanes, form.vectors
    TEAMS, TEAM, THREADS, ROWS_AT_ONCE = form.teams, form.team_threads, form.threads, form.rows_at_once
    SLICE, WHOLE_VECTORS, PER_THREAD = form.slice_columns, form.whole_vectors, form.per_thread
    SCALE_GRAD, BIAS_GRAD = "scale_grad" in form.outputs, "bias_grad" in form.outputs
    SUMS, INVERTIBLE, PACE, ALONE = form.sums, form.invertible, form.pace, form.alone
    PARAMETER, ITEM, RING_AT = form.parameter_itemsize, form.itemsize, form.ring_at
    SLICE_4 = -(-SLICE // 4) * 4
    PADDED, CHUNK = form.padded_columns, form.chunk
    ITEMS = SUMS * PADDED // (4 * CHUNK)
    WALKERS, BLOCK_WARPS = THREADS // CHUNK, THREADS // 32
    BIAS_ROW = 1 if SCALE_GRAD else 0  # in a row of partial sums
    FLOAT = float64 if form.compute == "float64" else float32

    load_parameter = i.loader("global", form.parameter, 1)
    store_parameter = i.storer("global", form.parameter, 1, form.native_bfloat16)
    load_one = i.loader("shared", form.compute, 1)
    load_4 = i.loader("shared", form.compute, 4)
    load_global_4 = i.loader("global", form.compute, 4)
    store_vector = i.storer("shared", form.compute, WIDTH)
    store_global_vector = i.storer("global", form.compute, WIDTH)
    store_4 = i.storer("shared", form.compute, 4)
    store_partial_4 = i.storer("global", form.compute, 4)
    shuffle_xor = i.shuffle_xor_double if form.compute == "float64" else i.shuffle_xor
    inline = cuda.jit(device=True, inline="always")

    @inline
    def write_sum(part: int, column: int, value: Any, scale: int, scale_grad: int, bias_grad: int) -> None:
        """One element of scale_grad (part 0, where that is wanted) or of bias_grad."""
        one = cuda.local.array(1, FLOAT)
        if column < COLUMNS:
            if SCALE_GRAD and part == 0:
                if INVERTIBLE:  # the sums were of Y_grad * xh * scale
                    load_parameter(one, scale + int64(column) * PARAMETER)
                    value = value / one[0]
                one[0] = value
                store_parameter(scale_grad + int64(column) * PARAMETER, one)
            else:
                one[0] = value
                store_parameter(bias_grad + int64(column) * PARAMETER, one)

    @inline
    def add_over_block(
        scale_sum: Any, bias_sum: Any, partial: int, scale: int, scale_grad: int, bias_grad: int,
        slice_: int, walker: int, columns: int,
    ) -> None:  # fmt: skip
        """Over the rows a warp takes at once, then over teams; leaves one row of partial sums a block."""
        thread = int32(cuda.threadIdx.x)
        team = int32(thread // TEAM)
        member = int32(thread - team * TEAM)
        lane, sub = int32(member % LANES), int32(member // LANES)
        vectors, first_column = int32(columns // WIDTH), slice_ * SLICE
        shared = i.shared_memory()
        x = cuda.local.array(WIDTH, FLOAT)
        four, total = cuda.local.array(4, FLOAT), cuda.local.array(4, FLOAT)
        distance = int32(LANES)
        while distance < 32:
            for n in range(PER_THREAD):
                if SCALE_GRAD:
                    scale_sum[n] += shuffle_xor(scale_sum[n], distance)
                if BIAS_GRAD:
                    bias_sum[n] += shuffle_xor(bias_sum[n], distance)
            distance = int32(distance * 2)
        out_at = partial + (int64(walker) * SUMS * PADDED + first_column) * ITEM
        team_at = shared + RING_AT + team * (SUMS * SLICE_4 * ITEM)
        cuda.syncthreads()  # the ring is free
        cuda.syncthreads()  # with one alone racecheck reports a hazard where a team had no row; it is not explained
        for j in range(VECTORS):
            v = lane + j * LANES
            if sub == 0 and (j < WHOLE_VECTORS or v < vectors):
                if SCALE_GRAD:
                    for e in range(WIDTH):
                        x[e] = scale_sum[j * WIDTH + e]
                    if TEAMS == 1 and not ALONE:
                        store_global_vector(out_at + v * (WIDTH * ITEM), x)
                    else:
                        store_vector(team_at + v * (WIDTH * ITEM), x)
                if BIAS_GRAD:
                    for e in range(WIDTH):
                        x[e] = bias_sum[j * WIDTH + e]
                    if TEAMS == 1 and not ALONE:
                        store_global_vector(out_at + (BIAS_ROW * PADDED + v * WIDTH) * ITEM, x)
                    else:
                        store_vector(team_at + (BIAS_ROW * SLICE_4 + v * WIDTH) * ITEM, x)
        if TEAMS > 1 or ALONE:
            cuda.syncthreads()
            cuda.syncthreads()
            for part in range(SUMS):
                column = i.unseen(4 * thread)
                while column < columns:
                    for e in range(4):
                        total[e] = FLOAT(0)
                    for other in range(TEAMS):
                        load_4(four, shared + RING_AT + ((other * SUMS + part) * SLICE_4 + column) * ITEM)
                        for e in range(4):
                            total[e] += four[e]
                    if ALONE:
                        for e in range(4):
                            if column + e < columns:
                                write_sum(part, first_column + column + e, total[e], scale, scale_grad, bias_grad)
                    else:  # what lies beyond the last column goes into the padding of the partial row
                        store_partial_4(out_at + (part * PADDED + column) * ITEM, total)
                    column = i.unseen(column + 4 * THREADS)

    @inline
    def add_over_grid(
        partial: int, counter: int, scale: int, scale_grad: int, bias_grad: int, rows: int, walkers: int
    ) -> None:
        """Over the blocks: wait for all of them, then each adds the partial rows of some columns, in a fixed order."""
        thread = int32(cuda.threadIdx.x)
        shared = i.shared_memory()
        one, four = cuda.local.array(1, FLOAT), cuda.local.array(4, FLOAT)
        total, ahead = cuda.local.array(4, FLOAT), cuda.local.array(16, FLOAT)
        # wait for all blocks: the first turns the counter's top bit once every other has added one (so the
        # counter is ready for the next launch, of any grid)
        i.memory_fence()
        cuda.syncthreads()
        if thread == 0:
            amount = int64(1)
            if cuda.blockIdx.x == 0:
                amount = int64(2147483648) - (cuda.gridDim.x - 1)
            i.grid_wait(counter, i.grid_arrive(counter, amount))
            if PACE > 0 and cuda.blockIdx.x == 0:
                i.clear(counter + 128)
        cuda.syncthreads()

        # the parameter gradients: each block adds the partial rows of some columns, CHUNK threads side by side
        partial_rows = int32(min(int64(walkers), (int64(rows) + TEAMS * ROWS_AT_ONCE - 1) // (TEAMS * ROWS_AT_ONCE)))
        across, down = int32(thread % CHUNK), int32(thread // CHUNK)
        last = shared + RING_AT
        for item in range(cuda.blockIdx.x, ITEMS, cuda.gridDim.x):
            column_at = partial + (int64(item) * CHUNK + across) * (4 * ITEM)
            for e in range(4):
                total[e] = FLOAT(0)
            start = i.unseen(down)
            while start < partial_rows:
                for q in range(4):  # independent loads, so that their latencies overlap
                    from_row = min(int32(start + q * WALKERS), int32(partial_rows - 1))
                    load_global_4(four, column_at + int64(from_row) * (SUMS * PADDED * ITEM))
                    for e in range(4):
                        ahead[q * 4 + e] = four[e]
                for q in range(4):
                    if start + q * WALKERS < partial_rows:
                        for e in range(4):
                            total[e] += ahead[q * 4 + e]
                start = i.unseen(start + 4 * WALKERS)
            distance = int32(CHUNK)
            while distance < 32:
                for e in range(4):
                    total[e] += shuffle_xor(total[e], distance)
                distance = int32(distance * 2)
            if thread % 32 < CHUNK:
                store_4(last + (thread // 32 * CHUNK + across) * (4 * ITEM), total)
            cuda.syncthreads()
            if thread < 4 * CHUNK:
                value = FLOAT(0)
                other = i.unseen(0)
                while other < BLOCK_WARPS:
                    load_one(one, last + (other * (4 * CHUNK) + thread) * ITEM)
                    value += one[0]
                    other = i.unseen(other + 1)
                column = int64(item) * (4 * CHUNK) + thread
                part = column // PADDED
                column -= part * PADDED
                write_sum(part, column, value, scale, scale_grad, bias_grad)
            cuda.syncthreads()

    return add_over_block, add_over_grid
