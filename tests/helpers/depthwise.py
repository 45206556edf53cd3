"""Cases of depthwise convolutions: random operands in guarded memory, and their float64 gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from gradkern.call import Tensor
from gradkern.ops.conv.cuda.depthwise.config import ARGUMENTS, DepthwiseConfig
from gradkern.ops.conv.cuda.problem import Problem
from helpers.conv_problems import conv_problem
from helpers.guarded import Guarded
from helpers.reference import reference


@dataclass(frozen=True)
class Depthwise:
    """What a case is made of; per spatial axis: one, two or three."""

    gradient: str  # dX, dW or Y
    images: int
    channels: int
    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()  # begins, then ends
    dtype: str = "float32"
    channels_last: bool = False
    offset: int = 0  # elements from an aligned address to each array
    spread: int = 0  # elements between images
    seed: int = 0
    biased: bool = False  # of Y
    operands: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def rank(self) -> int:
        return len(self.spatial)

    @property
    def per_axis(self) -> list[tuple[int, ...]]:
        """(size, taps, stride, dilation, begin, end, out) of each axis."""
        ones, zeros = (1,) * self.rank, (0,) * 2 * self.rank
        strides, dilations, pads = self.strides or ones, self.dilations or ones, self.pads or zeros
        lists = (self.spatial, self.kernel, strides, dilations, pads[: self.rank], pads[self.rank :])
        return [
            (size, taps, stride, dilation, begin, end, (size + begin + end - dilation * (taps - 1) - 1) // stride + 1)
            for size, taps, stride, dilation, begin, end in zip(*lists, strict=True)
        ]


def make(case: Depthwise) -> tuple[Problem, dict[str, Guarded], np.ndarray, np.ndarray]:
    """The problem, its arrays by name (inputs filled, output poisoned), a view of the output, and what it must be."""
    random = np.random.default_rng(case.seed)
    out = tuple(axis[6] for axis in case.per_axis)
    shapes = {
        "dY": (case.images, case.channels, *out),
        "X": (case.images, case.channels, *case.spatial),
        "W": (case.channels, 1, *case.kernel),
    } | ({"B": (case.channels,)} if case.biased else {})
    held = {name: _hold(case, shape) for name, shape in shapes.items()}
    arrays = {name: _view(held[name], shapes[name], name in ("dY", "X") and case.channels_last) for name in shapes}
    output = {"dX": "X", "dW": "W", "Y": "dY"}[case.gradient]
    for name, array in arrays.items():
        if name != output:
            array[...] = random.standard_normal(array.shape).astype(array.dtype)
            held[name].freeze()
    wide = {name: array.astype(np.float64) for name, array in arrays.items() if name != output}
    tensors = {name: Tensor(a.dtype, a.shape, a.strides, _alignment(held[name].address)) for name, a in arrays.items()}
    strides, dilations, begins, ends = (tuple(axis[n] for axis in case.per_axis) for n in (2, 3, 4, 5))
    problem = conv_problem(
        case.gradient, tensors["dY"], tensors["X"], tensors["W"], case.channels, strides, dilations, begins, ends,
        tensors.get("B"),
    )  # fmt: skip
    if case.gradient != "Y":
        wide[output] = np.zeros(shapes[output])  # whatever it is: no gradient depends on its own array
    attributes = {"strides": strides, "dilations": dilations, "pads": (*begins, *ends), "group": case.channels}
    operator = "Conv" if case.gradient == "Y" else "ConvGrad"
    return problem, held, arrays[output], reference(operator, wide, attributes)[case.gradient]


def refused_on_tensor_cores(gradient: str) -> list[Depthwise]:
    """What no depthwise kernel on tensor cores takes, for reasons of types, layouts and attributes."""
    usual: dict[str, Any] = {"dtype": "float16", "channels_last": True}
    return [
        Depthwise(gradient, 2, 8, (6, 6), (3, 3), channels_last=True),
        Depthwise(gradient, 2, 8, (6, 6), (3, 3), dtype="float16"),
        Depthwise(gradient, 2, 12, (6, 6), (3, 3), **usual),
        Depthwise(gradient, 2, 8, (6, 6), (3, 3), **usual, offset=4),
        Depthwise(gradient, 2, 8, (6, 6), (3, 3), **usual, spread=4),
        Depthwise(gradient, 2, 8, (6, 6), (3, 3), (2, 2), **usual),
        Depthwise(gradient, 2, 8, (6, 6), (2, 2), (1, 1), (2, 1), **usual),
        Depthwise(gradient, 2, 8, (6, 16), (3, 10), pads=(0, 4, 0, 5), **usual),
        Depthwise(gradient, 2, 8, (20, 6), (9, 3), **usual),
        Depthwise(gradient, 2, 8, (3, 6, 6), (3, 3, 3), **usual),
    ]


def arguments(
    case: Depthwise, arrays: dict[str, Guarded], partial: Guarded, counter: np.ndarray, chunks: int
) -> tuple[np.int64, ...]:
    """Of a kernel, by the order it has them in."""
    halo, tiled = ("dY", "X") if case.gradient == "dX" else ("X", "dY")
    partial = arrays["B"] if case.biased else partial
    named = {
        "halo": arrays[halo].address,
        "tiled": arrays[tiled].address,
        "filter": arrays["W"].address,
        "partial": partial.address,
        "counter": counter.ctypes.data,
        "images": case.images,
        "chunks": chunks,
    }
    return tuple(np.int64(named[name]) for name in ARGUMENTS)


def _hold(case: Depthwise, shape: tuple[int, ...]) -> Guarded:
    """Images as rows."""
    kind, size = np.dtype(case.dtype), int(np.prod(shape[1:]))
    return Guarded((shape[0], size), kind, case.offset * kind.itemsize, (size + case.spread) * kind.itemsize)


def _view(held: Guarded, shape: tuple[int, ...], last: bool) -> np.ndarray:
    stored = (shape[0], *shape[2:], shape[1]) if last else shape
    steps = np.empty(stored[1:], held.array.dtype).strides
    array = np.lib.stride_tricks.as_strided(held.array, stored, (held.array.strides[0], *steps))
    return np.moveaxis(array, -1, 1) if last else array


def _alignment(address: int) -> int:
    return next(each for each in (16, 8, 4, 2, 1) if address % each == 0)


def multiply_adds(config: DepthwiseConfig) -> int:
    """Of one thread and image."""
    return len(config.rows.meets) * len(config.columns.meets) * config.width
