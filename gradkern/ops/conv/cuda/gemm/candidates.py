"""Candidates for Y, dX and dW by matrix products: cuBLAS, and our own kernels that bring the operands into matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any, Literal

from gradkern.call import Refusal
from gradkern.cublas.library import Handle, bindings, handle, workspace_bytes, wrapped
from gradkern.cublas.product import Product, gemms
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.dry_run import DryRunDevice
from gradkern.ops.conv.cuda.gemm import products
from gradkern.ops.conv.cuda.gemm.im2col import Im2colStep, launch
from gradkern.ops.conv.cuda.gemm.program import ALIGNED, GemmProblem, GemmProgram
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.candidate import Note

OWN_KERNELS = True

SLICE, SMALLER = 256 << 20, 32 << 20  # bytes: for speed (four times as many gain 3 % at most), for little memory
MOST_STEPS = 512
_LEAST_GROUP = 64  # elements of W: with fewer, products are hundreds of times slower than a direct kernel
_MOST_SHARED = 1 << 27  # elements of dW's shares
_TILE = 128  # of a product's result, about what a multiprocessor computes at a time
_multiplying = wrapped("a matrix product")
_LIBRARIES = ("nvidia-cublas", "nvidia-cublas-cu12", "nvmath-python")

Enqueue = Callable[[tuple[int, ...], int, Handle], Any]  # (addresses of the operands, stream, cuBLAS's handle)


@dataclass(frozen=True, slots=True)
class GemmAlgorithm:
    """How a result becomes products (`program` has the equations of each kind); a recipe is its fields.

    kind          pointwise: the arrays as they are; columns: im2col; taps: col2im (dX only)
    slice_bytes   of im2col's columns, or of the products that col2im adds up, at a time
    by_image      dW's columns and dX's taps: a matrix for each image, so that nothing in NCHW is copied for the sake of
                  one long matrix
    shares        pointwise dW: how many sums are kept apart until the end (split-K)
    tf32          float32 is multiplied in TF32
    """

    kind: Literal["pointwise", "columns", "taps"] = "pointwise"
    slice_bytes: int = 0
    by_image: bool = False
    shares: int = 1
    tf32: bool = False

    @property
    def name(self) -> str:
        words = ["gemm", self.kind] + [f"{self.slice_bytes >> 20}M"] * (self.slice_bytes > 0)
        words += ["by image"] * self.by_image + [f"{self.shares} shares"] * (self.shares > 1) + ["tf32"] * self.tf32
        return " ".join(words)


class GemmCandidate:
    """One algorithm on one device."""

    origin = "cublas"

    def __init__(self, problem: Problem, device: Device, algorithm: GemmAlgorithm) -> None:
        self.problem, self.device, self.algorithm = problem, device, algorithm
        self.program = _program(problem, device, algorithm)
        self._cublas_bytes = workspace_bytes(device)
        self._steps: tuple[Enqueue, ...] = ()
        self.name = algorithm.name
        self.workspace = round_up(self.program.scratch, ALIGNED) + self._cublas_bytes
        self.recipe: Mapping[str, Any] = asdict(algorithm)
        noted: dict[Note, bool] = {"tf32": algorithm.tf32}
        noted["compiles_once"] = any(isinstance(step, Im2colStep) for step in self.program.steps)
        self.notes = frozenset(note for note, holds in noted.items() if holds)

    def prepare(self) -> None:
        if not isinstance(self.device, DryRunDevice):  # it only collects kernels: cuBLAS may be missing
            bindings()
        self._steps = tuple(each for step in self.program.steps for each in self._enqueues(step))

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        # cuBLAS's part comes first, so that the address that cuBLAS stores rarely changes
        addresses = (*inputs[:2], *outputs, workspace + self._cublas_bytes, *inputs[2:])
        with _multiplying:
            own = handle(self.device.index)
            own.use(stream, workspace, self._cublas_bytes)
            for step in self._steps:
                step(addresses, stream, own)

    def _enqueues(self, step: Im2colStep | Product) -> Iterator[Enqueue]:
        device = self.device
        if isinstance(step, Product):
            for gemm in gemms(step):
                yield lambda addresses, _stream, own, gemm=gemm: gemm(own, addresses)
        else:
            made, (first, second) = launch(step, device), step.addresses
            yield lambda addresses, stream, _: made(
                (addresses[first.operand] + first.offset, addresses[second.operand] + second.offset), stream
            )


def supports(problem: Problem, device: Device) -> str | None:
    """Why no algorithm is worth a try; None if one is."""
    geometry = problem.geometry
    if 0 in problem.output.shape:
        return "matrix products take no empty arrays"
    if problem.dtype == "bfloat16" and device.capability < (8, 0):
        return "cuBLAS has no products of bfloat16 for this device"
    if geometry.group > 1 and geometry.channels * geometry.filters < _LEAST_GROUP:
        return f"its groups' matrices have fewer than {_LEAST_GROUP} elements"
    return None


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """The algorithms that fit the problem, best first; of those that come to the same, one."""
    programs: list[GemmProgram] = []
    for algorithm in algorithms(problem, device):
        with suppress(Refusal):
            made = _program(problem, device, algorithm)
            if made not in programs:
                programs.append(made)
                yield asdict(algorithm)


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> GemmCandidate:
    """The candidate of an algorithm. Raises Refusal where it does not fit the problem."""
    return GemmCandidate(problem, device, GemmAlgorithm(**config))


def version() -> str:
    """Of the libraries that the candidates are in."""
    return ", ".join(f"{name} {found}" for name in _LIBRARIES if (found := _installed(name)))


@cache
def _installed(name: str) -> str:
    try:
        return metadata(name)["Version"]
    except PackageNotFoundError:
        return ""


def algorithms(problem: Problem, device: Device) -> Iterator[GemmAlgorithm]:
    """What is worth a try, best first; some of it may turn out not to fit."""
    matrices = GemmProblem(problem, device, tf32=False)
    of = {"dX": _data_algorithms, "dW": _weight_algorithms, "Y": _forward_algorithms}
    exact = [*of[problem.gradient](matrices)]
    yield from exact
    if problem.dtype == "float32":
        yield from (replace(each, tf32=True) for each in exact)


def _forward_algorithms(problem: GemmProblem) -> Iterator[GemmAlgorithm]:
    if problem.geometry.pointwise:
        yield GemmAlgorithm()
        if problem.dY.endless and problem.X.endless:
            return  # columns would be copies
    yield GemmAlgorithm("columns", SLICE)
    yield GemmAlgorithm("columns", SMALLER)


def _data_algorithms(problem: GemmProblem) -> Iterator[GemmAlgorithm]:
    geometry = problem.geometry
    if geometry.pointwise:
        yield GemmAlgorithm()
        if not (problem.dY.endless and problem.X.endless):  # else columns would be copies
            yield GemmAlgorithm("taps", SLICE)
        return
    kinds: tuple[Literal["columns", "taps"], ...] = ("columns", "taps") if set(geometry.strides) == {1} else ("taps",)
    yield from (GemmAlgorithm(kind, SLICE) for kind in kinds)
    if problem.dY.channel != 1 and geometry.images > 1:
        yield GemmAlgorithm("taps", SLICE, by_image=True)
    yield GemmAlgorithm(kinds[0], SMALLER)


def _weight_algorithms(problem: GemmProblem) -> Iterator[GemmAlgorithm]:
    geometry = problem.geometry
    rows = geometry.channels * geometry.taps
    if geometry.pointwise and problem.dY.endless and problem.X.endless:
        tiles = -(-geometry.filters // _TILE) * -(-rows // _TILE)
        enough = 1 << max(0, min(2 * problem.device.processors // tiles, 64).bit_length() - 1)
        yield from (GemmAlgorithm(shares=shares) for shares in sorted({1, enough if geometry.group == 1 else 1}))
        return  # columns would be copies
    images = geometry.images
    if geometry.pointwise:
        yield from (GemmAlgorithm(shares=shares) for shares in sorted({images, -(-images // 4)}, reverse=True))
    yield GemmAlgorithm("columns", SLICE)
    shared = geometry.group * geometry.filters * rows * images
    if not geometry.pointwise and problem.X.channel != 1 and images > 1 and shared < _MOST_SHARED:
        yield GemmAlgorithm("columns", SLICE, by_image=True)
    yield GemmAlgorithm("columns", SMALLER)


@lru_cache(maxsize=16)
def _program(problem: Problem, device: Device, algorithm: GemmAlgorithm) -> GemmProgram:
    matrices = GemmProblem(problem, device, algorithm.tf32)
    match problem.gradient, algorithm.kind:
        case "Y" | "dX", "pointwise":
            made = products.output_pointwise(matrices)
        case "Y" | "dX", "columns":
            made = products.output_im2col(matrices, algorithm.slice_bytes)
        case "dX", "taps":
            made = products.data_col2im(matrices, algorithm.slice_bytes, algorithm.by_image)
        case "dW", "pointwise":
            made = products.weight_pointwise(matrices, algorithm.shares)
        case "dW", "columns":
            made = products.weight_im2col(matrices, algorithm.slice_bytes, algorithm.by_image)
        case gradient, kind:
            raise Refusal(f"{gradient} has no {kind}")
    of_cublas = (step for step in made.steps if isinstance(step, Product))
    if len(made.steps) + sum(len(list(gemms(each))) - 1 for each in of_cublas) > MOST_STEPS:
        raise Refusal(f"it takes more than {MOST_STEPS} launches")
    return made
