"""The constants one kernel of a depthwise dW on tensor cores is made for, and where things lie in shared memory.

The images stand one above another, as one tall image with rows of zeros between them, and a block takes some channels
of a run of its rows, `step_rows` rows of dY at a time. Planes of at most 8 columns stand side by side, two by two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from gradkern.cuda.columns import up
from gradkern.cuda.device import Device
from gradkern.ops.conv_grad.cuda_depthwise_geometry import Shape
from gradkern.search.candidate import Unfit

__all__ = ["PRODUCT", "WARP_CHANNELS", "MmaForm", "forms"]

WARP_CHANNELS = 4  # of one warp
OCTET = 8  # channels that one access of 16 bytes moves
PRODUCT = 16, 8, 16  # rows and columns of one product of matrices, and what it sums over
_WORD = 4
_REGISTERS = 128  # of a thread, at most
_SHIFTS = 8  # of dY, side by side in a product: no more taps in a row


@dataclass(frozen=True)
class MmaForm:
    """Sizes are (rows, columns), strides of arrays in bytes: from image to image, row to row and column to column.

    channels    of a block
    step_rows   rows of dY between two barriers, an even number
    """

    dtype: str
    total_channels: int
    channels: int
    step_rows: int
    source: tuple[int, int]  # X
    strip: tuple[int, int]  # dY
    taps: tuple[int, int]
    strides: tuple[int, int]
    begins: tuple[int, int]
    source_strides: tuple[int, int, int]
    strip_strides: tuple[int, int, int]
    filter_strides: tuple[int, int, int]
    blocks_per_processor: int = 1

    @property
    def threads(self) -> int:
        return self.channels // WARP_CHANNELS * 32

    @property
    def octets(self) -> int:
        return self.channels // OCTET

    @property
    def groups(self) -> int:
        return -(-self.total_channels // self.channels)

    @property
    def all_taps(self) -> int:
        return self.taps[0] * self.taps[1]

    @property
    def sides(self) -> int:
        """Images side by side."""
        return 2 if max(self.source[1], self.strip[1] * self.strides[1]) <= 8 else 1

    @property
    def period(self) -> int:
        """Rows of dY from one image to the next below it: far enough that no row meets another image's."""
        begin, last = self.begins[0], self.strides[0] * (self.strip[0] - 1)
        return ceil(max(self.source[0] + begin, last + self.taps[0] - begin, last + 1) / self.strides[0])

    def steps(self, images: int) -> int:
        """Of all images."""
        stacks = -(-images // self.sides)
        return -(-((stacks - 1) * self.period + self.strip[0]) // self.step_rows)

    # X in shared memory, in words of two elements: channel | a ring of rows | columns
    @property
    def source_step(self) -> int:
        """Rows of X that arrive in a step."""
        return self.strides[0] * self.step_rows

    @property
    def ahead(self) -> int:
        """The first row of X that arrives in step 0."""
        return PRODUCT[1] - 2 * self.strides[0] - self.begins[0]

    @property
    def arrivals(self) -> int:
        """Of rows, that are kept: so many steps' as one step reads."""
        return ceil((self.strides[0] * (self.step_rows - 2) + PRODUCT[1]) / self.source_step)

    @property
    def ring(self) -> int:
        """Rows of X that are kept."""
        return self.arrivals * self.source_step

    @property
    def parts(self) -> int:
        """Products along a row: into how many the columns of X are cut."""
        return 1 if self.sides > 1 else -(-self.source[1] // PRODUCT[2])

    @property
    def source_quads(self) -> int:
        """Vectors of four columns of an image's row."""
        return -(-self.source[1] // 4)

    @property
    def source_pitch(self) -> int:
        """Words from row to row: rows that are read together, eight words of each, lie in different banks."""
        return next(n for n in range(self.parts * 8, self.parts * 8 + 32) if n % 32 in (8, 24))

    @property
    def source_channel(self) -> int:
        return self.ring * self.source_pitch

    # dY in shared memory: channel | row | pairs of words, elements (2u, 2u + 1) and (2u - 1, 2u) for each u
    @property
    def origin(self) -> int:
        """The element that stands for X's column 0 at shift 0: column w of dY is at w * stride + origin - begin."""
        return _SHIFTS - 1 + (self.begins[1] - (_SHIFTS - 1)) % 4

    @property
    def strip_quads(self) -> int:
        """Vectors of four elements of an image's row, zeros between those of a stride among them."""
        return self.strip[1] // 4 + 1 if self.strides[1] == 1 else -(-self.strip[1] // 2)

    @property
    def region(self) -> int:
        """Elements of an image's row, which are words, as each element is there twice."""
        read = (8 if self.sides > 1 else 16 * self.parts) + self.origin + 1
        return up(max(read, 4 * self.strip_quads + self.origin - self.begins[1]), 4)

    @property
    def strip_pitch(self) -> int:
        return self.sides * self.region

    @property
    def strip_channel(self) -> int:
        return self.step_rows * self.strip_pitch

    @property
    def octet_pad(self) -> int:
        """Words between octets of channels, so that those which threads write together lie in different banks."""
        return 32 // self.octets

    @property
    def source_words(self) -> int:
        return self.channels * self.source_channel + self.octets * self.octet_pad

    @property
    def strip_words(self) -> int:
        return self.channels * self.strip_channel + self.octets * self.octet_pad

    @property
    def shared_bytes(self) -> int:
        sums = self.channels * PRODUCT[0] * PRODUCT[1]
        return _WORD * up(max(self.source_words + self.strip_words, sums), 4)

    @property
    def products(self) -> tuple[tuple[int, tuple[int, int, int, int], int], ...]:
        """What a warp multiplies for two rows of dY: (first sum, where the left and the right matrix are, in bytes)."""
        row = self.strip_pitch
        return tuple(
            (
                4 * channel,
                tuple(_WORD * (channel * self.strip_channel + 16 * part + n) for n in (0, row, 2, row + 2)),
                _WORD * (channel * self.source_channel + 8 * part),
            )
            for part in range(self.parts)
            for channel in range(WARP_CHANNELS)
        )  # type: ignore[return-value]


def forms(shape: Shape, which: Device) -> Iterator[MmaForm]:
    """Those that fit, with many channels in a block first. Raises Unfit where there is none."""
    reason = _unfit(shape, which)
    if reason:
        raise Unfit(reason)
    found = False
    for channels in (32, 16):
        made = MmaForm(
            shape.dtype,
            shape.channels,
            channels,
            2,
            shape.source,
            shape.strip,
            shape.taps,
            shape.strides,
            shape.begins,
            (shape.source_strides[0], *shape.source_strides[2:]),
            (shape.strip_strides[0], *shape.strip_strides[2:]),
            shape.filter_strides,
        )
        rows = _step_rows(made)
        made = replace(made, step_rows=rows)
        if rows and made.shared_bytes <= which.shared_bytes:
            blocks = min(which.shared_bytes // (made.shared_bytes + 1024), 65536 // (_REGISTERS * made.threads))
            found = True
            yield replace(made, blocks_per_processor=max(1, blocks))
    if not found:
        raise Unfit(f"rows of {shape.source[1]} columns have no room in shared memory")


def _unfit(shape: Shape, which: Device) -> str:
    """Why there is no form; nothing where there may be one."""
    if shape.gradient != "dW" or shape.dtype not in ("float16", "bfloat16") or not shape.channels_last:
        return "tensor cores compute the dW of channels-last arrays of 16-bit types"
    if which.capability < (8, 0):
        return "tensor cores of this device do not have these products"
    vector = 16
    strides = (*shape.source_strides[:1], *shape.source_strides[2:], *shape.strip_strides[:1], *shape.strip_strides[2:])
    aligned = min(shape.source_alignment, shape.strip_alignment) >= vector
    if shape.channels % OCTET or not aligned or any(each % vector for each in strides):
        return "tensor cores take channels in vectors of 8, at multiples of 16 bytes"
    if shape.dilations != (1, 1) or shape.strides[1] > 2 or shape.taps[1] > _SHIFTS or shape.begins[1] >= _SHIFTS:
        return f"tensor cores take up to {_SHIFTS} taps in a row, without dilation, with strides of 1 and 2"
    if shape.taps[0] + shape.strides[0] > PRODUCT[1]:
        return f"two rows of dY meet more than {PRODUCT[1]} rows of X"
    return ""


def _step_rows(form: MmaForm) -> int:
    """The most rows of dY for which a thread has one vector of each array to move; 0 where there is none."""
    quads = form.sides * max(form.strip_quads, form.strides[0] * form.source_quads)
    return next((n for n in (16, 8, 4, 2) if n * quads * form.octets <= form.threads), 0)
