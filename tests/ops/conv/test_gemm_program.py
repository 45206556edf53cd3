"""Conv's and ConvGrad's matrix products without a GPU: which elements they read, multiply and write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
pytest.importorskip("nvmath", reason="nvmath-python is not installed")

from helpers.conv_gemm import DEVICE, Host, Shape, defined, setting
from helpers.conv_problems import conv_problem
from helpers.tolerance import assert_close

from gradkern.call import Refusal
from gradkern.ops.conv.cuda.gemm import candidates
from gradkern.ops.conv.cuda.gemm.candidates import GemmAlgorithm
from gradkern.search.implementation import Implementation, candidates_of

NHWC = ("nhwc", "nhwc", "nhwc")
SHAPES = [
    Shape(3, 1, 5, 4, (4, 5), (1, 1)),
    Shape(3, 2, 4, 3, (4, 5), (1, 1)),
    Shape(3, 1, 8, 4, (4, 5), (1, 1), layouts=NHWC),
    Shape(3, 2, 4, 8, (4, 5), (1, 1), layouts=NHWC),
    Shape(2, 1, 3, 2, (5, 4), (3, 2), begin=(1, 0), end=(1, 1)),
    Shape(2, 2, 3, 2, (5, 4), (3, 3), begin=(1, 1), end=(1, 1), layouts=NHWC),
    Shape(2, 1, 8, 4, (5, 4), (3, 3), begin=(1, 1), end=(1, 1), layouts=("nhwc", "nhwc", "nchw")),
    Shape(2, 1, 3, 2, (7, 6), (3, 3), strides=(2, 2), begin=(1, 1), end=(1, 1)),
    Shape(2, 2, 4, 4, (7, 6), (3, 3), strides=(2, 2), begin=(1, 1), end=(1, 1), layouts=NHWC),
    Shape(2, 1, 3, 4, (6, 7), (1, 1), strides=(2, 2)),
    Shape(2, 1, 4, 4, (6, 7), (1, 1), strides=(2, 2), layouts=NHWC),
    Shape(2, 2, 3, 2, (8, 8), (4, 4), strides=(4, 4)),  # patches: all taps of a residue meet one output
    Shape(2, 1, 3, 2, (8, 8), (4, 4), strides=(4, 4), begin=(1, 1), end=(3, 3), layouts=NHWC),
    Shape(2, 1, 3, 2, (9,), (3,), dilations=(2,), begin=(3,), end=(1,)),
    Shape(2, 1, 3, 2, (9,), (2,), strides=(3,), dilations=(2,)),  # a residue without taps
    Shape(2, 1, 2, 3, (3, 4, 3), (2, 3, 2), strides=(1, 2, 1), begin=(0, 1, 1), end=(1, 1, 0)),
    Shape(1, 1, 2, 3, (3, 4, 3), (2, 2, 2), layouts=NHWC),
    Shape(2, 1, 3, 2, (5, 4), (3, 2), begin=(1, 0), end=(1, 1), layouts=("gaps", "gaps", "gaps")),
    Shape(2, 1, 3, 2, (5, 4), (3, 3), begin=(1, 1), end=(1, 1), layouts=("nhwc", "nchw", "nchw")),
    Shape(2, 1, 3, 2, (5, 4), (3, 3), begin=(1, 1), end=(1, 1), layouts=("nchw", "nhwc", "nhwc")),
    Shape(2, 1, 3, 2, (1, 1), (3, 3), begin=(1, 1), end=(1, 1)),  # one position
    Shape(2, 1, 3, 2, (9, 6), (2, 2), strides=(2, 1), end=(-3, -1)),  # positions behind all windows
    Shape(1, 1, 1, 1, (5,), (3,)),
    Shape(4, 1, 2, 2, (1, 1), (1, 1)),
]
COLUMNS, TAPS = (
    [GemmAlgorithm(kind, size, by_image) for size in (1 << 20, 600) for by_image in (False, True)]
    for kind in ("columns", "taps")
)
WAYS = {
    "dX": [GemmAlgorithm(), *COLUMNS[::2], *TAPS],
    "dW": [GemmAlgorithm(), GemmAlgorithm(shares=3), *COLUMNS],
    "Y": [GemmAlgorithm(), *COLUMNS[::2]],
    "Y with B": [GemmAlgorithm(), *COLUMNS[::2]],
}
GENERAL = {"dX": TAPS[0], "dW": COLUMNS[0], "Y": COLUMNS[0], "Y with B": COLUMNS[0]}
"""Of each gradient the way that takes most layouts."""


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradkern.ops.conv.cuda.gemm.program.SHORTEST", 7)


def run(shape: Shape, gradient: str, way: GemmAlgorithm, dtype: str = "float32", offset: int = 0) -> bool:
    """Whether the way fits; if it does, its result is right."""
    given = setting(shape, gradient, dtype, offset=offset)
    try:
        program = candidates._program(given.problem, DEVICE, way)
    except Refusal:
        return False
    host = Host(given, program.scratch, lambda *_: None)
    host.move = defined(host.memory, dtype)
    result = host.run(program)
    assert_close("ConvGrad", gradient, result, given.expected)  # Conv has the same tolerance
    return True


@pytest.mark.parametrize("gradient", WAYS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_way_multiplies_what_the_equation_says(shape: Shape, gradient: str) -> None:
    fits = {way: run(shape, gradient, way) for way in WAYS[gradient]}
    assert fits[GENERAL[gradient]] == (gradient in ("dX", "dW") or "gaps" not in shape.layouts)
    pointwise = set(shape.kernel) == {1} and not shape.strides
    assert fits[GemmAlgorithm()] == (pointwise and "gaps" not in shape.layouts)
    if gradient == "dX":
        assert fits[TAPS[1]] == ("gaps" not in shape.layouts)
        assert fits[COLUMNS[0]] == ("gaps" not in shape.layouts and set(shape.strides) <= {1})


@pytest.mark.parametrize(
    ("dtype", "gradient"),
    [
        ("float64", "dX"),
        ("float16", "dW"),
        ("bfloat16", "dX"),
        ("bfloat16", "Y with B"),
        pytest.param("float64", "dW", marks=pytest.mark.every_kernel),
        pytest.param("float16", "dX", marks=pytest.mark.every_kernel),
        pytest.param("bfloat16", "dW", marks=pytest.mark.every_kernel),
    ],
)
def test_every_type_is_multiplied_and_rounded_once(gradient: str, dtype: str) -> None:
    for shape in (SHAPES[0], SHAPES[4], SHAPES[8], SHAPES[11]):
        assert sum(run(shape, gradient, way, dtype) for way in WAYS[gradient]) >= 2


@pytest.mark.parametrize("gradient", WAYS)
def test_arrays_may_begin_anywhere(gradient: str) -> None:
    for shape in SHAPES[2:9]:
        assert run(shape, gradient, GENERAL[gradient], offset=1)


@pytest.mark.parametrize("gradient", ["dX", "dW", "Y with B"])
@pytest.mark.parametrize("shape", SHAPES[:14], ids=str)
def test_a_recipe_makes_the_same_candidate_again(shape: Shape, gradient: str) -> None:
    problem = setting(shape, gradient, "float32").problem
    if problem.geometry.group > 1:
        assert candidates.supports(problem, DEVICE) == "its groups' matrices have fewer than 64 elements"
        return
    found = list(candidates_of(candidates, problem, DEVICE))
    assert len({each.name for each in found}) == len(found)
    for each in found:
        again = candidates.build(problem, DEVICE, dict(each.recipe))
        assert (again.name, again.workspace, again.notes) == (each.name, each.workspace, each.notes)
        assert ("tf32" in each.notes) == ("tf32" in each.name)


def test_data_gradients_have_columns_without_strides_and_products_of_taps() -> None:
    for shape, kinds in ((SHAPES[4], ["columns", "taps", "taps"]), (SHAPES[7], ["taps", "taps"])):
        problem = setting(shape, "dX", "float32").problem
        found: list[Any] = list(Implementation("gemm", candidates, problem, DEVICE).candidates())
        assert [each.algorithm.kind for each in found] == kinds * 2  # without TF32, and with it


def test_a_call_without_elements_has_no_candidates() -> None:
    given = setting(SHAPES[4], "dX", "float32").problem
    empty = replace(given, dY=given.dY._replace(shape=(0, *given.dY.shape[1:])))
    empty = replace(empty, X=given.X._replace(shape=(0, *given.X.shape[1:])))
    assert Implementation("gemm", candidates, empty, DEVICE).supports() == "matrix products take no empty arrays"


def test_offsets_beyond_32_bits_stay_whole() -> None:
    """A slice of the second image of two of 2^31 elements: what the launch is told, by hand."""
    from gradkern.call import Tensor
    from gradkern.ops.conv.cuda.gemm.im2col import Im2colStep

    item, side = 4, 1 << 15
    image = side * side * 2
    described = Tensor(
        np.dtype("float32"), (2, 2, side, side), (item * image, item * side * side, item * side, item), 16
    )
    W = Tensor(np.dtype("float32"), (2, 2, 3, 3), (72, 36, 12, 4), 16)
    ones = (1, 1)
    problem = conv_problem("dW", described, described, W, 1, ones, ones, ones, ones)
    with pytest.raises(Refusal, match="launches"):
        candidates._program(problem, DEVICE, GemmAlgorithm("columns", 32 << 20))
    program = candidates._program(problem, DEVICE, GemmAlgorithm("columns", 1 << 30))
    last = [step for step in program.steps if isinstance(step, Im2colStep) and step.config.kernel == "gather"][-1]
    names = dict(zip(("images", "channels", "group", "start", "count"), last.arguments[2:7], strict=True))
    assert last.addresses[0].offset == item * image
    assert names["start"] + names["count"] == side * side
    assert last.arguments[13:18] == (item * image, item * side * side, 0, item * side, item)
