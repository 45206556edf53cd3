"""How rows reach a block: through a ring of stages in shared memory that is filled some rows ahead, or by plain loads.

bulk: one thread of a group issues bulk copies of whole rows, and a transaction barrier of the stage counts their bytes.
async: each thread copies the vectors that it will read itself (cp.async).

With aligned vectors (see RowConfig) a block takes rows of one shift, and its threads have fixed columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.units import bytes_spanned
from gradkern.ops.layer_norm.cuda.row_config import RowConfig
from gradkern.ops.layer_norm.cuda.row_sums import group_barrier


def row_ring(config: RowConfig) -> tuple[Callable[..., Any], ...]:
    """Four device functions:

    fetch(stage, barrier, X, Y_grad, Z, X_stride, D_stride, Z_stride, row, rows, group_thread, lane, group_row, columns)
        copies the rows from `row` on, as many as a group takes at a time, into the stage at this address: of those of
        X, Y_grad (the second array) and Z (the added array) that the config needs
    wait(barrier, parity)
        waits until this thread may read the stage
    places(stage, X, Y_grad, Z, X_stride, D_stride, Z_stride, row, own_row, group_row, columns)
        the addresses of this thread's rows of X, Y_grad and Z
    pad(ring, lane, group_row, vectors)
        writes zeros behind a row's vectors, in every stage: no copy overwrites them
    """
    ALIGNED, PACKED, BULK = config.aligned, config.packed, config.source == "bulk"
    ASYNC, RING = config.source == "async", config.ring
    (X_PITCH, D_PITCH), (X_SLOT, D_SLOT, _) = config.pitch, config.slots
    END_TO_END, X_BYTES, D_BYTES = config.end_to_end, config.data_itemsize, config.upstream_itemsize
    # the bits of an address that determine a row's offset in its stage: copies are whole units of 16 bytes
    WITHIN = 0 if ALIGNED else 15
    row_address = i.row_address_long if config.long_rows else i.row_address
    wait_for_copies = i.wait_for_copies(config.stages - 1)

    @device_function
    def wait(barrier: int, parity: int) -> None:
        if BULK:
            i.wait(barrier, parity)
        elif ASYNC:
            wait_for_copies()

    @device_function
    def places(
        stage: int, X: int, Y_grad: int, Z: int, X_stride: int, D_stride: int, Z_stride: int, row: int, own_row: int,
        group_row: int, columns: int,
    ) -> tuple[int, int, int]:  # fmt: skip
        x_at, d_at = row_address(X, own_row, X_stride), row_address(Y_grad, own_row, D_stride)
        z_at = row_address(Z, own_row, Z_stride)
        if RING:
            x_shift, d_shift, z_shift = int64(0), int64(0), int64(0)
            if BULK and WITHIN:
                start = row if PACKED else own_row
                x_shift = row_address(X, start, X_stride) & WITHIN
                d_shift = row_address(Y_grad, start, D_stride) & WITHIN
                z_shift = row_address(Z, start, Z_stride) & WITHIN
            if END_TO_END:
                x_at = stage + group_row * (columns * X_BYTES) + x_shift
                d_at = stage + X_SLOT + group_row * (columns * D_BYTES) + d_shift
                z_at = stage + X_SLOT + D_SLOT + group_row * (columns * X_BYTES) + z_shift
            else:
                x_at = stage + group_row * X_PITCH + x_shift
                d_at = stage + X_SLOT + group_row * D_PITCH + d_shift
                z_at = stage + X_SLOT + D_SLOT + group_row * X_PITCH + z_shift
        return x_at, d_at, z_at

    return (_bulk_fetch(config) if BULK else _thread_fetch(config)), wait, places, _pad(config)


def row_group(config: RowConfig) -> tuple[Callable[..., Any], ...]:
    """Two device functions of a group of warps:

    places(group)
        the addresses in shared memory of the barriers of its ring, those of its exchange, the exchanged pairs, the ring
    wait(group)
        a barrier of the group's threads
    """
    STAGES, STAGE, SLOTS, PAIR = config.stages, sum(config.slots), config.exchange_slots, 2 * config.itemsize
    EXCHANGE_BARRIERS, PAIRS_AT, RING_AT = config.exchange_barriers_at, config.exchange_at, config.ring_at

    @device_function
    def places(group: int) -> tuple[int, int, int, int]:
        shared = i.shared_memory()
        arrived, exchanged = shared + group * (STAGES * 8), shared + EXCHANGE_BARRIERS + group * 16
        pairs, ring = shared + PAIRS_AT + group * (2 * SLOTS * PAIR), shared + RING_AT + group * (STAGES * STAGE)
        return arrived, exchanged, pairs, ring

    return places, group_barrier(config)


def _pad(config: RowConfig) -> Callable[..., None]:
    WIDTH, LANES, VECTORS, STAGES, STAGE = config.width, config.lanes, config.vectors, config.stages, sum(config.slots)
    (X_PITCH, D_PITCH), (X_SLOT, _, _) = config.pitch, config.slots
    NEEDS_X, NEEDS_D = config.needs_X, config.needs_upstream
    X_VECTOR, D_VECTOR = WIDTH * config.data_itemsize, WIDTH * config.upstream_itemsize
    FLOAT = float32 if config.compute == "float32" else float64
    store_X = i.storer("shared", config.data, WIDTH, config.native_bfloat16)
    store_D = i.storer("shared", config.upstream, WIDTH, config.native_bfloat16)

    @device_function
    def pad(ring: int, lane: int, group_row: int, vectors: int) -> None:
        zeros = cuda.local.array(WIDTH, FLOAT)
        for e in range(WIDTH):
            zeros[e] = FLOAT(0)
        stage = i.opaque(0)
        while stage < STAGES:
            for j in range(VECTORS):
                v = lane + j * LANES
                if v >= vectors:
                    if NEEDS_X:
                        store_X(ring + stage * STAGE + group_row * X_PITCH + v * X_VECTOR, zeros)
                    if NEEDS_D:
                        store_D(ring + stage * STAGE + X_SLOT + group_row * D_PITCH + v * D_VECTOR, zeros)
            stage = i.opaque(stage + 1)

    return pad


def _bulk_fetch(config: RowConfig) -> Callable[..., None]:
    ALIGNED, PACKED, GROUP_ROWS = config.aligned and not config.aligned_vectors, config.packed, config.group_rows
    SPLIT_ALIGNED, UNIT = config.aligned_vectors and config.blocks_per_row > 1, config.vector_bytes
    NEEDS_X, NEEDS_D, NEEDS_Z = config.needs_X, config.needs_upstream, config.needs_added
    (X_PITCH, D_PITCH), (X_SLOT, D_SLOT, _) = config.pitch, config.slots
    X_BYTES, D_BYTES = config.data_itemsize, config.upstream_itemsize
    COPIES = 1 if GROUP_ROWS == 1 or PACKED else GROUP_ROWS
    ROW = int64 if config.long_rows else int32
    row_address = i.row_address_long if config.long_rows else i.row_address

    @device_function
    def span(address: int, size: int) -> int:
        """Bytes to copy for `size` bytes at `address`: whole units."""
        if SPLIT_ALIGNED:  # a block's columns begin with a unit, even if the address is within it
            return bytes_spanned(address & -UNIT, size)
        return size if ALIGNED else bytes_spanned(address, size)

    @device_function
    def copy_units(target: int, address: int, size: int, barrier: int) -> None:
        i.bulk_copy(target, address & -16, span(address, size), barrier)

    @device_function
    def fetch(
        stage: int, barrier: int, X: int, Y_grad: int, Z: int, X_stride: int, D_stride: int, Z_stride: int, row: int,
        rows: int, group_thread: int, lane: int, group_row: int, columns: int,
    ) -> None:  # fmt: skip
        if group_thread == 0 and row < rows:
            count = int32(min(ROW(GROUP_ROWS), ROW(rows - row))) if GROUP_ROWS > 1 else int32(1)
            copies, rows_each = (1, count) if PACKED else (count, 1)
            x_size, d_size = rows_each * columns * X_BYTES, rows_each * columns * D_BYTES
            x_from, d_from = row_address(X, row, X_stride), row_address(Y_grad, row, D_stride)
            z_from = row_address(Z, row, Z_stride)
            total = 0
            for copy in range(COPIES):
                if COPIES == 1 or copy < copies:
                    if NEEDS_X:
                        total += span(x_from + copy * X_stride, x_size)
                    if NEEDS_D:
                        total += span(d_from + copy * D_stride, d_size)
                    if NEEDS_Z:
                        total += span(z_from + copy * Z_stride, x_size)
            i.arrive_and_expect(barrier, total)
            for copy in range(COPIES):
                if COPIES == 1 or copy < copies:
                    if NEEDS_X:
                        copy_units(stage + copy * X_PITCH, x_from + copy * X_stride, x_size, barrier)
                    if NEEDS_D:
                        copy_units(stage + X_SLOT + copy * D_PITCH, d_from + copy * D_stride, d_size, barrier)
                    if NEEDS_Z:
                        z_at = stage + X_SLOT + D_SLOT + copy * X_PITCH
                        copy_units(z_at, z_from + copy * Z_stride, x_size, barrier)

    return fetch


def _thread_fetch(config: RowConfig) -> Callable[..., None]:
    """Every thread copies the vectors of one row that it alone will read."""
    ASYNC, WIDTH, LANES, VECTORS = config.source == "async", config.width, config.lanes, config.vectors
    UNPREDICATED_VECTORS, NEEDS_X, NEEDS_D = config.unpredicated_vectors, config.needs_X, config.needs_upstream
    NEEDS_Z = config.needs_added
    (X_PITCH, D_PITCH), (X_SLOT, D_SLOT, _) = config.pitch, config.slots
    X_VECTOR, D_VECTOR = WIDTH * config.data_itemsize, WIDTH * config.upstream_itemsize
    ROW = int64 if config.long_rows else int32
    row_address = i.row_address_long if config.long_rows else i.row_address
    copy_X = i.async_copy(min(16, X_VECTOR)) if ASYNC else None
    copy_D = i.async_copy(min(16, D_VECTOR)) if ASYNC else None

    @device_function
    def fetch(
        stage: int, barrier: int, X: int, Y_grad: int, Z: int, X_stride: int, D_stride: int, Z_stride: int, row: int,
        rows: int, group_thread: int, lane: int, group_row: int, columns: int,
    ) -> None:  # fmt: skip
        own_row = ROW(row + group_row)
        if own_row < rows:
            x_from, d_from = row_address(X, own_row, X_stride), row_address(Y_grad, own_row, D_stride)
            z_from = row_address(Z, own_row, Z_stride)
            for j in range(VECTORS):
                v = lane + j * LANES
                if j < UNPREDICATED_VECTORS or v < columns // WIDTH:
                    if NEEDS_X:
                        copy_X(stage + group_row * X_PITCH + v * X_VECTOR, x_from + v * X_VECTOR)
                    if NEEDS_D:
                        copy_D(stage + X_SLOT + group_row * D_PITCH + v * D_VECTOR, d_from + v * D_VECTOR)
                    if NEEDS_Z:
                        copy_X(stage + X_SLOT + D_SLOT + group_row * X_PITCH + v * X_VECTOR, z_from + v * X_VECTOR)
        i.commit_copies()

    return fetch


def aligned_rows(config: RowConfig) -> tuple[Callable[..., Any], Callable[..., int]]:
    """Two device functions:

    place_of(block, first_column, slice_columns, columns)
        the block's place in its tuple, the size of the tuple, the column of the row where the block's first vector
        begins, and the number of its columns from there
    elements_inside(lane, start, end)
        a bit for each of the thread's elements: set if it is between `start` and `end` of the block's columns
    """
    WIDTH, LANES, VECTORS = config.width, config.lanes, config.vectors
    ROW = int64 if config.long_rows else int32

    @device_function
    def place_of(block: int, first_column: int, slice_columns: int, columns: int) -> tuple[int, int, int, int]:
        period = i.quotient(int32(WIDTH), int32(min(WIDTH, columns & -columns)))
        place = int32(block & (period - 1))
        origin = int64(first_column) - ((place * int32(columns)) & (WIDTH - 1))
        return place, period, origin, ROW(min(slice_columns, columns - origin))

    @device_function
    def elements_inside(lane: int, start: int, end: int) -> int:
        inside = int32(0)
        for j in range(VECTORS):
            first = int32((lane + j * LANES) * WIDTH)
            before, until = min(max(start - first, 0), WIDTH), min(max(end - first, 0), WIDTH)
            inside |= int32(((1 << until) - 1) & -(1 << before)) << (j * WIDTH)
        return i.opaque(int32(inside))  # else the compiler keeps the values it was computed from in registers

    return place_of, elements_inside
