"""The constants one compiled depthwise kernel is made for, and where things lie in shared memory.

One kernel computes dX, dW or Y, and dY or Y, and X, change roles between them. The array of which a thread holds a
strip, rows x columns of one channel in registers, is called the strip; the array whose rows it reads past that strip,
one after another, is called the source, and what it reads of it is the thread's window:

    dX[i] = sum over k, o with o * stride + k * dilation - begin = i of dY[o] * W[k]     strip: dX    source: dY
    dW[k] = sum over o of dY[o] * X[o * stride + k * dilation - begin]                   strip: dY    source: X
    Y[o] = bias + sum over k of W[k] * X[o * stride + k * dilation - begin]              strip: Y     source: X

With three spatial axes the first is walked plane by plane: a plane of the strip's array and a tap along depth meet one
plane of the source, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import gcd
from typing import Literal

from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.cuda.device_code.kernel_name import kernel_name

__all__ = ["ARGUMENTS", "ITEMSIZE", "Axis", "DepthwiseConfig", "SharedTile"]

ARGUMENTS = ("source", "strip", "filter", "partial", "counter", "images", "chunks")
"""Addresses, then numbers. Of Y, partial is the address of its bias."""
BANKS = 32


@dataclass(frozen=True)
class Axis:
    """One spatial axis: elements of the strip's array and of the source, and how filter taps join them.

    A thread holds `held` elements of the strip; `threads` threads of a block lie side by side.
    """

    gradient: Literal["dX", "dW", "Y"]
    strip: int
    source: int
    taps: int
    stride: int
    dilation: int
    begin: int
    held: int
    threads: int

    @property
    def shift(self) -> int:
        """How far before the array's first element the first strip starts, so that all strips meet the same taps."""
        return self.begin % self.stride if self.gradient == "dX" else 0

    @property
    def block(self) -> int:
        """Strip elements of a block."""
        return self.held * self.threads

    @property
    def tiles(self) -> int:
        return -(-(self.strip + self.shift) // self.block)

    @property
    def alone(self) -> bool:
        """One thread has the whole axis: which elements lie outside the arrays is known when the kernel is made."""
        return self.threads == 1 and self.tiles == 1

    @property
    def step(self) -> int:
        """Source elements from thread to thread."""
        return self.held // self.stride if self.gradient == "dX" else self.held * self.stride

    @cached_property
    def _joined(self) -> dict[tuple[int, int], int]:
        """(strip element, tap) -> source element, both counted from the thread's own first, for all that meet."""
        if self.gradient != "dX":
            return {
                (o, k): o * self.stride + k * self.dilation - self.begin
                for o in range(self.held)
                for k in range(self.taps)
            }
        return {
            (i, k): (i - self.shift + self.begin - k * self.dilation) // self.stride
            for i in range(self.held)
            for k in range(self.taps)
            if (i - self.shift + self.begin - k * self.dilation) % self.stride == 0
        }

    @cached_property
    def meets(self) -> dict[tuple[int, int], int]:
        """(strip element, tap) -> window element, for all that meet."""
        joined = self._joined
        if self.alone:
            inside = range(self.shift, self.shift + self.strip)
            joined = {pair: at for pair, at in joined.items() if 0 <= at < self.source and pair[0] in inside}
        return {pair: at - self.origin for pair, at in joined.items()}

    @cached_property
    def origin(self) -> int:
        """The source element that is the first thread's first window element."""
        return 0 if self.alone else min(self._joined.values(), default=0)

    @cached_property
    def span(self) -> int:
        """Elements from the first to the last of a thread's window."""
        return self.source if self.alone else max(self._joined.values(), default=0) - self.origin + 1

    @property
    def window(self) -> int:
        """Source elements of a block, those outside the array too."""
        return (self.threads - 1) * self.step + self.span

    @property
    def single(self) -> bool:
        """One element meets one other, as if there were no such axis."""
        return self.strip == self.source == self.taps == 1 and self.begin == 0

    @property
    def exact(self) -> bool:
        """No strip reaches outside its array."""
        return self.shift == 0 and self.strip % self.block == 0


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A block's part of one array in shared memory: planes of rows (elements), zeros where the array ends.

    lead: columns before the first, so that the array's vectors lie on multiples of `vector` elements. step: elements
    from column to column. flat: the planes of a block are one run of memory, copied as it is. shifts: 0 where the
    channels of a position begin with a vector. Else whole vectors of 16 bytes around them are copied, the first channel
    lies as far from a multiple of 16 bytes as it does in the array, and an image has so many such distances.
    """

    planes: int
    rows: int
    columns: int
    lead: int
    step: int
    pitch: int
    plane: int
    vector: int
    flat: bool
    shifts: int = 0

    def shift(self, further: int) -> int:
        """Which of the shifts a position has that is so many bytes further in the array than one with the first."""
        return further % 16 * self.shifts // 16

    @property
    def elements(self) -> int:
        return self.planes * self.plane


@dataclass(frozen=True)
class DepthwiseConfig:
    """All that is bound when the kernel is compiled; the number of images and how they are cut are arguments.

    depth       along which planes follow each other, one at a time
    plane_strides  from plane to plane of the source and of the strip's array, and from tap to tap of the filter
    channels    of a block. Threads lie channel by channel in channels-last arrays, strip by strip in others
    stages      of the ring in shared memory through which images reach the block
    strides     in bytes, from image to image, channel to channel, row to row and column to column
    vectors     elements that one access to global memory may take, of the source and of the strip's array
    shifted     whether whole vectors around the channels of a position are copied instead, of both
    asynchronous  copies go to shared memory without passing through registers
    bias_stride  from channel to channel of Y's bias; None without one
    width       channels of a thread, which lie next to each other
    """

    depth: Axis
    plane_strides: tuple[int, int, int]
    rows: Axis
    columns: Axis
    dtype: str
    channels_last: bool
    total_channels: int
    channels: int
    stages: int
    source_strides: tuple[int, int, int, int]
    strip_strides: tuple[int, int, int, int]
    filter_strides: tuple[int, int, int]
    vectors: tuple[int, int]
    shifted: tuple[bool, bool] = (False, False)
    asynchronous: bool = True
    native_bfloat16: bool = True
    blocks_per_processor: int = 1
    bias_stride: int | None = None
    width: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        taps = f"{self.rows.taps}x{self.columns.taps}"
        taps = taps if self.depth.single else f"{self.depth.taps}x{taps}"
        return kernel_name("conv_depthwise", self.gradient, self.dtype, self.total_channels, taps)

    @property
    def gradient(self) -> str:
        return self.rows.gradient

    @property
    def writes_strip(self) -> bool:
        """Whether the strip is the output: that of dW are the taps."""
        return self.gradient != "dW"

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.dtype]

    @property
    def strips(self) -> int:
        """Threads of one channel."""
        return self.rows.threads * self.columns.threads

    @property
    def lanes(self) -> int:
        """Threads of one place."""
        return self.channels // self.width

    @property
    def threads(self) -> int:
        return self.lanes * self.strips

    @property
    def held(self) -> int:
        return self.rows.held * self.columns.held

    @property
    def taps(self) -> int:
        """Of a plane of the filter."""
        return self.rows.taps * self.columns.taps

    @property
    def all_taps(self) -> int:
        return self.depth.taps * self.taps

    @property
    def groups(self) -> int:
        return -(-self.total_channels // self.channels)

    @property
    def parts(self) -> int:
        """What blocks share no work of: groups of channels; of dW each plane of their filters."""
        return self.groups * (1 if self.writes_strip else self.depth.taps)

    @property
    def turns(self) -> int:
        """Planes of the source that a block reads in turn for one of its own."""
        return self.depth.taps if self.writes_strip else 1

    @property
    def tiles(self) -> int:
        """Of one plane; a block takes the same channels of several of them in turn."""
        return self.rows.tiles * self.columns.tiles

    @property
    def units(self) -> int:
        """Tiles of the strip's array, of one channel of one image."""
        return self.depth.strip * self.tiles

    @cached_property
    def source(self) -> SharedTile:
        """The window's array in shared memory."""
        rows, columns = self.rows, self.columns
        if self.channels_last:
            return self._channels_last(rows.window, columns.window, 0)
        contiguous = self._contiguous(self.source_strides, rows.source, columns.source)
        flat = rows.alone and columns.alone and contiguous
        return self._shared(rows.window, columns.window, columns.origin, rows.step, columns.step, self.vectors[0], flat)

    @cached_property
    def strip(self) -> SharedTile | None:
        """The strip's array in shared memory. A channels-last output goes out as it is: threads lie side by side."""
        if self.channels_last and self.writes_strip:
            return None
        rows, columns = self.rows, self.columns
        if self.channels_last:
            return self._channels_last(rows.block, columns.block, 1)
        whole = rows.exact and columns.exact and self.tiles == 1
        flat = whole and self._contiguous(self.strip_strides, rows.strip, columns.strip)
        return self._shared(rows.block, columns.block, -columns.shift, rows.held, columns.held, self.vectors[1], flat)

    def _contiguous(self, strides: tuple[int, int, int, int], rows: int, columns: int) -> bool:
        packed = (rows * columns * self.itemsize, columns * self.itemsize, self.itemsize)
        return strides[1:] == packed

    def _channels_last(self, rows: int, columns: int, which: int) -> SharedTile:
        """Of the source, 0, or of the strip's array, 1."""
        step, vector, shifts = self.channels, self.vectors[which], 0
        if self.shifted[which]:
            step = round_up(self.channels * self.itemsize + 16 - self.itemsize, 16) // self.itemsize
            strides = (self.source_strides, self.strip_strides)[which]
            shifts = 16 // gcd(16, *strides[2:])
            vector = 16 // self.itemsize
        plane = rows * columns * step
        return SharedTile(1, rows, columns, 0, step, columns * step, plane, vector, False, shifts)

    def _shared(
        self, rows: int, columns: int, first: int, row_step: int, column_step: int, vector: int, flat: bool
    ) -> SharedTile:
        if flat:
            return SharedTile(self.channels, rows, columns, 0, 1, columns, rows * columns, vector, True)
        lead = first % vector
        least = round_up(lead + columns, vector)
        across, strips, item = self.columns.threads, self.strips, self.itemsize
        near = min(32, self.threads)
        best = min(
            (_conflicts(near, strips, across, plane * item, pitch * row_step * item, column_step * item), plane, pitch)
            for pitch in range(least, least + 8 * vector, vector)
            for plane in range(round_up(rows * pitch, vector), rows * pitch + 8 * vector, vector)
        )
        return SharedTile(self.channels, rows, columns, lead, 1, best[2], best[1], vector, False)

    # Shared memory: a ring of stages (source, and for dW the strip) | else the strip; dW's sums reuse it at the end
    @property
    def source_bytes(self) -> int:
        return round_up(self.source.elements * self.itemsize, 16)

    @property
    def strip_bytes(self) -> int:
        return round_up(self.strip.elements * self.itemsize, 16) if self.strip else 0

    @property
    def stage_bytes(self) -> int:
        return self.source_bytes + (0 if self.writes_strip else self.strip_bytes)

    @property
    def ring_bytes(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def shared_bytes(self) -> int:
        if self.writes_strip:
            return self.ring_bytes + self.strip_bytes
        return max(self.ring_bytes, max(self.taps, 1) * self.channels * self.strips * ITEMSIZE[self.compute])

    def resident(self, blocks: int) -> DepthwiseConfig:
        """The same, compiled so that a multiprocessor has registers for `blocks` blocks."""
        return replace(self, blocks_per_processor=blocks)

    @property
    def multiply_adds(self) -> int:
        """Of one thread and image."""
        return len(self.rows.meets) * len(self.columns.meets) * self.width


@lru_cache(1 << 16)
def _conflicts(threads: int, strips: int, across: int, plane: int, row: int, column: int) -> int:
    """How many words of one bank a warp asks for at most, when its threads each read an element; steps in bytes."""
    places = (divmod(thread, strips) for thread in range(threads))
    words = {(member * plane + at // across * row + at % across * column) // 4 for member, at in places}
    banks = [word % BANKS for word in words]
    return max(banks.count(bank) for bank in set(banks))
