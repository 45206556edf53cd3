"""Linear maps along one axis: the inputs that an output is made of, and their weights. Pools and resizing are
products of one for each spatial axis.

A `Windows` averages windows, an `Adaptive` the windows of adaptive pooling, a `Resampling` takes one, two or four
elements around a coordinate. Each of them lists its terms: the weights that the kernels for GPUs compute from the same
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Terms(NamedTuple):
    """output[outputs[n]] += weights[n] * input[inputs[n]], for every n."""

    outputs: NDArray[np.int64]
    inputs: NDArray[np.int64]
    weights: NDArray[np.float64]


class Transposed(NamedTuple):
    """By input x: its terms are those from starts[x] to starts[x + 1], in order of outputs."""

    starts: NDArray[np.int64]
    outputs: NDArray[np.int64]
    weights: NDArray[np.float64]


def _runs(first: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By n: `counts[n]` times n, and the numbers from `first[n]` on."""
    of = np.repeat(np.arange(len(counts)), counts)
    return of, np.arange(len(of)) - (counts.cumsum() - counts - first)[of]


@dataclass(frozen=True, slots=True)
class Windows:
    """Averages of windows: output o is the mean of inputs o*stride - begin + t*dilation, for t < kernel, inside.

    The divisor is the number of elements inside; of those in the padded input, of `end` elements behind it, if
    `padded`; or the given one.
    """

    input: int
    output: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0
    padded: bool = False
    divisor: int = 0

    def terms(self, compute: Any) -> Terms:
        first = np.arange(self.output) * self.stride - self.begin
        begin, inside, padded = (
            np.clip(-(-(end - first) // self.dilation), 0, self.kernel)  # elements of each window before this one
            for end in (0, self.input, self.input + self.end)
        )
        counts = inside - begin
        outputs, t = _runs(begin, counts)
        divisors = np.full(self.output, self.divisor) if self.divisor else padded if self.padded else counts
        return Terms(outputs, first[outputs] + t * self.dilation, 1 / divisors[outputs])


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Averages from floor(o * input / output) to ceil((o + 1) * input / output), exclusive."""

    input: int
    output: int

    def terms(self, compute: Any) -> Terms:
        of = np.arange(self.output)
        first, last = of * self.input // self.output, -(-(of + 1) * self.input // self.output)
        outputs, inputs = _runs(first, last - first)
        return Terms(outputs, inputs, 1 / (last - first)[outputs])


@dataclass(frozen=True, slots=True)
class Resampling:
    """Elements around coordinate (o + shift) * step / divisor + offset, whose weights depend on its fraction.

    mode        nearest, linear, cubic or lanczos; inputs outside stand for the nearest inside
    rounding    of a nearest: floor, ceil, round_prefer_floor, round_prefer_ceil
    cubic       the coefficient of the cubic
    excluded    inputs outside have no weight, and those inside share it
    narrowing   distances are multiplied by it, and the sum of weights divided out: below 1 where antialiasing makes a
                filter wider. That sum is divided out of lanczos always
    bounded     an output whose coordinate is outside has no inputs
    """

    input: int
    output: int
    mode: str
    shift: float
    step: float
    divisor: float = 1.0
    offset: float = 0.0
    rounding: str = "floor"
    cubic: float = -0.75
    excluded: bool = False
    bounded: bool = False
    narrowing: float = 1.0

    @property
    def reach(self) -> float:
        """Inputs whose distance from a coordinate is less have a weight, of all but a nearest element."""
        return REACH[self.mode] / self.narrowing

    @property
    def normalized(self) -> bool:
        """Whether the sum of weights is divided out."""
        return self.narrowing != 1 or self.mode == "lanczos"

    def coordinates(self, compute: Any) -> NDArray[Any]:
        """In float32 for a nearest element, as every forward pass has them; else in the type of arithmetic."""
        kind = np.float32 if self.mode == "nearest" else compute
        shifted = np.arange(self.output).astype(kind) + kind(self.shift)
        return shifted * kind(self.step) / kind(self.divisor) + kind(self.offset)

    def terms(self, compute: Any) -> Terms:
        at = self.coordinates(compute)
        if self.mode == "nearest":
            half = at.dtype.type(0.5)
            match self.rounding:
                case "floor":
                    near = np.floor(at)
                case "ceil":
                    near = np.ceil(at)
                case "round_prefer_floor":
                    near = np.ceil(at - half)
                case _:
                    near = np.floor(at + half)
            places, weights = near[:, None], np.ones((self.output, 1))
        else:
            base = np.floor(at)
            f = (at - base).astype(np.float64)
            side = math.ceil(self.reach)
            taps = np.arange(1 - side, side + 1)
            places, d = base[:, None] + taps, np.abs(taps - f[:, None]) * self.narrowing
            weights = {"linear": _linear, "cubic": _cubic, "lanczos": _lanczos}[self.mode](d, self.cubic)
            weights = weights / (weights.sum(1, keepdims=True) if self.normalized else 1)
        if self.excluded:
            weights = weights * ((places >= 0) & (places < self.input))
            total = weights.sum(1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)  # none inside: none at all
        if self.bounded:
            weights = weights * ((at >= 0) & (at <= self.input - 1))[:, None]
        inputs = np.clip(places, 0, self.input - 1).astype(np.int64)
        outputs = np.broadcast_to(np.arange(self.output)[:, None], inputs.shape)
        some = weights != 0
        return Terms(outputs[some], inputs[some], weights[some])


REACH: Mapping[str, float] = {"linear": 1, "cubic": 2, "lanczos": 3}
"""By modes: an element at this distance or farther has no weight."""


def _linear(d: NDArray[np.float64], _: float) -> NDArray[np.float64]:
    """Of elements at these distances."""
    return np.maximum(1 - d, 0)


def _lanczos(d: NDArray[np.float64], _: float) -> NDArray[np.float64]:
    return np.where(d < 3, np.sinc(d) * np.sinc(d / 3), 0)


def _cubic(d: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


AxisMap = Windows | Adaptive | Resampling


def transposed(axis: AxisMap, compute: Any) -> Transposed:
    """The terms by input; those of one output are added up."""
    terms = axis.terms(compute)
    keys, place = np.unique(terms.inputs * axis.output + terms.outputs, return_inverse=True)
    weights = np.bincount(place, terms.weights, len(keys)).astype(np.float64)
    counts = np.bincount(keys // max(axis.output, 1), minlength=axis.input)
    return Transposed(np.append(0, counts.cumsum()), keys % max(axis.output, 1), weights)


def simplified(maps: Sequence[AxisMap]) -> list[AxisMap]:
    """Adaptive pools as windows, where these are all of one size; others unchanged."""
    if all(isinstance(each, Adaptive) and each.input % each.output == 0 for each in maps):
        sizes = [each.input // each.output for each in maps]
        return [Windows(each.input, each.output, size, size) for each, size in zip(maps, sizes, strict=True)]
    return list(maps)


def finite(axis: Resampling) -> bool:
    """Whether every coordinate is a number, of less than 2^31."""
    with np.errstate(all="ignore"):
        shift, step, divisor, offset = map(np.float32, (axis.shift, axis.step, axis.divisor, axis.offset))
        ends = (np.array((0, axis.output), np.float32) + shift) * step / divisor + offset
        return bool(np.isfinite((shift, step, divisor, offset)).all() and (np.abs(ends) < 2**31 - 2**8).all())


def reach(axis: AxisMap) -> int:
    """The largest whole number that a kernel computes along the axis, or more."""
    if not isinstance(axis, Windows):
        return max(axis.input, axis.output)
    ends = axis.input + axis.begin, axis.input + axis.end, axis.output * axis.stride
    return max(max(ends) + axis.kernel * axis.dilation + axis.stride, abs(axis.divisor))


def most_outputs(axis: AxisMap) -> float:
    """About how many outputs an input is a term of, at most."""
    if isinstance(axis, Windows):
        return -(-((axis.kernel - 1) * axis.dilation + 1) // axis.stride)
    if isinstance(axis, Adaptive):
        return axis.output / axis.input + 2
    if axis.step == 0:
        return axis.output
    return abs(axis.divisor / axis.step) * (1 if axis.mode == "nearest" else 2 * axis.reach) + (axis.mode == "nearest")
