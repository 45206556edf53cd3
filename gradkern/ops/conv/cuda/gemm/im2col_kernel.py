"""The kernels between a convolution's tensors and the matrices of its products: each element is moved once.

    gather      matrix[image, p, channel, tap] = tensor[image, channel, step*q + first + spacing*tap], 0 outside
    scatter     tensor[image, channel, x] = matrix[image, p, channel, slot], 0 where the residue of x has no results
    pack        packed[group, filter, phase, tap, channel] = W[filter, channel, the phase's tap]
    add_shares  dW[filter, channel, tap] = sum over shares of shares[share, filter, channel, tap]

p counts the positions q of a grid in row-major order; of x those are (x + before) // step, its residue is the rest.
All strides are in bytes.

All are bound by memory: what is computed for a position (its place in the grid, whether a tap is inside) serves several
channels, and the loads of a thread are under way together before its first store. Neighbouring threads have
neighbouring positions where those are adjacent in memory, else neighbouring channels, up to 16 bytes of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.ops.conv.cuda.gemm import col2im_kernel
from gradkern.ops.conv.cuda.gemm.im2col_form import Im2colForm

__all__ = ["build"]


def build(form: Im2colForm) -> Callable[..., None]:
    """The kernel; its arguments are int64 and stand in `im2col`."""
    makers = {
        ("gather", "positions"): _gather_positions,
        ("gather", "channels"): _gather_channels,
        ("scatter", "positions"): _scatter_positions,
        ("scatter", "channels"): _scatter_channels,
        ("pack", "positions"): _pack,
        ("add_shares", "positions"): _add_shares,
        ("col2im", form.lanes): col2im_kernel.build,
    }
    return makers[form.kernel, form.lanes](form)


def _gather_positions(form: Im2colForm) -> Callable[..., None]:
    """A thread has one position and `chunk` channels, `at_once` of them at a time.

    Channels of all groups lie at one distance in the matrix, for their taps are between them.
    """
    if form.grouped:
        raise ValueError("channels of a matrix of positions lie at one distance")
    U, CHUNK, THREADS = form.at_once, form.chunk, form.threads
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load, store = i.loader("global", form.word, 1), i.storer("global", form.word, 1, form.native_bfloat16)

    def gather(
        tensor: int, matrix: int, images: int, channels: int, _group_channels: int, start: int, count: int,
        blocks: int, grid1: int, grid2: int, size0: int, size1: int, size2: int,
        tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, taps0: int, taps1: int, taps2: int,
        first0: int, first1: int, first2: int, spacing0: int, spacing1: int, spacing2: int,
        matrix_image: int, matrix_position: int, _matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        one, held = cuda.local.array(1, WORD), cuda.local.array(U, WORD)
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
                column, at0, y0 = to + c * matrix_channel, at + c * tensor_channel, x0
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
                                    store(target, one)
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


def _gather_channels(form: Im2colForm) -> Callable[..., None]:
    """A thread has `at_once` vectors, each of some channels of one position; channels are adjacent on both sides."""
    GROUPED, U, V, THREADS = form.grouped, form.at_once, form.words, form.threads
    CHANNELS, BYTES, HELD = form.vector_channels, form.vector_bytes, U * V
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load, store = i.loader("global", form.word, V), i.storer("global", form.word, V, form.native_bfloat16)

    def gather(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        _blocks: int, grid1: int, grid2: int, size0: int, size1: int, size2: int,
        tensor_image: int, _tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, taps0: int, taps1: int, taps2: int,
        first0: int, first1: int, first2: int, spacing0: int, spacing1: int, spacing2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        vector, held = cuda.local.array(V, WORD), cuda.local.array(HELD, WORD)
        at, to = cuda.local.array(U, int64), cuda.local.array(U, int64)
        x0, x1, x2 = cuda.local.array(U, INDEX), cuda.local.array(U, INDEX), cuda.local.array(U, INDEX)
        vectors = INDEX(INDEX(channels) // CHANNELS)
        last = INDEX(INDEX(images) * INDEX(count) * vectors)
        first = INDEX(INDEX(cuda.blockIdx.x) * (U * THREADS) + INDEX(cuda.threadIdx.x))
        for u in range(U):
            e = INDEX(first + u * THREADS)
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
        column = int64(0)
        for t0 in range(int32(taps0)):
            for t1 in range(int32(taps1)):
                for t2 in range(int32(taps2)):
                    away = t0 * spacing0 * tensor0 + t1 * spacing1 * tensor1 + t2 * spacing2 * tensor2
                    for u in range(U):
                        y0, y1 = INDEX(x0[u] + t0 * spacing0), INDEX(x1[u] + t1 * spacing1)
                        y2 = INDEX(x2[u] + t2 * spacing2)
                        inside = y0 >= 0 and y0 < INDEX(size0) and y1 >= 0 and y1 < INDEX(size1)
                        for w in range(V):
                            held[u * V + w] = WORD(0)
                        if inside and y2 >= 0 and y2 < INDEX(size2) and first + u * THREADS < last:
                            load(vector, at[u] + away)
                            for w in range(V):
                                held[u * V + w] = vector[w]
                    for u in range(U):
                        if first + u * THREADS < last:
                            for w in range(V):
                                vector[w] = held[u * V + w]
                            store(to[u] + column, vector)
                    column += matrix_tap

    return gather


def _scatter_positions(form: Im2colForm) -> Callable[..., None]:
    """A thread has one position of the tensor and `chunk` channels, `at_once` of them at a time."""
    GROUPED, U, CHUNK, THREADS = form.grouped, form.at_once, form.chunk, form.threads
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load, store = i.loader("global", form.word, 1), i.storer("global", form.word, 1, form.native_bfloat16)
    seen = _seen(INDEX)

    def scatter(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        size1: int, size2: int, tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, before0: int, before1: int, before2: int, low0: int, low1: int, low2: int,
        slots0: int, slots1: int, slots2: int, live0: int, live1: int, live2: int, grid1: int, grid2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_slot: int,
    ) -> None:  # fmt: skip
        one, held = cuda.local.array(1, WORD), cuda.local.array(U, WORD)
        chunk = INDEX(INDEX(cuda.blockIdx.x) // INDEX(blocks))
        j = INDEX(INDEX(INDEX(cuda.blockIdx.x) - chunk * INDEX(blocks)) * THREADS + INDEX(cuda.threadIdx.x))
        if j < INDEX(INDEX(images) * INDEX(count)):
            image = INDEX(j // INDEX(count))
            p = INDEX(j - image * INDEX(count))
            rest = INDEX(p // INDEX(size2))
            x2 = INDEX(p - rest * INDEX(size2))
            x0 = INDEX(rest // INDEX(size1))
            x1 = INDEX(rest - x0 * INDEX(size1))
            q0, s0, has0 = seen(x0, step0, before0, low0, slots0, live0)
            q1, s1, has1 = seen(x1, step1, before1, low1, slots1, live1)
            q2, s2, has2 = seen(x2, step2, before2, low2, slots2, live2)
            exists = has0 and has1 and has2
            at = matrix + image * matrix_image + ((q0 * grid1 + q1) * grid2 + q2) * matrix_position
            at += ((s0 * slots1 + s1) * slots2 + s2) * matrix_slot
            to = tensor + image * tensor_image + x0 * tensor0 + x1 * tensor1 + x2 * tensor2
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            while c < stop:
                for u in range(U):
                    held[u] = WORD(0)
                    if exists and c + u < stop:
                        row = (c + u) * matrix_channel
                        if GROUPED:
                            group = INDEX(INDEX(c + u) // INDEX(group_channels))
                            row += group * (matrix_group - group_channels * matrix_channel)
                        load(one, at + row)
                        held[u] = one[0]
                for u in range(U):
                    if c + u < stop:
                        one[0] = held[u]
                        store(to + (c + u) * tensor_channel, one)
                c = INDEX(c + U)

    return scatter


def _scatter_channels(form: Im2colForm) -> Callable[..., None]:
    """A thread has `at_once` vectors, each of some channels of one position; channels are adjacent on both sides."""
    GROUPED, U, V, THREADS = form.grouped, form.at_once, form.words, form.threads
    CHANNELS, BYTES, HELD = form.vector_channels, form.vector_bytes, U * V
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load, store = i.loader("global", form.word, V), i.storer("global", form.word, V, form.native_bfloat16)
    seen = _seen(INDEX)

    def scatter(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, _blocks: int,
        size1: int, size2: int, tensor_image: int, _tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, before0: int, before1: int, before2: int, low0: int, low1: int, low2: int,
        slots0: int, slots1: int, slots2: int, live0: int, live1: int, live2: int, grid1: int, grid2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_slot: int,
    ) -> None:  # fmt: skip
        vector, held, to = cuda.local.array(V, WORD), cuda.local.array(HELD, WORD), cuda.local.array(U, int64)
        vectors = INDEX(INDEX(channels) // CHANNELS)
        last = INDEX(INDEX(images) * INDEX(count) * vectors)
        first = INDEX(INDEX(cuda.blockIdx.x) * (U * THREADS) + INDEX(cuda.threadIdx.x))
        for u in range(U):
            e = INDEX(first + u * THREADS)
            j = INDEX(e // vectors)
            v = INDEX(e - j * vectors)
            image = INDEX(j // INDEX(count))
            p = INDEX(j - image * INDEX(count))
            rest = INDEX(p // INDEX(size2))
            x2 = INDEX(p - rest * INDEX(size2))
            x0 = INDEX(rest // INDEX(size1))
            x1 = INDEX(rest - x0 * INDEX(size1))
            q0, s0, has0 = seen(x0, step0, before0, low0, slots0, live0)
            q1, s1, has1 = seen(x1, step1, before1, low1, slots1, live1)
            q2, s2, has2 = seen(x2, step2, before2, low2, slots2, live2)
            at = matrix + image * matrix_image + ((q0 * grid1 + q1) * grid2 + q2) * matrix_position + v * BYTES
            at += ((s0 * slots1 + s1) * slots2 + s2) * matrix_slot
            if GROUPED:
                group = INDEX(INDEX(v * CHANNELS) // INDEX(group_channels))
                at += group * (matrix_group - group_channels * matrix_channel)
            to[u] = tensor + image * tensor_image + v * BYTES + x0 * tensor0 + x1 * tensor1 + x2 * tensor2
            for w in range(V):
                held[u * V + w] = WORD(0)
            if has0 and has1 and has2 and e < last:
                load(vector, at)
                for w in range(V):
                    held[u * V + w] = vector[w]
        for u in range(U):
            if first + u * THREADS < last:
                for w in range(V):
                    vector[w] = held[u * V + w]
                store(to[u], vector)

    return scatter


def _seen(INDEX: Any) -> Callable[..., Any]:
    """Of an element of an axis: its place in the grid, its slot, and whether that has a result."""

    @cuda.jit(device=True, inline="always")
    def seen(x: int, step: int, before: int, low: int, slots: int, live: int) -> tuple[int, int, bool]:
        at = INDEX(x + INDEX(before))
        q = INDEX(at // INDEX(step))
        residue = INDEX(at - q * INDEX(step))
        slot = INDEX(residue - INDEX(low))
        return q, slot, slot >= 0 and slot < INDEX(slots) and (live >> int64(residue)) & 1 == 1

    return seen


def _pack(form: Im2colForm) -> Callable[..., None]:
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


def _add_shares(form: Im2colForm) -> Callable[..., None]:
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
