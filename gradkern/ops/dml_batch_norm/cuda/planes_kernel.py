"""The planes kernel of DirectML's batch norm gradient, for contiguous planes, the elements of a channel in an image.

    r = 1 / sqrt(variance + epsilon)
    dX = D scale r,  scale_sum = sum of D (X - mean) r,  bias_sum = sum of D

The array is divided into tiles, one for each warp of a block at a time, independent of planes: all vectors are aligned,
whatever a plane's size. Blocks take their next tiles by an atomic counter, and load them while they add up the previous
ones. A piece, a warp's tile or the tiles of a block, is no longer than a plane. It has parts of at most two planes, and
writes the sums of both. At the end all blocks wait for each other, and groups of warps add the pieces of a channel.

r is constant in a channel and multiplies the finished sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import clear_tickets, take_ticket, wait_for_block, wait_for_grid
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import inverse_std, number_access
from gradkern.ops.dml_batch_norm.cuda.config import PlanesConfig

_IN_FLIGHT = 4  # partial sums that a thread loads at a time


def build(config: PlanesConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument (ARGUMENTS) an int64."""
    WIDTH, UNROLL, WARPS, BY_BLOCK = config.width, config.unroll, config.warps, config.by_block
    TILE, TILES, PIECE = config.tile, config.warps * config.tile, config.piece
    BIAS_SUM = "bias_sum" in config.outputs
    ITEM, VECTOR, SUM = config.data_itemsize, WIDTH * config.data_itemsize, config.itemsize
    WORDS = max(1, VECTOR // 4)
    HELD, SUMS_AT, IN_FLIGHT, IN_FLIGHT_2 = UNROLL * WORDS, config.sums_at, _IN_FLIGHT, 2 * _IN_FLIGHT
    FLOAT = float64 if config.compute == "float64" else float32

    load = i.word_loader("global", VECTOR)
    unpack = i.unpacker(config.data, WIDTH)
    store = i.storer("global", config.data, WIDTH, config.native_bfloat16)
    number, put_number = number_access(config.data, config.compute, config.native_bfloat16)
    parameter, put_parameter = number_access(config.parameter, config.compute, config.native_bfloat16)
    _, put_partial = number_access(config.compute, config.compute)
    store_partial = i.storer("global", config.compute, 4, evict_last=config.native_bfloat16)
    load_partial = i.loader("global", config.compute, 2)
    store_4, load_sum = i.storer("shared", config.compute, 4), i.loader("shared", config.compute, 1)
    shuffle_xor = i.shuffle_xor_double if config.compute == "float64" else i.shuffle_xor
    inverse = inverse_std(config.compute, config.epsilon)

    @device_function
    def load_tile(x: Any, d: Any, X: int, D: int, first: int, lane: int, vectors: int) -> None:
        """Loads this thread's vectors of the tile from element `first` on. Places behind the array's last vector repeat
        it.
        """
        for u in range(UNROLL):
            at = int64(min(int32(first // WIDTH + u * 32 + lane), int32(vectors - 1))) * VECTOR
            load(x, u * WORDS, X + at)
            load(d, u * WORDS, D + at)

    @device_function
    def plane_of(first: int, count: int, dividing: Any) -> int:
        multiplier, shift = dividing
        return i.divided(min(first, count), multiplier, shift)

    @device_function
    def load_channels(values: Any, plane: int, channels: int, dividing: Any, addresses: Any) -> None:
        """Mean, scale and variance of the channels of this plane and of the next."""
        multiplier, shift = dividing
        channel = int32(plane - i.divided(plane, multiplier, shift) * channels)
        for n in range(2):
            for each in range(3):
                values[3 * n + each] = parameter(addresses[each], channel)
            channel = int32(channel + 1) if channel + 1 < channels else int32(0)

    @device_function
    def element(x: Any, d: Any, is_first: bool, means: Any, gains: Any, sums: Any) -> Any:
        """dX of one element, of the first of two planes or of the second."""
        product = d * (x - (means[0] if is_first else means[1]))
        sums[0] += product if is_first else FLOAT(0)
        sums[1] += d if is_first else FLOAT(0)
        sums[2] += FLOAT(0) if is_first else product
        sums[3] += FLOAT(0) if is_first else d
        return d * (gains[0] if is_first else gains[1])

    @device_function
    def split_tile(
        x: Any, d: Any, dX: int, first: int, end: int, count: int, lane: int, means: Any, gains: Any, sums: Any
    ) -> None:
        """One of two planes: element `end` is the second's first."""
        z, out = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        for u in range(UNROLL):
            at = int32(first + (u * 32 + lane) * WIDTH)
            unpack(z, x, u * WORDS)
            unpack(out, d, u * WORDS)
            if at + WIDTH <= count:
                for e in range(WIDTH):
                    out[e] = element(z[e], out[e], at + e < end, means, gains, sums)
                store(dX + int64(at) * ITEM, out)

    @device_function
    def whole_tile(
        x: Any, d: Any, dX: int, first: int, is_first: bool, count: int, lane: int, means: Any, gains: Any, sums: Any
    ) -> None:
        """One of the first of two planes, or of the second."""
        z, out = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        mean, gain = means[0] if is_first else means[1], gains[0] if is_first else gains[1]
        scale_sum, bias_sum = FLOAT(0), FLOAT(0)
        for u in range(UNROLL):
            at = int32(first + (u * 32 + lane) * WIDTH)
            unpack(z, x, u * WORDS)
            unpack(out, d, u * WORDS)
            if at + WIDTH <= count:
                for e in range(WIDTH):
                    scale_sum += out[e] * (z[e] - mean)
                    bias_sum += out[e]
                    out[e] = out[e] * gain
                store(dX + int64(at) * ITEM, out)
        sums[0] = scale_sum if is_first else FLOAT(0)
        sums[1] = bias_sum if is_first else FLOAT(0)
        sums[2] = FLOAT(0) if is_first else scale_sum
        sums[3] = FLOAT(0) if is_first else bias_sum

    @device_function
    def add_over_warp(sums: Any, count: int) -> None:
        distance = int32(16)
        while distance > 0:
            for n in range(count):
                sums[n] += shuffle_xor(sums[n], distance)
            distance = int32(distance // 2)

    @device_function
    def sum_of_warps(shared: int, first: int, count: int, part: int) -> Any:
        one, total = cuda.local.array(1, FLOAT), FLOAT(0)
        for n in range(count):
            load_sum(one, shared + SUMS_AT + (int32(first + n) * 4 + part) * SUM)
            total += one[0]
        return total

    @device_function
    def leave_sums_of_warps(shared: int, turn: int, partial: int, piece: int) -> None:
        thread = int32(cuda.threadIdx.x)
        if thread < 4 and piece >= 0:
            put_partial(partial, int64(piece) * 4 + thread, sum_of_warps(shared, int32(turn * WARPS), WARPS, thread))

    @device_function
    def add_pieces_of_channels(
        shared: int, partial: int, variance: int, scale_sum: int, bias_sum: int,
        pieces: int, images: int, channels: int, length: int, team: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        warp, lane = int32(thread // 32), int32(thread % 32)
        teams, own_team = int32(WARPS // team), int32(warp // team)
        member = int32(thread - own_team * team * 32)
        most = int32((length + (PIECE - 1)) // PIECE + 1)  # pieces of a plane
        items = int32(images * most)
        pair, sums = cuda.local.array(2, FLOAT), cuda.local.array(4, FLOAT)
        loaded = cuda.local.array(IN_FLIGHT_2, FLOAT)
        base = int32(cuda.blockIdx.x * teams)
        while base < channels:
            channel = int32(base + own_team)
            for n in range(4):
                sums[n] = FLOAT(0)
            item = i.opaque(member)
            while item < items and channel < channels:
                for q in range(IN_FLIGHT):  # independent loads, so that their latencies overlap
                    number = min(int32(item + q * team * 32), int32(items - 1))
                    image = i.quotient(number, most)
                    begin = int32((image * channels + channel) * length)
                    piece = int32(begin // PIECE + (number - image * most))
                    at = int32(piece * PIECE)
                    is_part = at < begin + length and item + q * team * 32 < items
                    place = int64(min(piece, int32(pieces - 1))) * 4 + (0 if at >= begin else 2)
                    load_partial(pair, partial + place * SUM)
                    for n in range(2):
                        loaded[2 * q + n] = pair[n] if is_part else FLOAT(0)
                for q in range(IN_FLIGHT):
                    for n in range(2):
                        sums[n] += loaded[2 * q + n]
                item = i.opaque(int32(item + IN_FLIGHT * team * 32))
            add_over_warp(sums, 2)
            if lane == 0:
                store_4(shared + SUMS_AT + warp * (4 * SUM), sums)
            wait_for_block()
            if member == 0 and channel < channels:
                of_channel = parameter(variance, channel)
                put_parameter(scale_sum, channel, sum_of_warps(shared, warp, team, int32(0)) * inverse(of_channel))
                if BIAS_SUM:
                    put_parameter(bias_sum, channel, sum_of_warps(shared, warp, team, int32(1)))
            wait_for_block()
            base = int32(base + cuda.gridDim.x * teams)

    def kernel(
        D: int, X: int, mean: int, scale: int, variance: int, dX: int, scale_sum: int, bias_sum: int,
        partial: int, counter: int,
        count: int, length: int, channels: int, images: int,
        length_multiplier: int, length_shift: int, channels_multiplier: int, channels_shift: int, team: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        warp, lane = int32(thread // 32), int32(thread % 32)
        count, length, channels, images, team = int32(count), int32(length), int32(channels), int32(images), int32(team)
        by_length = (int32(length_multiplier), int32(length_shift))
        by_channels = (int32(channels_multiplier), int32(channels_shift))
        addresses = (mean, scale, variance)
        vectors = int32(count // WIDTH)
        pieces = int32((count + (PIECE - 1)) // PIECE)
        shared = i.shared_memory()

        x, d = cuda.local.array(HELD, int32), cuda.local.array(HELD, int32)
        values, sums = cuda.local.array(6, FLOAT), cuda.local.array(4, FLOAT)
        means, gains = cuda.local.array(2, FLOAT), cuda.local.array(2, FLOAT)

        turn = int32(0)  # alternates between two buffers of exchanges: one barrier is enough
        piece_before = int32(-1)
        start = int32(cuda.blockIdx.x * TILES)  # of the block's tiles
        first = int32(start + warp * TILE)
        piece_at = start if BY_BLOCK else first
        load_tile(x, d, X, D, first, lane, vectors)
        plane = plane_of(piece_at, count, by_length)
        load_channels(values, plane, channels, by_channels, addresses)
        while start < count:
            ticket = int32(0)
            if thread == 0:  # the result arrives while the tiles are processed
                ticket = take_ticket(counter)
            piece = int32(piece_at // PIECE)
            end = int32((plane + 1) * length)
            for n in range(2):
                means[n] = values[3 * n]
                gains[n] = values[3 * n + 1] * inverse(values[3 * n + 2])
            for n in range(4):
                sums[n] = FLOAT(0)
            if first < end < first + TILE:
                split_tile(x, d, dX, first, end, count, lane, means, gains, sums)
            else:
                whole_tile(x, d, dX, first, first < end, count, lane, means, gains, sums)
            at = int32(vectors * WIDTH + lane)
            if first <= vectors * WIDTH < first + TILE and at < count:  # the last elements, fewer than a vector
                one, other = number(X, at), number(D, at)
                put_number(dX, at, element(one, other, at < end, means, gains, sums))

            if thread == 0:
                i.store_word(shared + 4 * turn, int32((cuda.gridDim.x + ticket) * TILES))
            wait_for_block()
            start = i.load_word(shared + 4 * turn)
            first = int32(start + warp * TILE)
            piece_at = start if BY_BLOCK else first
            if start < count:
                load_tile(x, d, X, D, first, lane, vectors)
                plane = plane_of(piece_at, count, by_length)
                load_channels(values, plane, channels, by_channels, addresses)
            if BY_BLOCK:
                leave_sums_of_warps(shared, int32(1 - turn), partial, piece_before)
            add_over_warp(sums, 4)
            if lane == 0:
                if BY_BLOCK:
                    store_4(shared + SUMS_AT + (turn * WARPS + warp) * (4 * SUM), sums)
                elif piece < pieces:
                    store_partial(partial + int64(piece) * (4 * SUM), sums)
            piece_before, turn = piece, int32(1 - turn)

        if BY_BLOCK:
            wait_for_block()
            leave_sums_of_warps(shared, int32(1 - turn), partial, piece_before)
        wait_for_grid(counter)
        if thread == 0 and cuda.blockIdx.x == 0:
            clear_tickets(counter)
        add_pieces_of_channels(
            shared, partial, variance, scale_sum, bias_sum, pieces, images, channels, length, team
        )  # fmt: skip

    return kernel
