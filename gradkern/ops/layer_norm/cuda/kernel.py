"""The kernel of the three layer-norm gradients. `build(config)` binds its constants; see LayerNormConfig for their
meaning.

    xh = (X - mean) * r                       r: inverse standard deviation of the row
    g  = Y_grad * scale,  s1 = sum g,  s2 = sum g * xh         over the columns of a row
    X_grad = r * (g - s1 / columns - xh * s2 / columns)        (no mean and no s1 for Simplified), + residual if any
    scale_grad = sum Y_grad * xh,  bias_grad = sum Y_grad,  X_grad_sum = sum X_grad      over the rows
    branch_grad = X_grad, in another type

Algorithm: one launch of persistent blocks. A group of warps iterates over its rows. A ring of stages in shared memory,
filled by bulk copies some rows ahead (row_ring), keeps memory busy while the group computes (row_passes). Each thread
owns fixed columns and holds their sums over rows in registers. The two sums of a row are exchanged once (row_sums): by
shuffles, then between the group's warps through shared memory, or between the blocks of a cluster that share the row. X
and Y_grad are read once, X_grad is written once. At the end (column_sums) each block adds the sums of its groups and
writes one row of partial sums. After a grid-wide barrier all blocks reduce those rows in a fixed order: results are
deterministic.

For small arrays that barrier and reduction would take a third of the time. Separate blocks then reduce over rows
(column_blocks), and blocks with rows have no ring and end after their first rows.

Wide rows do not fit registers (not config.row_in_registers): the second pass reads the ring again, scale and bias stay
in shared memory in their own types, and r multiplies the sums of a row instead of every X - mean.

Rows that fit no cluster take two launches: one for s1 and s2 (phase "row_sums"), one for the rest (phase "apply").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.column_sums import column_sums
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.column_blocks import column_blocks
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.parameters import register_parameter, shared_parameters
from gradkern.ops.layer_norm.cuda.row_passes import row_passes
from gradkern.ops.layer_norm.cuda.row_ring import aligned_rows, row_group, row_ring
from gradkern.ops.layer_norm.cuda.row_sums import row_sums


def build(config: LayerNormConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    WIDTH, LANES, BLOCKS_PER_ROW = config.width, config.lanes, config.blocks_per_row
    GROUPS, GROUP_THREADS = config.groups_per_block, config.group_threads
    THREADS, WARPS = config.threads, config.group_threads // 32
    GROUP_ROWS, STAGES, PER_THREAD = config.group_rows, config.stages, config.per_thread
    IN_REGISTERS, SCALE_IN_REGISTERS = config.row_in_registers, config.scale_in_registers
    REFILLS_EARLY = config.refills_early
    BULK, RING, CLUSTER = config.source == "bulk", config.ring, config.cluster
    ROW_SUMS, APPLY = config.phase == "row_sums", config.phase == "apply"
    X_GRAD, SCALE_GRAD = config.makes_X_grad, "scale_grad" in config.written
    BIAS_GRAD, X_GRAD_SUM = "bias_grad" in config.written, "X_grad_sum" in config.written
    SUMS = 0 if ROW_SUMS else config.sums
    SEPARATE_REDUCTION, STRIPE = config.separate_reduction, config.reduction_columns
    STRIPE_BLOCKS = config.reduction_cluster_size
    ROW_TERMS, NEEDS_X, ZERO_PADDED = config.row_terms, config.needs_X, config.zero_padded
    EXCHANGE = ROW_TERMS and not APPLY and (WARPS > 1 or CLUSTER)
    SINGLE_BLOCK = config.single_block
    X_BYTES, D_BYTES, OUT_BYTES = config.data_itemsize, config.upstream_itemsize, config.result_itemsize
    BRANCH_BYTES = ITEMSIZE[config.branch or config.result]
    STAGE, SLOTS, PAIR = sum(config.slots), config.exchange_slots, 2 * config.itemsize
    PAIRS_AT, ALIGNED_VECTORS, UNIT = config.exchange_at, config.aligned_vectors, config.vector_bytes
    FLOAT = float32 if config.compute == "float32" else float64
    ROW = int64 if config.long_rows else int32
    row_address = i.row_address_long if config.long_rows else i.row_address

    store_pair, store_global_pair = i.storer("shared", config.compute, 2), i.storer("global", config.compute, 2)
    fetch, wait_for_rows, places, pad = row_ring(config)
    places_of, wait_for_group = row_group(config)
    load_scales = register_parameter(config, wanted=SCALE_IN_REGISTERS and ROW_TERMS)
    copy_parameters, load_shared_parameter = shared_parameters(config)
    first_pass, second_pass = row_passes(config, load_shared_parameter)
    add_over_lanes, add_over_warps, load_row_sums = row_sums(config)
    add_over_block, add_over_grid = column_sums(
        config.column_sums, _divide_by_scale(config) if config.invertible and SCALE_GRAD else None
    )
    load_statistics = _statistics(config)
    add_columns = column_blocks(config, load_statistics) if SEPARATE_REDUCTION else None
    place_of, elements_inside = aligned_rows(config)
    float_of_bits = i.float_of_bits(config.compute)

    def kernel(
        Y_grad: int, X: int, scale: int, bias_or_X_grad_sum: int, mean: int, inv_std: int,
        residual: int, X_grad: int, scale_grad: int, bias_grad: int, partial: int, sums_of_rows: int, counter: int,
        rows: int, D_stride: int, X_stride: int, residual_stride: int, out_stride: int,
        all_columns: int, slice_columns: int, minus_mean_bits: int, branch_grad: int, branch_stride: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        group = int32(thread // GROUP_THREADS)
        group_thread = int32(thread - group * GROUP_THREADS)
        lane, group_row = group_thread, int32(0)
        if GROUP_ROWS > 1:
            lane, group_row = int32(group_thread % LANES), int32(group_thread // LANES)
        warp, warp_lane = int32(group_thread // 32), int32(group_thread % 32)
        slice_ = int32(cuda.blockIdx.x % BLOCKS_PER_ROW)
        block, blocks = int32(cuda.blockIdx.x // BLOCKS_PER_ROW), int32(cuda.gridDim.x // BLOCKS_PER_ROW)
        if SEPARATE_REDUCTION:  # by the first blocks: they read most
            column_blocks = int32((all_columns + (STRIPE - 1)) // STRIPE * STRIPE_BLOCKS)
            first_block = int32((column_blocks + (BLOCKS_PER_ROW - 1)) // BLOCKS_PER_ROW)
            if block < first_block:
                if cuda.blockIdx.x < column_blocks:
                    add_columns(Y_grad, X, scale, bias_or_X_grad_sum, mean, inv_std, scale_grad, bias_grad,
                                ROW(rows), ROW(D_stride), ROW(X_stride), int32(all_columns),
                                int32(cuda.blockIdx.x))  # fmt: skip
                return
            block, blocks = int32(block - first_block), int32(blocks - first_block)
        # the same for one group, in fewer registers: the compiler must assume that a dividend above may be negative
        if not IN_REGISTERS:
            group, group_thread, lane = int32(0), thread, thread
            warp, warp_lane = int32(thread >> 5), int32(thread & 31)
            slice_ = i.cluster_rank()  # from it the compiler cannot infer that a block has all its vectors

        bias, X_grad_sum = bias_or_X_grad_sum, bias_or_X_grad_sum
        minus_mean = float_of_bits(minus_mean_bits)
        # an address then takes one 32-bit multiplication
        X_stride, D_stride = ROW(X_stride), ROW(D_stride)
        residual_stride, out_stride, branch_stride = ROW(residual_stride), ROW(out_stride), ROW(branch_stride)
        first_column, columns = int64(0), ROW(all_columns)
        if BLOCKS_PER_ROW > 1:
            first_column = slice_ * slice_columns
            columns = ROW(min(slice_columns, all_columns - first_column))
        # neighbouring groups take neighbouring rows, and all blocks move through the rows as one front. With a block's
        # rows spread out, or one contiguous part of the rows for each block, it is 3 to 8 % slower
        rows = ROW(rows)
        first_row = ROW((ROW(block) * GROUPS + group) * GROUP_ROWS)
        step = ROW(blocks * (GROUPS * GROUP_ROWS))
        vectors = int32(columns // WIDTH)
        origin, own, inside = int64(first_column), columns, int32(0)
        if ALIGNED_VECTORS:
            place, period, origin, own = place_of(block, first_column, slice_columns, all_columns)
            # blocks and rows form tuples of a period: a block's groups take the same place in each
            first_row = ROW(ROW(block - place) * GROUPS + group * period + place)
            vectors = int32((int32(own) + (WIDTH - 1)) // WIDTH)
            inside = elements_inside(lane, int32(-origin), int32(own))
            if BLOCKS_PER_ROW > 1:
                columns = own
        X = X + int64(first_column) * X_BYTES
        Y_grad = Y_grad + int64(first_column) * D_BYTES
        residual = residual + int64(first_column) * X_BYTES
        X_grad = X_grad + int64(first_column) * OUT_BYTES
        branch_grad = branch_grad + int64(first_column) * BRANCH_BYTES

        shared = i.shared_memory()
        arrived, exchanged, pairs, ring = places_of(group)

        # the first rows are requested before anything else
        if group_thread == 0:
            if BULK:
                for stage in range(STAGES):
                    i.transaction_barrier_init(arrived + stage * 8, 1)
            if CLUSTER:
                i.transaction_barrier_init(exchanged, WARPS)
                i.transaction_barrier_init(exchanged + 8, WARPS)
            if BULK or CLUSTER:
                i.transaction_barrier_fence()
        if RING:
            stage = i.opaque(0)
            while stage < STAGES:
                fetch(ring + stage * STAGE, arrived + stage * 8, X, Y_grad, residual,
                      X_stride, D_stride, residual_stride,
                      ROW(first_row + stage * step), rows, group_thread, lane, group_row, columns)  # fmt: skip
                stage = i.opaque(stage + 1)

        if ZERO_PADDED:
            pad(ring, lane, group_row, vectors)

        m, r = FLOAT(0), FLOAT(0)
        next_m, next_r = FLOAT(0), FLOAT(0)
        row = first_row
        own_row = ROW(row + group_row)
        if own_row < rows and NEEDS_X:
            next_m, next_r = load_statistics(mean, inv_std, own_row)

        pair = cuda.local.array(2, FLOAT)
        xh, g = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        scales = cuda.local.array(PER_THREAD, FLOAT)
        scale_sum, bias_sum = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        dx_sum = cuda.local.array(PER_THREAD, FLOAT)
        for n in range(PER_THREAD):
            scale_sum[n] = FLOAT(0)
            bias_sum[n] = FLOAT(0)
            if X_GRAD_SUM:
                dx_sum[n] = FLOAT(0)
        load_scales(scales, scale, origin, own, lane, vectors)

        slot = i.opaque(thread)
        while slot < GROUPS * 2 * SLOTS:  # slots that no warp writes stay zero
            pair[0] = pair[1] = FLOAT(0)
            store_pair(shared + PAIRS_AT + slot * PAIR, pair)
            slot = i.opaque(slot + THREADS)
        if not SCALE_IN_REGISTERS:
            copy_parameters(scale, bias, origin, own, thread)
        if CLUSTER:
            i.cluster_barrier()
        else:
            wait_for_block()

        stage, parity = int32(0), int32(0)
        buffer, exchange_parity = int32(0), int32(0)
        while row < rows:
            if WARPS > 1:  # recomputed from an opaque value, so that these occupy no registers until then
                group = i.opaque(group)
                arrived, exchanged, pairs, ring = places_of(group)
            own_row = ROW(row + group_row)
            valid = GROUP_ROWS == 1 or own_row < rows
            m, r = next_m, next_r
            after = ROW(own_row + step)
            if after < rows and NEEDS_X:
                next_m, next_r = load_statistics(mean, inv_std, after)

            stage_at, barrier = ring + int32(stage * STAGE), arrived + stage * 8
            x_at, d_at, z_at = places(stage_at, X, Y_grad, residual, X_stride, D_stride, residual_stride,
                                      row, own_row, group_row, columns)  # fmt: skip
            wait_for_rows(barrier, parity)
            first_pass(pair, xh, g, scale_sum, bias_sum, scales, x_at, d_at, m, r, lane, vectors, inside, valid)

            # the row's s1 and s2, over all its threads
            if ROW_TERMS and not APPLY:
                add_over_lanes(pair)
            if EXCHANGE:
                add_over_warps(pair, pairs, exchanged, buffer, exchange_parity, group, warp, warp_lane, slice_)
                exchange_parity = int32(exchange_parity ^ buffer)
                buffer = int32(1 - buffer)
            elif RING and REFILLS_EARLY:
                wait_for_group(group)  # all threads have read the stage (an exchange implies it, too)
            if APPLY and X_GRAD:
                load_row_sums(pair, sums_of_rows, row, warp_lane)
            if ROW_SUMS and lane == 0 and valid:
                store_global_pair(sums_of_rows + (int64(own_row) * BLOCKS_PER_ROW + slice_) * PAIR, pair)

            refill = ROW(row + STAGES * step)
            if RING and REFILLS_EARLY:
                fetch(stage_at, barrier, X, Y_grad, residual, X_stride, D_stride, residual_stride, refill, rows,
                      group_thread, lane, group_row, columns)  # fmt: skip
            if X_GRAD:
                out_at = row_address(X_grad, own_row, out_stride)
                branch_at = row_address(branch_grad, own_row, branch_stride)
                if ALIGNED_VECTORS:
                    out_at, branch_at = out_at & -UNIT, branch_at & -UNIT
                second_pass(pair, xh, g, dx_sum, x_at, d_at, z_at, out_at, branch_at, m, r, minus_mean,
                            lane, vectors, inside, valid)  # fmt: skip
            if RING and not REFILLS_EARLY:
                wait_for_group(group)
                fetch(stage_at, barrier, X, Y_grad, residual, X_stride, D_stride, residual_stride, refill, rows,
                      group_thread, lane, group_row, columns)  # fmt: skip
            row = ROW(row + step)
            stage = int32(stage + 1)
            if stage == STAGES:
                stage, parity = int32(0), int32(parity ^ 1)

        if CLUSTER:
            i.cluster_barrier()  # no block leaves while another may still send to it
        if SUMS:
            # requested sums come first
            if ALIGNED_VECTORS:  # recomputed: they occupied no registers until now
                block = i.opaque(int32(cuda.blockIdx.x))
                first_column, block = int64(block % BLOCKS_PER_ROW) * slice_columns, int32(block // BLOCKS_PER_ROW)
                _, _, origin, own = place_of(block, first_column, slice_columns, all_columns)
            second_sum, second_grad = (bias_sum, bias_grad) if BIAS_GRAD or not X_GRAD_SUM else (dx_sum, X_grad_sum)
            first_sum, first_grad = (scale_sum, scale_grad) if SCALE_GRAD else (second_sum, second_grad)
            if X_GRAD_SUM and not SCALE_GRAD:
                second_sum, second_grad = dx_sum, X_grad_sum
            add_over_block(first_sum, second_sum, dx_sum, partial, scale, first_grad, second_grad, X_grad_sum,
                           block, origin, own, all_columns)  # fmt: skip
            if not SINGLE_BLOCK:
                seen = rows + (WIDTH - 1) * GROUPS if ALIGNED_VECTORS else rows  # a tuple of blocks may have fewer rows
                add_over_grid(partial, counter, scale, first_grad, second_grad, X_grad_sum,
                              seen, blocks, all_columns)  # fmt: skip

    return kernel


def _statistics(config: LayerNormConfig) -> Callable[..., tuple[Any, Any]]:
    """The device function load(mean, inv_std, row): the row's mean, 0 where it has none, and its r."""
    HAS_MEAN, STATISTIC = config.has_mean, config.statistic_itemsize
    FLOAT = float32 if config.compute == "float32" else float64
    load_one = i.loader("global", config.statistic, 1)

    @device_function
    def load(mean: int, inv_std: int, row: int) -> tuple[Any, Any]:
        one, other = cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT)
        load_one(one, inv_std + int64(row) * STATISTIC)
        other[0] = FLOAT(0)
        if HAS_MEAN:
            load_one(other, mean + int64(row) * STATISTIC)
        return other[0], one[0]

    return load


def _divide_by_scale(config: LayerNormConfig) -> Callable[..., Any]:
    """The last step of scale_grad for the invertible norm, whose sum is that of Y_grad * xh * scale."""
    PARAMETER, FLOAT = config.parameter_itemsize, float32 if config.compute == "float32" else float64
    load_parameter = i.loader("global", config.parameter, 1)

    @device_function
    def divide_by_scale(part: int, column: int, value: Any, scale: int) -> Any:
        one = cuda.local.array(1, FLOAT)
        if part == 0:
            load_parameter(one, scale + int64(column) * PARAMETER)
            value = value / one[0]
        return value

    return divide_by_scale
