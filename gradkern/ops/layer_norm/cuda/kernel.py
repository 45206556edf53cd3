"""The kernel of the layer norms and of their gradients. `build(config)` binds its constants; see RowConfig for their
meaning.

Of a norm (forward.row_passes, row_sums):

    mean = sum X / columns,  r = 1 / sqrt(sum (X - mean)^2 / columns + epsilon)     over the columns of a row
    Y = (X - mean) * r * scale + bias                                               (no mean for Simplified)

In the skip forms X is X + skip + shift, rounded to the type of skip; this sum is an output, too.

Of a gradient (row_passes, row_sums):

    xh = (X - mean) * r                       r: inverse standard deviation of the row
    g  = Y_grad * scale,  s1 = sum g,  s2 = sum g * xh         over the columns of a row
    X_grad = r * (g - s1 / columns - xh * s2 / columns)        (no mean and no s1 for Simplified), + residual if any
    scale_grad = sum Y_grad * xh,  bias_grad = sum Y_grad,  X_grad_sum = sum X_grad      over the rows
    branch_grad = X_grad, in another type

Algorithm: one launch of persistent blocks. A group of warps iterates over its rows. A ring of stages in shared memory,
filled by bulk copies some rows ahead (row_ring), keeps memory busy while the group computes. The first pass over a row
gives a pair of sums: s1 and s2, or a sum and a sum of squares. It is exchanged once: by shuffles, then between the
group's warps through shared memory, or between the blocks of a cluster that share the row. A row's values stay in
registers until the second pass: arrays are read once, results are written once.

Each thread of a gradient owns fixed columns and holds their sums over rows in registers. At the end (column_sums) each
block adds the sums of its groups and writes one row of partial sums. After a grid-wide barrier all blocks reduce those
rows in a fixed order: results are deterministic. For small arrays that barrier and reduction would take a third of the
time. Separate blocks then reduce over rows (column_blocks), and blocks with rows have no ring and end after their first
rows. Blocks of a norm are independent.

Wide rows of a gradient do not fit registers (not config.row_in_registers): the second pass reads the ring again, scale
and bias stay in shared memory in their own types, and r multiplies the sums of a row instead of every X - mean.

Rows that fit no cluster take two launches: one for their pairs (phase "row_sums"), one for the rest (phase "apply").
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.column_sums import column_sums
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.column_blocks import column_blocks
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig, NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.row_passes import norm_passes
from gradkern.ops.layer_norm.cuda.parameters import shared_parameters
from gradkern.ops.layer_norm.cuda.row_passes import divide_by_scale, gradient_passes
from gradkern.ops.layer_norm.cuda.row_ring import aligned_rows, row_group, row_ring
from gradkern.ops.layer_norm.cuda.row_sums import pair_exchange


def build(config: LayerNormConfig | NormForwardConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    WIDTH, LANES, BLOCKS_PER_ROW = config.width, config.lanes, config.blocks_per_row
    GROUPS, GROUP_THREADS = config.groups_per_block, config.group_threads
    THREADS, WARPS = config.threads, config.group_threads // 32
    GROUP_ROWS, STAGES, PER_THREAD = config.group_rows, config.stages, config.per_thread
    BULK, RING, CLUSTER = config.source == "bulk", config.ring, config.cluster
    SHARED = config.copies_parameters
    ROW_SUMS, APPLY, SECOND_PASS = config.phase == "row_sums", config.phase == "apply", config.has_second_pass
    EXCHANGE = config.row_terms and not APPLY and (WARPS > 1 or CLUSTER)
    GAPS = EXCHANGE and config.exchange_slots > WARPS * (BLOCKS_PER_ROW if CLUSTER else 1)
    ALIGNED_VECTORS, UNIT = config.aligned_vectors, config.vector_bytes
    X_BYTES, D_BYTES, OUT_BYTES = config.data_itemsize, config.upstream_itemsize, config.result_itemsize
    SECOND_BYTES = config.second_result_itemsize
    STAGE, SLOTS, PAIR = sum(config.slots), config.exchange_slots, 2 * config.itemsize
    PAIRS_AT, TAKEN = config.exchange_at, max(1, config.exchange_slots // 32)
    FLOAT = float32 if config.compute == "float32" else float64
    ROW = int64 if config.long_rows else int32
    row_address = i.row_address_long if config.long_rows else i.row_address

    SUMS, SEPARATE_REDUCTION = 0 if ROW_SUMS else config.sums, config.separate_reduction
    SINGLE_ROW = config.non_persistent and not SEPARATE_REDUCTION  # of a group
    IN_REGISTERS, REFILLS_EARLY, ZERO_PADDED = config.row_in_registers, config.refills_early, config.zero_padded
    SCALE_GRAD, BIAS_GRAD, X_GRAD_SUM = (each in config.written for each in ("scale_grad", "bias_grad", "X_grad_sum"))
    if isinstance(config, LayerNormConfig):
        passes, GIVEN, COUNTS = gradient_passes(config), config.needs_X, False
        HELD, KIND = PER_THREAD, FLOAT  # a thread's part of a parameter
        SINGLE_BLOCK, STRIPE, STRIPE_BLOCKS = (
            config.single_block,
            config.reduction_columns,
            config.reduction_cluster_size,
        )
        finish = divide_by_scale(config) if config.invertible and SCALE_GRAD else None
        add_over_block, add_over_grid = column_sums(config.column_sums, finish)
        add_columns = column_blocks(config, passes.given) if SEPARATE_REDUCTION else None
    else:
        passes, GIVEN, COUNTS = norm_passes(config), False, config.centred
        HELD, KIND = (config.parameter_words, int32) if config.parameters == "prefetched" else (PER_THREAD, FLOAT)
        SINGLE_BLOCK, STRIPE, STRIPE_BLOCKS = False, 1, 1
        add_over_block = add_over_grid = add_columns = None
    load_parameters, given, first_pass, share, merge, from_memory, numbers, second_pass = passes

    store_pair, store_global_pair = i.storer("shared", config.compute, 2), i.storer("global", config.compute, 2)
    fetch, wait_for_rows, places, pad = row_ring(config)
    places_of, wait_for_group = row_group(config)
    copy_parameters, _ = shared_parameters(config)
    exchange = pair_exchange(config)
    place_of, elements_inside = aligned_rows(config)
    float_of_bits = i.float_of_bits(config.compute)

    @device_function
    def result_address(base: int, row: int, stride: int) -> int:
        at = row_address(base, row, stride)
        return at & -UNIT if ALIGNED_VECTORS else at

    def kernel(
        X: int, upstream: int, added: int, result: int, second_result: int, scale: int, bias: int, shift: int,
        mean: int, inv_std: int, scale_grad: int, bias_grad: int, X_grad_sum: int,
        partial: int, sums_of_rows: int, counter: int,
        rows: int, X_stride: int, D_stride: int, added_stride: int, out_stride: int, second_stride: int,
        all_columns: int, slice_columns: int, over_columns_bits: int, epsilon_bits: int,
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
                    add_columns(upstream, X, scale, bias, mean, inv_std, scale_grad, bias_grad,
                                ROW(rows), ROW(D_stride), ROW(X_stride), int32(all_columns),
                                int32(cuda.blockIdx.x))  # fmt: skip
                return
            block, blocks = int32(block - first_block), int32(blocks - first_block)
        # the same for one group, in fewer registers: the compiler must assume that a dividend above may be negative
        if not IN_REGISTERS:
            group, group_thread, lane = int32(0), thread, thread
            warp, warp_lane = int32(thread >> 5), int32(thread & 31)
            slice_ = i.cluster_rank()  # from it the compiler cannot infer that a block has all its vectors

        over_columns, epsilon = float_of_bits(over_columns_bits), float_of_bits(epsilon_bits)
        # an address then takes one 32-bit multiplication
        X_stride, D_stride, added_stride = ROW(X_stride), ROW(D_stride), ROW(added_stride)
        out_stride, second_stride = ROW(out_stride), ROW(second_stride)
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
        upstream = upstream + int64(first_column) * D_BYTES
        added = added + int64(first_column) * X_BYTES
        result = result + int64(first_column) * OUT_BYTES
        second_result = second_result + int64(first_column) * SECOND_BYTES

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
                fetch(ring + stage * STAGE, arrived + stage * 8, X, upstream, added,
                      X_stride, D_stride, added_stride,
                      ROW(first_row + stage * step), rows, group_thread, lane, group_row, columns)  # fmt: skip
                stage = i.opaque(stage + 1)

        if ZERO_PADDED:
            pad(ring, lane, group_row, vectors)

        m, r = FLOAT(0), FLOAT(0)
        next_m, next_r = FLOAT(0), FLOAT(0)
        row = first_row
        own_row = ROW(row + group_row)
        if GIVEN and own_row < rows:
            next_m, next_r = given(mean, inv_std, own_row)

        pair = cuda.local.array(2, FLOAT)
        # of a row: X or xh, and Y_grad * scale; parameters; sums over rows
        x, g = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        scales, biases = cuda.local.array(HELD, KIND), cuda.local.array(HELD, KIND)
        shifts = cuda.local.array(PER_THREAD, FLOAT)
        scale_sum, bias_sum = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        dx_sum = cuda.local.array(PER_THREAD, FLOAT)
        if SUMS:
            for n in range(PER_THREAD):
                scale_sum[n] = bias_sum[n] = dx_sum[n] = FLOAT(0)
        load_parameters(scales, biases, shifts, scale, bias, shift, origin, own, lane, vectors)
        if SHARED:
            copy_parameters(scale, bias, origin, own, thread)
        if GAPS:
            slot = i.opaque(thread)
            while slot < GROUPS * 2 * SLOTS:  # slots that no warp writes stay zero
                pair[0] = pair[1] = FLOAT(0)
                store_pair(shared + PAIRS_AT + slot * PAIR, pair)
                slot = i.opaque(slot + THREADS)
        if CLUSTER and SINGLE_ROW:
            i.cluster_arrive()  # the wait follows when it has its row, before it sends to the others
        elif CLUSTER:
            i.cluster_barrier()
        elif GAPS or BULK or SHARED:  # else warps share nothing
            wait_for_block()

        # the number of elements of a warp's pair, and of the exchanged pairs that this lane takes: computed here,
        # because the compiler would not hoist their divisions out of the loop over rows
        counts, over_counts = cuda.local.array(TAKEN, FLOAT), cuda.local.array(TAKEN, FLOAT)
        over_own, over_whole = FLOAT(0), over_columns
        if COUNTS:
            whole = ROW(all_columns) if CLUSTER else columns
            shift_of, count = int32(first_column - origin), FLOAT(columns)
            if EXCHANGE:
                warp_slot = int32(slice_ * WARPS + warp) if CLUSTER else warp
                count = FLOAT(share(warp_slot, whole, slice_columns, shift_of))
                for k in range(TAKEN):
                    slot = int32(32 * k + warp_lane % min(SLOTS, 32))
                    counts[k] = FLOAT(share(slot, whole, slice_columns, shift_of))
                    over_counts[k] = FLOAT(1) / counts[k] if counts[k] > FLOAT(0) else FLOAT(0)
            over_own = FLOAT(1) / count if count > FLOAT(0) else FLOAT(0)
            if ROW_SUMS:
                over_whole = FLOAT(1) / FLOAT(columns)

        stage, parity = int32(0), int32(0)
        buffer, exchange_parity = int32(0), int32(0)
        while row < rows:
            if WARPS > 1:  # recomputed from an opaque value, so that these occupy no registers until then
                group = i.opaque(group)
                arrived, exchanged, pairs, ring = places_of(group)
            own_row = ROW(row + group_row)
            valid = GROUP_ROWS == 1 or own_row < rows
            if GIVEN:
                m, r = next_m, next_r
                after = ROW(own_row + step)
                if after < rows:
                    next_m, next_r = given(mean, inv_std, after)

            stage_at, barrier = ring + int32(stage * STAGE), arrived + stage * 8
            x_at, d_at, added_at = places(stage_at, X, upstream, added, X_stride, D_stride, added_stride,
                                          row, own_row, group_row, columns)  # fmt: skip
            wait_for_rows(barrier, parity)
            second_at = result_address(second_result, own_row, second_stride)
            first_pass(pair, x, g, scale_sum, bias_sum, scales, biases, shifts, scale, bias, first_column,
                       x_at, d_at, second_at, m, r, over_own, lane, vectors, inside, valid)  # fmt: skip

            if CLUSTER and SINGLE_ROW:
                i.cluster_wait()
            if EXCHANGE:
                at = exchange(pair, pairs, exchanged, buffer, exchange_parity, group, warp, warp_lane, slice_)
                merge(pair, at, counts, over_counts, over_whole, warp_lane)
                exchange_parity = int32(exchange_parity ^ buffer)
                buffer = int32(1 - buffer)
            elif RING and REFILLS_EARLY:
                wait_for_group(group)  # all threads have read the stage (an exchange implies it, too)
            refill = ROW(row + STAGES * step)
            if RING and REFILLS_EARLY:
                fetch(stage_at, barrier, X, upstream, added, X_stride, D_stride, added_stride, refill, rows,
                      group_thread, lane, group_row, columns)  # fmt: skip
            if ROW_SUMS and lane == 0 and valid:
                store_global_pair(sums_of_rows + (int64(own_row) * BLOCKS_PER_ROW + slice_) * PAIR, pair)
            if SECOND_PASS:
                if APPLY:
                    from_memory(pair, sums_of_rows, row, over_columns, warp_lane, all_columns, slice_columns)
                m, r = numbers(pair, m, r, mean, inv_std, own_row, over_columns, epsilon,
                               lane == 0 and valid and slice_ == 0)  # fmt: skip
                out_at = result_address(result, own_row, out_stride)
                second_at = result_address(second_result, own_row, second_stride)
                second_pass(pair, x, g, dx_sum, scales, biases, x_at, d_at, added_at, out_at, second_at, m, r,
                            over_columns, lane, vectors, inside, valid)  # fmt: skip
            if RING and not REFILLS_EARLY:
                wait_for_group(group)
                fetch(stage_at, barrier, X, upstream, added, X_stride, D_stride, added_stride, refill, rows,
                      group_thread, lane, group_row, columns)  # fmt: skip
            row = ROW(row + step)
            stage = int32(stage + 1)
            if stage == STAGES:
                stage, parity = int32(0), int32(parity ^ 1)

        if CLUSTER and not SINGLE_ROW:  # for a single row it has received everything already
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
