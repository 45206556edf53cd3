"""The kernel of the layer norms. `build(config)` binds its constants; see NormForwardConfig for their meaning.

    mean = sum X / columns,  r = 1 / sqrt(sum (X - mean)^2 / columns + epsilon)     over the columns of a row
    Y = (X - mean) * r * scale + bias                                               (no mean for Simplified)

In the skip forms X is X + skip + shift, rounded to the type of skip; this sum is an output, too.

The algorithm is that of the gradients' kernel (layer_norm.cuda.kernel), with the same ring of prefetched rows
(row_ring) and the same exchange of one pair a row between warps and between the blocks of a cluster (row_sums): here a
sum and a sum of squares (statistics). A row's values stay in registers until the pair is known, so X is read once. No
sum is over rows, so blocks are independent.

Rows that fit no cluster take two launches: one for their statistics (phase "row_sums"), one for the rest ("apply").
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.numbers import inverse_root
from gradkern.ops.layer_norm.cuda.forward.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.row_passes import row_passes
from gradkern.ops.layer_norm.cuda.forward.statistics import row_statistics
from gradkern.ops.layer_norm.cuda.parameters import parameter_words, register_parameter, shared_parameters
from gradkern.ops.layer_norm.cuda.row_ring import aligned_rows, row_group, row_ring
from gradkern.ops.layer_norm.cuda.row_sums import pair_exchange


def build(config: NormForwardConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument an int64."""
    WIDTH, BLOCKS_PER_ROW, PER_THREAD = config.width, config.blocks_per_row, config.per_thread
    LANES, GROUPS = config.lanes, config.groups_per_block
    GROUP_THREADS, WARPS = config.group_threads, config.group_threads // 32
    THREADS, GROUP_ROWS, STAGES = config.threads, config.group_rows, config.stages
    BULK, RING, CLUSTER = config.source == "bulk", config.ring, config.cluster
    CENTRED, NON_PERSISTENT = config.centred, config.non_persistent
    IN_REGISTERS, SHARED, AHEAD = (config.parameters == each for each in ("registers", "shared", "prefetched"))
    BIASED, SHIFTED = config.biased, config.shifted
    ROW_SUMS, APPLY = config.phase == "row_sums", config.phase == "apply"
    EXCHANGE = not APPLY and (WARPS > 1 or CLUSTER)
    GAPS = EXCHANGE and config.exchange_slots > WARPS * (BLOCKS_PER_ROW if CLUSTER else 1)
    ALIGNED_VECTORS, UNIT = config.aligned_vectors, config.vector_bytes
    Y_WRITTEN, MEAN, INV_STD = (each in config.written for each in ("Y", "mean", "inv_std"))
    X_BYTES, SKIP_BYTES, Y_BYTES = config.data_itemsize, config.upstream_itemsize, config.result_itemsize
    STATISTIC = config.statistic_itemsize
    STAGE, SLOTS, PAIR = sum(config.slots), config.exchange_slots, 2 * config.itemsize
    PAIRS_AT, TAKEN = config.exchange_at, max(1, config.exchange_slots // 32)
    FLOAT = float32 if config.compute == "float32" else float64
    ROW = int64 if config.long_rows else int32
    row_address = i.row_address_long if config.long_rows else i.row_address

    store_pair, store_global_pair = i.storer("shared", config.compute, 2), i.storer("global", config.compute, 2)
    store_statistic = i.storer("global", config.statistic, 1, config.native_bfloat16)
    fetch, wait_for_rows, places, _ = row_ring(config)
    places_of, wait_for_group = row_group(config)
    load_parameter = register_parameter(config, wanted=IN_REGISTERS and Y_WRITTEN)
    HELD, KIND = (config.parameter_words, int32) if AHEAD else (PER_THREAD, FLOAT)  # a thread's part of a parameter
    load_shift = register_parameter(config, wanted=SHIFTED)
    copy_parameters, load_shared_parameter = shared_parameters(config)
    take, squares, store = row_passes(config, load_shared_parameter, parameter_words(config))
    over_lanes, share, merge, statistics_from_memory = row_statistics(config)
    exchange = pair_exchange(config)
    place_of, elements_inside = aligned_rows(config)
    root = inverse_root(config.compute)
    float_of_bits = i.float_of_bits(config.compute)

    def kernel(
        X: int, skip: int, shift: int, scale: int, bias: int, Y: int, mean: int, inv_std: int, sum_: int,
        sums_of_rows: int, rows: int, X_stride: int, skip_stride: int, Y_stride: int, sum_stride: int,
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

        over_columns, epsilon = float_of_bits(over_columns_bits), float_of_bits(epsilon_bits)
        # an address then takes one 32-bit multiplication
        X_stride, skip_stride, Y_stride, sum_stride = ROW(X_stride), ROW(skip_stride), ROW(Y_stride), ROW(sum_stride)
        first_column, columns = int64(0), ROW(all_columns)
        if BLOCKS_PER_ROW > 1:
            first_column = slice_ * slice_columns
            columns = ROW(min(slice_columns, all_columns - first_column))
        vectors = int32(columns // WIDTH)
        origin, of_slice, place, period, inside = int64(first_column), columns, int32(0), int32(1), int32(0)
        if ALIGNED_VECTORS:
            place, period, origin, of_slice = place_of(block, first_column, slice_columns, all_columns)
            vectors = int32((int32(of_slice) + (WIDTH - 1)) // WIDTH)
            inside = elements_inside(lane, int32(-origin), int32(of_slice))
            if BLOCKS_PER_ROW > 1:
                columns = of_slice
        X = X + int64(first_column) * X_BYTES
        skip = skip + int64(first_column) * SKIP_BYTES
        sum_ = sum_ + int64(first_column) * SKIP_BYTES
        Y = Y + int64(first_column) * Y_BYTES
        rows = ROW(rows)
        first_row = ROW((ROW(block) * GROUPS + group) * GROUP_ROWS)
        if ALIGNED_VECTORS:  # blocks and rows form tuples of a period: a block's groups take the same place in each
            first_row = ROW(ROW(block - place) * GROUPS + group * period + place)
        step = ROW(blocks * (GROUPS * GROUP_ROWS))

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
                fetch(ring + stage * STAGE, arrived + stage * 8, X, skip, X, X_stride, skip_stride, X_stride,
                      ROW(first_row + stage * step), rows, group_thread, lane, group_row, columns)  # fmt: skip
                stage = i.opaque(stage + 1)

        pair, one = cuda.local.array(2, FLOAT), cuda.local.array(1, FLOAT)
        x = cuda.local.array(PER_THREAD, FLOAT)
        scales, biases = cuda.local.array(HELD, KIND), cuda.local.array(HELD, KIND)
        shifts = cuda.local.array(PER_THREAD, FLOAT)
        if SHIFTED:
            load_shift(shifts, shift, origin, of_slice, lane, vectors)
        if IN_REGISTERS and Y_WRITTEN:
            load_parameter(scales, scale, origin, of_slice, lane, vectors)
            if BIASED:
                load_parameter(biases, bias, origin, of_slice, lane, vectors)
        elif SHARED and Y_WRITTEN:
            copy_parameters(scale, bias, origin, of_slice, thread)

        if GAPS:
            slot = i.opaque(thread)
            while slot < GROUPS * 2 * SLOTS:  # slots that no warp writes stay zero
                pair[0] = pair[1] = FLOAT(0)
                store_pair(shared + PAIRS_AT + slot * PAIR, pair)
                slot = i.opaque(slot + THREADS)
        if CLUSTER and NON_PERSISTENT:
            i.cluster_arrive()  # the wait follows when it has its row, before it sends to the others
        elif CLUSTER:
            i.cluster_barrier()
        elif GAPS or BULK or SHARED:  # else warps share nothing
            wait_for_block()

        # the number of elements of a warp's pair, and of the exchanged pairs that this lane takes: computed here,
        # because the compiler would not hoist their divisions out of the loop over rows
        whole = ROW(all_columns) if CLUSTER else columns
        shift_of = int32(first_column - origin)
        own = FLOAT(columns)
        n, over_n = cuda.local.array(TAKEN, FLOAT), cuda.local.array(TAKEN, FLOAT)
        if EXCHANGE:
            own = FLOAT(share(int32(slice_ * WARPS + warp) if CLUSTER else warp, whole, slice_columns, shift_of))
            if CENTRED:
                for k in range(TAKEN):
                    slot = int32(32 * k + warp_lane % min(SLOTS, 32))
                    n[k] = FLOAT(share(slot, whole, slice_columns, shift_of))
                    over_n[k] = FLOAT(1) / n[k] if n[k] > FLOAT(0) else FLOAT(0)
        over_own = FLOAT(1) / own if own > FLOAT(0) else FLOAT(0)
        over_whole = FLOAT(1) / FLOAT(columns) if ROW_SUMS and CENTRED else over_columns

        stage, parity = int32(0), int32(0)
        buffer, exchange_parity = int32(0), int32(0)
        row = first_row
        while row < rows:
            if WARPS > 1:  # recomputed from an opaque value, so that these occupy no registers until then
                group = i.opaque(group)
                arrived, exchanged, pairs, ring = places_of(group)
            own_row = ROW(row + group_row)
            valid = GROUP_ROWS == 1 or own_row < rows

            stage_at, barrier = ring + int32(stage * STAGE), arrived + stage * 8
            x_at, skip_at, _ = places(stage_at, X, skip, X, X_stride, skip_stride, X_stride,
                                      row, own_row, group_row, columns)  # fmt: skip
            wait_for_rows(barrier, parity)
            sum_at = row_address(sum_, own_row, sum_stride)
            if ALIGNED_VECTORS:
                sum_at &= -UNIT
            total = take(x, x_at, skip_at, sum_at, shifts, scales, biases,
                         scale, bias, first_column, lane, vectors, inside, valid)  # fmt: skip

            # the row's sum and its squares, over all its threads
            if not APPLY:
                if CENTRED:
                    total = over_lanes(total)
                    pair[0] = total
                pair[1] = over_lanes(squares(x, total * over_own, lane, vectors, inside, valid))
            if CLUSTER and NON_PERSISTENT:
                i.cluster_wait()
            if EXCHANGE:
                at = exchange(pair, pairs, exchanged, buffer, exchange_parity, group, warp, warp_lane, slice_)
                merge(pair, at, n, over_n, over_whole, warp_lane)
                exchange_parity = int32(exchange_parity ^ buffer)
                buffer = int32(1 - buffer)
            elif RING:
                wait_for_group(group)  # all threads have read the stage (an exchange implies it, too)
            if RING:
                fetch(stage_at, barrier, X, skip, X, X_stride, skip_stride, X_stride, ROW(row + STAGES * step), rows,
                      group_thread, lane, group_row, columns)  # fmt: skip
            if APPLY:
                statistics_from_memory(pair, sums_of_rows, row, over_columns, warp_lane, all_columns, slice_columns)

            if ROW_SUMS:
                if lane == 0 and valid:
                    store_global_pair(sums_of_rows + (int64(own_row) * BLOCKS_PER_ROW + slice_) * PAIR, pair)
            else:
                m = pair[0] * over_columns if CENTRED else FLOAT(0)
                r = root(pair[1] * over_columns + epsilon)
                if lane == 0 and valid and slice_ == 0:
                    if MEAN:
                        one[0] = m
                        store_statistic(mean + int64(own_row) * STATISTIC, one)
                    if INV_STD:
                        one[0] = r
                        store_statistic(inv_std + int64(own_row) * STATISTIC, one)
                if Y_WRITTEN:
                    y_at = row_address(Y, own_row, Y_stride)
                    if ALIGNED_VECTORS:
                        y_at &= -UNIT
                    store(x, y_at, m, r, scales, biases, lane, vectors, inside, valid)

            row = ROW(row + step)
            stage = int32(stage + 1)
            if stage == STAGES:
                stage, parity = int32(0), int32(parity ^ 1)

        if CLUSTER and not NON_PERSISTENT:  # for a single row it has received everything already
            i.cluster_barrier()  # no block leaves while another may still send to it

    return kernel
