"""From a call to the launches of the segment block: the sort of the keys, the sums of rows, the parts of long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.segments.config import (
    COUNT_ARGUMENTS,
    MOST,
    SCATTER_ARGUMENTS,
    SUMS_ARGUMENTS,
    KeyTypes,
    SumsTypes,
    piece_of,
    sort_config,
    sums_config,
)

_MOST_BLOCKS = 128  # of a pass of the sort: each block reads the counts of all
_SORT, _SUMS = "gradkern.kernels.segments.sort:", "gradkern.kernels.segments.kernel:"
_VECTOR = 16  # bytes of a store, at most
_MOST_COUNT = 1 << 30
_WIDE = 512  # bytes of a row: narrower ones are all set to zero first, beside the sort
_WRITTEN_AGAIN = 128 << 20  # bytes: wider ones, too, if sums write no more; zeros for rows without a sum cost as much
_LEAST_GROUPS = 8  # of threads, that pieces of the sorted list are cut for
_PARTS_BLOCKS = 1536  # of the launch that adds up parts, while more threads for each column are worth it
_LEAST_ZEROS, _MOST_ZEROS = 64 << 10, 256 << 10  # bytes of a block that writes zeros, where rows are not longer
_ZERO_BLOCKS = 32  # of them, for each multiprocessor
_OWN = ("keys", "keys_to", "positions", "positions_to", "counts", "heads", "tails")
"""Names of what is in scratch memory."""


class Keys(NamedTuple):
    """How the key of an element is made, the number of its row: of its place in a C-ordered array of `sizes`, the sum
    of its coordinates times `strides`; of its indices, each in [-bound, bound), their sum times `steps`. Elements with
    another index, or with the key `dropped`, are of no row.
    """

    sizes: Sequence[int]
    strides: Sequence[int]
    bounds: Sequence[int]
    steps: Sequence[int]
    dropped: int = -1


def segments_plan(
    call: Call, builder: str, source: str, keys: Keys, count: int, rows: int, columns: int
) -> LaunchesPlan | EmptyPlan:
    """The plan of a call whose only output is made of `rows` rows of `columns` elements, perhaps for each of several
    arrays: a row is the sum of those rows of `source` whose keys are its number. `count` keys are made of the input
    `indices`. The output may be an input's own array: the sums are added to it.

    builder: "module:function" of (SortConfig, KeyTypes) that calls count_kernel
    """
    device, (target,) = device_of(call), call.outputs.values()
    accumulate = bool(call.in_place)
    if count == 0 or target.size == 0:
        return EmptyPlan("empty", 0, device, (0 if accumulate else target.nbytes,))
    for name, tensor in {**call.inputs, **call.outputs}.items():
        require_flat(name, tensor)
    if count > _MOST_COUNT or max(len(keys.sizes), len(keys.bounds)) > MOST:
        raise Refusal(
            f"indices: {count} of {len(keys.bounds)} numbers, in {len(keys.sizes)} dimensions, are more than the "
            f"{_MOST_COUNT} of {MOST} in {MOST} of its kernels"
        )
    data = call.inputs[source]
    long = rows >= (1 << 31) - 1
    of_keys = KeyTypes(call.inputs["indices"].dtype.name, len(keys.sizes), len(keys.bounds), long)
    of_sums = SumsTypes(data.dtype.name, long, accumulate, device.capability >= (8, 0))
    made = _Launches(call, device, count, long)
    row, all_rows = columns * data.dtype.itemsize, target.size // columns
    written_again = min(count * (all_rows // rows), all_rows) * row
    clears = not accumulate and (row < _WIDE or written_again <= _WRITTEN_AGAIN)
    made.sort(builder, of_keys, keys, rows, clears)
    name = made.sums(source, of_sums, rows, columns, min(data.alignment, target.alignment), clears)
    return made.plan(name)


class _Launches:
    """The launches of a call, and the scratch memory that they share."""

    def __init__(self, call: Call, device: Device, count: int, long: bool) -> None:
        self._call, self._device, self._count, self._long = call, device, count, long
        self._names = [*call.inputs, *call.outputs, *_OWN]
        self._bytes = dict.fromkeys(_OWN, 4 * count)
        self._bytes |= dict.fromkeys(("keys", "keys_to"), (8 if long else 4) * count)
        self._made: list[tuple[Launch, tuple[int, ...]]] = []
        self._sorted, self._overlap = ("keys", "positions"), device.capability >= (9, 0)

    def _add(
        self, words: Sequence[str], builder: str, config: Any, constants: Sequence[Any], grid: int,
        arguments: Sequence[str], numbers: dict[str, int], given: dict[str, str],
    ) -> None:  # fmt: skip
        """A launch. given: of the kernel's names of addresses, the call's or those of scratch memory."""
        kernel = kernel_of(
            self._device, builder, config, *constants, name=kernel_name("segments", *words, config.name),
            arguments=len(arguments), threads=config.threads, shared_bytes=config.shared_bytes,
        )  # fmt: skip
        overlaps = config.overlap and bool(self._made)
        launch = Launch(kernel, grid, config.threads, *named(arguments, numbers, list(given)), overlaps=overlaps)
        self._made.append((launch, tuple(self._names.index(each) for each in given.values())))

    def sort(self, builder: str, types: KeyTypes, keys: Keys, rows: int, clears: bool = False) -> None:
        """clears: the launches also set the target to zero, a part each."""
        config, passes = sort_config(rows, self._count)
        ((name, target),) = self._call.outputs.items()
        store = min(_VECTOR, target.alignment) if clears else 0
        config = replace(config, overlap=self._overlap, clears=store)
        tile = round_up(max(config.tile, -(-self._count // _MOST_BLOCKS)), config.tile)
        blocks = -(-self._count // tile)
        self._bytes["counts"] = 4 * blocks * config.digits
        numbers = {"count": self._count, "tile": tile, "blocks": blocks, "rows": rows, "dropped": keys.dropped}
        for what, values in zip(("size", "stride", "bound", "step"), keys[:4], strict=True):
            numbers |= {f"{what}_{n}": value for n, value in enumerate(values)}
        part = round_up(-(-target.nbytes // (2 * passes)), config.cleared) if clears else 0

        def add(what: str, builder: str, constants: Sequence[Any], arguments: Sequence[str], **given: str) -> None:
            first = part * len(self._made)
            numbers["clear_from"], numbers["clear_to"] = first, min(first + part, target.nbytes)
            clearing = -(-max(0, numbers["clear_to"] - first) // config.cleared) if clears else 0
            given |= {"counts": "counts", "target": name}
            self._add([what], builder, config, constants, blocks + clearing, arguments, numbers, given)

        held, to = ("keys", "positions"), ("keys_to", "positions_to")
        for n in range(passes):
            numbers["shift"] = n * config.bits
            if n == 0:
                add("count", builder, [types], COUNT_ARGUMENTS, keys=held[0], indices="indices")
            else:
                add("count", f"{_SORT}build_count", [self._long], COUNT_ARGUMENTS, keys=held[0])
            places = {"keys": held[0], "positions": held[1], "keys_to": to[0], "positions_to": to[1]}
            add("scatter", f"{_SORT}build_scatter", [self._long, n == 0], SCATTER_ARGUMENTS, **places)
            held, to = to, held
        self._sorted = held

    def sums(self, source: str, types: SumsTypes, rows: int, columns: int, alignment: int, clears: bool) -> str:
        """The name of the config. clears: rows without a sum are zero already."""
        (target,) = self._call.outputs
        config = replace(sums_config(types.data, columns, alignment), overlap=self._overlap)
        all_rows = self._call.outputs[target].size // columns
        row = columns * ITEMSIZE[types.data]
        piece = piece_of(self._count, max(2 * config.groups, _LEAST_GROUPS))
        pieces = -(-self._count // piece)
        arrays, of_parts = all_rows // rows, config
        while of_parts.lanes > 32:
            narrower = replace(of_parts, lanes=of_parts.lanes // 2)
            if arrays * pieces * narrower.blocks(columns) > _PARTS_BLOCKS:
                break
            of_parts = narrower
        items = arrays * pieces * config.blocks(columns)
        zeros = all_rows * row // (_ZERO_BLOCKS * self._device.processors)
        zeros = min(max(zeros, _LEAST_ZEROS), _MOST_ZEROS)
        item_blocks, tile = -(-items // config.groups), max(1, min(config.threads, zeros // row))
        zero_blocks = 0 if clears or types.accumulate else -(-all_rows // tile)
        if max(items, item_blocks + zero_blocks) >= 1 << 31:
            raise Refusal(f"{source}: {items} pieces of rows, or {zero_blocks} tiles, are more than a launch can have")
        parts = ITEMSIZE[types.compute] * columns * pieces * arrays * (pieces > 1)
        self._bytes |= {"heads": parts, "tails": parts}
        numbers = {
            "count": self._count, "piece": piece, "pieces": pieces, "rows": rows, "columns": columns,
            "items": items, "item_blocks": item_blocks, "all_rows": all_rows,
            "tile": tile,
        }  # fmt: skip
        keys, positions = self._sorted
        given = {"keys": keys, "positions": positions, "source": source, "target": target}
        given |= {"heads": "heads", "tails": "tails"}
        steps = [("sums", f"{_SUMS}build_sums", config, item_blocks + zero_blocks)]
        if pieces > 1:
            steps.append(("parts", f"{_SUMS}build_parts", of_parts, arrays * pieces * of_parts.blocks(columns)))
        for what, builder, each, grid in steps:
            numbers["column_blocks"] = each.blocks(columns)
            self._add([what, types.data], builder, each, [types], grid, SUMS_ARGUMENTS, numbers, given)
        return config.name

    def plan(self, name: str) -> LaunchesPlan:
        offsets, size = list[int](), 0
        for each in _OWN:
            offsets.append(size)
            size += round_up(self._bytes[each], 256)
        launches, places = zip(*self._made, strict=True)
        kernel = f"{operator_words(self._call.operator)}_{name}"
        return LaunchesPlan(kernel, size, launches, places, tuple(offsets), self._device)
