"""im2col, and the other kernels between a convolution's tensors and the matrices of its products: each element is
copied once.

    gather      matrix[image, p, channel, tap] = tensor[image, channel, step*q + first + spacing*tap], 0 outside
    scatter     tensor[image, channel, x] = matrix[image, p, channel, slot], 0 where the residue of x has no results
    pack        packed[group, filter, phase, tap, channel] = W[filter, channel, the phase's tap]
    add_shares  dW[filter, channel, tap] = sum over shares of shares[share, filter, channel, tap]

p counts the positions q of a grid in row-major order; of x those are (x + before) // step, its residue is the rest.
All strides are in bytes.

A kernel's arguments are int64 and stand in one list, which `im2col` fills; device functions take those of one kind,
such as the strides of the three axes, as a tuple, which costs nothing in the machine code.

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
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.conv.cuda.gemm import col2im_kernel
from gradkern.ops.conv.cuda.gemm.im2col_form import Im2colForm
from gradkern.ops.conv.cuda.gemm.positions import offset, positions

__all__ = ["build"]


def build(form: Im2colForm) -> Callable[..., None]:
    """The kernel of a form, as a function that Numba compiles with every argument an int64."""
    makers = {
        "gather": _gather,
        "scatter": _scatter,
        "pack": _pack,
        "add_shares": _add_shares,
        "col2im": col2im_kernel.build,
    }
    return makers[form.kernel](form)


def _gather(form: Im2colForm) -> Callable[..., None]:
    copy = _gather_positions(form) if form.lanes == "positions" else _gather_channels(form)

    def gather(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        blocks: int, grid1: int, grid2: int, size0: int, size1: int, size2: int,
        tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, taps0: int, taps1: int, taps2: int,
        first0: int, first1: int, first2: int, spacing0: int, spacing1: int, spacing2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_tap: int,
    ) -> None:  # fmt: skip
        copy(
            tensor, matrix, images, channels, group_channels, start, count, blocks,
            (grid1, grid2), (size0, size1, size2), (tensor_image, tensor_channel), (tensor0, tensor1, tensor2),
            (step0, step1, step2), (taps0, taps1, taps2), (first0, first1, first2), (spacing0, spacing1, spacing2),
            (matrix_image, matrix_position, matrix_group, matrix_channel, matrix_tap),
        )  # fmt: skip

    return gather


def _scatter(form: Im2colForm) -> Callable[..., None]:
    copy = _scatter_positions(form) if form.lanes == "positions" else _scatter_channels(form)

    def scatter(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        size1: int, size2: int, tensor_image: int, tensor_channel: int, tensor0: int, tensor1: int, tensor2: int,
        step0: int, step1: int, step2: int, before0: int, before1: int, before2: int, low0: int, low1: int, low2: int,
        slots0: int, slots1: int, slots2: int, live0: int, live1: int, live2: int, grid1: int, grid2: int,
        matrix_image: int, matrix_position: int, matrix_group: int, matrix_channel: int, matrix_slot: int,
    ) -> None:  # fmt: skip
        copy(
            tensor, matrix, images, channels, group_channels, count, blocks,
            (size1, size2), (tensor_image, tensor_channel), (tensor0, tensor1, tensor2),
            (step0, before0, low0, slots0, live0), (step1, before1, low1, slots1, live1),
            (step2, before2, low2, slots2, live2), (grid1, grid2),
            (matrix_image, matrix_position, matrix_group, matrix_channel, matrix_slot),
        )  # fmt: skip

    return scatter


def _gather_positions(form: Im2colForm) -> Callable[..., None]:
    """A thread has one position and `chunk` channels, `at_once` of them at a time.

    Channels of all groups lie at one distance in the matrix, for their taps are between them.
    """
    if form.grouped:
        raise ValueError("channels of a matrix of positions lie at one distance")
    U, CHUNK = form.at_once, form.chunk
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load, store = i.loader("global", form.word, 1), i.storer("global", form.word, 1, form.native_bfloat16)

    own, divided, unravelled = positions(INDEX, form.threads)

    @device_function
    def copy(
        tensor: int, matrix: int, images: int, channels: int, _group_channels: int, start: int, count: int,
        blocks: int, grid: Any, sizes: Any, tensor_strides: Any, spatial_strides: Any,
        steps: Any, taps: Any, firsts: Any, spacings: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, tensor_channel = tensor_strides
        matrix_image, matrix_position, _, matrix_channel, matrix_tap = matrix_strides
        one, held = cuda.local.array(1, WORD), cuda.local.array(U, WORD)
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            q0, q1, q2 = unravelled(INDEX(p + INDEX(start)), grid[0], grid[1])
            x0 = INDEX(q0 * INDEX(steps[0]) + INDEX(firsts[0]))
            x1 = INDEX(q1 * INDEX(steps[1]) + INDEX(firsts[1]))
            x2 = INDEX(q2 * INDEX(steps[2]) + INDEX(firsts[2]))
            at = tensor + image * tensor_image + offset((x0, x1, x2), spatial_strides)
            to = matrix + image * matrix_image + p * matrix_position
            c = INDEX(chunk * CHUNK)
            stop = INDEX(min(INDEX(c + CHUNK), INDEX(channels)))
            while c < stop:
                column, at0, y0 = to + c * matrix_channel, at + c * tensor_channel, x0
                for _t0 in range(int32(taps[0])):
                    at1, y1 = at0, x1
                    for _t1 in range(int32(taps[1])):
                        at2, y2 = at1, x2
                        inside1 = y0 >= 0 and y0 < INDEX(sizes[0]) and y1 >= 0 and y1 < INDEX(sizes[1])
                        for _t2 in range(int32(taps[2])):
                            for u in range(U):
                                held[u] = WORD(0)
                            if inside1 and y2 >= 0 and y2 < INDEX(sizes[2]):
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
                            at2 += spacings[2] * spatial_strides[2]
                            y2 = INDEX(y2 + INDEX(spacings[2]))
                        at1 += spacings[1] * spatial_strides[1]
                        y1 = INDEX(y1 + INDEX(spacings[1]))
                    at0 += spacings[0] * spatial_strides[0]
                    y0 = INDEX(y0 + INDEX(spacings[0]))
                c = INDEX(c + U)

    return copy


def _gather_channels(form: Im2colForm) -> Callable[..., None]:
    """A thread has `at_once` vectors, each of some channels of one position; channels are adjacent on both sides."""
    GROUPED, U, V, THREADS = form.grouped, form.at_once, form.words, form.threads
    CHANNELS, BYTES, HELD = form.vector_channels, form.vector_bytes, U * V
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load, store = i.loader("global", form.word, V), i.storer("global", form.word, V, form.native_bfloat16)

    _, divided, unravelled = positions(INDEX, form.threads)

    @device_function
    def copy(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, start: int, count: int,
        _blocks: int, grid: Any, sizes: Any, tensor_strides: Any, spatial_strides: Any,
        steps: Any, taps: Any, firsts: Any, spacings: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, _ = tensor_strides
        matrix_image, matrix_position, matrix_group, matrix_channel, matrix_tap = matrix_strides
        vector, held = cuda.local.array(V, WORD), cuda.local.array(HELD, WORD)
        at, to = cuda.local.array(U, int64), cuda.local.array(U, int64)
        x0, x1, x2 = cuda.local.array(U, INDEX), cuda.local.array(U, INDEX), cuda.local.array(U, INDEX)
        vectors = INDEX(INDEX(channels) // CHANNELS)
        last = INDEX(INDEX(images) * INDEX(count) * vectors)
        first = INDEX(INDEX(cuda.blockIdx.x) * (U * THREADS) + INDEX(cuda.threadIdx.x))
        for u in range(U):
            e = INDEX(first + u * THREADS)
            j, v = divided(e, vectors)
            image, p = divided(j, count)
            q0, q1, q2 = unravelled(INDEX(p + INDEX(start)), grid[0], grid[1])
            x0[u] = INDEX(q0 * INDEX(steps[0]) + INDEX(firsts[0]))
            x1[u] = INDEX(q1 * INDEX(steps[1]) + INDEX(firsts[1]))
            x2[u] = INDEX(q2 * INDEX(steps[2]) + INDEX(firsts[2]))
            at[u] = tensor + image * tensor_image + v * BYTES + offset((x0[u], x1[u], x2[u]), spatial_strides)
            to[u] = matrix + image * matrix_image + p * matrix_position + v * BYTES
            if GROUPED:
                group = INDEX(INDEX(v * CHANNELS) // INDEX(group_channels))
                to[u] += group * (matrix_group - group_channels * matrix_channel)
        column = int64(0)
        for t0 in range(int32(taps[0])):
            for t1 in range(int32(taps[1])):
                for t2 in range(int32(taps[2])):
                    away = offset((t0 * spacings[0], t1 * spacings[1], t2 * spacings[2]), spatial_strides)
                    for u in range(U):
                        y0, y1 = INDEX(x0[u] + t0 * spacings[0]), INDEX(x1[u] + t1 * spacings[1])
                        y2 = INDEX(x2[u] + t2 * spacings[2])
                        inside = y0 >= 0 and y0 < INDEX(sizes[0]) and y1 >= 0 and y1 < INDEX(sizes[1])
                        for w in range(V):
                            held[u * V + w] = WORD(0)
                        if inside and y2 >= 0 and y2 < INDEX(sizes[2]) and first + u * THREADS < last:
                            load(vector, at[u] + away)
                            for w in range(V):
                                held[u * V + w] = vector[w]
                    for u in range(U):
                        if first + u * THREADS < last:
                            for w in range(V):
                                vector[w] = held[u * V + w]
                            store(to[u] + column, vector)
                    column += matrix_tap

    return copy


def _scatter_positions(form: Im2colForm) -> Callable[..., None]:
    """A thread has one position of the tensor and `chunk` channels, `at_once` of them at a time."""
    GROUPED, U, CHUNK = form.grouped, form.at_once, form.chunk
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load, store = i.loader("global", form.word, 1), i.storer("global", form.word, 1, form.native_bfloat16)
    seen = _seen(INDEX)

    own, divided, unravelled = positions(INDEX, form.threads)

    @device_function
    def copy(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, blocks: int,
        sizes: Any, tensor_strides: Any, spatial_strides: Any, residues0: Any, residues1: Any, residues2: Any,
        grid: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, tensor_channel = tensor_strides
        matrix_image, matrix_position, matrix_group, matrix_channel, matrix_slot = matrix_strides
        one, held = cuda.local.array(1, WORD), cuda.local.array(U, WORD)
        chunk, j = own(blocks)
        if j < INDEX(INDEX(images) * INDEX(count)):
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, sizes[0], sizes[1])
            q0, s0, has0 = seen(x0, residues0)
            q1, s1, has1 = seen(x1, residues1)
            q2, s2, has2 = seen(x2, residues2)
            exists = has0 and has1 and has2
            at = matrix + image * matrix_image + ((q0 * grid[0] + q1) * grid[1] + q2) * matrix_position
            at += ((s0 * residues1[3] + s1) * residues2[3] + s2) * matrix_slot
            to = tensor + image * tensor_image + offset((x0, x1, x2), spatial_strides)
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

    return copy


def _scatter_channels(form: Im2colForm) -> Callable[..., None]:
    """A thread has `at_once` vectors, each of some channels of one position; channels are adjacent on both sides."""
    GROUPED, U, V, THREADS = form.grouped, form.at_once, form.words, form.threads
    CHANNELS, BYTES, HELD = form.vector_channels, form.vector_bytes, U * V
    WORD = float64 if form.word == "float64" else float32
    INDEX = int64 if form.wide else int32
    load, store = i.loader("global", form.word, V), i.storer("global", form.word, V, form.native_bfloat16)
    seen = _seen(INDEX)

    _, divided, unravelled = positions(INDEX, form.threads)

    @device_function
    def copy(
        tensor: int, matrix: int, images: int, channels: int, group_channels: int, count: int, _blocks: int,
        sizes: Any, tensor_strides: Any, spatial_strides: Any, residues0: Any, residues1: Any, residues2: Any,
        grid: Any, matrix_strides: Any,
    ) -> None:  # fmt: skip
        tensor_image, _ = tensor_strides
        matrix_image, matrix_position, matrix_group, matrix_channel, matrix_slot = matrix_strides
        vector, held, to = cuda.local.array(V, WORD), cuda.local.array(HELD, WORD), cuda.local.array(U, int64)
        vectors = INDEX(INDEX(channels) // CHANNELS)
        last = INDEX(INDEX(images) * INDEX(count) * vectors)
        first = INDEX(INDEX(cuda.blockIdx.x) * (U * THREADS) + INDEX(cuda.threadIdx.x))
        for u in range(U):
            e = INDEX(first + u * THREADS)
            j, v = divided(e, vectors)
            image, p = divided(j, count)
            x0, x1, x2 = unravelled(p, sizes[0], sizes[1])
            q0, s0, has0 = seen(x0, residues0)
            q1, s1, has1 = seen(x1, residues1)
            q2, s2, has2 = seen(x2, residues2)
            at = matrix + image * matrix_image + ((q0 * grid[0] + q1) * grid[1] + q2) * matrix_position + v * BYTES
            at += ((s0 * residues1[3] + s1) * residues2[3] + s2) * matrix_slot
            if GROUPED:
                group = INDEX(INDEX(v * CHANNELS) // INDEX(group_channels))
                at += group * (matrix_group - group_channels * matrix_channel)
            to[u] = tensor + image * tensor_image + v * BYTES + offset((x0, x1, x2), spatial_strides)
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

    return copy


def _seen(INDEX: Any) -> Callable[..., Any]:
    """Of an element of an axis: its place in the grid, its slot, and whether that has a result."""

    @device_function
    def seen(x: int, residues: Any) -> tuple[int, int, bool]:
        step, before, low, slots, live = residues
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

    _, divided, unravelled = positions(INDEX, form.threads)

    def pack(
        W: int, packed: int, total: int, channels: int, group_filters: int, phases0: int, phases1: int, phases2: int,
        W_filter: int, W_channel: int, W_phase0: int, W_phase1: int, W_phase2: int,
        taps0: int, taps1: int, taps2: int, W_tap0: int, W_tap1: int, W_tap2: int,
        packed_group: int, packed_filter: int, packed_phase: int, packed_tap: int,
    ) -> None:  # fmt: skip
        one = cuda.local.array(1, WORD)
        e = INDEX(INDEX(cuda.blockIdx.x) * THREADS + INDEX(cuda.threadIdx.x))
        if e < INDEX(total):  # over filters, phases and channels
            r, c = divided(e, channels)
            m, h = divided(r, phases0 * phases1 * phases2)
            group, _ = divided(m, group_filters)
            h0, h1, h2 = unravelled(h, phases1, phases2)
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

    _, divided, unravelled = positions(INDEX, form.threads)

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
            m, row = divided(e, rows)
            c, t = divided(row, inner)
            if not TAPS_INSIDE:
                c, t = t, c
            to = dW + m * dW_filter + c * dW_channel
            one[0] = sum_
            store(to + offset(unravelled(t, taps1, taps2), (dW_tap0, dW_tap1, dW_tap2)), one)

    return add_shares
