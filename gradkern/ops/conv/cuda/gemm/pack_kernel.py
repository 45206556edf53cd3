"""packed[group, filter, phase, tap, channel] = W[filter, channel, the tap of W that the phase's tap is]."""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.ops.conv.cuda.gemm.positions import positions

__all__ = ["build"]


def build(config: Im2colConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument an int64."""
    WORD = float64 if config.word == "float64" else float32
    INDEX, THREADS, BYTES = (int64 if config.wide else int32), config.threads, config.vector_bytes
    load, store = i.loader("global", config.word, 1), i.storer("global", config.word, 1, config.native_bfloat16)

    _, divided, unravelled = positions(INDEX, config.threads)

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
