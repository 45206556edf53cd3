"""How the kernel of resizing by whole factors runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from gradkern.cuda.device_code.columns import ByElementType


@dataclass(frozen=True, slots=True)
class Stencil:
    """Of element x, the outputs from factor * x - halo on. Those outside are the ones inside that mirror them at the
    edge: so the first element and the last have the weight of what is resampled outside.
    """

    factor: int
    halo: int

    @property
    def weights(self) -> tuple[float, ...]:
        """Of a linear resampling around the centres of elements; 1 of a nearest one, which has no halo."""
        if self.halo == 0:
            return (1.0,) * self.factor
        centres = ((t - self.halo + 0.5) / self.factor - 0.5 for t in range(self.factor + 2 * self.halo))
        return tuple(1 - abs(each) for each in centres)

    def taps(self, output: int, size: int) -> Iterator[tuple[int, float]]:
        """Of an output, counted from the first of `size` elements: those of which it is a tap, and its weights."""
        for x in range(size):
            if 0 <= output - x * self.factor < len(self.weights):
                yield x, self.weights[output - x * self.factor]

    def outputs(self, size: int) -> int:
        return size * self.factor + 2 * self.halo


@dataclass(frozen=True)
class StencilConfig(ByElementType):
    """last: channels are last in memory. lanes: channels of a thread, where they are last; patch: as in Layout.numbers,
    where they are not its columns are one store. piece: bytes of a load along a line of dY.
    """

    data: str
    last: bool
    lanes: int
    stencils: tuple[Stencil, Stencil, Stencil]
    patch: tuple[int, int, int]
    piece: int
    native_bfloat16: bool = True
    threads: int = 128

    @property
    def blocks_per_processor(self) -> int:
        """Limits registers: there are as many loads in flight as the compiler has registers for."""
        wide = self.data == "float64" or (self.last and self.stencils[2].halo > 1)
        return 3 if wide else 4

    @property
    def name(self) -> str:
        factors = "x".join(str(each.factor) for each in self.stencils)
        kind = "linear" if any(each.halo for each in self.stencils) else "nearest"
        return f"{kind}_{'channels' if self.last else 'columns'}_{self.lanes}_by_{factors}"

    @property
    def channels(self) -> int:
        return self.lanes if self.last else 1

    @property
    def lines(self) -> tuple[tuple[int, int], ...]:
        """Of dY, along the first two axes, counted from the first."""
        planes, rows, _ = (range(each.outputs(size)) for each, size in zip(self.stencils, self.patch, strict=True))
        return tuple(product(planes, rows))

    @property
    def of_line(self) -> int:
        """Sums of a line: with channels last those of the patch's columns, else those of the outputs that reach them.
        Threads have no registers for as many vectors of channels.
        """
        return self.patch[2] * self.lanes if self.last else self.stencils[2].outputs(self.patch[2])

    def columns(self, lines: int) -> tuple[tuple[int, int, float], ...]:
        """Along the columns of so many lines, for scaled_adds: elements of dX by channels, those of dY, and weights."""
        stencil, columns, count = self.stencils[2], self.patch[2], self.channels
        outputs = stencil.outputs(columns)
        return tuple(
            ((line * columns + x) * count + c, (line * outputs + o) * count + c, weight)
            for line in range(lines)
            for o in range(outputs)
            for x, weight in stencil.taps(o, columns)
            for c in range(count)
        )

    def rows(self, line: int) -> tuple[tuple[int, int, float], ...]:
        """The same across lines, of a line's sums."""
        (planes, rows, _), (of_planes, of_rows, _) = self.stencils, self.patch
        plane, row = self.lines[line]
        return tuple(
            ((x0 * of_rows + x1) * self.of_line + n, n, w0 * w1)
            for x0, w0 in planes.taps(plane, of_planes)
            for x1, w1 in rows.taps(row, of_rows)
            for n in range(self.of_line)
        )
