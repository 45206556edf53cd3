"""The kernels between a convolution's tensors and the matrices of its products: each element is moved once.

All strides are in bytes. The matrix of a slice of positions p of a grid, p = (image, q) in row-major order, has

    matrix[image, p, channel, tap] = tensor[image, channel, step*q + first + spacing*tap], 0 where that lies outside

gather reads the tensor and writes the matrix, scatter writes what the matrix has into the tensor wherever it exists.
Either is bound by memory: what is computed once for a position (its place in the grid, whether a tap is inside) serves
several channels, and the loads of a thread are all under way before its first store. Neighbouring threads have
neighbouring positions where those are adjacent in memory, else neighbouring channels, up to 16 bytes of them.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda import intrinsics as i
from gradkern.ops.conv_grad.moves import Form

__all__ = ["build"]


def build(form: Form) -> Callable[..., None]:
    """The kernel; its arguments are int64 and stand in `moves`."""
    makers = {"pack": _pack, "add_shares": _add_shares}
    if form.kernel in makers:
        return makers[form.kernel](form)
    return _move_positions(form) if form.lanes == "positions" else _move_channels(form)


def _move_positions(form: Form) -> Callable[..., None]:
    """A thread has one position and `chunk` channels, `at_once` of them at a time."""
    GATHER, GROUPED, U, CHUNK = form.kernel == "gather", form.grouped, form.at_once, form.chunk
    WORD = float64 if form.word == "float64" else float32
    INDEX, THREADS = (int64 if form.wide else int32), form.threads
    load, store = i.loader("global", form.word, 1), i.storer("global", form.word, 1, form.native_bfloat16)

    def move(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        blocks: int, grid1: int, grid2: int, size0: int, size1: int, size2: int,
        tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, taps0: int, taps1: int, taps2: int,
        first0: int, first1: int, first2: int, spacing0: int, spacing1: int, spacing2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        one, held, row = cuda.local.array(1, WORD), cuda.local.array(U, WORD), cuda.local.array(U, int64)
        chunk = INDEX(INDEX(cuda.blockIdx.x) // INDEX(blocks))
        j = INDEX(INDEX(INDEX(cuda.blockIdx.x) - chunk * INDEX(blocks)) * THREADS + INDEX(cuda.threadIdx.x))
        if j < INDEX(INDEX(images) * INDEX(count)):
            image = INDEX(j // INDEX(count))
            p = INDEX(j - image * INDEX(count))
            rest = INDEX(INDEX(p + INDEX(start)) // INDEX(grid2))
            q2 = INDEX(p + INDEX(start) - rest * INDEX(grid2))
            q0 = INDEX(rest // INDEX(grid1))
            q1 = INDEX(rest - q0 * INDEX(grid1))
            x0 = INDEX(q0 * INDEX(step0) + INDEX(first0))
            x1 = INDEX(q1 * INDEX(step1) + INDEX(first1))
            x2 = INDEX(q2 * INDEX(step2) + INDEX(first2))
            at = tensor + image * tensor_image + x0 * tensor0 + x1 * tensor1 + x2 * tensor2
            to = matrix + image * matrix_image + p * matrix_position
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            while c < stop:
                for u in range(U):
                    row[u] = (c + u) * matrix_channel
                    if GROUPED:
                        group = INDEX(INDEX(c + u) // INDEX(group_channels))
                        row[u] += group * (matrix_group - group_channels * matrix_channel)
                column, at0, y0 = to, at + c * tensor_channel, x0
                for _t0 in range(int32(taps0)):
                    at1, y1 = at0, x1
                    for _t1 in range(int32(taps1)):
                        at2, y2 = at1, x2
                        inside1 = y0 >= 0 and y0 < INDEX(size0) and y1 >= 0 and y1 < INDEX(size1)
                        for _t2 in range(int32(taps2)):
                            inside = inside1 and y2 >= 0 and y2 < INDEX(size2)
                            if GATHER:
                                for u in range(U):
                                    held[u] = WORD(0)
                                if inside:
                                    for u in range(U):
                                        if c + u < stop:
                                            load(one, at2 + u * tensor_channel)
                                            held[u] = one[0]
                                for u in range(U):
                                    if c + u < stop:
                                        one[0] = held[u]
                                        store(column + row[u], one)
                            elif inside:
                                for u in range(U):
                                    if c + u < stop:
                                        load(one, column + row[u])
                                        held[u] = one[0]
                                for u in range(U):
                                    if c + u < stop:
                                        one[0] = held[u]
                                        store(at2 + u * tensor_channel, one)
                            column += matrix_tap
                            at2 += spacing2 * tensor2
                            y2 = INDEX(y2 + INDEX(spacing2))
                        at1 += spacing1 * tensor1
                        y1 = INDEX(y1 + INDEX(spacing1))
                    at0 += spacing0 * tensor0
                    y0 = INDEX(y0 + INDEX(spacing0))
                c = INDEX(c + U)

    return move


def _move_channels(form: Form) -> Callable[..., None]:
    """A thread has `at_once` vectors, each of some channels of one position; channels are adjacent on both sides."""
    GATHER, GROUPED, U, V = form.kernel == "gather", form.grouped, form.at_once, form.words
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    BYTES = form.vector_bytes
    load, store = i.loader("global", form.word, V), i.storer("global", form.word, V, form.native_bfloat16)
    CHANNELS, HELD, THREADS = form.vector_channels, U * V, form.threads

    def move(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        blocks: int, grid1: int, grid2: int, size0: int, size1: int, size2: int,
        tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, taps0: int, taps1: int, taps2: int,
        first0: int, first1: int, first2: int, spacing0: int, spacing1: int, spacing2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        vector, held = cuda.local.array(V, WORD), cuda.local.array(HELD, WORD)
        at, to = cuda.local.array(U, int64), cuda.local.array(U, int64)
        x0, x1, x2 = cuda.local.array(U, INDEX), cuda.local.array(U, INDEX), cuda.local.array(U, INDEX)
        inside = cuda.local.array(U, int32)
        vectors = INDEX(INDEX(channels) // CHANNELS)
        last = INDEX(INDEX(images) * INDEX(count) * vectors)
        for u in range(U):
            e = INDEX(INDEX(INDEX(cuda.blockIdx.x) * U + u) * THREADS + INDEX(cuda.threadIdx.x))
            inside[u] = 1 if e < last else 0
            j = INDEX(e // vectors)
            v = INDEX(e - j * vectors)
            image = INDEX(j // INDEX(count))
            p = INDEX(j - image * INDEX(count))
            rest = INDEX(INDEX(p + INDEX(start)) // INDEX(grid2))
            q2 = INDEX(p + INDEX(start) - rest * INDEX(grid2))
            q0 = INDEX(rest // INDEX(grid1))
            q1 = INDEX(rest - q0 * INDEX(grid1))
            x0[u] = INDEX(q0 * INDEX(step0) + INDEX(first0))
            x1[u] = INDEX(q1 * INDEX(step1) + INDEX(first1))
            x2[u] = INDEX(q2 * INDEX(step2) + INDEX(first2))
            at[u] = tensor + image * tensor_image + v * BYTES + x0[u] * tensor0 + x1[u] * tensor1 + x2[u] * tensor2
            to[u] = matrix + image * matrix_image + p * matrix_position + v * BYTES
            if GROUPED:
                group = INDEX(INDEX(v * CHANNELS) // INDEX(group_channels))
                to[u] += group * (matrix_group - group_channels * matrix_channel)
        for t0 in range(int32(taps0)):
            for t1 in range(int32(taps1)):
                for t2 in range(int32(taps2)):
                    away = t0 * spacing0 * tensor0 + t1 * spacing1 * tensor1 + t2 * spacing2 * tensor2
                    column = ((t0 * taps1 + t1) * taps2 + t2) * matrix_tap
                    for u in range(U):
                        y0, y1 = INDEX(x0[u] + t0 * spacing0), INDEX(x1[u] + t1 * spacing1)
                        y2 = INDEX(x2[u] + t2 * spacing2)
                        exists = y0 >= 0 and y0 < INDEX(size0) and y1 >= 0 and y1 < INDEX(size1)
                        exists = exists and y2 >= 0 and y2 < INDEX(size2) and inside[u] != 0
                        if GATHER:
                            for w in range(V):
                                held[u * V + w] = WORD(0)
                        if exists:
                            load(vector, at[u] + away if GATHER else to[u] + column)
                            for w in range(V):
                                held[u * V + w] = vector[w]
                    for u in range(U):
                        for w in range(V):
                            vector[w] = held[u * V + w]
                        if GATHER:
                            if inside[u] != 0:
                                store(to[u] + column, vector)
                        else:
                            y0, y1 = INDEX(x0[u] + t0 * spacing0), INDEX(x1[u] + t1 * spacing1)
                            y2 = INDEX(x2[u] + t2 * spacing2)
                            exists = y0 >= 0 and y0 < INDEX(size0) and y1 >= 0 and y1 < INDEX(size1)
                            if exists and y2 >= 0 and y2 < INDEX(size2) and inside[u] != 0:
                                store(at[u] + away, vector)

    return move


def _pack(form: Form) -> Callable[..., None]:
    """packed[group, filter, phase, tap, channel] = W[filter, channel, the tap of W that the phase's tap is]."""
    WORD = float64 if form.word == "float64" else float32
    INDEX, THREADS, BYTES = (int64 if form.wide else int32), form.threads, form.vector_bytes
    load, store = i.loader("global", form.word, 1), i.storer("global", form.word, 1, form.native_bfloat16)

    def pack(
        W: int, packed: int, total: int, channels: int, group_filters: int, phases0: int, phases1: int, phases2: int,
        W_filter: int, W_channel: int, W_phase0: int, W_phase1: int, W_phase2: int,
        taps0: int, taps1: int, taps2: int, W_tap0: int, W_tap1: int, W_tap2: int,
        packed_group: int, packed_filter: int, packed_phase: int, packed_tap: int,
    ) -> None:  # fmt: skip
        one = cuda.local.array(1, WORD)
        e = INDEX(INDEX(cuda.blockIdx.x) * THREADS + INDEX(cuda.threadIdx.x))
        if e < INDEX(total):  # over filters, phases and channels
            r = INDEX(e // INDEX(channels))
            c = INDEX(e - r * INDEX(channels))
            m = INDEX(r // INDEX(phases0 * phases1 * phases2))
            h = INDEX(r - m * INDEX(phases0 * phases1 * phases2))
            rest = INDEX(h // INDEX(phases2))
            h2 = INDEX(h - rest * INDEX(phases2))
            h0 = INDEX(rest // INDEX(phases1))
            h1 = INDEX(rest - h0 * INDEX(phases1))
            group = INDEX(m // INDEX(group_filters))
            at = W + m * W_filter + c * W_channel + h0 * W_phase0 + h1 * W_phase1 + h2 * W_phase2
            to = packed + group * packed_group + (m - group * group_filters) * packed_filter + h * packed_phase
            to += c * BYTES
            for t0 in range(int32(taps0)):
                for t1 in range(int32(taps1)):
                    for t2 in range(int32(taps2)):
                        load(one, at + t0 * W_tap0 + t1 * W_tap1 + t2 * W_tap2)
                        store(to, one)
                        to += packed_tap

    return pack


def _add_shares(form: Form) -> Callable[..., None]:
    """dW[filter, channel, tap] = sum over shares of shares[share, filter, row], row = (channel, tap) or (tap, channel).

    A block's warps have `walkers` runs of shares each, of 32 neighbouring elements; they are added in a fixed order.
    """
    WALKERS, TAPS_INSIDE = form.walkers, form.taps_inside
    LANES = form.threads // WALKERS
    ITEM = 8 if form.word == "float64" else 4
    FLOAT = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load = i.loader("global", form.word, 1)
    store = i.storer("global", form.result, 1, form.native_bfloat16)
    load_shared, store_shared = i.loader("shared", form.word, 1), i.storer("shared", form.word, 1)

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
            cuda.syncthreads()
            if walker == 0:
                for other in range(1, WALKERS):
                    load_shared(one, shared + int32(other * LANES + lane) * ITEM)
                    sum_ += one[0]
        if walker == 0 and e < INDEX(total):
            m = INDEX(e // INDEX(rows))
            row = INDEX(e - m * INDEX(rows))
            outer = INDEX(row // INDEX(inner))
            c, t = outer, INDEX(row - outer * INDEX(inner))
            if not TAPS_INSIDE:
                c, t = t, c
            rest = INDEX(t // INDEX(taps2))
            t2 = INDEX(t - rest * INDEX(taps2))
            t0 = INDEX(rest // INDEX(taps1))
            t1 = INDEX(rest - t0 * INDEX(taps1))
            one[0] = sum_
            store(dW + m * dW_filter + c * dW_channel + t0 * dW_tap0 + t1 * dW_tap1 + t2 * dW_tap2, one)

    return add_shares
