"""The layer-norm gradients on a GPU: every type, shape, layout and edge against float64, in guarded memory."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.guarded import Guarded, OnDevice
from helpers.layer_norm import ALL_OUTPUTS, INVERTIBLE, LAYER, SIMPLIFIED, WITH_SUM, Case, case
from helpers.reference import reference

from gradkern.call import Call, Tensor
from gradkern.policy import Policy

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
OPERATORS = (LAYER, SIMPLIFIED, INVERTIBLE)
TYPES = [  # X (or Y), Y_grad, scale
    (f, f, f),
    (d, d, d),
    (h, h, h),
    (f, h, h),
    (f, f, h),
    (h, f, f),
    (h, h, f),
    (b, b, b),
    (b, f, f),
    (b, b, f),
    (f, b, b),
    (f, f, b),
]
SHAPES = [(1, 1), (5, 1), (7, 3), (133, 128), (1001, 256), (777, 768), (301, 1001), (77, 8192), (33, 4097), (3, 65536)]


def tensor(array: Guarded) -> Tensor:
    alignment = next(each for each in (16, 8, 4, 2, 1) if array.address % each == 0)
    return Tensor(array.array.dtype, array.array.shape, array.array.strides, alignment)


def run(
    operands: Case,
    outputs: tuple[str, ...] = (),
    result: str = "",
    branch: str = "",
    offset: int = 0,
    spread: int = 0,
    in_place: str = "",
    stream: int = 0,
    times: int = 1,
    apart: str = "",
) -> dict[str, np.ndarray]:
    """The wanted outputs; `offset` elements off alignment, rows `spread` elements further apart than they are long.
    apart: an input of one number for each column that is an element off alignment.

    Each of `times` calls but the first comes after poison in the outputs of the one before.
    """
    from gradkern.cuda.device import activate, get_device
    from gradkern.ops.layer_norm.cuda.plan import plan

    rows, columns = operands.inputs["Y_grad"].shape
    wanted = outputs or ALL_OUTPUTS[operands.operator]
    data = operands.inputs["Y" if operands.operator == INVERTIBLE else "X"]

    def hold(shape: tuple[int, ...], dtype: np.dtype) -> Guarded:
        if len(shape) == 1:
            return Guarded(shape, dtype)
        return Guarded(shape, dtype, offset * dtype.itemsize, (columns + spread) * dtype.itemsize)

    host = {
        name: Guarded(array.shape, array.dtype, array.itemsize) if name == apart else hold(array.shape, array.dtype)
        for name, array in operands.inputs.items()
    }
    for name, array in operands.inputs.items():
        host[name].array[...] = array
        if name != in_place:
            host[name].freeze()
    out = {}
    for name in wanted:
        kind = np.dtype(result) if result else data.dtype
        kinds = {"X_grad": kind, "branch_grad": np.dtype(branch or kind)}
        made = hold((rows, columns), kinds[name]) if name in kinds else hold((columns,), operands.inputs["scale"].dtype)
        out[name] = host[in_place] if in_place and name == "X_grad" else made
    call = Call(
        operator=operands.operator,
        inputs={name: tensor(each) for name, each in host.items()},
        outputs={name: tensor(each) for name, each in out.items()},
        attributes={"axis": -1},
        axes={"rows": (rows,), "columns": (columns,)},
        in_place=frozenset({(in_place, "X_grad")} if in_place else ()),
        device="cuda:0",
        policy=Policy(),
    )
    with activate(get_device(0)):
        there = {name: OnDevice(each) for name, each in host.items()}
        results = {
            name: there[in_place] if each is host.get(in_place) else OnDevice(each) for name, each in out.items()
        }
        made = plan(call)
        arguments = tuple(each.address for each in there.values()), tuple(each.address for each in results.values())
        for before in range(times):
            for each in results.values() if before else ():
                each.poison(stream)
            made(*arguments, stream)
        got = {name: np.array(each.fetch()) for name, each in results.items()}
        for each in there.values():
            each.fetch()
        for each in {*there.values(), *results.values()}:
            each.free()
    return got


def check(operands: Case, **how: Any) -> None:
    operands.check(run(operands, **how))


def test_a_parameter_may_begin_anywhere() -> None:
    for apart in ("scale", "bias"):
        check(make(INVERTIBLE, 133, 1024), apart=apart)


def make(
    operator: str, rows: int, columns: int, types: tuple[str, str, str] = (b, b, b), residual: bool = False
) -> Case:
    data, upstream, parameter = types
    statistic = d if data == d else f
    return case(operator, rows, columns, data, upstream, parameter, statistic, rows + columns, residual)


@pytest.fixture(params=["column_blocks", "blocks_with_rows"])
def sums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of their own make scale_grad and bias_grad wherever that is possible, or nowhere."""
    share = math.inf if request.param == "column_blocks" else 0.0
    monkeypatch.setattr("gradkern.ops.layer_norm.cuda.column_blocks_tiling._SAFE", share)


in_both_ways = pytest.mark.usefixtures("sums")


@in_both_ways
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_combination_of_types(operator: str, types: tuple[str, str, str]) -> None:
    check(make(operator, 129, 1000, types))


@in_both_ways
@pytest.mark.parametrize("shape", [*SHAPES[::2], (16384, 768), (3, 262_147)], ids=str)
@pytest.mark.parametrize("types", [(f, b, f), (f, f, f), (f, b, b)], ids="-".join)
@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED])
def test_a_branch_of_16_bits_has_a_gradient_of_its_own(
    operator: str, types: tuple[str, str, str], shape: tuple[int, int]
) -> None:
    outputs = (*ALL_OUTPUTS[operator], "branch_grad")
    check(make(operator, *shape, types, residual=True), outputs=outputs, branch=b)
    check(make(operator, *shape, types), outputs=("branch_grad",), branch=b)


@pytest.mark.parametrize("offset", [1, 4])
def test_a_branch_in_rows_that_start_anywhere_and_lie_apart(offset: int) -> None:
    outputs = (*WITH_SUM[LAYER], "branch_grad")
    for columns in (100, 1000):
        check(make(LAYER, 65, columns, (f, b, f), residual=True), outputs=outputs, branch=b, offset=offset, spread=3)


@in_both_ways
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_shape(operator: str, shape: tuple[int, int]) -> None:
    check(make(operator, *shape))


@in_both_ways
@pytest.mark.parametrize(
    ("rows", "columns", "types"),
    [
        (2, 30_000, (d, d, d)),  # in slices
        (4, 57_808, (f, f, f)),  # and several warps have a stripe of columns
        (35, 60_096, (b, b, b)),
        (4000, 256, (b, b, b)),  # clusters share a stripe of columns
        (3000, 128, (f, f, f)),
        (2873, 738, (b, b, f)),
        (1507, 40, (h, h, h)),
        (700, 1000, (d, d, d)),
    ],
)
@pytest.mark.parametrize("operator", OPERATORS)
def test_small_arrays(operator: str, rows: int, columns: int, types: tuple[str, str, str]) -> None:
    check(make(operator, rows, columns, types))


@pytest.mark.parametrize(
    ("rows", "columns", "types"),
    [
        (3001, 385, (b, b, b)),
        (1000, 430, (h, h, f)),
        (777, 770, (b, b, f)),
        (2222, 4100, (b, b, b)),
        (600, 9913, (h, h, h)),
        (999, 16383, (b, b, b)),
        (1003, 2049, (f, f, f)),
        (500, 5002, (f, f, f)),
    ],
)
@pytest.mark.parametrize("operator", OPERATORS)
def test_vectors_by_units_of_memory(operator: str, rows: int, columns: int, types: tuple[str, str, str]) -> None:
    operands = make(operator, rows, columns, types)
    check(operands)
    check(operands, in_place="Y_grad")


@pytest.mark.parametrize("in_place", ["", "Y_grad"])
@pytest.mark.parametrize("shape", [(40, 262_144), (33, 200_008)], ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_that_registers_cannot_hold(operator: str, shape: tuple[int, int], in_place: str) -> None:
    check(make(operator, *shape), in_place=in_place)


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_too_wide_for_a_cluster(operator: str) -> None:
    check(make(operator, 3, 600_001))


@in_both_ways
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED])
def test_a_residuals_gradient_is_added_in_every_combination_of_types(
    operator: str, types: tuple[str, str, str]
) -> None:
    check(make(operator, 129, 1000, types, residual=True))


@in_both_ways
@pytest.mark.parametrize("in_place", ["", "residual_grad"])
@pytest.mark.parametrize("shape", [*SHAPES, (9, 262_144), (3, 600_001)], ids=str)
def test_a_residuals_gradient_is_added_in_every_shape(shape: tuple[int, int], in_place: str) -> None:
    check(make(LAYER, *shape, residual=True), in_place=in_place)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED])
def test_X_grad_is_summed_in_every_combination_of_types(operator: str, types: tuple[str, str, str]) -> None:
    check(make(operator, 129, 1000, types, residual=True), outputs=WITH_SUM[operator])


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES[2:], (2222, 4100), (9, 262_144), (3, 600_001)], ids=str)
@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED])
def test_X_grad_is_summed_in_every_shape(operator: str, shape: tuple[int, int], residual: bool) -> None:
    check(make(operator, *shape, residual=residual), outputs=WITH_SUM[operator])


@pytest.mark.parametrize("others", [(), ("X_grad",), ("bias_grad",), ("scale_grad", "bias_grad")])
@pytest.mark.parametrize("columns", [1024, 100_000, 600_000])
def test_the_sum_of_X_grad_may_be_wanted_without_others(others: tuple[str, ...], columns: int) -> None:
    check(make(LAYER, 30, columns, residual=True), outputs=(*others, "X_grad_sum"))


@in_both_ways
def test_the_type_of_X_grad_is_the_calls() -> None:
    check(make(INVERTIBLE, 65, 512, (h, h, h)), result=f)


@in_both_ways
@pytest.mark.parametrize("offset", [1, 2, 4])
@pytest.mark.parametrize("spread", [0, 3, 24])
def test_rows_that_start_anywhere_and_lie_apart(offset: int, spread: int) -> None:
    for columns in (100, 1000):
        check(make(LAYER, 65, columns), offset=offset, spread=spread)


@in_both_ways
@pytest.mark.parametrize("outputs", [("X_grad",), ("scale_grad",), ("bias_grad",), ("X_grad", "bias_grad")])
@pytest.mark.parametrize("columns", [1024, 100_000, 600_000])
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...], columns: int) -> None:
    check(make(LAYER, 30, columns), outputs=outputs)


@pytest.mark.parametrize("source", ["X", "Y_grad"])
@pytest.mark.parametrize("columns", [1001, 4096, 16384])
def test_X_grad_may_be_written_over_what_it_is_made_from(source: str, columns: int) -> None:
    check(make(LAYER, 500, columns), in_place=source)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_sums_over_no_rows_are_zero(shape: tuple[int, int]) -> None:
    got = run(make(LAYER, *shape))
    assert [got[name].size for name in ("X_grad", "scale_grad")] == [0, shape[1]]
    assert not got["scale_grad"].any()
    assert not got["bias_grad"].any()


@in_both_ways
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float) -> None:
    operands = make(LAYER, 40, 1000, (f, f, f))
    operands.inputs["Y_grad"][7, 11] = value
    expected = reference(LAYER, operands.inputs)
    for name, out in run(operands).items():
        assert (np.isfinite(out) == np.isfinite(expected[name])).all(), name


@in_both_ways
def test_a_zero_in_scale_of_the_invertible_norm_stays_in_its_column() -> None:
    operands = make(INVERTIBLE, 40, 1000, (f, f, f))
    operands.inputs["scale"][11] = 0
    operands.inputs["Y"][:, 11] = operands.inputs["bias"][11]
    got = run(operands)
    for name in ("X_grad", "scale_grad"):
        assert np.isnan(got[name][..., 11]).all()
        assert np.isfinite(np.delete(got[name], 11, -1)).all()


@in_both_ways
@pytest.mark.parametrize("columns", [128, 1001, 4096, 16384, 600_000])
def test_the_same_call_gives_the_same_bits(columns: int) -> None:
    operands = make(LAYER, 300 if columns < 100_000 else 10, columns)
    for outputs in (ALL_OUTPUTS[LAYER], WITH_SUM[LAYER]):
        first, again = run(operands, outputs=outputs), run(operands, outputs=outputs, times=5)
        for name in first:
            assert first[name].tobytes() == again[name].tobytes()
