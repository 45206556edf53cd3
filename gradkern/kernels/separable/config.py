"""How a kernel of the separable block runs, and the numbers that describe an axis map to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradkern.cuda.device_code.columns import ByElementType, bits_of, reciprocal
from gradkern.kernels.separable.axis_map import Adaptive, AxisMap, Resampling, Windows
from gradkern.kernels.separable.layout import ITEMS

__all__ = [
    "AXIS",
    "LAST_ARGUMENTS",
    "LINES",
    "LINES_ARGUMENTS",
    "ROWS",
    "SPATIAL_ARGUMENTS",
    "Kind",
    "LastConfig",
    "LinesConfig",
    "axis_numbers",
    "axis_values",
    "identity",
    "kind_of",
]

AXIS = 10
"""Numbers of an axis: inputs, outputs, and eight that depend on the kind."""
ROWS = 4
"""Rows of dX that a thread adds up at once, where channels are first."""
LINES = 32768
"""Bytes of shared memory for lines."""
_MOST_INVERSE = 1e30  # outputs from input to input; of more, as of 0, a thread asks every output
_AXES = tuple(f"axis{axis}_{number}" for axis in range(3) for number in range(AXIS))
SPATIAL_ARGUMENTS = ("first", "second", "third", *ITEMS, "channels", "plane_step", *_AXES)  # see spatial_kernel
LAST_ARGUMENTS = (
    "dY", "dX", "unused", "channels", "inner", "span", "across", "across_m", "across_s", "wide", "wide_m", "wide_s",
    "tiles", "tiles_m", "tiles_s", "tiles2", "tiles2_m", "tiles2_s", "tiles1", "tiles1_m", "tiles1_s",
    "size0", "size0_m", "size0_s", *_AXES,
)  # fmt: skip
LINES_ARGUMENTS = (
    "dY", "dX", "unused", "rows", "groups", "tiles", "tiles_m", "tiles_s", "across", "across_m", "across_s", "span",
    "vectors", "vectors_m", "vectors_s", "size0_m", "size0_s", "size1_m", "size1_s", *_AXES,
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


def kind_of(maps: Sequence[AxisMap]) -> Kind:
    """Of the maps of a call, which differ in sizes only."""
    first = maps[0]
    if isinstance(first, Resampling):
        kind = Kind(first.mode, excluded=first.excluded, bounded=first.bounded)
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
        return replace(model, input=1, output=1, shift=0.0, step=1.0, divisor=1.0, offset=0.0)
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
            more = (*numbers, *of_range, 0)
    return (*sizes, *more)


def axis_values(found: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The arguments of three axes with these numbers."""
    return {f"axis{axis}_{number}": found[axis][number] for axis in range(3) for number in range(AXIS)}


@dataclass(frozen=True, slots=True)
class LastConfig(ByElementType):
    """Channels last: a block adds up dY along all axes but the last for `rows` rows of a tile of dX, in shared memory;
    then a thread has `lanes` channels of one position.

    taps: outputs along the last axis but one whose weights are in shared memory; unroll: of these, loads in flight
    """

    kind: Kind
    data: str
    lanes: int
    rows: int
    taps: int
    flat: bool  # the first axis has one element that stays
    native_bfloat16: bool = True
    threads: int = 256

    @property
    def unroll(self) -> int:
        return min(4, self.taps)

    @property
    def shared_bytes(self) -> int:
        return LINES + self.rows * self.taps * self.itemsize + 8 * (self.rows + self.threads)

    @property
    def blocks_per_processor(self) -> int:
        return 3

    @property
    def name(self) -> str:
        return f"{self.kind.name}_channels_{self.lanes}"


@dataclass(frozen=True, slots=True)
class LinesConfig(ByElementType):
    """Channels first: a block adds up dY along all axes but the last for some rows of dX, in shared memory; then a
    thread has ROWS rows of `columns` columns.

    width: elements of dY of one access
    """

    kind: Kind
    data: str
    columns: int
    width: int
    native_bfloat16: bool = True
    threads: int = 256

    @property
    def shared_bytes(self) -> int:
        return LINES

    @property
    def blocks_per_processor(self) -> int:
        """With 3, other kinds spill registers."""
        return 3 if self.kind.name == "windows" and not self.kind.dilated else 1

    @property
    def name(self) -> str:
        return f"{self.kind.name}_lines_{self.columns}_{self.width}"
