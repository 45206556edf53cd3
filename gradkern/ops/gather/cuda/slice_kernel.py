"""The kernel of a slice's gradient: each thread writes vectors of dX, which are elements of dY and zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba import cuda
from numba.cuda import int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function

__all__ = ["OF_AXIS", "SliceConfig", "arguments", "build"]

OF_AXIS = ("size", "multiplier", "shift", "first", "count", "step", "step_multiplier", "step_shift", "stride")
_LOADS = 8  # of a thread in flight, and bytes of them
_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class SliceConfig:
    """size: bytes of an element; written, read: elements of a store and of a load; axes: of dX, from the slowest to the
    fastest; steps: of some axis not all elements are read; long: dX has more elements than 31 bits count.
    """

    size: int
    written: int
    read: int
    axes: int
    steps: bool
    long: bool
    threads: int = 256

    @property
    def name(self) -> str:
        return f"{self.size}_bytes_{self.read}x{self.written}_{self.axes}_axes"

    @property
    def loads(self) -> int:
        """Of a vector."""
        return self.written // self.read

    @property
    def vectors(self) -> int:
        """Of a thread."""
        return max(1, min(_LOADS // self.loads, _IN_FLIGHT // (self.size * self.written)))


def arguments(axes: int) -> tuple[str, ...]:
    """Along an axis of `size` elements, or vectors if it is the last, element first + step k is the k-th of `count` of
    dY, which are `stride` bytes apart. multiplier and shift divide by the size, those of the step by the step. The
    element of dY that all axes have first is `offset` bytes behind dY.
    """
    return ("dY", "dX", "offset", "vectors", *(f"{name}_{axis}" for axis in range(axes) for name in OF_AXIS))


def _along(config: SliceConfig, axis: int) -> Callable[..., Any]:
    """A device function of an element's place along this axis and the numbers of all: whether it is one of dY, and how
    far it is from the first, in bytes.
    """
    STEPS, NUMBER, divided = config.steps, int64 if config.long else int32, _divided(config.long)
    FIRST, COUNT, STEP, MULTIPLIER, SHIFT, STRIDE = (len(OF_AXIS) * axis + n for n in range(3, 9))

    @device_function
    def along(place: int, numbers: Any) -> Any:
        k = NUMBER(place - NUMBER(numbers[FIRST]))
        inside = k >= 0
        if STEPS:
            distance = k
            k = divided(max(distance, NUMBER(0)), numbers[STEP], numbers[MULTIPLIER], numbers[SHIFT])
            inside = inside and NUMBER(k * NUMBER(numbers[STEP])) == distance
        return inside and k < NUMBER(numbers[COUNT]), int64(k) * numbers[STRIDE]

    return along


def _up_to(config: SliceConfig, axis: int) -> Callable[..., Any]:
    """A device function of the number of an element, in order, along all axes up to this one, as `_along` has it."""
    NUMBER, divided, along = int64 if config.long else int32, _divided(config.long), _along(config, axis)
    SIZE, MULTIPLIER, SHIFT = (len(OF_AXIS) * axis + n for n in range(3))
    if axis == 0:
        return along
    up_to = _up_to(config, axis - 1)

    @device_function
    def both(number: int, numbers: Any) -> Any:
        rest = divided(number, numbers[SIZE], numbers[MULTIPLIER], numbers[SHIFT])
        inside, distance = along(NUMBER(number - rest * NUMBER(numbers[SIZE])), numbers)
        within, more = up_to(rest, numbers)
        return inside and within, distance + more

    return both


def _divided(long: bool) -> Callable[..., int]:
    """A device function: value // divisor."""
    LONG, NUMBER = long, int64 if long else int32

    @device_function
    def divided(value: int, divisor: int, multiplier: int, shift: int) -> int:
        if LONG:
            return NUMBER(value // divisor)
        return NUMBER(i.divided(int32(value), int32(multiplier), int32(shift)))

    return divided


def build(config: SliceConfig) -> Callable[..., None]:
    """The kernel of this config, of int64 arguments as `arguments` names them."""
    WRITTEN, READ, ALONE, THREADS = config.written, config.read, config.axes == 1, config.threads
    VECTORS, LOADS = config.vectors, config.loads
    IN, OUT, LAST = config.size * READ, config.size * WRITTEN, len(OF_AXIS) * (config.axes - 1)
    WORDS, STORED, HALVES = max(1, IN // 4), max(1, OUT // 4), IN == 2 and WRITTEN > 1
    HELD, NUMBER = VECTORS * LOADS * WORDS, int64 if config.long else int32
    load, store, divided = i.word_loader("global", IN), i.word_storer("global", OUT), _divided(config.long)
    along = _along(config, config.axes - 1)
    others = along if ALONE else _up_to(config, config.axes - 2)
    SIZE, MULTIPLIER, SHIFT = LAST, LAST + 1, LAST + 2

    def kernel(dY: int, dX: int, offset: int, vectors: int, *numbers: int) -> None:
        first = int64(cuda.blockIdx.x) * (VECTORS * THREADS) + int32(cuda.threadIdx.x)
        words, one = cuda.local.array(HELD, int32), cuda.local.array(STORED, int32)
        for n in range(HELD):
            words[n] = int32(0)
        for j in range(VECTORS):
            v = first + j * THREADS
            if v < vectors:
                column, source, inside = NUMBER(v), dY + offset, True
                if not ALONE:
                    row = divided(column, numbers[SIZE], numbers[MULTIPLIER], numbers[SHIFT])
                    column = NUMBER(column - row * NUMBER(numbers[SIZE]))
                    inside, distance = others(row, numbers)
                    source += distance
                for n in range(LOADS):
                    within, distance = along(NUMBER(column * WRITTEN + n * READ), numbers)
                    if inside and within:
                        load(words, (j * LOADS + n) * WORDS, source + distance)
        for j in range(VECTORS):
            v = first + j * THREADS
            if v < vectors:
                for n in range(STORED):
                    if HALVES:
                        at = j * LOADS + 2 * n
                        one[n] = i.low_halves(words[at], words[at + 1])
                    else:
                        one[n] = words[j * STORED + n]
                store(dX + v * OUT, one)

    return kernel
