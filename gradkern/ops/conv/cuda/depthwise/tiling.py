"""Which threads take which elements of a depthwise convolution: the numbers of a Form, from shapes, types and device.

What counts: few instructions beside the multiply-adds (long strips), few strips that reach outside the array, registers
for enough warps, and shared memory for enough blocks that some compute while others wait. The weights were fitted to
times on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Literal

from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.ops.conv.cuda.depthwise.form import Axis, Form, Shared
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.candidate import Unfit

__all__ = ["Shape", "forms"]

_REGISTERS = 65536  # of a multiprocessor
_MOST_THREADS = 256  # of a block
_OTHER_REGISTERS = 32  # beside strip, taps and window
_STRIP_START = 300  # instructions of a thread and tile, whatever its strip
_STRIPS = 3  # of which every way to make blocks is looked at


@dataclass(frozen=True, slots=True)
class Shape:
    """A depthwise gradient as a two-dimensional one: what is per axis is (rows, columns)."""

    gradient: Literal["dX", "dW"]
    dtype: str
    images: int
    channels: int
    channels_last: bool
    strip: tuple[int, int]
    source: tuple[int, int]
    taps: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    begins: tuple[int, int]
    source_strides: tuple[int, int, int, int]
    strip_strides: tuple[int, int, int, int]
    filter_strides: tuple[int, int, int]
    source_alignment: int
    strip_alignment: int

    @classmethod
    def of(cls, problem: Problem) -> Shape:
        """Raises Unfit where the problem is not one that these kernels solve."""
        X, W, Y = problem.X, problem.W, problem.Y
        if problem.gradient == "dB" or X is None or W is None:
            raise Unfit("depthwise kernels compute dX and dW")
        if not problem.group == X.shape[1] == W.shape[0]:
            raise Unfit("depthwise kernels take one filter for each channel")
        if len(X.shape) > 4:
            raise Unfit("depthwise kernels take one or two spatial axes")
        if 0 in X.shape or 0 in Y.shape or 0 in W.shape:
            raise Unfit("depthwise kernels take no empty arrays")
        dX = problem.gradient == "dX"
        source, strip = (Y, X) if dX else (X, Y)
        lift = (1,) * (4 - len(X.shape))
        sizes = [(*each.shape[:2], *lift, *each.shape[2:]) for each in (source, strip)]
        item = X.dtype.itemsize
        both = [(each.shape, each.strides) for each in (source, strip)]
        if all(shape[-1] == 1 or strides[-1] == item for shape, strides in both):
            last = False
        elif all(shape[1] == 1 or strides[1] == item for shape, strides in both):
            last = True
        else:
            raise Unfit("depthwise kernels take arrays whose channels or columns lie end to end, all the same way")
        strides = [
            _strides(size, (*each.strides[:2], *(0,) * len(lift), *each.strides[2:]), item, last)
            for size, each in zip(sizes, (source, strip), strict=True)
        ]
        return cls(
            problem.gradient,
            problem.dtype,
            X.shape[0],
            X.shape[1],
            last,
            strip=sizes[1][2:],
            source=sizes[0][2:],
            taps=(*lift, *W.shape[2:]),
            strides=(*lift, *problem.strides),
            dilations=(*lift, *problem.dilations),
            begins=(*(0,) * len(lift), *problem.pads_begin),
            source_strides=strides[0],
            strip_strides=strides[1],
            filter_strides=(W.strides[0], *(0,) * len(lift), *W.strides[2:]),
            source_alignment=source.alignment,
            strip_alignment=strip.alignment,
        )

    def axis(self, index: int, held: int, threads: int) -> Axis:
        return Axis(
            self.gradient,
            self.strip[index],
            self.source[index],
            self.taps[index],
            self.strides[index],
            self.dilations[index],
            self.begins[index],
            held,
            threads,
        )

    def form(self, held: tuple[int, int], threads: tuple[int, int], channels: int, stages: int, device: Device) -> Form:
        """The form with these strips, and the widest accesses that the arrays allow."""
        made = Form(
            self.axis(0, held[0], threads[0]),
            self.axis(1, held[1], threads[1]),
            self.dtype,
            self.channels_last,
            self.channels,
            channels,
            stages,
            self.source_strides,
            self.strip_strides,
            self.filter_strides,
            (1, 1),
            asynchronous=device.capability >= (8, 0),
            native_bfloat16=device.capability >= (8, 0),
        )
        vectors = (
            self._vector(made, made.source, self.source_strides, self.source[1], self.source_alignment),
            self._vector(made, made.strip, self.strip_strides, self.strip[1], self.strip_alignment),
        )
        return replace(made, vectors=vectors)

    def _vector(self, form: Form, tile: Shared | None, strides: tuple[int, ...], columns: int, alignment: int) -> int:
        item = ITEMSIZE[self.dtype]
        vector = 16 // item
        while vector > 1:
            size = vector * item
            if self.channels_last:
                whole = self.channels % vector == form.channels % vector == 0
                steps = strides[0], *strides[2:]
            elif tile and tile.flat:
                whole = self.channels % form.channels == 0 or tile.plane % vector == 0
                steps = strides[0], strides[1] * form.channels
            else:
                whole, steps = columns % vector == 0, strides[:3]
            if whole and alignment % size == 0 and all(step % size == 0 for step in steps):
                return vector
            vector //= 2
        return 1


def _strides(sizes: tuple[int, ...], strides: tuple[int, ...], item: int, last: bool) -> tuple[int, int, int, int]:
    """(image, channel, row, column) in bytes; along an axis of one element, what makes the array contiguous."""
    result = list(strides)
    expected = item
    for axis in (1, 3, 2, 0) if last else (3, 2, 1, 0):
        if sizes[axis] == 1:
            result[axis] = expected
        if result[axis] < 0:
            raise Unfit("depthwise kernels take arrays whose strides are not negative")
        expected = result[axis] * sizes[axis]
    image, channel, row, column = result
    return image, channel, row, column


def forms(shape: Shape, device: Device, most: int = 1) -> Iterator[Form]:
    """The most promising forms, the best first, each with other strips than those before."""
    words = ITEMSIZE[shape.dtype] // 4 or 1
    strips = sorted(_strips(shape, words), key=lambda each: each.cost)[:_STRIPS]
    if not strips:
        raise Unfit(f"a filter of {shape.taps[0]}x{shape.taps[1]} taps has no room in registers")
    ranked = sorted(
        (each for strip in strips for each in _blocks(shape, strip, device)),
        key=lambda each: each[0],
    )
    best: dict[tuple[int, int], Form] = {}
    for _, form in ranked:
        best.setdefault((form.rows.held, form.columns.held), form)
    if not best:
        raise Unfit("no tile of this array fits a block's threads and shared memory")
    yield from islice(best.values(), most)


@dataclass(frozen=True, slots=True)
class _Strip:
    instructions: float  # of a thread and image
    cost: float  # the same for all threads of a plane
    held: tuple[int, int]
    registers: int


def _strips(shape: Shape, words: int) -> Iterator[_Strip]:
    """Every strip a thread may hold."""
    dX = shape.gradient == "dX"
    units = shape.strides if dX else (1, 1)
    lengths = [
        [unit * n for n in range(1, 9) if n == 1 or unit * (n - 1) < size]
        for unit, size in zip(units, shape.strip, strict=True)
    ]
    convert = 2 if ITEMSIZE[shape.dtype] == 2 else 1
    for held in product(*lengths):
        axes = [shape.axis(index, each, 1) for index, each in enumerate(held)]
        threads = [axis.tiles for axis in axes]
        rows, columns = (shape.axis(index, each, threads[index]) for index, each in enumerate(held))
        used = len(set(columns.meets.values()))
        registers = words * (held[0] * held[1] + shape.taps[0] * shape.taps[1] + used) + _OTHER_REGISTERS
        if registers > 240:
            continue
        loads = used * len(set(rows.meets.values())) * convert
        if not shape.channels_last:
            loads *= _ways(columns, words)
        multiply_adds = len(rows.meets) * len(columns.meets) * (2 if words == 2 else 1)
        each = multiply_adds + loads + 3 * convert * held[0] * held[1] + _STRIP_START
        yield _Strip(
            each, each * threads[0] * threads[1] * _few(_REGISTERS // (32 * registers)), (held[0], held[1]), registers
        )


def _ways(columns: Axis, words: int) -> float:
    """How many of a bank's words neighbouring threads of a row ask for at once."""
    near = min(columns.threads, 32 // words)
    banks = [thread * columns.step * words % 32 for thread in range(near)]
    return max(banks.count(bank) for bank in banks)


def _blocks(shape: Shape, strip: _Strip, device: Device) -> Iterator[tuple[float, Form]]:
    """How many strips and channels a block may take, and how many tiles wait in shared memory: (cost, form)."""
    axes = [shape.axis(index, each, 1) for index, each in enumerate(strip.held)]
    whole = axes[0].tiles, axes[1].tiles
    resident = min(1024, _REGISTERS // max(64, strip.registers + 8) // 32 * 32)
    for (threads, channels), stages in product(_threads(shape, whole), (2, 1)):
        form = shape.form(strip.held, threads, channels, stages, device)
        blocks = min(device.shared_bytes // (form.shared_bytes + 1024), max(1, resident // form.threads), 16)
        if form.shared_bytes > device.shared_bytes or not blocks:
            continue
        warps = -(-form.threads // 32)
        used = shape.channels / (form.groups * channels) * form.threads / (32 * warps)
        for index, axis in enumerate((form.rows, form.columns)):
            used *= whole[index] / (axis.tiles * axis.threads)
        copies = sum(_copies(form, each) for each in (form.source, form.strip) if each)
        waiting = (0.5 if stages == 1 else 0.3) / blocks
        scattered = 1.0
        if shape.channels_last:  # the channels of a position are one run of bytes, and whole rows of strips are best
            scattered = 1 + 16 / (channels * form.itemsize) + (0.5 if form.columns.tiles > 1 else 0)
        passing = _few(blocks * warps) + waiting
        cost = strip.cost * (1 + copies / strip.instructions) / used * passing * scattered
        yield cost, form.resident(max(1, min(blocks, resident // form.threads)))


def _copies(form: Form, tile: Shared) -> float:
    """Instructions with which a thread copies its part of a tile between global and shared memory."""
    if tile.flat:
        return 10 * tile.elements / tile.vector / form.threads
    line = max(1, tile.columns * (form.channels if form.channels_last else 1) // tile.vector)
    steps = -(-tile.rows * tile.planes // max(1, form.threads // line)) * -(-line // form.threads)
    return steps * (14 if form.tiles > 1 else 7) * (1 if tile.vector * form.itemsize >= 4 else 2)


def _few(warps: int) -> float:
    """How much longer all takes where a multiprocessor has few warps."""
    return 1 + 3 / max(1, warps)


def _threads(shape: Shape, whole: tuple[int, int]) -> Iterator[tuple[tuple[int, int], int]]:
    """(rows, columns) of strips and channels that a block may have."""
    if shape.channels_last:
        for channels in (32, 16) if shape.channels > 16 else (_power(shape.channels),):
            for down, across in product(_parts(whole[0]), _parts(whole[1])):
                if channels * down * across <= 2 * _MOST_THREADS:
                    yield (down, across), channels
        return
    for down in _parts(whole[0]):
        strips = down * whole[1]
        if strips > 2 * _MOST_THREADS or (down < whole[0] and strips < 64):
            continue
        most = min(shape.channels, max(1, _MOST_THREADS // strips))
        for channels in range(1, most + 1):
            if channels == most or shape.channels % channels == 0:
                yield (down, whole[1]), channels


def _parts(count: int) -> list[int]:
    """What `count` may be cut into evenly: one part, two, ..."""
    return sorted({-(-count // parts) for parts in range(1, count + 1)}, reverse=True)


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
