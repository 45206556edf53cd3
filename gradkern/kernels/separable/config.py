"""How a kernel of the separable block runs, and the numbers that describe an axis map to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradkern.cuda.device_code.columns import ByElementType, bits_of, reciprocal
from gradkern.kernels.separable.axis_map import Adaptive, AxisMap, Resampling, Windows
from gradkern.kernels.separable.layout import ITEMS

AXIS = 10
"""Numbers of an axis: inputs, outputs, and eight that depend on the kind."""
LINES, ROWS, COLUMNS, SHARES = 32768, 64, 256, 1024
"""Of a block, at most: bytes of shared memory for lines, rows of dX, columns, weights of each of the last two axes."""
_MOST_INVERSE = 1e30  # outputs from input to input; of more, as of 0, a thread asks every output
_AXES = tuple(f"axis{axis}_{number}" for axis in range(3) for number in range(AXIS))
SPATIAL_ARGUMENTS = ("first", "second", "third", *ITEMS, "channels", "plane_step", *_AXES)  # see spatial_kernel
ARGUMENTS = (
    "first", "third", "second", "channels", "inner", "rows", "of_block", "across", "across_m", "across_s",
    "wide", "wide_m", "wide_s", "span", "span_m", "span_s", "tiles", "tiles_m", "tiles_s",
    "tiles2", "tiles2_m", "tiles2_s", "size1", "size1_m", "size1_s", "size0", "size0_m", "size0_s", *_AXES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kernel is compiled for of the maps of its axes: they are of one kind."""

    name: str
    dilated: bool = False
    rounding: str = "floor"
    cubic: float = 0.0
    excluded: bool = False
    bounded: bool = False
    divided: bool = False
    narrowed: bool = False


def kind_of(maps: Sequence[AxisMap]) -> Kind:
    """Of the maps of a call: they differ in sizes only."""
    first = maps[0]
    if isinstance(first, Resampling):
        narrowed = any(isinstance(each, Resampling) and each.normalized for each in maps)
        kind = Kind(first.mode, excluded=first.excluded, bounded=first.bounded, narrowed=narrowed)
        divided = any(isinstance(each, Resampling) and each.divisor != 1 for each in maps)
        cubic = first.cubic if first.mode == "cubic" else 0.0
        return replace(
            kind, rounding=first.rounding if first.mode == "nearest" else "floor", divided=divided, cubic=cubic
        )
    if isinstance(first, Windows):
        return Kind("windows", dilated=any(isinstance(each, Windows) and each.dilation != 1 for each in maps))
    return Kind("adaptive")


def identity(model: AxisMap) -> AxisMap:
    """The map of an axis of one element that stays, of the same kind."""
    if isinstance(model, Resampling):
        return replace(model, input=1, output=1, shift=0.0, step=1.0, divisor=1.0, offset=0.0, narrowing=1.0)
    return Windows(1, 1, 1) if isinstance(model, Windows) else Adaptive(1, 1)


def axis_numbers(axis: AxisMap, compute: str) -> tuple[int, ...]:
    """AXIS whole numbers; others by their bits, in the type of arithmetic."""
    sizes = (axis.input, axis.output)
    match axis:
        case Windows():
            end = axis.input + axis.end if axis.padded else -1
            more = (axis.kernel, axis.stride, *reciprocal(axis.stride), axis.dilation, axis.begin, end, axis.divisor)
        case Adaptive():
            more = (0,) * 8
        case Resampling():
            inverse = axis.divisor / axis.step if axis.step else 0.0
            inverse = inverse if abs(inverse) < _MOST_INVERSE else 0.0
            kind = "float32" if axis.mode == "nearest" else compute
            numbers = [bits_of(each, kind) for each in (axis.shift, axis.step, axis.divisor, axis.offset)]
            of_range = [bits_of(each, "float32") for each in (axis.shift, axis.offset, inverse)]
            more = (*numbers, *of_range, bits_of(axis.narrowing, compute))
    return (*sizes, *more)


def axis_values(found: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The arguments of three axes with these numbers."""
    return {f"axis{axis}_{number}": found[axis][number] for axis in range(3) for number in range(AXIS)}


@dataclass(frozen=True, slots=True)
class SeparableConfig(ByElementType):
    """last: channels are last in memory. width: elements of dY of one access: channels, or places of a line.
    whole: shared memory has all outputs of a line; else a thread has one result
    taps1, taps2: outputs of an input along the last two axes whose weights are in shared memory, a power of two
    in_flight: loads of a thread before it adds the first, at most taps1
    flat: the first axis has one element, and keeps it
    """

    kind: Kind
    data: str
    last: bool
    width: int
    whole: bool
    taps1: int
    taps2: int
    in_flight: int
    flat: bool
    native_bfloat16: bool = True
    threads: int = 256
    blocks_per_processor: int = 3  # limits registers to 80

    @property
    def lines(self) -> int:
        """Bytes of shared memory for lines: of 8 vectors of channels, four rows of 16 outputs and some more."""
        return LINES if self.last else 20480

    @property
    def places(self) -> tuple[int, int, int, int]:
        """In shared memory, behind the lines: of rows, of columns, and of their weights."""
        rows, columns = self.lines, self.lines + 16 * ROWS
        return rows, columns, columns + 8 * COLUMNS, columns + 8 * COLUMNS + self._of_shares

    @property
    def _of_shares(self) -> int:
        """Bytes of weights of an axis; with channels last of at most 8 columns."""
        return (256 if self.last else SHARES) * self.itemsize

    @property
    def shared_bytes(self) -> int:
        return self.places[-1] + self._of_shares

    @property
    def name(self) -> str:
        return f"{self.kind.name}_{'channels' if self.last else 'lines'}_{self.width}"
