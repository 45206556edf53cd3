"""What BatchNormalizationGrad's candidates hand to cuDNN's functions, on a cuDNN that computes on the host.

Arrays and workspace are host memory with guards around it. What the kernel that casts vectors does is done by NumPy,
from the arguments of its launch; the simulator has the kernel itself.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.cudnn_batch_norm import Layout, NormCase
from helpers.guarded import Guarded
from helpers.library_handles import none_yet
from helpers.reference import reference
from helpers.tolerance import assert_close

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cudnn import device, library
from gradkern.cudnn.library import CudnnError
from gradkern.ops.batch_norm.cuda import cudnn, cudnn_calls
from gradkern.search.implementation import Implementation, Task, candidates_of
from gradkern.search.tuner import candidate_names

H200 = Device(0, (9, 0), 132, 232448)
TYPES = {0: "float32", 1: "float64", 2: "float16", 9: "bfloat16"}
WORKSPACE = 1000  # no multiple of any alignment
STREAM = 7


def at(address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The array at an address; strides are in bytes, and not negative."""
    size = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + np.dtype(dtype).itemsize
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, memory, 0, strides)


class FakeCudnn:
    """Tensors' descriptors are numbers, with what they were set to; the batch norms compute."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.tensors: dict[int, tuple[str, tuple[int, ...], tuple[int, ...]]] = {}
        self.modes: list[tuple[str, int]] = []
        self.stream = self.reserve = self.status = 0

    def cudnnCreate(self, made: Any) -> int:
        made._obj.value = next(self._numbers)
        return 0

    def cudnnSetStream(self, handle: int, stream: int) -> int:
        self.stream = stream
        return 0

    def cudnnCreateTensorDescriptor(self, made: Any) -> int:
        made._obj.value = next(self._numbers)
        return 0

    def cudnnDestroyTensorDescriptor(self, pointer: int) -> int:
        del self.tensors[pointer]
        return 0

    def cudnnSetTensorNdDescriptor(self, pointer: int, dtype: int, rank: int, sizes: Any, strides: Any) -> int:
        item = np.dtype(TYPES[dtype]).itemsize
        self.tensors[pointer] = TYPES[dtype], tuple(sizes[:rank]), tuple(each * item for each in strides[:rank])
        return 0

    def cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        self, handle: int, mode: int, operations: int, activation: None, data: int, size: Any
    ) -> int:
        assert operations == 0
        assert data in self.tensors
        size._obj.value = self.reserve
        return 0

    def cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        self,
        handle: int,
        mode: int,
        operations: int,
        X: int,
        Y: None,
        dY: int,
        dZ: None,
        dX: int,
        vector: int,
        *rest: Any,
    ) -> int:
        assert operations == 0
        assert self.tensors[X] == self.tensors[dY] == self.tensors[dX] != self.tensors[vector]
        activation, size = rest
        assert activation is None
        size._obj.value = WORKSPACE
        return 0

    def cudnnBatchNormalizationBackward(self, handle: int, mode: int, *given: Any) -> int:
        factors, (X_of, X, dY_of, dY, dX_of, dX), rest = given[:4], given[4:10], given[10:]
        self.modes.append(("plain", mode))
        return self._backward(factors, ((X_of, X), (dY_of, dY), (dX_of, dX)), *rest)

    def cudnnBatchNormalizationBackwardEx(self, handle: int, mode: int, operations: int, *given: Any) -> int:
        factors, rest = given[:4], given[4:]
        X_of, X, Y_of, Y, dY_of, dY, dZ_of, dZ, dX_of, dX = rest[:10]
        vector_of, scale, bias, dScale, dBias, epsilon, mean, inv_std, activation, *spaces = rest[10:]
        assert (operations, Y_of, Y, dZ_of, dZ, bias, activation) == (0, None, None, None, None, None, None)
        workspace, size, *reserve = spaces
        assert (size, *reserve) == (WORKSPACE, None, 0)
        ctypes.memset(workspace, 0xAA, size)
        self.modes.append(("extended", mode))
        vectors = (vector_of, scale, dScale, dBias, epsilon, mean, inv_std)
        return self._backward(factors, ((X_of, X), (dY_of, dY), (dX_of, dX)), *vectors)

    def _backward(
        self,
        factors: tuple[int, ...],
        data: tuple[tuple[int, int], ...],
        vector_of: int,
        scale: int,
        dScale: int,
        dBias: int,
        epsilon: float,
        mean: int,
        inv_std: int,
    ) -> int:
        assert epsilon >= 0
        if self.status:
            return self.status
        X, dY, dX = (at(address, *self.tensors[described]) for described, address in data)
        work, sizes, _ = vector = self.tensors[vector_of]
        assert sizes == (1, X.shape[1], *(1,) * (X.ndim - 2))
        assert work == ("float64" if X.dtype == "float64" else "float32")
        number = ctypes.c_double if work == "float64" else ctypes.c_float
        assert [number.from_address(each).value for each in factors] == [1, 0, 1, 0]
        given = (dY, X, *(at(address, *vector).ravel() for address in (scale, mean, inv_std)))
        names = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")
        exact = {name: each.astype(np.float64) for name, each in zip(names, given, strict=True)}
        found = reference("BatchNormalizationGrad", exact)
        dX[...] = found["dX"]
        for name, address in (("dScale", dScale), ("dBias", dBias)):
            at(address, *vector)[...] = np.asarray(found[name]).reshape(sizes)
        return 0

    def cudnnGetErrorString(self, status: int) -> bytes:
        return b"CUDNN_STATUS_NOT_SUPPORTED"

    def cudnnGetLastErrorString(self, words: Any, size: int) -> None:
        words.value = b"batch too large"


class HostLaunch:
    """The cast as its kernel does it, from the arguments in the kernel's order."""

    def __init__(
        self, kernel: tuple[str, str, int], grid: int, threads: int, arguments: list[int], changing: range
    ) -> None:
        self.source, self.target, self.vectors = kernel
        assert (grid - 1) * threads < arguments[0] <= grid * threads
        assert list(changing) == [place for each in range(self.vectors) for place in (4 * each + 1, 4 * each + 3)]
        self.arguments, self.changing = arguments, changing

    def __call__(self, values: list[int], stream: int) -> None:
        assert stream == STREAM
        given = list(self.arguments)
        for place, value in zip(self.changing, values, strict=True):
            given[place] = value
        for first in range(1, 4 * self.vectors, 4):
            source, step, target, target_step = given[first : first + 4]
            read = at(source, self.source, (given[0],), (step,))
            at(target, self.target, (given[0],), (target_step,))[...] = read


@pytest.fixture(scope="module")
def few_objects() -> None:
    """The collections of garbage after each test do not look at what earlier ones made, which takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, few_objects: None) -> Iterator[FakeCudnn]:
    made = FakeCudnn()
    for module in (device, library, cudnn_calls):
        monkeypatch.setattr(module, "library", lambda: made)
    none_yet(monkeypatch, device.handle)
    monkeypatch.setattr(cudnn, "kernel_of", lambda device, builder, *constants, **bounds: constants)
    monkeypatch.setattr(cudnn, "Launch", HostLaunch)
    yield made
    gc.collect()
    assert made.tensors == {}, "descriptors are destroyed with their owner"


def older(case: NormCase) -> list[cudnn.CudnnCandidate]:
    """The candidates of the layout that the arrays have."""
    found = candidates_of(cudnn, case.problem(), H200)
    names = ("spatial_persistent", "spatial") if case.mode == "auto" else (case.mode,)
    return list(itertools.islice(found, len(names)))


def guarded(described: Tensor) -> tuple[Guarded, np.ndarray]:
    """Memory for a tensor, and its elements in the contract's order."""
    low, high = described.extent
    assert low == 0
    memory = Guarded((high // described.dtype.itemsize,), described.dtype)
    return memory, np.ndarray(described.shape, described.dtype, memory.array, 0, described.strides)


def run(case: NormCase, candidate: cudnn.CudnnCandidate, rng: np.random.Generator) -> None:
    """Run on random data, and compare all that is written, and what is left alone, with float64."""
    problem = case.problem()
    memories, values = zip(*(guarded(each) for each in problem.inputs), strict=True)
    for each in values:
        each[...] = rng.standard_normal(each.shape)
    before = [each.buffer.copy() for each in memories]
    targets = [guarded(each) for each in problem.outputs]
    candidate.prepare()
    workspace = Guarded((candidate.workspace,), np.uint8)
    inputs, outputs = (tuple(each.address for each in side) for side in (memories, [each for each, _ in targets]))
    candidate(inputs, outputs, workspace.address, STREAM)
    workspace.check()
    for memory, was in zip(memories, before, strict=True):
        np.testing.assert_array_equal(memory.buffer, was)
    names = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")
    exact = {name: each.astype(np.float64) for name, each in zip(names, values, strict=True)}
    expected = reference("BatchNormalizationGrad", exact)
    for name, (memory, result) in zip(case.outputs, targets, strict=True):
        memory.check()
        assert_close("BatchNormalizationGrad", name, result, np.asarray(expected[name]))


TYPES_OF = [
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("float16", "float16", "float16"),
    ("float16", "float16", "float32"),
    ("float16", "float32", "float32"),
    ("bfloat16", "float32", "float32"),
    ("bfloat16", "bfloat16", "float32"),
    ("bfloat16", "bfloat16", "bfloat16"),
]


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize(("dtype", "parameters", "statistics"), TYPES_OF)
def test_all_types_reach_cudnn_as_it_wants_them(
    dtype: str, parameters: str, statistics: str, layout: Any, fake: FakeCudnn, rng: np.random.Generator
) -> None:
    case = NormCase((6, 300, 4, 5), dtype, layout, parameters, statistics)
    for candidate in older(case):
        run(case, candidate, rng)
        wide = "float64" if dtype == "float64" else "float32"
        assert ("compiles_once" in candidate.notes) == ({parameters, statistics} != {wide})
    route = "extended" if layout == "last" else "plain"
    assert fake.modes == [(route, 2), (route, 1)]
    assert fake.stream == STREAM


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize(
    "shape", [(9, 5), (4, 5, 6), (2, 5, 2, 3, 2), (2, 5, 2, 1, 2, 3), (1, 1), (3, 1, 4, 2), (3, 4, 1)]
)
def test_every_rank_has_a_form(shape: Any, layout: Any, fake: FakeCudnn, rng: np.random.Generator) -> None:
    case = NormCase(shape, layout=layout)
    for candidate in older(case):
        run(case, candidate, rng)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("outputs", [("dX",), ("dScale",), ("dX", "dBias"), ("dScale", "dBias")])
def test_what_nobody_wants_goes_to_the_workspace(
    outputs: Any, layout: Any, step: int, fake: FakeCudnn, rng: np.random.Generator
) -> None:
    case = NormCase((3, 5, 4), "float16", layout, "float16", outputs=outputs, vector_step=step)
    for candidate in older(case):
        run(case, candidate, rng)


@pytest.mark.parametrize(("step", "alignment"), [(2, 16), (1, 4)])
def test_vectors_with_gaps_or_at_odd_addresses_are_copied(
    step: int, alignment: int, fake: FakeCudnn, rng: np.random.Generator
) -> None:
    case = NormCase((3, 5, 4, 4), vector_step=step, vector_alignment=alignment)
    for candidate in older(case):
        run(case, candidate, rng)
        assert candidate.workspace >= 5 * 5 * 4


def test_a_reserve_space_that_only_a_forward_pass_can_fill_rules_the_route_out(fake: FakeCudnn) -> None:
    fake.reserve = 4096
    for candidate in older(NormCase((4, 8, 3, 3), layout="last")):
        with pytest.raises(Refusal, match="4,096 bytes of reserve space, and only a forward pass can fill it"):
            candidate.prepare()


def test_the_extended_function_gets_no_arrays_at_odd_addresses(fake: FakeCudnn) -> None:
    for candidate in older(NormCase((4, 8, 3, 3), layout="last", alignment=4)):
        with pytest.raises(Refusal, match="multiples of 16 bytes"):
            candidate.prepare()


def test_a_failure_says_why(fake: FakeCudnn, rng: np.random.Generator) -> None:
    fake.status = 3000
    case = NormCase((4, 8, 3, 3))
    text = r"cuDNN: running cudnn_NCHW_spatial_persistent failed: batch too large \(CUDNN_STATUS_NOT_SUPPORTED\)"
    with pytest.raises(CudnnError, match=text):
        run(case, older(case)[0], rng)


def test_a_search_has_them_from_the_module_by_its_name_and_again_by_their_recipes(fake: FakeCudnn) -> None:
    problem = NormCase((4, 8, 3, 3), mode="spatial").problem()
    source = Implementation("cudnn", cudnn.__name__, problem, H200)
    task = Task("BatchNormalizationGrad float32", "", repr(problem), problem.inputs, problem.outputs, 36, (source,))
    assert candidate_names(task) == ["cudnn_NCHW_spatial"]
    (candidate,) = source.candidates()
    assert source.build(candidate.recipe).name == candidate.name
    assert list(source.variations(candidate)) == []
    with pytest.raises(Refusal, match="no layout 'NHWC'"):
        source.build({**candidate.recipe, "layout": "NHWC"})
    with pytest.raises(Refusal, match="graph is not used"):  # of a search by an earlier gradkern
        source.build({**candidate.recipe, "route": "graph"})


SHAPES = {
    "NC": (64, 40),
    "NCL": (8, 40, 300),
    "NCHW": (8, 40, 14, 14),
    "NCDHW": (4, 40, 4, 7, 7),
    "6-D": (2, 40, 2, 3, 4, 5),
}


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_dense_batch_norm_has_candidates_that_their_recipes_make_again(
    name: str, dtype: str, layout: Layout
) -> None:
    wide = "float64" if dtype == "float64" else "float32"
    problem = NormCase(SHAPES[name], dtype, layout, wide, wide).problem()
    found = list(candidates_of(cudnn, problem, H200))
    names = [each.name for each in found]
    assert [cudnn.build(problem, H200, each.recipe).name for each in found] == names
    seen = {"NCHW": ("NCHW", "NHWC"), "NCDHW": ("NCDHW", "NDHWC")}.get(name, ("NCL", "NLC"))[layout == "last"]
    function = {"first": "cudnn_{}_{}", "last": "cudnn_{}_ex_{}"}[layout]
    assert {function.format(seen, mode) for mode in ("spatial", "spatial_persistent")} <= {*names}
    # of the layouts that arrays have without spatial axes, each function gets its own
    assert ("cudnn_NCL_spatial" in names and "cudnn_NLC_ex_spatial" in names) == (name == "NC")


@pytest.mark.parametrize("mode", ["spatial", "spatial_persistent"])
def test_a_pinned_mode_leaves_one_candidate(mode: Any) -> None:
    problem = NormCase(SHAPES["NCHW"], "float16", mode=mode).problem()
    assert [each.name for each in candidates_of(cudnn, problem, H200)] == [f"cudnn_NCHW_{mode}"]


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("arrays of 1 to 2,147,483,647 elements; these have 0", {"shape": (0, 8, 3, 3)}),
        ("these have 2,147,483,648", {"shape": (1 << 15, 16, 64, 64)}),
        ("dense neither with channels first nor with channels last", {"layout": "gaps"}),
        ("or differ in it", {"layout_of_dY": "last"}),
        ("dX may be written over dY or X", {"in_place": True}),
        ("no batch norm of int32", {"dtype": "int32"}),
    ],
)
def test_what_cudnn_does_not_take_is_refused_with_the_reason(words: str, change: dict[str, Any]) -> None:
    problem = replace(NormCase((8, 16, 5, 5)), **change).problem()
    with pytest.raises(Refusal, match=words):
        list(candidates_of(cudnn, problem, H200))


def test_a_candidate_must_be_prepared_first(fake: FakeCudnn) -> None:
    with pytest.raises(RuntimeError, match="called before it is prepared"):
        older(NormCase((4, 8, 3, 3)))[0]((), (), 0, 0)
