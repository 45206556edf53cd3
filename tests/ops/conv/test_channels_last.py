"""Engines for channels-last arrays, and for fewer groups, between copies: what is copied and where to, with copies and
engines on the host.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from helpers.cudnn_conv import Case, Geometry
from helpers.reference import reference
from helpers.tolerance import assert_close

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device, driver
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.ops.conv.cuda import plan as conv_plan
from gradkern.ops.conv.cuda import rearranged
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.cuda.rearranged import CopyingCandidate, copying
from gradkern.search.candidate import Note
from gradkern.search.implementation import Implementation, candidates_of
from gradkern.strides import channels_last as is_channels_last

DEVICE = Device(0, (9, 0), 132, 232448)
IMAGES = Geometry((3, 8, 7, 6), (4, 4, 3, 2), group=2, strides=(2, 1), pads_begin=(1, 2), pads_end=(0, 1))
GEOMETRIES = {
    "3x2": IMAGES,
    "1x1": Geometry((2, 8, 5, 4), (6, 8, 1, 1)),
    "1-D": Geometry((2, 3, 9), (4, 3, 2), strides=(3,), pads_begin=(1,), pads_end=(0,)),
    "3-D": Geometry((2, 3, 5, 4, 3), (4, 3, 2, 1, 3), dilations=(2, 1, 1)),
}


def at(address: int, tensor: Tensor) -> np.ndarray:
    """The array of this description at an address of the host."""
    low, high = tensor.extent
    memory: Any = (ctypes.c_char * (high - low)).from_address(address + low)
    return np.ndarray(tensor.shape, tensor.dtype, memory, -low, tensor.strides)


@dataclass(eq=False)
class OnHost:
    """In place of an engine of cuDNN: the float64 formula, and its workspace written all over."""

    problem: Problem
    attributes: dict[str, Any]
    workspace: int = 300
    name = "cudnn_NCHW_eng1_k2=3"
    origin = "cudnn_eng1"
    notes: frozenset[Note] = frozenset({"nondeterministic"})
    recipe: Any = None

    def prepare(self) -> None:
        pass

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        problem = self.problem
        assert all(is_channels_last(each) in (True, None) for each in (problem.dY, problem.X, problem.W))
        ctypes.memset(workspace, 0xFF, self.workspace)
        given = [at(address, each) for address, each in zip(inputs, problem.inputs, strict=True)]
        names = {"Y": ("X", "W", "B"), "dX": ("dY", "W"), "dW": ("dY", "X")}[problem.gradient]
        named = dict(zip(names, given, strict=False))
        other = {"dX": "X", "dW": "W"}.get(problem.gradient)
        if other:  # whose values do not matter, as the gradients are linear
            named[other] = np.ones(problem.output.shape, problem.output.dtype)
        operator = "Conv" if problem.gradient == "Y" else "ConvGrad"
        at(outputs[0], problem.output)[...] = reference(operator, named, self.attributes)[problem.gradient]


def zero(address: int, value: int, size: int, stream: int) -> tuple[Any]:
    ctypes.memset(address, value, size)
    return (driver.CUresult.CUDA_SUCCESS,)


def host_copies(source: Tensor, target: Tensor, device: Device) -> Callable[[tuple[int, int], int], None]:
    def copy(addresses: tuple[int, int], stream: int) -> None:
        at(addresses[1], target)[...] = at(addresses[0], source)

    return copy


class Memory:
    """Arrays and poisoned memory at addresses of the host."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def of(self, size: int) -> int:
        self._held.append(ctypes.create_string_buffer(b"\x7f" * (size + 256), size + 256))
        return -(-ctypes.addressof(self._held[-1]) // 256) * 256

    def array(self, tensor: Tensor) -> int:
        return self.of(tensor.extent[1])


@pytest.mark.parametrize("gradient", ["Y", "dX", "dW"])
@pytest.mark.parametrize("layout", ["first", "gaps", "reversed"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_copies_stand_around_the_engine(
    name: str, layout: Any, gradient: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(rearranged, "copy_launch", host_copies)
    geometry = GEOMETRIES[name]
    problem = Case(gradient, geometry, "float32", layout, biased=True).problem()
    inner = OnHost(problem.channels_last, attributes_of(geometry))
    assert_computes(copying(problem, 1, DEVICE, inner), problem, attributes_of(geometry), rng)


@pytest.mark.parametrize("gradient", ["Y", "dX", "dW"])
@pytest.mark.parametrize(
    ("geometry", "count"),
    [
        (Geometry((2, 96, 6, 5), (48, 24, 3, 2), group=4, strides=(2, 1), pads_begin=(1, 2), pads_end=(0, 1)), 4),
        (Geometry((2, 144, 5, 4), (144, 24, 3, 3), group=6, pads_begin=(1, 1), pads_end=(1, 1)), 3),
        (Geometry((2, 96, 9), (96, 24, 4), group=4, pads_begin=(2,), pads_end=(1,)), 4),
    ],
    ids=["two filters of three channels", "two merged groups", "1-D"],
)
def test_groups_become_wider_ones(
    geometry: Geometry, count: int, gradient: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(rearranged, "copy_launch", host_copies)
    monkeypatch.setattr(driver, "cuMemsetD8Async", zero)
    problem = Case(gradient, geometry, "bfloat16", "last", biased=True).problem()
    wider = attributes_of(geometry) | {"group": geometry.group // count}
    monkeypatch.setattr(rearranged.cudnn, "build", lambda inner, device, config: OnHost(inner, wider))
    config = {"merged": count, "layout": "NCHW", "engine": 1, "knobs": [[2, 3]]}
    candidate = rearranged.build(problem, DEVICE, config)
    assert_computes(candidate, problem, attributes_of(geometry), rng)


def test_a_name_says_how_many_groups_are_merged() -> None:
    problem = Case("dX", Geometry((2, 96, 6, 5), (96, 24, 3, 3), group=4), "bfloat16", "last").problem()
    engine = {"layout": "NCHW", "engine": 1, "knobs": [[2, 3]]}
    assert rearranged.named(problem, DEVICE, "merged4_cudnn_NCHW_eng1_k2=3") == {**engine, "merged": 4}
    assert rearranged.named(problem, DEVICE, "merged3_cudnn_NCHW_eng1_k2=3") is None, "of four groups"
    assert rearranged.named(problem, DEVICE, "cudnn_NCHW_eng1_k2=3") is None


@pytest.mark.parametrize(
    ("geometry", "dtype", "layout"),
    [
        (Geometry((2, 64, 6, 5), (64, 16, 3, 3), group=4), "bfloat16", "last"),
        (Geometry((2, 96, 6, 5), (96, 24, 3, 3), group=4), "bfloat16", "first"),
        (Geometry((2, 96, 6, 5), (96, 24, 3, 3), group=4), "float32", "last"),
        (Geometry((2, 10, 6, 5), (10, 5, 3, 3), group=2), "float16", "last"),
    ],
    ids=["a power of two", "channels first", "float32", "no whole vectors"],
)
def test_other_groups_stay(geometry: Geometry, dtype: str, layout: Any) -> None:
    problem = Case("dX", geometry, dtype, layout).problem()
    with suppress(Refusal):
        assert set(rearranged.rearranged(problem)) == {1}, "only their order changes"


def attributes_of(geometry: Geometry) -> dict[str, Any]:
    _, _, strides, dilations, begin, end = zip(*geometry.axes, strict=True)
    return {"strides": strides, "dilations": dilations, "pads": begin + end, "group": geometry.group}


def assert_computes(
    candidate: CopyingCandidate, problem: Problem, attributes: dict[str, Any], rng: np.random.Generator
) -> None:
    """It gives what the float64 formula gives, in poisoned memory, and leaves its inputs."""
    gradient = problem.gradient
    candidate.prepare()
    memory = Memory()
    addresses = tuple(memory.array(each) for each in problem.inputs)
    values = [rng.standard_normal(each.shape).astype(each.dtype) for each in problem.inputs]
    for address, each, value in zip(addresses, problem.inputs, values, strict=True):
        at(address, each)[...] = value
    output = memory.array(problem.output)
    candidate(addresses, (output,), memory.of(candidate.workspace), 0)
    names = {"Y": ("X", "W", "B"), "dX": ("dY", "W"), "dW": ("dY", "X")}[gradient]
    given = dict(zip(names, values, strict=True))
    given |= {other: np.ones(problem.output.shape, problem.output.dtype) for other in ("X", "W") if other not in given}
    operator = "Conv" if gradient == "Y" else "ConvGrad"
    assert_close(operator, gradient, at(output, problem.output), reference(operator, given, attributes)[gradient])
    for address, each, value in zip(addresses, problem.inputs, values, strict=True):
        np.testing.assert_array_equal(at(address, each), value)


def test_what_lies_well_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an array that is channels-last, nor weights of one position, whose order nobody can tell."""
    copied: list[tuple[int, ...]] = []
    monkeypatch.setattr(rearranged, "copy_launch", lambda source, target, device: copied.append(source.shape))
    geometry = GEOMETRIES["1x1"]
    mixed = Case("dX", geometry, "bfloat16", "last").problem()
    mixed = replace(mixed, X=Case("dX", geometry, "bfloat16", "first").problem().X)
    candidate = copying(mixed, 1, DEVICE, OnHost(mixed.channels_last, {}))
    candidate.prepare()
    assert copied == [geometry.X]
    assert candidate.workspace == 512 + 2 * prod(geometry.X), "the engine's, and behind it the copy's"
    assert candidate.notes == {"nondeterministic", "compiles_once"}


@pytest.mark.parametrize(
    ("dtype", "geometry", "layout", "offered"),
    [
        ("bfloat16", IMAGES, "first", True),
        ("float32", IMAGES, "first", True),
        ("float16", IMAGES, "last", False),
        ("float64", IMAGES, "first", False),
        ("float16", Geometry((2, 4, 9), (4, 4, 3)), "first", True),
        ("float16", Geometry((2, 4, 3, 3, 3, 3), (4, 4, 3, 3, 3, 3)), "first", False),
        ("float16", Geometry((2, 4, 9, 9), (4, 1, 3, 3), group=4), "first", False),
    ],
    ids=["16 bits", "TF32", "channels-last", "float64", "1-D", "4-D", "depthwise"],
)
def test_it_is_a_source_where_tensor_cores_want_another_order(
    dtype: str, geometry: Geometry, layout: Any, offered: bool
) -> None:
    problem = Case("dX", geometry, dtype, layout).problem()
    sources = {each.name: each for each in conv_plan._sources(problem, DEVICE)}
    assert ("channels_last" in sources) == offered


@pytest.mark.parametrize(("dtype", "layout"), [("float16", "last"), ("float64", "first")])
def test_a_recipe_of_another_problem_is_refused(dtype: str, layout: Any) -> None:
    problem = Case("dX", IMAGES, dtype, layout).problem()
    with pytest.raises(Refusal, match="channels-last"):
        rearranged.build(problem, DEVICE, {"layout": "NCHW", "engine": 1, "knobs": []})
    with pytest.raises(Refusal, match="channels-last"):
        next(candidates_of(rearranged, problem, DEVICE))


def test_a_dry_run_asks_for_the_kernels_of_the_copies() -> None:
    problem = Case("dW", IMAGES, "float16").problem()
    with dry_run(DryRunDevice(0, (9, 0), 132, 232448)) as device:
        (candidate,) = candidates_of(rearranged, problem, device)
        candidate.prepare()
    assert {each.module for each in device.specs} == {"gradkern.cuda.device_code.strided_copy"}


def test_a_kernel_for_few_channels_stands_between_copies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is made again from its recipe, and by its name."""
    monkeypatch.setattr(rearranged.cudnn, "configs", lambda problem, device: iter(()))
    monkeypatch.setattr(rearranged, "_MOST", 0)
    problem = Case("dW", Geometry((2, 3, 12, 12), (8, 3, 3, 3)), "float16").problem()
    source = Implementation("channels_last", rearranged, problem, DEVICE)
    candidate: Any
    (candidate,) = source.candidates()
    assert candidate.name == "channels_last_few_channels"
    for again in (source.build(candidate.recipe), source.named(candidate.name)):
        assert isinstance(again, CopyingCandidate)
        inside: list[Any] = [again.inner, candidate.inner]
        assert (again.name, inside[0].config) == (candidate.name, inside[1].config)
    with dry_run(DryRunDevice(0, (9, 0), 132, 232448)) as device:
        for each in candidates_of(rearranged, problem, device):
            each.prepare()
    assert "gradkern.ops.conv.cuda.few_channels.kernel" in {each.module for each in device.specs}
    other = Case("dW", Geometry((2, 3, 12, 12), (20, 3, 3, 3)), "float16").problem()  # no vectors of 8 filters
    assert Implementation("channels_last", rearranged, other, DEVICE).supports() is not None
