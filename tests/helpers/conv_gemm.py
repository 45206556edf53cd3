"""The matrix products of Conv and ConvGrad on the host: problems in guarded memory, cuBLAS in NumPy, moves as defined.

Everything runs by address and byte offset, as on a GPU, so offsets, leading dimensions and slices are what is tested.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from gradkern.call import Tensor
from gradkern.cublas.product import Product, gemms
from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.gemm.im2col import Im2colStep
from gradkern.ops.conv.cuda.gemm.program import GemmProgram
from gradkern.ops.conv.cuda.problem import Problem
from helpers.conv_problems import conv_problem
from helpers.guarded import Guarded
from helpers.reference import reference

DEVICE = Device(0, (9, 0), 132, 232448)


@dataclass(frozen=True)
class Shape:
    """A convolution's sizes, and how its tensors lie: nchw, nhwc (channels-last), or gaps (nchw with room between)."""

    images: int
    group: int
    channels: int  # of a group, as filters
    filters: int
    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    begin: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    layouts: tuple[str, str, str] = ("nchw", "nchw", "nchw")  # of dY, X, W

    def __str__(self) -> str:
        given = [f"{self.images}x{self.channels}x{self.filters}", *map(str, (self.spatial, self.kernel))]
        given += [f"g{self.group}"] * (self.group > 1) + [f"s{self.strides}"] * bool(self.strides)
        given += [f"d{self.dilations}"] * bool(self.dilations) + [f"p{self.begin}{self.end}"] * bool(self.begin)
        return " ".join([*given, *self.layouts]).replace(", ", ",")


def per_axis(values: tuple[int, ...], shape: Shape, fill: int) -> tuple[int, ...]:
    return values or (fill,) * len(shape.spatial)


@dataclass
class Setting:
    """Operands with random values, the output poisoned, and its float64 reference."""

    problem: Problem
    held: list[Guarded]
    arrays: list[np.ndarray]
    expected: np.ndarray
    terms: np.ndarray = field(default_factory=lambda: np.zeros(0))


def setting(shape: Shape, gradient: str, dtype: str, seed: int = 0, offset: int = 0) -> Setting:
    random = np.random.default_rng(seed)
    strides, dilations = per_axis(shape.strides, shape, 1), per_axis(shape.dilations, shape, 1)
    begin, end = per_axis(shape.begin, shape, 0), per_axis(shape.end, shape, 0)
    sizes = zip(shape.spatial, shape.kernel, strides, dilations, begin, end, strict=True)
    out = tuple((size + b + e - (k - 1) * d - 1) // s + 1 for size, k, s, d, b, e in sizes)
    shapes = {
        "dY": (shape.images, shape.group * shape.filters, *out),
        "X": (shape.images, shape.group * shape.channels, *shape.spatial),
        "W": (shape.group * shape.filters, shape.channels, *shape.kernel),
    }
    forward = gradient.startswith("Y")
    layouts = dict(zip(shapes, shape.layouts, strict=True))
    if gradient == "Y with B":
        shapes["B"] = shapes["dY"][1:2]
    held: dict[str, tuple[Guarded, np.ndarray]] = {}
    for name, each in shapes.items():
        layout = layouts.get(name, "nchw")
        held[name] = lying(each, dtype, layout, offset)
        held[name][1][...] = random.standard_normal(each).astype(dtype)
    inputs = {name: array.copy() for name, (_, array) in held.items()}
    attributes = {"strides": strides, "dilations": dilations, "group": shape.group, "pads": [*begin, *end]}
    if forward:
        given = {name: inputs[name] for name in ("X", "W", "B") if name in inputs}
        expected = reference("Conv", given, attributes)["Y"]
    else:
        expected = reference("ConvGrad", inputs, attributes)[gradient]
    output = "dY" if forward else gradient[1]
    for name, (each, _) in held.items():
        each.poison() if name == output else each.freeze()
    described = {name: tensor(array, each.address) for name, (each, array) in held.items()}
    problem = conv_problem(
        "Y" if forward else gradient, described["dY"], described["X"], described["W"], shape.group, strides, dilations,
        begin, end, described.get("B"),
    )  # fmt: skip
    order = {"dX": ["dY", "W", "X"], "dW": ["dY", "X", "W"], "Y": ["X", "W", "dY"]}.get(gradient, ["X", "W", "dY", "B"])
    return Setting(problem, [held[name][0] for name in order], [held[name][1] for name in order], expected)


def lying(shape: tuple[int, ...], dtype: str, layout: str, offset: int) -> tuple[Guarded, np.ndarray]:
    """Guarded bytes, and the array that lies in them."""
    item = np.dtype(dtype).itemsize
    axes = list(range(len(shape)))
    order = [0, *axes[2:], 1] if layout == "nhwc" else axes
    strides, step = [0] * len(shape), item
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis] + (3 if layout == "gaps" and axis in axes[1:] else 0)
    extent = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + item
    raw = Guarded((extent,), np.uint8, offset * item)
    memory: Any = raw.buffer
    return raw, np.ndarray(shape, dtype, memory, raw.start, tuple(strides))


def tensor(array: np.ndarray, address: int) -> Tensor:
    return Tensor(array.dtype, array.shape, array.strides, next(each for each in (16, 8, 4, 2) if address % each == 0))


# --- running a program -----------------------------------------------------------------------------------------------


class Host:
    """Runs programs on host memory."""

    address = 0

    def __init__(self, given: Setting, scratch: int, move: Callable[[Im2colStep, tuple[int, int]], None]) -> None:
        self.given, self.move = given, move
        self.scratch = Guarded((scratch,), np.uint8)
        self.cublas = self
        self.memory = [*given.held[:3], self.scratch, *given.held[3:]]

    def run(self, program: GemmProgram) -> np.ndarray:
        addresses = tuple(each.address for each in self.memory)
        for step in program.steps:
            if isinstance(step, Product):
                cublas: Any = self
                for gemm in gemms(step):
                    gemm(cublas, addresses)
            else:
                first, second = step.addresses
                self.move(step, (addresses[first.operand] + first.offset, addresses[second.operand] + second.offset))
        for each in self.memory:
            each.check()
        return self.given.arrays[2].copy()

    # cuBLAS, as its documentation defines it, with every address checked

    def gemm_ex_64(
        self, _handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, a: int, atype: int,
        lda: int, b: int, btype: int, ldb: int, beta: int, c: int, ctype: int, ldc: int, compute: int, algo: int,
    ) -> None:  # fmt: skip
        self.gemm_strided_batched_ex_64(
            _handle, transa, transb, m, n, k, alpha, a, atype, lda, 0, b, btype, ldb, 0, beta, c, ctype, ldc, 0, 1,
            compute, algo,
        )  # fmt: skip

    def gemm_strided_batched_ex_64(
        self, _handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, a: int, atype: int,
        lda: int, stridea: int, b: int, btype: int, ldb: int, strideb: int, beta: int, c: int, ctype: int, ldc: int,
        stridec: int, count: int, compute: int, algo: int,
    ) -> None:  # fmt: skip
        scalar = ctypes.c_double if compute == 70 else ctypes.c_float
        assert compute in (68, 70, 77)
        assert algo == -1
        of_product, of_result = (scalar.from_address(each).value for each in (alpha, beta))
        A, B, C = _TYPES[atype], _TYPES[btype], _TYPES[ctype]
        assert atype == btype
        assert (atype == 1) == (ctype == 1) == (compute == 70)
        for each in range(count):
            left = self._matrix(a + each * stridea * A.itemsize, A, *((m, k) if transa == 0 else (k, m)), lda)
            right = self._matrix(b + each * strideb * B.itemsize, B, *((k, n) if transb == 0 else (n, k)), ldb)
            result = self._matrix(c + each * stridec * C.itemsize, C, m, n, ldc)
            left = (left if transa == 0 else left.T).astype(np.float64)
            right = (right if transb == 0 else right.T).astype(np.float64)
            total = of_product * (left @ right)
            result[...] = (total + of_result * result.astype(np.float64) if of_result else total).astype(C)

    def _matrix(self, address: int, dtype: np.dtype, rows: int, columns: int, leading: int) -> np.ndarray:
        """A matrix by columns inside one of the operands."""
        assert leading >= max(rows, 1)
        extent = ((columns - 1) * leading + rows) * dtype.itemsize
        for each in self.memory:
            start = address - each.address
            if start >= 0 and start + extent <= each.size:
                strides = (dtype.itemsize, leading * dtype.itemsize)
                return np.ndarray((rows, columns), dtype, each.buffer, each.start + start, strides)
        raise AssertionError(f"a matrix of {extent} bytes at {address} lies in no operand")


_TYPES = {0: np.dtype("float32"), 1: np.dtype("float64"), 2: np.dtype("float16"), 14: np.dtype("bfloat16")}


def defined(memory: list[Guarded], dtype: str) -> Callable[[Im2colStep, tuple[int, int]], None]:
    """Moves as their definitions say, one element after the other."""

    def at(address: int, kind: str) -> np.ndarray:
        size = np.dtype(kind).itemsize
        assert any(each.address <= address and address + size <= each.address + each.size for each in memory), (
            f"address {address} lies in no operand"
        )
        return np.frombuffer(memoryview((ctypes.c_char * size).from_address(address)), kind)

    def move(step: Im2colStep, addresses: tuple[int, int]) -> None:
        (first, second), values = addresses, list(step.arguments[2:])
        if step.config.kernel == "gather":
            for tensor_at, matrix_at, inside in _gathered(values):
                at(second + matrix_at, dtype)[...] = at(first + tensor_at, dtype) if inside else 0
        elif step.config.kernel == "col2im":
            for tensor_at, places in _met(values):
                total = sum((float(at(second + each, step.config.word)[0]) for each in places), 0.0)
                at(first + tensor_at, dtype)[...] = total
        elif step.config.kernel == "pack":
            for source, target in _packed(values, np.dtype(dtype).itemsize):
                at(second + target, dtype)[...] = at(first + source, dtype)
        else:
            _add(step, at, first, second, values)

    return move


def _gathered(values: list[int]) -> Iterator[tuple[int, int, bool]]:
    images, channels, group_channels, start, count, _, grid1, grid2, *values = values
    sizes, (image_step, channel_step, *strides), values = values[:3], values[3:8], values[8:]
    steps, taps, firsts, spacings = values[:3], values[3:6], values[6:9], values[9:12]
    matrix_image, matrix_position, matrix_group, matrix_channel, matrix_tap = values[12:]
    for image, p, c in np.ndindex(images, count, channels):
        place = start + p
        q = (place // (grid1 * grid2), place // grid2 % grid1, place % grid2)
        for number, tap in enumerate(np.ndindex(*taps)):
            seen = [s * each + f + d * t for s, each, f, d, t in zip(steps, q, firsts, spacings, tap, strict=True)]
            inside = all(0 <= each < size for each, size in zip(seen, sizes, strict=True))
            away = sum(each * stride for each, stride in zip(seen, strides, strict=True))
            row = c // group_channels * matrix_group + c % group_channels * matrix_channel
            to = image * matrix_image + p * matrix_position + row + number * matrix_tap
            yield image * image_step + c * channel_step + away, to, inside


def _met(values: list[int]) -> Iterator[tuple[int, list[int]]]:
    images, channels, group_channels, count, _, size1, size2, image_step, channel_step, *values = values
    strides, steps, begins, dilations, taps, _, _, grid = (values[3 * kind : 3 * kind + 3] for kind in range(8))
    matrix_image, matrix_position, group, channel, matrix_tap = values[24:]
    for image, p, c in np.ndindex(images, count, channels):
        x = (p // (size1 * size2), p // size2 % size1, p % size2)
        row = image * matrix_image + c // group_channels * group + c % group_channels * channel
        places = []
        for number, tap in enumerate(np.ndindex(*taps)):
            for q in np.ndindex(*grid):
                axes = zip(x, q, tap, steps, begins, dilations, strict=True)
                if all(o * step + t * dilation - begin == i for i, o, t, step, begin, dilation in axes):
                    at = (q[0] * grid[1] + q[1]) * grid[2] + q[2]
                    places.append(row + at * matrix_position + number * matrix_tap)
        yield image * image_step + c * channel_step + sum(a * b for a, b in zip(x, strides, strict=True)), places


def _packed(values: list[int], item: int) -> Iterator[tuple[int, int]]:
    total, channels, filters, filter_step, channel_step, *values = values
    taps, tap_steps, (group, filter_, tap) = values[:3], values[3:6], values[6:]
    for m in range(total // channels):
        for c in range(channels):
            for t, inside in enumerate(np.ndindex(*taps)):
                source = m * filter_step + c * channel_step + sum(a * b for a, b in zip(inside, tap_steps, strict=True))
                yield source, m // filters * group + m % filters * filter_ + t * tap + c * item


def _add(step: Im2colStep, at: Callable[[int, str], Any], first: int, second: int, values: list[int]) -> None:
    total, count, distance, rows, inner, taps1, taps2, *strides = values
    item = np.dtype(step.config.word).itemsize
    for e in range(total):
        m, row = divmod(e, rows)
        c, t = divmod(row, inner)
        if not step.config.taps_inside:
            c, t = t, c
        place = (m, c, t // (taps1 * taps2), t // taps2 % taps1, t % taps2)
        value = sum(float(at(first + share * distance + e * item, step.config.word)[0]) for share in range(count))
        at(second + sum(a * b for a, b in zip(place, strides, strict=True)), step.config.result)[...] = value
