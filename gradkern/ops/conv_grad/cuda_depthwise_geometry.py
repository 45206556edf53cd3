"""Which threads take which elements of a depthwise convolution: the numbers of a Form, from shapes, types and device.

What counts, in this order: few instructions beside the multiply-adds (long strips), few strips that reach outside the
array, registers for enough warps, and shared memory for enough blocks that some compute while others wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Literal

from gradkern.cuda.device import Device
from gradkern.ops.conv_grad.cuda_depthwise_form import ITEMSIZE, Axis, Form, Shared
from gradkern.ops.conv_grad.problem import Problem
from gradkern.search.candidate import Unfit

__all__ = ["Shape", "forms"]

_REGISTERS = 65536  # of a multiprocessor
_MOST_THREADS = 256  # of a block
_OTHER_REGISTERS = 32  # beside strip, taps and window


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
            *X.shape[:2],
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

    def form(self, held: tuple[int, int], threads: tuple[int, int], channels: int, stages: int, which: Device) -> Form:
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
            asynchronous=which.capability >= (8, 0),
            native_bfloat16=which.capability >= (8, 0),
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


def forms(shape: Shape, which: Device, most: int = 1) -> Iterator[Form]:
    """The most promising forms, the best first."""
    words = ITEMSIZE[shape.dtype] // 4 or 1
    ranked = sorted(_strips(shape, words), key=lambda each: each[0])
    if not ranked:
        raise Unfit(f"a filter of {shape.taps[0]}x{shape.taps[1]} taps has no room in registers")
    made = (_block(shape, held, registers, which) for _, held, registers in ranked)
    yield from islice((form for form in made if form is not None), most)


def _strips(shape: Shape, words: int) -> Iterator[tuple[float, tuple[int, int], int]]:
    """Every strip a thread may hold: instructions for a whole plane, the strip, and the registers it takes."""
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
        each = multiply_adds + loads + 3 * convert * held[0] * held[1] + 80
        warps = _REGISTERS // (32 * registers)
        yield each * threads[0] * threads[1] * (1 + 1.5 / warps), held, registers


def _ways(columns: Axis, words: int) -> float:
    """How many of a bank's words neighbouring threads of a row ask for at once."""
    near = min(columns.threads, 32 // words)
    banks = [thread * columns.step * words % 32 for thread in range(near)]
    return max(banks.count(bank) for bank in banks)


def _block(shape: Shape, held: tuple[int, int], registers: int, which: Device) -> Form | None:
    """How many strips and channels a block takes, and how many images wait in shared memory."""
    axes = [shape.axis(index, each, 1) for index, each in enumerate(held)]
    whole = axes[0].tiles, axes[1].tiles
    best: tuple[float, Form] | None = None
    resident = min(1024, _REGISTERS // max(64, registers + 8) // 32 * 32)
    for threads, channels in _blocks(shape, whole):
        for stages in (2, 1):
            form = shape.form(held, threads, channels, stages, which)
            if form.shared_bytes > which.shared_bytes:
                continue
            blocks = min(which.shared_bytes // (form.shared_bytes + 1024), max(1, resident // form.threads), 16)
            if not blocks:
                continue
            at_once = blocks * _up(form.threads, 32) / 32
            waste = (
                form.groups * form.channels / shape.channels
                * _up(form.threads, 32) / form.threads
                * form.rows.tiles * form.rows.threads / whole[0]
                * form.columns.tiles * form.columns.threads / whole[1]
            )  # fmt: skip
            again = form.rows.window * form.columns.window / (form.rows.threads * form.rows.step)
            again /= form.columns.threads * form.columns.step
            waiting = 1 + (0.5 if stages == 1 else 0.1) / blocks + 4 / at_once
            cost = waste * waiting * (1 + 0.1 * again)
            if best is None or cost < best[0]:
                best = cost, form.resident(max(1, min(blocks, resident // form.threads)))
    return best[1] if best else None


def _blocks(shape: Shape, whole: tuple[int, int]) -> Iterator[tuple[tuple[int, int], int]]:
    """(rows, columns) of strips and channels of a block."""
    if shape.channels_last:
        for channels in (32, 16, 64) if shape.channels > 16 else (_power(shape.channels),):
            for down, across in product(_parts(whole[0]), _parts(whole[1])):
                if 64 <= channels * down * across <= _MOST_THREADS or (down, across) == whole:
                    if channels * down * across <= 2 * _MOST_THREADS:
                        yield (down, across), channels
        return
    if whole[1] > 2 * _MOST_THREADS:
        raise Unfit(f"depthwise kernels take up to {2 * _MOST_THREADS} strips in a row of columns")
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


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
