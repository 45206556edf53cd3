"""The label of a row with its weight, and sums over rows: of the weights, and of the losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import clear_tickets, take_ticket, wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import integer_access
from gradkern.ops.cross_entropy.cuda.config import BLOCK, LossConfig

IGNORED, INVALID, ZERO_ROW = -1, -2, -3
"""In place of labels; the last in place of IGNORED once a row's totals are known, where its gradient is all 0."""
_IN_FLIGHT = 8  # rows of a thread, of sums


def label_loader(config: LossConfig) -> Callable[..., Any]:
    """The device function (labels, row) -> what is there, 0 where there are none."""
    LABELS = bool(config.labels)
    load_label, _ = integer_access(config.labels == "int64")

    @device_function
    def load(labels: int, row: int) -> Any:
        return load_label(labels, row) if LABELS else int64(0)

    return load


def weight_of(config: LossConfig) -> Callable[..., Any]:
    """The device function (label, weight, ignore_index, row, columns) -> the label, IGNORED or INVALID, and the row's
    weight in float64.
    """
    LABELS, WEIGHT, BY_ROWS, IGNORES = bool(config.labels), config.weight, config.by_rows, config.ignores
    load_weight = i.loader("global", WEIGHT or "float32", 1)
    WEIGHT_BYTES = ITEMSIZE[WEIGHT or "float32"]
    WIDE = float64 if WEIGHT == "float64" else float32

    @device_function
    def weight_of(label: int, weight: int, ignore_index: int, row: int, columns: int) -> Any:
        share = float64(1)
        if LABELS:
            if IGNORES and label == ignore_index:
                label = int64(IGNORED)
            elif label < 0 or label >= columns:
                label = int64(INVALID)
        if WEIGHT:
            one = cuda.local.array(1, WIDE)
            place = row
            if not BY_ROWS:
                place = max(label, int64(0))
            load_weight(one, weight + place * WEIGHT_BYTES)
            share = float64(one[0])
        if label == IGNORED:
            share = float64(0)
        return label, share

    return weight_of


def build(config: LossConfig, losses: str, result: str, nan_if_empty: bool) -> Callable[..., None]:
    """A kernel of int64 arguments. Without `losses`: 1 / (sum of the weights), for the gradient and the loss, to
    `factors`. With losses of that type: their sum, with the second of the factors if there are any, to `loss` of the
    type `result`. Sums are in float64, in an order that depends on the number of rows alone.
    """
    LOSSES, MEAN, NAN_IF_EMPTY, OVERLAPS = bool(losses), config.mean, nan_if_empty, config.overlaps
    load_label, weigh = label_loader(config), weight_of(config)
    WIDE = float64 if losses == "float64" else float32
    load_loss, LOSS_BYTES = i.loader("global", losses or "float32", 1), ITEMSIZE[losses or "float32"]
    load_pair, store_pair = i.loader("global", "float64", 2), i.storer("global", "float64", 2)
    load_shared, store_shared = i.loader("shared", "float64", 2), i.storer("shared", "float64", 2)
    OUT = float64 if result == "float64" else float32
    store_result = i.storer("global", result or "float32", 1, False)
    WARPS = BLOCK // 32

    @device_function
    def over_block(first: Any, second: Any, thread: int) -> Any:
        pair = cuda.local.array(2, float64)
        distance = int32(16)
        while distance > 0:
            first += i.shuffle_xor_double(first, distance)
            second += i.shuffle_xor_double(second, distance)
            distance = int32(distance // 2)
        wait_for_block()
        if thread % 32 == 0:
            pair[0], pair[1] = first, second
            store_shared(i.shared_memory() + int32(thread // 32 * 16), pair)
        wait_for_block()
        first, second = float64(0), float64(0)
        for warp in range(WARPS):
            load_shared(pair, i.shared_memory() + int32(warp * 16))
            first += pair[0]
            second += pair[1]
        return first, second

    def kernel(
        labels: int, weight: int, ignore_index: int, rows: int, columns: int,
        losses_at: int, factors: int, loss: int, partials: int, counter: int,
    ) -> None:  # fmt: skip
        thread, block, blocks = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x), int32(cuda.gridDim.x)
        if OVERLAPS:
            i.begin_next_launch()
            i.wait_for_launch_before()
        pair, one, out = cuda.local.array(2, float64), cuda.local.array(1, WIDE), cuda.local.array(1, OUT)
        found, terms = cuda.local.array(_IN_FLIGHT, int64), cuda.local.array(_IN_FLIGHT, WIDE)
        first, second = float64(0), float64(0)  # the sum, and how many count
        row, step = int64(block) * BLOCK + thread, int64(blocks) * BLOCK
        while row < rows:
            for n in range(_IN_FLIGHT):  # all loads first, so that their latencies overlap
                at = min(row + n * step, rows - 1)
                if LOSSES:
                    load_loss(one, losses_at + at * LOSS_BYTES)
                    terms[n] = one[0]
                else:
                    found[n] = load_label(labels, at)
            for n in range(_IN_FLIGHT):
                at = row + n * step
                if at < rows:
                    if LOSSES:
                        first += float64(terms[n])
                    else:
                        label, share = weigh(found[n], weight, ignore_index, at, columns)
                        first += share
                        if label != IGNORED:
                            second += float64(1)
            row += _IN_FLIGHT * step
        first, second = over_block(first, second, thread)
        if blocks > 1:
            flag = i.shared_memory() + int32(WARPS * 16)
            if thread == 0:
                pair[0], pair[1] = first, second
                store_pair(partials + int64(block) * 16, pair)
                i.memory_fence()
                i.store_word(flag, take_ticket(counter))
            wait_for_block()
            if i.load_word(flag) != blocks - 1:
                return
            i.memory_fence()
            first, second = float64(0), float64(0)
            if thread < blocks:
                load_pair(pair, partials + int64(thread) * 16)
                first, second = pair[0], pair[1]
            first, second = over_block(first, second, thread)
            if thread == 0:
                clear_tickets(counter)
        if thread == 0:
            if LOSSES:
                if MEAN:
                    load_pair(pair, factors)
                    first = first * pair[1]
                out[0] = OUT(first)
                store_result(loss, out)
            else:
                inverse = float64(1) / first if first != 0 else float64(math.nan)
                pair[0], pair[1] = inverse, inverse
                if not NAN_IF_EMPTY and first == 0:
                    pair[0] = float64(0)
                if second == 0:
                    pair[1] = float64(math.nan if NAN_IF_EMPTY else 0.0)
                store_pair(factors, pair)

    return kernel
