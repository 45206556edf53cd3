"""Cases of convolutions of few channels: random channels-last operands in guarded memory, and the float64 dW."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from gradkern.call import Tensor
from gradkern.ops.conv.cuda.problem import Problem
from helpers.conv_problems import conv_problem
from helpers.guarded import Guarded
from helpers.reference import reference


@dataclass(frozen=True)
class FewChannels:
    """What a case is made of."""

    images: int
    channels: int
    filters: int
    spatial: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]  # begins, then ends
    dtype: str
    spread: int = 0  # elements between images
    filters_last: bool = True  # dW is channels-last, too
    seed: int = 0


def make(case: FewChannels) -> tuple[Problem, dict[str, Guarded], np.ndarray, np.ndarray]:
    """The problem, its arrays by name (inputs filled, dW poisoned), a view of dW, and what it must be."""
    random = np.random.default_rng(case.seed)
    out = tuple(
        (size + begin + end - taps) // stride + 1
        for size, begin, end, taps, stride in zip(
            case.spatial, case.pads[:2], case.pads[2:], case.kernel, case.strides, strict=True
        )
    )
    shapes = {
        "dY": (case.images, case.filters, *out),
        "X": (case.images, case.channels, *case.spatial),
        "W": (case.filters, case.channels, *case.kernel),
    }
    held, arrays = {}, {}
    for name, shape in shapes.items():
        last = name != "W" or case.filters_last
        held[name] = _hold(case, shape, 0 if name == "W" else case.spread)
        arrays[name] = _view(held[name], shape, last)
        if name != "W":
            arrays[name][...] = random.standard_normal(shape).astype(case.dtype)
            held[name].freeze()
    tensors = {name: Tensor(a.dtype, a.shape, a.strides, 16) for name, a in arrays.items()}
    begins, ends = case.pads[:2], case.pads[2:]
    problem = conv_problem(
        "dW", tensors["dY"], tensors["X"], tensors["W"], 1, case.strides, (1, 1), begins, ends, None
    )  # fmt: skip
    wide = {name: arrays[name].astype(np.float64) for name in ("dY", "X")} | {"W": np.zeros(shapes["W"])}
    attributes = {"strides": case.strides, "dilations": (1, 1), "pads": case.pads, "group": 1}
    return problem, held, arrays["W"], reference("ConvGrad", wide, attributes)["dW"]


def _hold(case: FewChannels, shape: tuple[int, ...], spread: int) -> Guarded:
    """Images, or filters, as rows."""
    kind, size = np.dtype(case.dtype), int(np.prod(shape[1:]))
    return Guarded((shape[0], size), kind, 0, (size + spread) * kind.itemsize)


def _view(held: Guarded, shape: tuple[int, ...], last: bool) -> np.ndarray:
    stored = (shape[0], *shape[2:], shape[1]) if last else shape
    steps = np.empty(stored[1:], held.array.dtype).strides
    array = np.lib.stride_tricks.as_strided(held.array, stored, (held.array.strides[0], *steps))
    return np.moveaxis(array, -1, 1) if last else array
