"""im2col, and the other kernels between a convolution's tensors and the matrices of its products: each element is
copied once.

    gather      matrix[image, p, channel, tap] = tensor[image, channel, step*q + first + spacing*tap], 0 outside
    pack        packed[group, filter, tap, channel] = W[filter, channel, tap]
    add_shares  dW[filter, channel, tap] = sum over shares of shares[share, filter, channel, tap]

p counts the positions q of a grid in row-major order. All strides are in bytes. `col2im_kernel` has the sums of col2im.

A kernel's arguments are int64, in one list that `im2col` fills. Device functions take arguments of one kind, such as
the strides of the three axes, as a tuple; this does not change the machine code.

All are bound by memory. Several channels share the computations for a position (its place in the grid, whether a tap is
inside), and a thread issues its loads before its first store. Neighbouring threads have neighbouring positions.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.ops.conv.cuda.gemm import col2im_kernel, gather_kernel
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.ops.conv.cuda.gemm.positions import offset, positions


def build(config: Im2colConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument an int64."""
    makers = {
        "gather": gather_kernel.build,
        "pack": _pack,
        "add_shares": _add_shares,
        "col2im": col2im_kernel.build,
    }
    return makers[config.kernel](config)


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
