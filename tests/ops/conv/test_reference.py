"""Single elements of Conv and ConvGrad as defined, and the bench of a search that compares results with them."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.conv_problems import conv_problem
from helpers.reference import reference

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern.call import Tensor
from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.cuda.reference import elements
from gradkern.search import bench as benches
from gradkern.search.implementation import Task

GEOMETRIES = {  # images, channels, sizes, filters, kernel, group, strides, dilations, pads
    "plain": (2, 3, (6, 5), 4, (3, 3), 1, (1, 1), (1, 1), (0, 0, 0, 0)),
    "pads": (2, 3, (6, 5), 4, (3, 2), 1, (1, 1), (1, 1), (1, 0, 2, 1)),
    "strides": (2, 3, (9, 8), 4, (3, 2), 1, (3, 2), (1, 1), (1, 1, 1, 0)),
    "gaps between taps": (2, 3, (11, 9), 4, (3, 2), 1, (2, 1), (2, 3), (2, 1, 2, 2)),
    "groups": (2, 6, (6, 5), 9, (2, 3), 3, (1, 2), (1, 1), (1, 1, 0, 1)),
    "a tap that sees pads alone": (1, 1, (2, 2), 1, (5, 5), 1, (1, 1), (1, 1), (3, 3, 3, 3)),
    "1-D": (3, 4, (17,), 2, (4,), 2, (2,), (3,), (3, 2)),
    "3-D": (1, 2, (4, 5, 3), 3, (2, 3, 2), 1, (1, 2, 1), (2, 1, 1), (1, 0, 1, 0, 1, 0)),
}


def described(array: np.ndarray) -> Tensor:
    return Tensor(array.dtype, array.shape, array.strides, 16)


def case(name: str, gradient: Any, dtype: str = "float64", last: bool = False) -> tuple[Problem, Any, np.ndarray]:
    """The problem, its inputs, and all of the gradient."""
    images, channels, sizes, filters, kernel, group, strides, dilations, pads = GEOMETRIES[name]
    rank = len(sizes)
    out = tuple(
        (sizes[i] + pads[i] + pads[rank + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(rank)
    )
    random = np.random.default_rng(1)

    def made(*shape: int) -> np.ndarray:
        array = random.standard_normal(shape).astype(dtype)
        return np.moveaxis(np.moveaxis(array, 1, -1).copy(), -1, 1) if last else array

    Y, X = made(images, filters, *out), made(images, channels, *sizes)
    W = made(filters, channels // group, *kernel)
    attributes = {"group": group, "strides": strides, "dilations": dilations, "pads": pads}
    B = random.standard_normal(filters).astype(dtype)
    expected = reference("ConvGrad", {"dY": Y, "X": X, "W": W}, attributes)
    expected |= reference("Conv", {"X": X, "W": W, "B": B}, attributes)
    problem = conv_problem(
        gradient,
        described(Y),
        described(X),
        described(W),
        group=group,
        strides=strides,
        dilations=dilations,
        pads_begin=pads[:rank],
        pads_end=pads[rank:],
        B=described(B) if gradient == "Y" else None,
    )
    inputs = {"dX": (Y, W), "dW": (Y, X), "Y": (X, W, B)}[gradient]
    return problem, inputs, np.asarray(expected[gradient])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("gradient", ["dX", "dW", "Y"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_element_is_that_of_the_definition(name: str, gradient: str, dtype: str, last: bool) -> None:
    problem, inputs, expected = case(name, gradient, dtype, last)
    places = np.array(list(np.ndindex(expected.shape)))
    (found,) = elements(problem, inputs, (places,))
    np.testing.assert_allclose(found, expected.ravel(), rtol=1e-12, atol=1e-12)


class HostDriver:
    """In place of the driver: the host's memory is the device's, and all is done at once."""

    CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE=0)

    def __init__(self) -> None:
        self.memory: list[np.ndarray] = []

    def cuMemAlloc(self, size: int) -> tuple[Any, int]:
        self.memory.append(np.zeros(size + 256, np.uint8))
        return 0, -(-self.memory[-1].ctypes.data // 256) * 256

    def cuMemcpyDtoH(self, target: int, source: int, size: int) -> tuple[Any]:
        ctypes.memmove(target, source, size)
        return (0,)

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: int) -> tuple[Any]:
        return self.cuMemcpyDtoH(target, source, size)

    def cuDeviceGetAttribute(self, *_: Any) -> tuple[Any, int]:
        return 0, 1024

    def __getattr__(self, name: str) -> Any:
        return lambda *_: (0,)


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "driver", HostDriver())
    monkeypatch.setattr(benches, "check", lambda answer, doing: answer[1] if len(answer) > 1 else None)
    monkeypatch.setattr(benches, "activate", lambda device: nullcontext())
    monkeypatch.setattr(benches, "_stream", lambda device: 0)
    monkeypatch.setattr(benches.CudaBench, "_launch", lambda *_: lambda *_: None)


def put(buffer: Any, array: np.ndarray) -> None:
    """Write an array into a bench's buffer, as it lies there."""
    raw = (ctypes.c_uint8 * buffer.nbytes).from_address(buffer.start)
    there = np.ndarray(array.shape, array.dtype, raw, buffer.first - buffer.start, buffer.tensor.strides)
    there[...] = array


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("gradient", ["dX", "dW"])
def test_a_bench_compares_a_copied_result_with_the_definition(gradient: str, last: bool, on_host: None) -> None:
    problem, inputs, expected = case("strides", gradient, "float32", last)
    output = problem.X if gradient == "dX" else problem.W
    assert output is not None
    task = Task("", "", "", tuple(map(described, inputs)), (output,), 1, (), lambda *what: elements(problem, *what))
    bench = benches.CudaBench(task, Device(0, (9, 0), 132, 232448))
    for buffer, array in zip(bench._inputs, inputs, strict=True):
        put(buffer, array)
    for wrong in (0.0, 1e-3, 2.0):
        put(bench._outputs[0], (expected * (1 + wrong)).astype(np.float32))
        errors = bench.errors(bench.copy())
        assert errors == pytest.approx((wrong,), rel=1e-3, abs=1e-7)


def test_a_bench_without_a_reference_says_so(on_host: None) -> None:
    problem, inputs, _ = case("plain", "dX", "float32")
    assert problem.X is not None
    bench = benches.CudaBench(
        Task("", "", "", tuple(map(described, inputs)), (problem.X,), 1, ()), Device(0, (9, 0), 1, 1)
    )
    assert bench.errors(bench.copy()) is None


@pytest.mark.parametrize("shape", [(9,), (5, 7), (3, 4, 5), (2, 3, 4, 5, 6)], ids=str)
def test_places_are_inside_and_few_in_the_first_axes(shape: tuple[int, ...]) -> None:
    places = benches._places(shape)
    assert places.shape == (144, len(shape))
    assert (places >= 0).all()
    assert (places < shape).all()
    if len(shape) > 1:
        assert all(len(set(places[:, axis].tolist())) <= 12 for axis in (0, 1))
