"""BatchNormalizationGrad's candidates from cuDNN on a GPU: each against float64, into poisoned outputs with guards.

Means and inverse standard deviations are random numbers, so never those of X.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.capture import Capture
from helpers.cudnn_batch_norm import NormCase
from helpers.guarded import Guarded, OnDevice
from helpers.reference import reference
from helpers.scratch_memory import WORKSPACE
from helpers.tolerance import assert_close

if TYPE_CHECKING:
    from gradkern.ops.batch_norm.cuda.cudnn import CudnnCandidate

pytestmark = pytest.mark.gpu

NAMES = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")
SHAPES = {
    "NC": (96, 64),
    "NCL": (8, 64, 301),
    "NCHW": (8, 64, 14, 14),
    "NCDHW": (4, 32, 4, 7, 7),
    "6-D": (2, 16, 2, 3, 4, 5),
    "odd channels": (8, 37, 9, 11),
    "one channel": (8, 1, 33, 31),
    "small planes": (64, 512, 3, 3),
    "large planes": (4, 8, 256, 256),
    "one position": (1, 8, 1, 1),
}
TYPES = [
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("float16", "float16", "float16"),
    ("float16", "float32", "float32"),
    ("bfloat16", "float32", "float32"),
    ("bfloat16", "bfloat16", "float32"),
]


class Arrays:
    """One case's arrays on the device, and what its gradients are. `offset`: elements after a 16-byte boundary."""

    def __init__(
        self, case: NormCase, rng: np.random.Generator, offset: int = 0, scale_of_dY: float = 1, scale_of_X: float = 1
    ) -> None:
        self.case, self.problem = case, case.problem()
        self._offset = offset * np.dtype(case.dtype).itemsize
        self.inputs, exact = [], {}
        for name, described in zip(NAMES, self.problem.inputs, strict=True):
            numbers = rng.standard_normal(described.shape)
            # xh stays near 1 however large X is
            factor = {"dY": scale_of_dY, "X": scale_of_X, "saved_mean": scale_of_X}.get(name, 1)
            numbers = factor * numbers if name != "saved_inv_std" else (0.5 + np.abs(numbers)) / scale_of_X
            value = numbers.astype(described.dtype)
            exact[name] = value.astype(np.float64)
            host = self._guarded(value.size, described.dtype, name)
            host.array[...] = value.transpose(self._order(value.ndim)).ravel()
            host.freeze()
            self.inputs.append(OnDevice(host))
        self.exact = reference("BatchNormalizationGrad", exact)
        channel = (slice(None), *(None,) * (exact["X"].ndim - 2))
        xh = (exact["X"] - exact["saved_mean"][channel]) * exact["saved_inv_std"][channel]
        self._terms = {"dScale": exact["dY"] * xh, "dBias": exact["dY"]}  # they may cancel: with one channel they do

    def _order(self, rank: int) -> tuple[int, ...]:
        return (0, *range(2, rank), 1) if self.case.layout == "last" and rank > 1 else tuple(range(rank))

    def _guarded(self, size: int, dtype: np.dtype, name: str) -> Guarded:
        return Guarded((size,), dtype, self._offset if name in ("dY", "X", "dX") else 0)

    def run(self, candidate: Any, workspace: int, stream: int = 0) -> dict[str, np.ndarray]:
        """The candidate's results in the contract's order of axes: written into poison, fetched with their guards."""
        outputs = dict(zip(self.case.outputs, self.problem.outputs, strict=True))
        on_device = {name: OnDevice(self._guarded(each.size, each.dtype, name)) for name, each in outputs.items()}
        addresses = (tuple(each.address for each in side) for side in (self.inputs, on_device.values()))
        candidate(*addresses, workspace, stream)
        results = {}
        for name, each in on_device.items():
            shape = outputs[name].shape
            order = self._order(len(shape))
            stored = each.fetch().reshape([shape[axis] for axis in order])
            results[name] = stored.transpose(np.argsort(order)).copy()
            each.free()
        return results

    def wrong(self, candidate: Any, workspace: int) -> str:
        """What is wrong with the candidate's results; "" where nothing is."""
        try:
            results = self.run(candidate, workspace)
            for name, result in results.items():
                exact = np.asarray(self.exact[name])
                assert_close("BatchNormalizationGrad", name, result, exact, self._terms.get(name))
        except AssertionError as error:
            return str(error)
        return ""

    def free(self) -> None:
        """After a look at the inputs, which nobody may have written."""
        for each in self.inputs:
            each.fetch()
            each.free()


def ready(case: NormCase) -> list[CudnnCandidate]:
    """The candidates that can run."""
    from gradkern.call import Refusal
    from gradkern.cuda.device import get_device
    from gradkern.ops.batch_norm.cuda import cudnn
    from gradkern.search.implementation import candidates_of

    found = []
    for candidate in candidates_of(cudnn, case.problem(), get_device(0)):
        try:
            candidate.prepare()
        except Refusal as unfit:
            print(candidate.name, "is unfit:", unfit)
            continue
        if candidate.workspace <= WORKSPACE:
            found.append(candidate)
    assert found
    return found


def wrong(arrays: Arrays, workspace: int) -> dict[str, str]:
    """By name, what is wrong with the results of candidates; those that cuDNN refuses when they run are told only."""
    from gradkern.cudnn.library import CudnnError

    found, ran = {}, 0
    for candidate in ready(arrays.case):
        try:
            fault = arrays.wrong(candidate, workspace)
        except CudnnError as error:
            print(candidate.name, "is refused:", error)
            continue
        ran += 1
        if fault:
            found[candidate.name] = fault
    assert ran
    arrays.free()
    return found


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize(("dtype", "parameters", "statistics"), TYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_candidates_compute_the_gradients(
    name: str, dtype: str, parameters: str, statistics: str, layout: Any, rng: np.random.Generator, workspace: int
) -> None:
    case = NormCase(SHAPES[name], dtype, layout, parameters, statistics)
    assert wrong(Arrays(case, rng), workspace) == {}


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scale_of_X", [1e-4, 1, 1e4])
@pytest.mark.parametrize("scale_of_dY", [1e-12, 1e-6, 1e6, 1e15])
def test_numbers_of_any_size_neither_overflow_nor_vanish(
    scale_of_dY: float, scale_of_X: float, dtype: str, layout: Any, rng: np.random.Generator, workspace: int
) -> None:
    case = NormCase(SHAPES["NCHW"], dtype, layout)
    assert wrong(Arrays(case, rng, 0, scale_of_dY, scale_of_X), workspace) == {}


@pytest.mark.parametrize("layout", ["first", "last"])
def test_the_extended_function_needs_nothing_from_a_forward_pass(layout: Any) -> None:
    kinds = {each.recipe["route"] for each in ready(NormCase(SHAPES["NC"], "float16", layout))}
    assert "extended" in kinds


@pytest.mark.parametrize(("dtype", "offset"), [("float32", 1), ("float32", 2), ("float16", 2), ("float16", 4)])
def test_arrays_may_start_anywhere(dtype: str, offset: int, rng: np.random.Generator, workspace: int) -> None:
    alignment = min(16, offset * np.dtype(dtype).itemsize)
    case = NormCase(SHAPES["NCHW"], dtype, alignment=alignment)
    assert wrong(Arrays(case, rng, offset), workspace) == {}


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("outputs", [("dX",), ("dScale", "dBias"), ("dBias",)])
def test_every_output_is_optional(outputs: Any, layout: Any, rng: np.random.Generator, workspace: int) -> None:
    case = NormCase(SHAPES["NCHW"], "float16", layout, "float16", outputs=outputs)
    assert wrong(Arrays(case, rng), workspace) == {}


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("shape", [(1_000_000, 8), (70_000, 16, 2, 2), (2, 70_000, 2, 2)])
def test_very_many_images_or_channels_are_right_or_refused(
    shape: Any, layout: Any, rng: np.random.Generator, workspace: int
) -> None:
    assert wrong(Arrays(NormCase(shape, layout=layout), rng), workspace) == {}


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bits_repeat_and_a_rebuilt_candidate_has_the_same(
    dtype: str, layout: Any, rng: np.random.Generator, workspace: int
) -> None:
    from gradkern.ops.batch_norm.cuda.cudnn import build

    arrays = Arrays(NormCase(SHAPES["large planes"], dtype, layout), rng)
    for candidate in ready(arrays.case):
        again = build(arrays.problem, candidate.device, candidate.recipe)
        again.prepare()
        results = [arrays.run(each, workspace) for each in (candidate, candidate, candidate, again)]
        bits = [b"".join(each.tobytes() for each in result.values()) for result in results]
        assert len(set(bits)) == 1, candidate.name
    arrays.free()


@pytest.mark.parametrize("layout", ["first", "last"])
def test_a_call_can_be_captured_in_a_graph(layout: Any, rng: np.random.Generator, workspace: int) -> None:
    from helpers.driver import driver

    from gradkern.cuda.device import check

    case = NormCase(SHAPES["NCHW"], "float16", layout, "float16", "float16")
    arrays = Arrays(case, rng)
    stream = int(check(driver.cuStreamCreate(1), "making a stream"))
    for candidate in ready(case):
        expected = arrays.run(candidate, workspace, stream)  # warm

        def replayed(
            inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int, what: Any = candidate
        ) -> None:
            with Capture(stream) as capture:
                what(inputs, outputs, workspace, stream)
            capture.replay()

        results = arrays.run(replayed, workspace, stream)
        for name, result in results.items():
            assert result.tobytes() == expected[name].tobytes(), (candidate.name, name)
    arrays.free()
