"""ConvGrad's candidates from cuDNN on a GPU: each against float64, into poisoned outputs with guards around them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.capture import Capture
from helpers.cudnn_conv import Case, Geometry
from helpers.guarded import Guarded, OnDevice
from helpers.reference import reference
from helpers.scratch_memory import WORKSPACE
from helpers.tolerance import CONV_NORM

if TYPE_CHECKING:
    from gradkern.ops.conv.cuda.cudnn import CudnnCandidate
    from gradkern.ops.conv.cuda.problem import Problem

pytestmark = pytest.mark.gpu

GEOMETRIES = {
    "3x3": Geometry((8, 32, 20, 20), (48, 32, 3, 3), pads_begin=(1, 1)),
    "1x1": Geometry((8, 64, 14, 14), (96, 64, 1, 1)),
    "strided": Geometry((4, 16, 23, 21), (24, 16, 3, 5), strides=(2, 3), pads_begin=(1, 2)),
    "dilated": Geometry((4, 16, 23, 21), (24, 16, 3, 5), dilations=(1, 2), pads_begin=(1, 2)),
    "asymmetric": Geometry((4, 16, 23, 21), (24, 16, 3, 3), pads_begin=(2, 0), pads_end=(1, 1)),
    "pads at the beginning": Geometry((4, 16, 24, 24), (24, 16, 3, 3), pads_begin=(2, 2), pads_end=(0, 0)),
    "strided, pads at the end": Geometry((4, 16, 24, 24), (24, 16, 3, 3), strides=(2, 2), pads_end=(1, 1)),
    "in groups": Geometry((8, 64, 14, 14), (64, 16, 3, 3), group=4, pads_begin=(1, 1)),
    "depthwise": Geometry((8, 32, 14, 14), (32, 1, 3, 3), group=32, pads_begin=(1, 1)),
    "1-D": Geometry((8, 32, 300), (48, 32, 3), dilations=(2,), pads_begin=(2,)),
    "3-D": Geometry((2, 16, 8, 14, 14), (24, 16, 3, 3, 3), pads_begin=(1, 1, 1)),
}
TF32 = 1e-3
"""What may be lost where float32 is multiplied in TF32."""


class Arrays:
    """One case's arrays on the device, and what the gradient is."""

    def __init__(self, case: Case, rng: np.random.Generator, offset: int = 0, scale: float = 1.0) -> None:
        geometry = case.geometry
        self.case, self.problem = case, case.problem()
        dtype = np.dtype(case.dtype)
        values = {
            name: (scale * rng.standard_normal(sizes)).astype(dtype)
            for name, sizes in (("dY", geometry.Y), ("X", geometry.X), ("W", geometry.W))
        }
        _, _, strides, dilations, begin, end = zip(*geometry.axes, strict=True)
        attributes = {"strides": strides, "dilations": dilations, "pads": begin + end, "group": geometry.group}
        exact = {name: value.astype(np.float64) for name, value in values.items()}
        self.exact = np.asarray(reference("ConvGrad", exact, attributes)[case.gradient])
        other = {"dX": "W", "dW": "X"}[case.gradient]
        self._offset = offset * dtype.itemsize
        self.inputs = []
        for each in (values["dY"], values[other]):
            host = self._guarded(each.size)
            host.array[...] = each.transpose(self._order(each.ndim)).ravel()
            host.freeze()
            self.inputs.append(OnDevice(host))

    def _order(self, rank: int) -> tuple[int, ...]:
        return (0, *range(2, rank), 1) if self.case.layout == "last" else tuple(range(rank))

    def _guarded(self, size: int) -> Guarded:
        return Guarded((size,), np.dtype(self.case.dtype), self._offset)

    def run(self, candidate: Any, workspace: int, stream: int = 0) -> np.ndarray:
        """The candidate's result in the contract's order of axes, written into poison and fetched with its guards."""
        output = OnDevice(self._guarded(self.exact.size))
        candidate(tuple(each.address for each in self.inputs), (output.address,), workspace, stream)
        order = self._order(self.exact.ndim)
        result = output.fetch().reshape([self.exact.shape[axis] for axis in order]).transpose(np.argsort(order)).copy()
        output.free()
        return result

    def distance(self, result: np.ndarray) -> float:
        """From float64; infinity where the result is not finite or not all written."""
        wide = result.astype(np.float64)
        if not np.isfinite(wide).all():
            return float("inf")
        return float(np.linalg.norm(wide - self.exact) / np.linalg.norm(self.exact))

    def free(self) -> None:
        """After a look at the inputs, which nobody may have written."""
        for each in self.inputs:
            each.fetch()
            each.free()


def ready(problem: Problem, module: str = "cudnn") -> list[CudnnCandidate]:
    """The candidates that can run; those that add up in less than float32 are never chosen, and left out."""
    from gradkern.call import Refusal
    from gradkern.cuda.device import get_device
    from gradkern.search.implementation import candidates_of

    found = []
    for candidate in candidates_of(import_module(f"gradkern.ops.conv.cuda.{module}"), problem, get_device(0)):
        try:
            candidate.prepare()
        except Refusal:
            continue
        if candidate.workspace <= WORKSPACE and "reduced_precision" not in candidate.notes:
            found.append(candidate)
    assert found
    return found


def wrong(arrays: Arrays, workspace: int, module: str = "cudnn") -> dict[str, float]:
    """By name, how far the candidates are off that are further off than their type allows."""
    found = {}
    for candidate in ready(arrays.problem, module):
        distance = arrays.distance(arrays.run(candidate, workspace))
        if distance > (TF32 if "tf32" in candidate.notes else CONV_NORM[arrays.case.dtype]):
            found[candidate.name] = distance
    return found


@pytest.mark.parametrize("gradient", ["dX", "dW"])
@pytest.mark.parametrize(
    ("dtype", "layout"), [("float32", "first"), ("float64", "first"), ("float16", "last"), ("bfloat16", "last")]
)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_candidates_compute_the_gradient(
    name: str, dtype: str, layout: Any, gradient: Any, rng: np.random.Generator, workspace: int
) -> None:
    arrays = Arrays(Case(gradient, GEOMETRIES[name], dtype, layout), rng)
    found = wrong(arrays, workspace)
    arrays.free()
    print(name, dtype, layout, gradient, found)
    assert found == {}


@pytest.mark.parametrize("gradient", ["dX", "dW"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["3x3", "1x1", "strided", "asymmetric", "in groups", "1-D", "3-D"])
def test_engines_for_channels_last_compute_it_on_copies(
    name: str, dtype: str, gradient: Any, rng: np.random.Generator, workspace: int
) -> None:
    arrays = Arrays(Case(gradient, GEOMETRIES[name], dtype), rng)
    assert wrong(arrays, workspace, "rearranged") == {}
    arrays.free()


@pytest.mark.parametrize("offset", [2, 4])
def test_arrays_may_start_anywhere(offset: int, rng: np.random.Generator, workspace: int) -> None:
    case = Case("dX", GEOMETRIES["3x3"], "float16", "last", alignment=2 * offset)
    arrays = Arrays(case, rng, offset)
    assert wrong(arrays, workspace) == {}
    arrays.free()


@pytest.mark.parametrize("gradient", ["dX", "dW"])
def test_large_float32_numbers_do_not_overflow(gradient: Any, rng: np.random.Generator, workspace: int) -> None:
    arrays = Arrays(Case(gradient, GEOMETRIES["3x3"]), rng, scale=1e8)
    assert wrong(arrays, workspace) == {}
    arrays.free()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bits_repeat_and_a_rebuilt_candidate_has_the_same(dtype: str, rng: np.random.Generator, workspace: int) -> None:
    from gradkern.ops.conv.cuda.cudnn import build

    arrays = Arrays(Case("dW", GEOMETRIES["3x3"], dtype, "last"), rng)
    for candidate in ready(arrays.problem):
        if "nondeterministic" not in candidate.notes:
            again = build(arrays.problem, candidate.device, candidate.recipe)
            again.prepare()
            results = [arrays.run(each, workspace).tobytes() for each in (candidate, candidate, again)]
            assert results[0] == results[1] == results[2], candidate.name
    arrays.free()


def test_a_call_can_be_captured_in_a_graph(rng: np.random.Generator, workspace: int) -> None:
    from helpers.driver import driver

    from gradkern.cuda.device import check

    arrays = Arrays(Case("dX", GEOMETRIES["3x3"], "bfloat16", "last"), rng)
    stream = int(check(driver.cuStreamCreate(1), "making a stream"))
    for candidate in ready(arrays.problem)[:12]:
        expected = arrays.run(candidate, workspace, stream)  # warm

        def replayed(
            inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int, what: Any = candidate
        ) -> None:
            with Capture(stream) as capture:
                what(inputs, outputs, workspace, stream)
            capture.replay()

        assert arrays.run(replayed, workspace, stream).tobytes() == expected.tobytes(), candidate.name
    arrays.free()


def test_threads_share_a_candidate(rng: np.random.Generator) -> None:
    from helpers.driver import driver

    from gradkern.cuda.device import activate, check, get_device

    with activate(get_device(0)):
        arrays = Arrays(Case("dX", GEOMETRIES["3x3"], "float16", "last"), rng)
    candidate = ready(arrays.problem)[0]

    def run(_: int) -> list[bytes]:
        with activate(get_device(0)):
            stream = int(check(driver.cuStreamCreate(1), "making a stream"))
            own = int(check(driver.cuMemAlloc(candidate.workspace + 256), "allocating a workspace"))
            return [arrays.run(candidate, own, stream).tobytes() for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        results = {each for found in pool.map(run, range(4)) for each in found}
    assert len(results) == 1
    with activate(get_device(0)):
        arrays.free()
