"""The kernel of a group norm's two passes over its data.

A thread goes through the vectors of one channel (planes), or of as many channels as a vector has elements (lines), and
keeps the numbers of these channels in registers. In lines a block takes whole lines of channels, as many as it has
lanes, so that memory is read in order whatever the size of a group.

    sums   of each channel of each sample, and of each of its parts, a pair (see moments)
    map    the output, or dX
    whole  both: a block, or a cluster of blocks, has whole groups, keeps its vectors in shared memory until the
           groups' pairs are known, and reads nothing twice. D behind SiLU stays in registers: its exponential and
           reciprocal, computed twice, would take two thirds of the memory's time
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
from gradkern.cuda.device_code.numbers import inverse_root, number_access
from gradkern.kernels.channels.activation import activation_of, derivative_of, scale_of
from gradkern.ops.group_norm.cuda.config import BARRIER, GroupNormConfig
from gradkern.ops.group_norm.cuda.numbers import addends_of, combining, group_totals, parameters_of, shared_access


def build(config: GroupNormConfig) -> Callable[..., None]:
    """The kernel of ARGUMENTS, each an int64."""
    GRADIENT, MAP, LINES, arrays = config.gradient, config.step == "map", config.lines, config.arrays
    WHOLE, CLUSTER, OF_BLOCK, TEAMS = config.step == "whole", config.cluster, config.of_block, config.teams
    MEAN, INV_STD, EPSILON = "mean" in arrays, "inv_std" in arrays, config.epsilon
    FLOAT, WIDTH, LANES, ROWS, VECTORS = (
        float64 if config.compute == "float64" else float32, config.width, config.lanes, config.rows, config.vectors
    )  # fmt: skip
    OVERLAPS = config.overlaps
    ITEM, NUMBER, THREADS = ITEMSIZE[config.data], config.itemsize, config.threads
    CHANNELS, EACH = (WIDTH, 1) if LINES else (1, WIDTH)  # of a vector; elements of each
    BYTES, WORDS = WIDTH * ITEM, max(1, WIDTH * ITEM // 4)
    LOADED = 1 if WHOLE else VECTORS * WORDS  # words of registers
    HOLDS, HELD = config.holds, VECTORS * WIDTH if config.holds else 1
    COUNTED = WHOLE and not HOLDS  # loops end at the last vector
    CHUNKS, COUNTS_AT = config.chunks, config.counts_at
    ACTIVATION, RESIDUAL = config.activation != "none", "residual_grad" in arrays
    SUMS, TWO, ADDED = config.sums_data, config.read == 2, config.sums_data and (config.read == 1 or "bias" in arrays)
    KEPT, RESULT, SUM = config.keeps_sum, GRADIENT or "Y" in arrays, "S" in arrays and not config.keeps_sum
    load_words, load_kept = i.word_loader("global", BYTES), i.word_loader("shared", BYTES)
    copy, copy_or_zeros, wait_for_copies = i.async_copy(BYTES), i.copy_or_zeros(BYTES), i.wait_for_copies(0)
    unpack = i.unpacker(config.data, WIDTH)
    store = i.storer("global", config.data, WIDTH, config.native_bfloat16)
    store_numbers = i.storer("shared", config.compute, WIDTH)
    round_sum = i.rounder(config.data, WIDTH, config.native_bfloat16)
    statistic, put_statistic = number_access(config.statistic, config.compute, config.native_bfloat16)
    number, put = number_access(config.compute, config.compute, True)
    _, gain_and_bias = parameters_of(config)
    added_to, shift = addends_of(config)
    SCALE = scale_of(config.activation, config.compute)
    how = config.activation, config.compute, config.data, config.native_bfloat16, SCALE
    activate, times_derivative = activation_of(*how), derivative_of(*how)
    combine, over_lanes = combining(GRADIENT, config.compute)
    root = inverse_root(config.compute)
    NUMBERS_AT = config.numbers_at
    keep, kept = shared_access(config.compute, NUMBERS_AT)
    STEP = ROWS if LINES else LANES  # places from one vector of a thread to the next
    by_rows, by_lanes, by_step, by_cluster = map(i.quotient_by, (ROWS, LANES, STEP, CLUSTER))
    begin_cluster, keep_slot, combine_groups, group_total, keep_group, group_numbers = group_totals(
        config, combine, over_lanes
    )

    @device_function
    def unpack_vector(x: Any, words: Any, thread: int, j: int, array: int) -> None:
        """Of this thread: its vector j of X (array 0), or of dY or skip (1)."""
        if WHOLE:
            own = cuda.local.array(WORDS, int32)
            load_kept(own, 0, i.shared_memory() + int32(BARRIER + ((array * VECTORS + j) * THREADS + thread) * BYTES))
            unpack(x, own, 0)
        else:
            unpack(x, words, j * WORDS)

    @device_function
    def unpack_data(x: Any, words: Any, more_words: Any, added: Any, thread: int, j: int) -> None:
        """Vector j of what is normalized: of X, or of its sum with skip and bias, rounded as in memory."""
        unpack_vector(x, words, thread, j, 0)
        if SUMS:
            if TWO:
                more = cuda.local.array(WIDTH, FLOAT)
                unpack_vector(more, more_words, thread, j, 1)
                for e in range(WIDTH):
                    x[e] += more[e]
            if ADDED:
                for e in range(WIDTH):
                    x[e] += added[e if LINES else 0]
            round_sum(x)

    @device_function
    def write_sums(
        words: Any, more_words: Any, added: Any, thread: int, valid: int, to: int, at: int, stride: int
    ) -> None:
        x = cuda.local.array(WIDTH, FLOAT)
        for j in range(valid if WHOLE else VECTORS):
            if WHOLE or j < valid:
                unpack_data(x, words, more_words, added, thread, j)
                store(to + int64(at + j * STEP) * stride, x)

    @device_function
    def add_batch(
        count: Any, first: Any, second: Any, words: Any, more_words: Any, added: Any, thread: int, valid: int,
        mu: Any, gain: Any, bias: Any, held: Any,
    ) -> Any:  # fmt: skip
        """The pairs of the first `valid` vectors, combined with those of this thread. held: every D; it is 0 behind
        them.
        """
        x, d = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        if GRADIENT:
            for j in range(valid if COUNTED else VECTORS):
                if WHOLE or j < valid:
                    unpack_data(x, words, more_words, added, thread, j)
                    unpack_vector(d, more_words, thread, j, 1)
                    for e in range(WIDTH):
                        n = e if LINES else 0
                        apart = x[e] - mu[n]
                        D = d[e]
                        if ACTIVATION:
                            D = times_derivative(D, apart * gain[n] + bias[n])
                        if HOLDS:
                            held[j * WIDTH + e] = D
                        first[n] += D
                        second[n] += D * apart
            return count
        of_batch = FLOAT(valid * EACH)
        total = count + of_batch
        share, inverse = of_batch / total, FLOAT(1) / of_batch
        mean = cuda.local.array(CHANNELS, FLOAT)
        for n in range(CHANNELS):
            mean[n] = FLOAT(0)
        for j in range(valid if WHOLE else VECTORS):
            if WHOLE or j < valid:
                unpack_data(x, words, more_words, added, thread, j)
                for e in range(WIDTH):
                    n = e if LINES else 0
                    mean[n] += x[e] - mu[n]
        for n in range(CHANNELS):
            mean[n] *= inverse
        for j in range(valid if WHOLE else VECTORS):
            if WHOLE or j < valid:
                unpack_data(x, words, more_words, added, thread, j)
                for e in range(WIDTH):
                    n = e if LINES else 0
                    apart = x[e] - mu[n] - mean[n]
                    second[n] += apart * apart
        for n in range(CHANNELS):
            apart = mean[n] - first[n]
            first[n] += apart * share
            second[n] += apart * apart * (count * share)
        return total

    @device_function
    def load_batch(
        words: Any, more_words: Any, thread: int, X: int, other: int, at: int, stride: int, last: int, end: int
    ) -> None:  # fmt: skip
        """The vectors of one batch; a place beyond the last repeats it, with a dY of 0 where D is held."""
        for j in range(VECTORS):
            place = int32(at + j * STEP)
            offset = int64(min(place, last)) * stride
            if WHOLE:  # to shared memory, where this thread alone reads it
                kept_at = i.shared_memory() + int32(BARRIER + (j * THREADS + thread) * BYTES)
                copy(kept_at, X + offset)
                other_at = kept_at + VECTORS * THREADS * BYTES
                if HOLDS:
                    copy_or_zeros(other_at, other + offset, int32(BYTES) if place < end else int32(0))
                elif TWO:
                    copy(other_at, other + offset)
            else:
                load_words(words, j * WORDS, X + offset)
                if TWO:
                    load_words(more_words, j * WORDS, other + offset)

    @device_function
    def write_batch(
        words: Any, more_words: Any, added: Any, thread: int, valid: int, to: int, S: int, residual: int,
        at: int, stride: int, mu: Any, gain: Any, bias: Any, level: Any, slope: Any, held: Any,
    ) -> None:  # fmt: skip
        x, d, y = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        residual_words = cuda.local.array(WORDS, int32)
        for j in range(valid if COUNTED else VECTORS):
            if COUNTED or j < valid:
                offset = int64(at + j * STEP) * stride
                unpack_data(x, words, more_words, added, thread, j)
                if SUM:
                    store(S + offset, x)
                if GRADIENT and not HOLDS:
                    unpack_vector(d, more_words, thread, j, 1)
                for e in range(WIDTH):
                    n = e if LINES else 0
                    apart = x[e] - mu[n]
                    if GRADIENT:
                        D = held[j * WIDTH + e] if HOLDS else d[e]
                        if ACTIVATION and not HOLDS:
                            D = times_derivative(D, apart * gain[n] + bias[n])
                        y[e] = (gain[n] * D - level[n]) - apart * slope[n]
                    else:
                        y[e] = activate(apart * gain[n] + bias[n])
                if RESIDUAL:
                    load_words(residual_words, 0, residual + offset)
                    unpack(d, residual_words, 0)
                    for e in range(WIDTH):
                        y[e] += d[e]
                if RESULT:
                    store(to + offset, y)

    @device_function
    def valid_of(rest: int) -> int:
        """Of a batch, the vectors of a thread that has places every STEP of `rest`."""
        return min(by_step(int32(rest + (STEP - 1))), int32(VECTORS))

    @device_function
    def group_at(ng: int, n: int, groups: int, of_group: int) -> Any:
        """The sample, in lines n, and the first channel of a group."""
        if not LINES:
            n = int64(i.quotient(int32(ng), int32(groups)))
        return n, (ng - n * groups) * of_group

    @device_function
    def count_of_row(row: int, length: int) -> Any:
        """Positions of a part that a row of lanes has; sums need none."""
        if GRADIENT:
            return FLOAT(0)
        return FLOAT(by_rows(max(int32(length - row + (ROWS - 1)), int32(0))))

    @device_function
    def over_rows(first: Any, second: Any, thread: int) -> None:
        """Lines: the threads' pairs, to shared memory."""
        numbers = i.shared_memory() + int32(NUMBERS_AT)
        store_numbers(numbers + thread * int32(WIDTH * NUMBER), first)
        store_numbers(numbers + (THREADS + thread) * int32(WIDTH * NUMBER), second)
        wait_for_block()

    @device_function
    def over_chunks(thread: int, length: int) -> None:
        """Lines: the pairs of every CHUNKS-th row, to those of the first CHUNKS rows."""
        unit = thread
        while unit < CHUNKS * LANES * WIDTH:
            chunk = i.quotient(unit, int32(LANES * WIDTH))
            place = int32(unit - chunk * (LANES * WIDTH))
            count, first, second = FLOAT(0), FLOAT(0), FLOAT(0)
            each = chunk
            while each < ROWS:
                at_row = int32(each * (LANES * WIDTH) + place)
                count, first, second = combine(
                    count,
                    first,
                    second,
                    count_of_row(each, length),
                    kept(at_row),
                    kept(int32(THREADS * WIDTH + at_row)),
                )
                each = int32(each + CHUNKS)
            keep(unit, first)  # only this thread reads what it writes over
            keep(THREADS * WIDTH + unit, second)
            keep(COUNTS_AT + unit, count)
            unit = int32(unit + THREADS)
        wait_for_block()

    @device_function
    def of_rows(place: int) -> Any:
        """The pair of a channel of the tile, of all rows of the block."""
        count, first, second = FLOAT(0), FLOAT(0), FLOAT(0)
        for chunk in range(CHUNKS):
            at = int32(chunk * (LANES * WIDTH) + place)
            count, first, second = combine(
                count, first, second, kept(COUNTS_AT + at), kept(at), kept(int32(THREADS * WIDTH + at))
            )
        return count, first, second

    def kernel(
        dY: int, X: int, skip: int, residual_grad: int, mean: int, inv_std: int, gamma: int, beta: int, bias_of_X: int,
        sample_scale: int, sample_shift: int, Y: int, S: int, dX: int, _dgamma: int, _dbeta: int, _ds: int, _dt: int,
        sums: int, samples: int, channels: int, positions: int, groups: int, of_group: int, parts: int,
        part_length: int, tiles: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        row = by_lanes(thread)
        lane = int32(thread - row * LANES)
        block = int64(cuda.blockIdx.x)
        if OVERLAPS and (GRADIENT or not (MAP or WHOLE)):
            i.begin_next_launch()
        if MAP:  # the last that the pass before has read may still be in the L2 cache
            block = int64(cuda.gridDim.x) - 1 - block
        of_groups = sums  # two numbers of each group of each sample
        partial = of_groups + 2 * samples * groups * NUMBER
        half = samples * channels * parts
        rank, together = int32(0), block
        if WHOLE and CLUSTER > 1:
            rank = i.cluster_rank()
            together = int64(by_cluster(int32(block)))
            begin_cluster(thread)
        if LINES:
            n = int64(i.quotient(int32(together), int32(tiles)))
            tile = together - n * tiles
            part = int64(rank)
            if not WHOLE:
                part = n
                n = int64(i.quotient(int32(part), int32(parts)))
                part = part - n * parts
            c = (tile * LANES + lane) * WIDTH
            active = c < channels
            c = min(c, channels - WIDTH)
            base, limit, at = n * positions * channels + c, positions, row
            stride = channels * ITEM
        else:
            unit = block * ROWS + row
            if WHOLE:  # teams of a group are neighbours in a block, or in a cluster
                unit = together * (TEAMS * OF_BLOCK) + rank * ROWS + row
            active = unit < samples * channels * parts
            if WHOLE:
                active = active and rank * ROWS + row < TEAMS * OF_BLOCK
            unit = min(unit, samples * channels * parts - 1)
            rest = int64(i.quotient(int32(unit), int32(parts)))
            part = unit - rest * parts
            n = int64(i.quotient(int32(rest), int32(channels)))
            c = rest - n * channels
            base, limit, at = rest * positions, positions // WIDTH, lane
            stride = int64(WIDTH * ITEM)
        # places are counted from the part's first; a part behind the last of all has none
        length = int32(max(min(part_length, limit - part * part_length), int64(0)))
        last = max(int32(length - 1), int32(0))
        end = length if active else int32(0)
        first_byte = base * ITEM + min(part * part_length, limit - 1) * stride
        X_base = (S if MAP and KEPT else X) + first_byte
        other_base = (dY if GRADIENT else skip) + first_byte
        to, S_base = (dX if GRADIENT else Y) + first_byte, S + first_byte
        residual = residual_grad + first_byte

        words, more_words = cuda.local.array(LOADED, int32), cuda.local.array(LOADED, int32)
        if OVERLAPS and not WHOLE:
            i.wait_for_launch_before()
        if WHOLE:
            load_batch(words, more_words, thread, X_base, other_base, at, stride, last, end)
            i.commit_copies()
        mu, r = cuda.local.array(CHANNELS, FLOAT), cuda.local.array(CHANNELS, FLOAT)
        gain, bias = cuda.local.array(CHANNELS, FLOAT), cuda.local.array(CHANNELS, FLOAT)
        level, slope = cuda.local.array(CHANNELS, FLOAT), cuda.local.array(CHANNELS, FLOAT)
        added = cuda.local.array(CHANNELS, FLOAT)
        g = int64(i.quotient(int32(c), int32(of_group)))
        in_group = c - g * of_group  # the place of channel c + k in its group
        for k in range(CHANNELS):
            if k > 0:
                in_group += 1
                if in_group == of_group:
                    in_group = int64(0)
                    g += 1
            ng = n * groups + g
            if ADDED:
                added[k] = added_to(skip, bias_of_X, c + k, n * channels + c + k)
            if GRADIENT or MAP or WHOLE:
                gain[k], bias[k] = gain_and_bias(gamma, beta, sample_scale, sample_shift, c + k, n * channels + c + k)
                gain[k], bias[k] = FLOAT(SCALE) * gain[k], FLOAT(SCALE) * bias[k]
            if GRADIENT:
                mu[k], r[k] = statistic(mean, ng), statistic(inv_std, ng)
                gain[k] = gain[k] * r[k]
                if MAP:
                    level[k], slope[k] = number(of_groups, ng), number(of_groups, samples * groups + ng)
            elif MAP:
                mu[k], r[k] = number(of_groups, ng), number(of_groups, samples * groups + ng)
                gain[k] = gain[k] * r[k]
            else:
                mu[k] = shift(X, skip, bias_of_X, n, g * of_group, channels, positions)

        # the groups of the block: of a tile of lines, or OF_BLOCK of them
        first_group = together * OF_BLOCK  # planes: among those of all samples
        if LINES:
            first_group = n * groups + tile * (LANES * WIDTH) // of_group
        if WHOLE and CLUSTER > 1 and not GRADIENT:  # before another block writes over X: it does once it has all pairs
            q = thread
            while q < OF_BLOCK:
                ng = min(first_group + q, samples * groups - 1)
                n_of_group, c_of_group = group_at(ng, n, groups, of_group)
                of_first = shift(X, skip, bias_of_X, n_of_group, c_of_group, channels, positions)
                keep_group(q, of_first, FLOAT(0))
                q = int32(q + THREADS)

        first, second = cuda.local.array(CHANNELS, FLOAT), cuda.local.array(CHANNELS, FLOAT)
        held = cuda.local.array(HELD, FLOAT)
        count = FLOAT(0)
        for k in range(CHANNELS):
            first[k], second[k] = FLOAT(0), FLOAT(0)
        valid = int32(0)
        if WHOLE:
            wait_for_copies()
            valid = valid_of(max(int32(end - at), int32(0)))
            if valid > 0:
                count = add_batch(count, first, second, words, more_words, added, thread, valid, mu, gain, bias, held)
        else:
            while at < end:
                valid = valid_of(end - at)
                load_batch(words, more_words, thread, X_base, other_base, at, stride, last, end)
                if MAP:
                    write_batch(
                        words, more_words, added, thread, valid, to, S_base, residual, at, stride,
                        mu, gain, bias, level, slope, held,
                    )  # fmt: skip
                else:
                    if KEPT:
                        write_sums(words, more_words, added, thread, valid, S_base, at, stride)
                    count = add_batch(
                        count, first, second, words, more_words, added, thread, valid, mu, gain, bias, held
                    )
                at = int32(at + VECTORS * STEP)
        if MAP:
            return

        if GRADIENT:
            for k in range(CHANNELS):
                first[k], second[k] = FLOAT(SCALE) * first[k], FLOAT(SCALE) * (r[k] * second[k])
        if LINES:
            over_rows(first, second, thread)
            over_chunks(thread, length)
            place = thread
            while place < LANES * WIDTH:
                channel = tile * (LANES * WIDTH) + place
                if channel < channels:
                    its, one, other = of_rows(place)
                    if GRADIENT or not WHOLE:
                        out = (n * parts + part) * channels + channel
                        put(partial, out, one)
                        put(partial, half + out, other)
                    if WHOLE:
                        if GRADIENT:
                            nc = n * channels + channel
                            factor, _ = gain_and_bias(gamma, beta, sample_scale, sample_shift, channel, nc)
                            one, other = factor * one, factor * other
                        keep_slot(place, its, one, other)
                place = int32(place + THREADS)
        else:
            count, one, other = over_lanes(count, first[0], second[0], LANES)
            if lane == 0:
                if active and (GRADIENT or not WHOLE):
                    out = (n * parts + part) * channels + c
                    put(partial, out, one)
                    put(partial, half + out, other)
                if WHOLE:
                    if GRADIENT:
                        factor, _ = gain_and_bias(gamma, beta, sample_scale, sample_shift, c, n * channels + c)
                        one, other = factor * one, factor * other
                    keep_slot(row, count, one, other)
        if WHOLE:
            wait_for_block()
            combine_groups(thread, rank)
            q = thread
            while q < OF_BLOCK:
                ng = first_group + q
                if ng < samples * groups:
                    of_all, one, other = group_total(q)
                    if GRADIENT:
                        deviation = statistic(inv_std, ng)
                        share = deviation / (FLOAT(of_group) * FLOAT(positions))
                        one, other = share * one, share * (deviation * other)
                    else:
                        of_first, _ = group_numbers(q)
                        if CLUSTER == 1:
                            n_of_group, c_of_group = group_at(ng, n, groups, of_group)
                            of_first = shift(X, skip, bias_of_X, n_of_group, c_of_group, channels, positions)
                        one += of_first
                        other = root(other / of_all + FLOAT(EPSILON))
                        if rank == 0:
                            if MEAN:
                                put_statistic(mean, ng, one)
                            if INV_STD:
                                put_statistic(inv_std, ng, other)
                    keep_group(q, one, other)
                q = int32(q + THREADS)
            wait_for_block()
            g = int64(i.quotient(int32(c), int32(of_group)))
            in_group = c - g * of_group
            for k in range(CHANNELS):
                if k > 0:
                    in_group += 1
                    if in_group == of_group:
                        in_group = int64(0)
                        g += 1
                q = int32(n * groups + g - first_group)
                one, other = group_numbers(max(min(q, int32(OF_BLOCK - 1)), int32(0)))
                if GRADIENT:
                    level[k], slope[k] = one, other
                else:
                    mu[k] = one
                    gain[k] = gain[k] * other
            write_batch(
                words, more_words, added, thread, valid, to, S_base, residual, at, stride,
                mu, gain, bias, level, slope, held,
            )  # fmt: skip

    return kernel
