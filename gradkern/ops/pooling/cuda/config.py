"""How the kernels of max pooling run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from gradkern.cuda.device_code.columns import ByElementType
from gradkern.kernels.separable.config import Kind

MOST_REACH, MOST_WINDOWS = 4, 32
"""Of windows that are compiled in, at most: elements from the first to the last along an axis, and windows that an
element is in. Code grows with them.
"""


@dataclass(frozen=True, slots=True)
class MaxPoolConfig(ByElementType):
    """last: channels are last in memory. lanes: elements of a thread, side by side in memory: channels, or columns of
    dX. local: indices are bytes, and count the elements of a window. dilated: dilations other than 1.
    values, indices: what a forward pass writes.
    """

    operator: str
    data: str
    last: bool
    lanes: int
    local: bool
    dilated: bool
    values: bool = True
    indices: bool = True
    native_bfloat16: bool = True
    threads: int = 256

    @property
    def name(self) -> str:
        kind = "local" if self.local else "index"
        return f"{'channels' if self.last else 'columns'}_{kind}_{self.lanes}{'_dilated' if self.dilated else ''}"

    @property
    def patch(self) -> tuple[int, int, int]:
        return 1, 1, 1 if self.last else self.lanes


@dataclass(frozen=True)
class Reach:
    """Of `size` inputs along an axis, from a multiple of the stride on: the windows that reach them.

    first: the first of these, counted from the one that begins (without `begin`, the padding) at the first input
    """

    kernel: int
    stride: int
    dilation: int
    begin: int
    size: int

    @property
    def first(self) -> int:
        return -(((self.kernel - 1) * self.dilation - self.begin) // self.stride)

    @property
    def count(self) -> int:
        return (self.size - 1 + self.begin) // self.stride - self.first + 1

    def taps(self, window: int) -> Iterator[tuple[int, int]]:
        """Of a window, counted from `first`: each of the inputs that it has, and the number of its element there."""
        for x in range(self.size):
            tap, rest = divmod(x + self.begin - (window + self.first) * self.stride, self.dilation)
            if rest == 0 and 0 <= tap < self.kernel:
                yield x, tap


@dataclass(frozen=True)
class PatchConfig(ByElementType):
    """The gradient of a pool whose windows are compiled in: (kernel, stride, dilation, begin) along each axis.

    last, lanes, local: as in MaxPoolConfig; lanes: of one store, where channels are first
    patch: as in Layout.numbers
    group: windows along a line that one access has, where channels are first; 0: one by one
    in_tensor: indices count the elements of all planes
    flat: the first axis has one element, and keeps it
    average: of an average pool, in place of a max pool
    """

    data: str
    last: bool
    lanes: int
    local: bool
    windows: tuple[tuple[int, int, int, int], ...]
    patch: tuple[int, int, int]
    group: int
    in_tensor: bool
    flat: bool
    average: bool
    native_bfloat16: bool = True
    threads: int = 256

    @property
    def name(self) -> str:
        return _name_of_small(self, "average" if self.average else "local" if self.local else "index")

    @property
    def kind(self) -> Kind:
        return Kind("windows", dilated=any(dilation != 1 for _, _, dilation, _ in self.windows))

    @property
    def channels(self) -> int:
        return self.lanes if self.last else 1

    @cached_property
    def reaches(self) -> tuple[Reach, Reach, Reach]:
        planes, rows, columns = (Reach(*each, size) for each, size in zip(self.windows, self.patch, strict=True))
        return planes, rows, columns

    @property
    def lines(self) -> tuple[tuple[int, int], ...]:
        """Lines of windows that reach the patch: along the first two axes, counted from the first."""
        planes, rows, _ = self.reaches
        return tuple(product(range(planes.count), range(rows.count)))

    def table(self, line: int) -> tuple[tuple[int, int, int, int], ...]:
        """Of the windows of a line, their elements and those of the patch they are, for adds_where_equal: places in
        arrays of sums (of positions by channels), dY and indices (of windows by channels), and wanted indices.
        """
        (planes, rows, columns), found = self.reaches, list[tuple[int, int, int, int]]()
        plane, row = self.lines[line]
        for (x0, tap0), (x1, tap1) in product(planes.taps(plane), rows.taps(row)):
            for window in range(columns.count):
                for x2, tap2 in columns.taps(window):
                    position = (x0 * self.patch[1] + x1) * self.patch[2] + x2
                    tap = (tap0 * rows.kernel + tap1) * columns.kernel + tap2
                    for c in range(self.channels):
                        sums, value = position * self.channels + c, window * self.channels + c
                        of_plane = sums if self.in_tensor else position
                        found.append((sums, value, value, tap if self.local else of_plane))
        return tuple(found)

    def averages(self, line: int) -> tuple[tuple[int, int, int], ...]:
        """The same for multiply_adds: sums, dY and the windows' shares."""
        return tuple((sums, value, value // self.channels) for sums, value, *_ in self.table(line))


@dataclass(frozen=True, slots=True)
class ForwardConfig(ByElementType):
    """Max pooling whose windows are compiled in: (kernel, stride, begin) along each axis.

    last, local, values, indices: as in MaxPoolConfig; lanes: channels of a thread, or outputs of one store
    outputs: of a thread, side by side; group: elements of their windows' rows that one access has, 0: one by one
    flat: as in PatchConfig
    """

    data: str
    last: bool
    lanes: int
    local: bool
    windows: tuple[tuple[int, int, int], ...]
    outputs: int
    group: int
    flat: bool
    values: bool
    indices: bool
    native_bfloat16: bool = True
    threads: int = 256

    @property
    def name(self) -> str:
        return _name_of_small(self, "local" if self.local else "index")

    @property
    def patch(self) -> tuple[int, int, int]:
        return 1, 1, self.outputs

    @property
    def count(self) -> int:
        """Elements of a row of the windows."""
        kernel, stride, _ = self.windows[2]
        return (self.outputs - 1) * stride + kernel

    def table(self) -> tuple[tuple[int, int, int], ...]:
        """Of a row of the windows, for keep_largest: a result, an element, and its place from the row's first."""
        (kernel, stride, _), channels = self.windows[2], self.lanes if self.last else 1
        return tuple(
            (n * channels + c, (n * stride + t) * channels + c, t if self.local else n * stride + t)
            for t in range(kernel)
            for n in range(self.outputs)
            for c in range(channels)
        )


def _name_of_small(config: PatchConfig | ForwardConfig, kind: str) -> str:
    size = "x".join(str(kernel) for kernel, *_ in config.windows[config.flat :])
    return f"{'channels' if config.last else 'columns'}_{kind}_{config.lanes}_of_{size}"
