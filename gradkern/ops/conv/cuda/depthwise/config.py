"""Compile-time constants of a depthwise kernel, and its layout of shared memory.

One kernel computes dX, dW or Y; the arrays change roles. A thread holds a register tile, rows x columns of one channel,
of the tiled array. It reads a window of the halo array, row by row: all elements that its tile needs, with a border:

    dX[i] = sum over k, o with o * stride + k * dilation - begin = i of dY[o] * W[k]     tiled: dX    halo: dY
    dW[k] = sum over o of dY[o] * X[o * stride + k * dilation - begin]                   tiled: dY    halo: X
    Y[o] = bias + sum over k of W[k] * X[o * stride + k * dilation - begin]              tiled: Y     halo: X

The first of three spatial axes is processed plane by plane: a plane of the tiled array and a tap along depth need one
plane of the halo array, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd
from typing import Literal

from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.cuda.device_code.kernel_name import kernel_name

ARGUMENTS = ("halo", "tiled", "filter", "partial", "counter", "images", "chunks")
"""Addresses, then numbers. Of Y, partial is the address of its bias."""
BANKS = 32


@dataclass(frozen=True)
class Axis:
    """One spatial axis: sizes of the tiled and the halo array, and how filter taps connect their elements.

    A thread holds `held` elements of the tiled array; a block has `threads` threads side by side.
    """

    gradient: Literal["dX", "dW", "Y"]
    tiled: int
    halo: int
    taps: int
    stride: int
    dilation: int
    begin: int
    held: int
    threads: int

    @property
    def shift(self) -> int:
        """Elements between the first tile's begin and the array's, such that all tiles need the same taps."""
        return self.begin % self.stride if self.gradient == "dX" else 0

    @property
    def block(self) -> int:
        """Elements of the tiled array in a block."""
        return self.held * self.threads

    @property
    def tiles(self) -> int:
        return -(-(self.tiled + self.shift) // self.block)

    @property
    def alone(self) -> bool:
        """One thread has the whole axis: elements outside of the arrays are known at compile time."""
        return self.threads == 1 and self.tiles == 1

    @property
    def step(self) -> int:
        """Elements of the halo array from thread to thread."""
        return self.held // self.stride if self.gradient == "dX" else self.held * self.stride

    @cached_property
    def _joined(self) -> dict[tuple[int, int], int]:
        """(tile element, tap) -> halo element, relative to the thread's first, for all products."""
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
        """(tile element, tap) -> window element, for all products."""
        joined = self._joined
        if self.alone:
            inside = range(self.shift, self.shift + self.tiled)
            joined = {pair: at for pair, at in joined.items() if 0 <= at < self.halo and pair[0] in inside}
        return {pair: at - self.origin for pair, at in joined.items()}

    @cached_property
    def origin(self) -> int:
        """The halo element that is the first thread's first window element."""
        return 0 if self.alone else min(self._joined.values(), default=0)

    @cached_property
    def span(self) -> int:
        """Elements from the first to the last of a thread's window."""
        return self.halo if self.alone else max(self._joined.values(), default=0) - self.origin + 1

    @property
    def window(self) -> int:
        """Halo elements of a block, including those outside of the array."""
        return (self.threads - 1) * self.step + self.span

    @property
    def single(self) -> bool:
        """The axis has one element in all arrays."""
        return self.tiled == self.halo == self.taps == 1 and self.begin == 0

    @property
    def exact(self) -> bool:
        """No tile extends beyond the array."""
        return self.shift == 0 and self.tiled % self.block == 0


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A block's part of one array in shared memory: planes of rows (in elements), zero outside of the array.

    lead: columns before the first, such that the array's vectors are at multiples of `vector` elements. step: elements
    from column to column. flat: the planes of a block are contiguous and copied as they are. shifts: 0 if the channels
    of a position are aligned to vectors. Else whole vectors of 16 bytes around them are copied, and the first channel
    keeps its offset to a multiple of 16 bytes; an image has `shifts` such offsets.
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
        """The number of the shift of a position that is `further` bytes after one with the first shift."""
        return further % 16 * self.shifts // 16

    @property
    def elements(self) -> int:
        return self.planes * self.plane


@dataclass(frozen=True)
class DepthwiseConfig:
    """Compile-time constants. The number of images and of their parts are launch arguments.

    depth          the axis of planes, one at a time
    plane_strides  from plane to plane of the halo and of the tiled array, and from tap to tap of the filter
    channels       of a block. Threads are ordered by channel for channels-last arrays, by tile for others
    stages         of the ring in shared memory
    strides        in bytes, from image to image, channel to channel, row to row and column to column
    vectors        elements of one access to global memory, of the halo and of the tiled array
    shifted        for both arrays, whether whole vectors around the channels of a position are copied
    asynchronous   copies to shared memory bypass registers
    bias_stride    from channel to channel of Y's bias; None without one
    width          channels of a thread, contiguous
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
    halo_strides: tuple[int, int, int, int]
    tiled_strides: tuple[int, int, int, int]
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
    def writes_tiled(self) -> bool:
        """Whether the tiled array is the output. The output of dW are the taps."""
        return self.gradient != "dW"

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.dtype]

    @property
    def channel_threads(self) -> int:
        """Threads of one channel."""
        return self.rows.threads * self.columns.threads

    @property
    def lanes(self) -> int:
        """Threads of one position."""
        return self.channels // self.width

    @property
    def threads(self) -> int:
        return self.lanes * self.channel_threads

    @property
    def held(self) -> int:
        return self.rows.held * self.columns.held

    @property
    def taps(self) -> int:
        """Taps of a plane of the filter."""
        return self.rows.taps * self.columns.taps

    @property
    def all_taps(self) -> int:
        return self.depth.taps * self.taps

    @property
    def groups(self) -> int:
        return -(-self.total_channels // self.channels)

    @property
    def parts(self) -> int:
        """Independent parts of the work: groups of channels; for dW, each plane of their filters."""
        return self.groups * (1 if self.writes_tiled else self.depth.taps)

    @property
    def turns(self) -> int:
        """Planes of the halo array that a block reads for one of its own."""
        return self.depth.taps if self.writes_tiled else 1

    @property
    def tiles(self) -> int:
        """Block tiles of one plane. A block processes the same channels of several tiles in turn."""
        return self.rows.tiles * self.columns.tiles

    @property
    def units(self) -> int:
        """Block tiles of one channel of one image."""
        return self.depth.tiled * self.tiles

    @cached_property
    def halo(self) -> SharedTile:
        """The block's part of the halo array in shared memory."""
        rows, columns = self.rows, self.columns
        if self.channels_last:
            return self._channels_last(rows.window, columns.window, 0)
        contiguous = self._contiguous(self.halo_strides, rows.halo, columns.halo)
        flat = rows.alone and columns.alone and contiguous
        return self._shared(rows.window, columns.window, columns.origin, rows.step, columns.step, self.vectors[0], flat)

    @cached_property
    def tiled(self) -> SharedTile | None:
        """The block's part of the tiled array in shared memory. A channels-last output is written directly: its
        accesses are contiguous."""
        if self.channels_last and self.writes_tiled:
            return None
        rows, columns = self.rows, self.columns
        if self.channels_last:
            return self._channels_last(rows.block, columns.block, 1)
        whole = rows.exact and columns.exact and self.tiles == 1
        flat = whole and self._contiguous(self.tiled_strides, rows.tiled, columns.tiled)
        return self._shared(rows.block, columns.block, -columns.shift, rows.held, columns.held, self.vectors[1], flat)

    def _contiguous(self, strides: tuple[int, int, int, int], rows: int, columns: int) -> bool:
        packed = (rows * columns * self.itemsize, columns * self.itemsize, self.itemsize)
        return strides[1:] == packed

    def _channels_last(self, rows: int, columns: int, place: int) -> SharedTile:
        """Of the halo array, 0, or of the tiled array, 1."""
        step, vector, shifts = self.channels, self.vectors[place], 0
        if self.shifted[place]:
            step = round_up(self.channels * self.itemsize + 16 - self.itemsize, 16) // self.itemsize
            strides = (self.halo_strides, self.tiled_strides)[place]
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
        across, channel_threads, item = self.columns.threads, self.channel_threads, self.itemsize
        near = min(32, self.threads)
        best = min(
            (
                _conflicts(near, channel_threads, across, plane * item, pitch * row_step * item, column_step * item),
                plane,
                pitch,
            )
            for pitch in range(least, least + 8 * vector, vector)
            for plane in range(round_up(rows * pitch, vector), rows * pitch + 8 * vector, vector)
        )
        return SharedTile(self.channels, rows, columns, lead, 1, best[2], best[1], vector, False)

    # Shared memory: a ring of stages (halo, and for dW tiled) | else tiled; dW's sums reuse it at the end
    @property
    def halo_bytes(self) -> int:
        return round_up(self.halo.elements * self.itemsize, 16)

    @property
    def tiled_bytes(self) -> int:
        return round_up(self.tiled.elements * self.itemsize, 16) if self.tiled else 0

    @property
    def stage_bytes(self) -> int:
        return self.halo_bytes + (0 if self.writes_tiled else self.tiled_bytes)

    @property
    def ring_bytes(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def shared_bytes(self) -> int:
        if self.writes_tiled:
            return self.ring_bytes + self.tiled_bytes
        return max(self.ring_bytes, max(self.taps, 1) * self.channels * self.channel_threads * ITEMSIZE[self.compute])


@lru_cache(1 << 16)
def _conflicts(threads: int, channel_threads: int, across: int, plane: int, row: int, column: int) -> int:
    """The most words of one bank that a warp requests when each thread reads an element; steps are in bytes."""
    places = (divmod(thread, channel_threads) for thread in range(threads))
    words = {(member * plane + at // across * row + at % across * column) // 4 for member, at in places}
    banks = [word % BANKS for word in words]
    return max(banks.count(bank) for bank in set(banks))
