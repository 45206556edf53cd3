"""im2col and col2im, and the other kernels between a convolution's tensors and the matrices of its products.

    gather      matrix[image, p, channel, tap] = tensor[image, channel, step*q + first + spacing*tap], 0 outside
    pack        packed[group, filter, tap, channel] = W[filter, channel, tap]
    add_shares  dW[filter, channel, tap] = sum over shares of shares[share, filter, channel, tap]
    col2im      tensor[image, channel, x] = sum over taps t of matrix[image, q, channel, t],
                q*step = x + begin - t*dilation: dX from the products of all filter taps

p counts the positions q of a grid in row-major order. All strides are in bytes.

A kernel's arguments are int64, in one list that `im2col` fills. Device functions take arguments of one kind, such as
the strides of the three axes, as a tuple; this does not change the machine code.

All are bound by memory. Several channels share the computations for a position (its place in the grid, whether a tap is
inside), and a thread issues its loads before its first store. Neighbouring threads have neighbouring positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.ops.conv.cuda.gemm.positions import offset, positions, rows_of


def build(config: Im2colConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument an int64."""
    makers = {"gather": _gather, "pack": _pack, "add_shares": _add_shares, "col2im": _col2im}
    return makers[config.kernel](config)


def _gather(config: Im2colConfig) -> Callable[..., None]:
    """A thread has one position and `chunk` channels, `at_once` of them at a time."""
    GROUPED, U, CHUNK = config.grouped, config.at_once, config.chunk
    WORD = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load, store = i.loader("global", config.word, 1), i.storer("global", config.word, 1, config.native_bfloat16)
    own, divided, unravelled = positions(INDEX, config.threads)
    start_of, row_of = rows_of(INDEX, GROUPED)

    def gather(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        blocks: int, grid1: int, grid2: int, size0: int, size1: int, size2: int,
        tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, taps0: int, taps1: int, taps2: int,
        first0: int, first1: int, first2: int, spacing0: int, spacing1: int, spacing2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        one, held = cuda.local.array(1, WORD), cuda.local.array(U, WORD)
        groups = group_channels, matrix_group, matrix_channel
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            q0, q1, q2 = unravelled(INDEX(p + INDEX(start)), grid1, grid2)
            x0 = INDEX(q0 * INDEX(step0) + INDEX(first0))
            x1 = INDEX(q1 * INDEX(step1) + INDEX(first1))
            x2 = INDEX(q2 * INDEX(step2) + INDEX(first2))
            at = tensor + image * tensor_image + offset((x0, x1, x2), (tensor0, tensor1, tensor2))
            to = matrix + image * matrix_image + p * matrix_position
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            while c < stop:
                column, at0, y0 = to + start_of(c, groups), at + c * tensor_channel, x0
                for _t0 in range(int32(taps0)):
                    at1, y1 = at0, x1
                    for _t1 in range(int32(taps1)):
                        at2, y2 = at1, x2
                        inside1 = y0 >= 0 and y0 < INDEX(size0) and y1 >= 0 and y1 < INDEX(size1)
                        for _t2 in range(int32(taps2)):
                            for u in range(U):
                                held[u] = WORD(0)
                            if inside1 and y2 >= 0 and y2 < INDEX(size2):
                                source = at2
                                for u in range(U):
                                    if c + u < stop:
                                        load(one, source)
                                        held[u] = one[0]
                                    source += tensor_channel
                            target = column
                            for u in range(U):
                                if c + u < stop:
                                    one[0] = held[u]
                                    store(column + row_of(c, u, groups) if GROUPED else target, one)
                                target += matrix_channel
                            column += matrix_tap
                            at2 += spacing2 * tensor2
                            y2 = INDEX(y2 + INDEX(spacing2))
                        at1 += spacing1 * tensor1
                        y1 = INDEX(y1 + INDEX(spacing1))
                    at0 += spacing0 * tensor0
                    y0 = INDEX(y0 + INDEX(spacing0))
                c = INDEX(c + U)

    return gather


def _pack(config: Im2colConfig) -> Callable[..., None]:
    WORD = float64 if config.word == "float64" else float32
    INDEX, THREADS, BYTES = (int64 if config.wide else int32), config.threads, ITEMSIZE[config.word]
    load, store = i.loader("global", config.word, 1), i.storer("global", config.word, 1, config.native_bfloat16)

    _, divided, _ = positions(INDEX, config.threads)

    def pack(
        W: int, packed: int, total: int, channels: int, group_filters: int, W_filter: int, W_channel: int,
        taps0: int, taps1: int, taps2: int, W_tap0: int, W_tap1: int, W_tap2: int,
        packed_group: int, packed_filter: int, packed_tap: int,
    ) -> None:  # fmt: skip
        one = cuda.local.array(1, WORD)
        e = INDEX(INDEX(cuda.blockIdx.x) * THREADS + INDEX(cuda.threadIdx.x))
        if e < INDEX(total):  # over filters and channels
            m, c = divided(e, channels)
            group, filter_ = divided(m, group_filters)
            at = W + m * W_filter + c * W_channel
            to = packed + group * packed_group + filter_ * packed_filter + c * BYTES
            for t0 in range(int32(taps0)):
                for t1 in range(int32(taps1)):
                    for t2 in range(int32(taps2)):
                        load(one, at + t0 * W_tap0 + t1 * W_tap1 + t2 * W_tap2)
                        store(to, one)
                        to += packed_tap

    return pack


def _add_shares(config: Im2colConfig) -> Callable[..., None]:
    """A block's warps have `walkers` runs of shares each, of 32 adjacent elements; they are added in a fixed order."""
    WALKERS, TAPS_INSIDE = config.walkers, config.taps_inside
    LANES = config.threads // WALKERS
    ITEM = 8 if config.word == "float64" else 4
    FLOAT = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load = i.loader("global", config.word, 1)
    store = i.storer("global", config.result, 1, config.native_bfloat16)
    load_shared, store_shared = i.loader("shared", config.word, 1), i.storer("shared", config.word, 1)

    _, divided, unravelled = positions(INDEX, config.threads)

    def add_shares(
        shares: int, dW: int, total: int, count: int, distance: int, rows: int, inner: int, taps1: int, taps2: int,
        dW_filter: int, dW_channel: int, dW_tap0: int, dW_tap1: int, dW_tap2: int,
    ) -> None:  # fmt: skip
        one, held = cuda.local.array(1, FLOAT), cuda.local.array(4, FLOAT)
        walker, lane = int32(cuda.threadIdx.x // LANES), int32(cuda.threadIdx.x % LANES)
        shared = i.shared_memory()
        e = INDEX(INDEX(cuda.blockIdx.x) * LANES + INDEX(lane))
        sum_ = FLOAT(0)
        if e < INDEX(total):
            share = int32(walker)
            while share < count:
                for q in range(4):  # independent loads, so that their latencies overlap
                    held[q] = FLOAT(0)
                    if share + q * WALKERS < count:
                        load(one, shares + int64(share + q * WALKERS) * distance + e * ITEM)
                        held[q] = one[0]
                for q in range(4):
                    sum_ += held[q]
                share = int32(share + 4 * WALKERS)
        if WALKERS > 1:
            one[0] = sum_
            store_shared(shared + int32(cuda.threadIdx.x) * ITEM, one)
            wait_for_block()
            if walker == 0:
                for other in range(1, WALKERS):
                    load_shared(one, shared + int32(other * LANES + lane) * ITEM)
                    sum_ += one[0]
        if walker == 0 and e < INDEX(total):
            m, row = divided(e, rows)
            c, t = divided(row, inner)
            if not TAPS_INSIDE:
                c, t = t, c
            to = dW + m * dW_filter + c * dW_channel
            one[0] = sum_
            store(to + offset(unravelled(t, taps1, taps2), (dW_tap0, dW_tap1, dW_tap2)), one)

    return add_shares


def _col2im(config: Im2colConfig) -> Callable[..., None]:
    """The sum of those that meet an element, in a fixed order: they are in registers, and the place of a tap's q serves
    all channels of a thread. On each axis the taps that meet x are `hop` apart, their q `back`. If no two taps meet an
    element (`single`) nothing is summed.
    """
    SINGLE, U, CHUNK = config.single, config.at_once, config.chunk
    FLOAT = float64 if config.word == "float64" else float32
    INDEX = int64 if config.wide else int32
    load = i.loader("global", config.word, 1)
    store = i.storer("global", config.result, 1, config.native_bfloat16)
    own, divided, unravelled = positions(INDEX, config.threads)
    (start_of, row_of), first_tap = rows_of(INDEX, config.grouped), _first_tap(INDEX)

    @device_function
    def fetch(held: Any, column: int, first: int, here: int, groups: Any) -> None:
        """U elements of a column from channel `first` on, where there are `here`; zeros for others."""
        one = cuda.local.array(1, FLOAT)
        for u in range(U):
            held[u] = FLOAT(0)
            if u < here:
                load(one, column + row_of(first, u, groups))
                held[u] = one[0]

    @device_function
    def write(to: int, values: Any, here: int, tensor_channel: int) -> None:
        one = cuda.local.array(1, FLOAT)
        for u in range(U):
            if u < here:
                one[0] = values[u]
                store(to + u * tensor_channel, one)

    def col2im(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        size1: int, size2: int, tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, begin0: int, begin1: int, begin2: int,
        dilation0: int, dilation1: int, dilation2: int, taps0: int, taps1: int, taps2: int,
        hop0: int, hop1: int, hop2: int, back0: int, back1: int, back2: int, grid0: int, grid1: int, grid2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        total, held = cuda.local.array(U, FLOAT), cuda.local.array(U, FLOAT)
        groups = group_channels, matrix_group, matrix_channel
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, size1, size2)
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            at = matrix + image * matrix_image
            to = tensor + image * tensor_image + offset((x0, x1, x2), (tensor0, tensor1, tensor2))
            first_t0, first_q0 = first_tap(x0, (step0, begin0, dilation0, taps0, hop0))
            first_t1, first_q1 = first_tap(x1, (step1, begin1, dilation1, taps1, hop1))
            first_t2, first_q2 = first_tap(x2, (step2, begin2, dilation2, taps2, hop2))
            if SINGLE:
                exists0 = first_t0 < taps0 and first_q0 >= 0 and first_q0 < grid0
                exists1 = first_t1 < taps1 and first_q1 >= 0 and first_q1 < grid1
                exists2 = first_t2 < taps2 and first_q2 >= 0 and first_q2 < grid2
                at += ((first_q0 * grid1 + first_q1) * grid2 + first_q2) * matrix_position
                at += ((first_t0 * taps1 + first_t1) * taps2 + first_t2) * matrix_tap
                while c < stop:
                    here = INDEX(stop - c)
                    there = here if exists0 and exists1 and exists2 else INDEX(0)
                    fetch(held, at + start_of(c, groups), c, there, groups)
                    write(to + c * tensor_channel, held, here, tensor_channel)
                    c = INDEX(c + U)
            else:  # CHUNK is U
                at += start_of(c, groups)
                for u in range(U):
                    total[u] = FLOAT(0)
                t0, q0 = first_t0, first_q0
                while t0 < taps0:
                    if q0 >= 0 and q0 < grid0:
                        t1, q1 = first_t1, first_q1
                        while t1 < taps1:
                            if q1 >= 0 and q1 < grid1:
                                t2, q2 = first_t2, first_q2
                                while t2 < taps2:
                                    if q2 >= 0 and q2 < grid2:
                                        column = at + ((q0 * grid1 + q1) * grid2 + q2) * matrix_position
                                        column += ((t0 * taps1 + t1) * taps2 + t2) * matrix_tap
                                        fetch(held, column, c, INDEX(stop - c), groups)
                                        for u in range(U):
                                            total[u] += held[u]
                                    t2, q2 = INDEX(t2 + INDEX(hop2)), INDEX(q2 - INDEX(back2))
                            t1, q1 = INDEX(t1 + INDEX(hop1)), INDEX(q1 - INDEX(back1))
                    t0, q0 = INDEX(t0 + INDEX(hop0)), INDEX(q0 - INDEX(back0))
                write(to + c * tensor_channel, total, INDEX(stop - c), tensor_channel)

    return col2im


def _first_tap(INDEX: Any) -> Callable[..., Any]:
    """The first tap of an axis that reaches element x, and its output; `taps` if there is none.

    The others that do are `hop` taps apart, and their outputs `back`: so one division serves all taps.
    """

    @device_function
    def first_tap(x: int, axis: Any) -> tuple[int, int]:
        step, begin, dilation, taps, hop = axis
        at = INDEX(x + INDEX(begin))
        t, q = INDEX(0), at
        if INDEX(step) != 1:
            q = INDEX(at // INDEX(step))
            while INDEX(q * INDEX(step)) != at and t < INDEX(hop):
                t, at = INDEX(t + 1), INDEX(at - INDEX(dilation))
                q = INDEX(at // INDEX(step))
            if t == INDEX(hop):
                t = INDEX(taps)
        return t, q

    return first_tap
