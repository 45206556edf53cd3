"""Calls with arrays whose layout no kernel takes: inputs are copied to contiguous arrays before the plan runs, outputs
after.

The cost is one more pass over each such array, and memory for the copy from the stream's pool for the duration of the
call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

from gradkern.call import Call, Plan, Provisional, Refusal, Tensor
from gradkern.cuda.device import Device, activate, check, driver
from gradkern.cuda.device_code.columns import reciprocal, round_up
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, kernel_of
from gradkern.cuda.rows import device_of
from gradkern.strides import end_to_end, is_aligned, memory_order

_MOST_AXES = 8  # of an array
_BATCH_AXES = _MOST_AXES - 2  # besides the two of a tile
_THREADS, _BLOCKS = 256, 4  # of a block; of a multiprocessor, at least
_IN_FLIGHT = 64 * _THREADS  # bytes in flight of a block's threads, and of a tile that is not turned
_SHARED, _SIDE = 18 * 1024, 128  # of a turned tile: bytes with padding, and elements of its longer side
_LINE, _SECTOR = 128, 32  # bytes
Order = tuple[int, ...]


def wrap(call: Call, make: Callable[[Call], Plan], names: tuple[str, ...] = ()) -> Plan | None:
    """The plan of a call with copies of these arrays, or of those with gaps or in another order than the rest; None
    where there are none.
    """
    if names:
        return Gathered(call, names, (), make)
    found: Plan | None = None
    for order, names in _choices(call):
        made = Gathered(call, names, order, make)
        if not isinstance(made.plan, Gathered):  # no kernel takes them in that order either
            return made
        found = found or made
    return found


def _choices(call: Call) -> Iterator[tuple[Order, tuple[str, ...]]]:
    """Orders of axes for all arrays of that rank, each with the arrays to copy; fewest bytes first. The empty order is
    C order.
    """
    tensors = {**call.inputs, **call.outputs}
    rank = max(len(each.shape) for each in tensors.values())
    orders: dict[Order, None] = {(): None}
    orders |= {memory_order(each): None for each in tensors.values() if len(each.shape) == rank}
    choices: list[tuple[int, Order, tuple[str, ...]]] = []
    for order in orders:
        names = tuple(name for name, each in tensors.items() if each.strides != end_to_end(each, order).strides)
        choices += [(sum(tensors[name].nbytes for name in names), order, names)] if names else []
    for _, order, names in sorted(choices):
        yield order, names


class Gathered:
    """A plan that runs the plan for contiguous copies of the named arrays, with the axes in this order."""

    def __init__(self, call: Call, names: tuple[str, ...], order: Order, make: Callable[[Call], Plan]) -> None:
        inputs, outputs = (
            {name: end_to_end(each, order) if name in names else each for name, each in tensors.items()}
            for tensors in (call.inputs, call.outputs)
        )
        in_place = frozenset(pair for pair in call.in_place if len({*pair} & {*names}) != 1)  # of a copy and its array
        places = {name: place for place, name in enumerate(call.inputs)}
        self._same = {
            place: places[source]
            for place, name in enumerate(outputs)
            for source, target in in_place
            if target == name in names
        }
        self.plan = make(replace(call, inputs=inputs, outputs=outputs, in_place=in_place))
        self._device = device_of(call)
        self._before = self._copies(call.inputs, inputs, names)
        self._after = self._copies(outputs, call.outputs, names)
        self.kernel = f"{self.plan.kernel} with copies of {', '.join(names)}"
        held = [nbytes for place, nbytes, _ in self._after if place not in self._same]
        self.scratch = self.plan.scratch + sum(held) + sum(nbytes for _, nbytes, _ in self._before)

    def _copies(
        self, sources: Mapping[str, Tensor], targets: Mapping[str, Tensor], names: tuple[str, ...]
    ) -> list[tuple[int, int, Launch]]:
        """For every named array: its place, its bytes, and the launch that copies it."""
        return [
            (place, source.nbytes, copy_launch(source, targets[name], self._device))
            for place, (name, source) in enumerate(sources.items())
            if name in names and source.nbytes
        ]

    @property
    def provisional(self) -> bool:
        return isinstance(self.plan, Provisional) and self.plan.provisional

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        read, written = list(inputs), list(outputs)
        held: list[int] = []
        with activate(self._device):
            try:
                for place, nbytes, launch in self._before:
                    held.append(int(check(driver.cuMemAllocAsync(nbytes, stream), "allocating a copy of an input")))
                    launch((inputs[place], held[-1]), stream)
                    read[place] = held[-1]
                for place, nbytes, _ in self._after:
                    if place in self._same:  # the copy of the input that it is written over
                        written[place] = read[self._same[place]]
                        continue
                    held.append(int(check(driver.cuMemAllocAsync(nbytes, stream), "allocating a copy of an output")))
                    written[place] = held[-1]
                self.plan(tuple(read), tuple(written), stream)
                for place, _, launch in self._after:
                    launch((written[place], outputs[place]), stream)
            finally:
                for address in held:
                    driver.cuMemFreeAsync(address, stream)


class _Axis(NamedTuple):
    size: int
    source: int  # bytes from element to element
    target: int


def _merged(source: Tensor, target: Tensor) -> list[_Axis]:
    """The axes in the target's order, slowest first; axes that are contiguous in both arrays are merged."""
    axes: list[_Axis] = []
    for axis in memory_order(target):
        size, step, written = source.shape[axis], source.strides[axis], target.strides[axis]
        if size == 1:
            continue
        if axes and axes[-1].source == size * step and axes[-1].target == size * written:
            axes[-1] = _Axis(axes[-1].size * size, step, written)
        else:
            axes.append(_Axis(size, step, written))
    return axes


def copy_launch(source: Tensor, target: Tensor, device: Device) -> Launch:
    """The launch that copies from the source's strides to the target's. Its changing arguments are both addresses."""
    constants, tiles, arguments = copy_arguments(source, target)
    size, turned, read, written, _ = constants
    kernel = kernel_of(
        device,
        "gradkern.cuda.device_code.strided_copy:build",
        *constants,
        name=kernel_name("strided_copy", "turned" if turned else "", f"{size}_bytes", f"{read}x{written}"),
        arguments=len(arguments),
        threads=_THREADS,
        blocks_per_processor=_BLOCKS,
        shared_bytes=_SHARED if turned else 0,
    )
    return Launch(kernel, tiles, _THREADS, arguments, changing=(0, 1))


def copy_arguments(source: Tensor, target: Tensor) -> tuple[tuple[int, bool, int, int, bool], int, list[int]]:
    """The constants of the copy kernel, the number of tiles, and its arguments, with zeros for both addresses."""
    if not (is_aligned(source) and is_aligned(target)):
        raise Refusal(f"an array has an element at no multiple of {source.dtype.alignment}; pass a contiguous copy")
    one, size = _Axis(1, 0, 0), source.dtype.itemsize
    *batch, columns = [one, *_merged(source, target)]
    closer = [each for each in batch if 0 < abs(each.source) < abs(columns.source)]
    if closer:  # rows have a smaller stride in the source than columns
        rows = min(closer, key=lambda each: abs(each.source))
        batch.remove(rows)
    else:
        rows = batch.pop() if batch else one
    turned = bool(closer)
    fastest = rows if turned else columns
    others = [each for each in (rows, columns, *batch) if each is not fastest]
    read = _width(fastest.size, fastest.source, source.alignment, [each.source for each in others], size)
    others = [rows, *batch]
    written = _width(columns.size, columns.target, target.alignment, [each.target for each in others], size)
    if turned:
        if read == 1:  # lines in shared memory start at words
            written = min(written, max(1, 4 // size))
        high, wide, pitch, group = _turned_tile(rows.size, columns.size, size, read)
    else:
        read = written = min(read, written)
        elements = _IN_FLIGHT // max(4, size * written) * written
        wide = min(columns.size, elements)
        high, pitch, group = min(rows.size, elements // wide), 0, 0
    across, down = -(-columns.size // wide), -(-rows.size // high)
    tiles = across * down * prod(each.size for each in batch)
    if tiles >= 1 << 31:
        raise Refusal("a copy of an array takes more blocks than a launch can have; pass a contiguous copy")
    batch = [each for each in batch if each.size > 1]
    if len(batch) > _BATCH_AXES:
        raise Refusal(f"a copy of an array has more than the {_MOST_AXES} axes of its kernel; pass a contiguous copy")
    batch = [*[one] * (_BATCH_AXES - len(batch)), *batch]
    sizes = rows.size, columns.size, high, wide
    steps = rows.source, columns.source, rows.target, columns.target, pitch, group
    divisors = -(-high // read), -(-wide // written), across, down, *(each.size for each in batch)
    dividing = [number for each in divisors for number in (each, *reciprocal(each))]
    along = [*(each.source for each in batch), *(each.target for each in batch)]
    long = any(abs(number) >= 1 << 31 for number in (*sizes, *steps, *divisors, *along))
    return (size, turned, read, written, long), tiles, [0, 0, *sizes, *steps, *dividing, *along]


def _width(elements: int, step: int, alignment: int, strides: list[int], size: int) -> int:
    """Elements of an access along an axis of so many, `step` bytes apart, where the other axes have these strides."""
    width = 16 // size if step == size else 1
    while width > 1 and (elements % width or any(number % (width * size) for number in (alignment, *strides))):
        width //= 2
    return width


def _turned_tile(rows: int, columns: int, size: int, read: int) -> tuple[int, int, int, int]:
    """Rows and columns of a tile in shared memory, and the bytes there from row to row and from read to read.

    Each row of a load has its own line, and 16 bytes of padding follow such a group: neighbouring threads access
    different banks, along rows and along columns.
    """
    cell, gap = max(4, size), 16 if read > 1 else 0

    def fitting(most: int) -> int:
        """The longest line of shared memory within this many bytes."""
        return most // 16 * 16 if read > 1 else (most // cell - 1 | 1) * cell

    def cut(number: int, most: int) -> int:
        """At most this many: equal pieces if they are few, else whole lines of memory."""
        if number <= most:
            return number
        unit = (_LINE if number >= 4 * most else _SECTOR) // size
        pieces = -(-number // (most // unit * unit))
        return round_up(-(-number // pieces), unit)

    if columns <= _SIDE or rows > _SIDE:
        wide = cut(columns, _SIDE)
    else:
        wide = cut(columns, fitting(_SHARED // rows - gap // read) // size)
    pitch = fitting(wide * size + (15 if read > 1 else 2 * cell - 1))
    group = pitch * read + gap
    return cut(rows, _SHARED // group * read), wide, pitch, group
