"""From vectors of eight channels, as in memory, to words of two numbers of a channel, operands of tensor cores."""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function


def turner(raw_pitch: int, channel_pitch: int, partner: int) -> Callable[..., None]:
    """turn(to, raw): transposes the four vectors at `raw`, raw_pitch bytes apart. Vectors 0 and `partner` make one word
    for each of their channels, and the other two the next word. Channels are channel_pitch bytes apart from `to` on.
    All 16-bit types, in shared memory.
    """
    load_vector, store_two = i.word_loader("shared", 16), i.word_storer("shared", 8)
    SECOND, THIRD = 4 * partner, 4 * (3 - partner)

    @device_function
    def turn(to: int, raw: int) -> None:
        words, two = cuda.local.array(16, int32), cuda.local.array(2, int32)
        to, raw = i.opaque(to), i.opaque(raw)
        for n in range(4):
            load_vector(words, 4 * n, raw + n * raw_pitch)
        for n in range(4):
            two[0], two[1] = i.low_halves(words[n], words[SECOND + n]), i.low_halves(words[THIRD + n], words[12 + n])
            store_two(to + 2 * n * channel_pitch, two)
            two[0], two[1] = i.high_halves(words[n], words[SECOND + n]), i.high_halves(words[THIRD + n], words[12 + n])
            store_two(to + (2 * n + 1) * channel_pitch, two)

    return turn
