"""The layer norms on a GPU: every type, shape, layout and edge against float64, in guarded memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.guarded import Guarded, OnDevice
from helpers.norm_forward import LAYER, OUTPUTS, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED, Case, case
from helpers.reference import reference

from gradkern.call import Call, Tensor
from gradkern.ops.layer_norm import NAMES
from gradkern.policy import Policy

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
OPERATORS = (LAYER, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED)
TYPES = [(f, f, f), (d, d, d), (h, h, h), (b, b, b), (f, h, h), (f, h, f), (f, b, b), (h, f, h), (b, f, b), (b, f, f)]
"""Of X, scale and Y."""
SHAPES = [(1, 1), (5, 1), (7, 3), (133, 128), (1001, 256), (777, 768), (301, 1001), (77, 8192), (33, 4097), (3, 65536)]
SHAPES += [(1001, 200), (301, 1537), (287, 5003), (270, 18333)]  # the last three by units of memory


def tensor(held: Guarded, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    alignment = next(each for each in (16, 8, 4, 2, 1) if held.address % each == 0)
    return Tensor(held.array.dtype, shape, strides, alignment)


def run(
    operands: Case,
    outputs: tuple[str, ...] = (),
    result: str = "",
    offset: int = 0,
    spread: int = 0,
    in_place: str = "",
    times: int = 1,
) -> dict[str, np.ndarray]:
    """The wanted outputs; `offset` elements off alignment, rows `spread` elements further apart than they are long.

    Each of `times` calls but the first comes after poison in the outputs of the one before.
    """
    from gradkern.cuda.device import activate, get_device
    from gradkern.ops.layer_norm.cuda.plan import plan

    X = next(iter(operands.inputs.values()))
    rows, columns = X.shape

    def hold(shape: tuple[int, ...], dtype: np.dtype) -> Guarded:
        if len(shape) == 1:
            return Guarded(shape, dtype)
        return Guarded(shape, dtype, offset * dtype.itemsize, (columns + spread) * dtype.itemsize)

    host = {name: hold(array.shape, array.dtype) for name, array in operands.inputs.items()}
    for name, array in operands.inputs.items():
        host[name].array[...] = array
        if name != in_place:
            host[name].freeze()
    statistic = np.dtype("float64" if X.dtype == np.float64 else "float32")
    out = {}
    for name in outputs or OUTPUTS[operands.operator]:
        if NAMES[name] == "Y":
            out[name] = host[in_place] if in_place else hold((rows, columns), np.dtype(result or X.dtype))
        elif NAMES[name] == "sum":
            out[name] = hold((rows, columns), operands.inputs["skip"].dtype)
        else:
            out[name] = hold((rows,), statistic)

    def described(held: dict[str, Guarded]) -> dict[str, Tensor]:
        return {name: tensor(each, each.array.shape, each.array.strides) for name, each in held.items()}

    call = Call(
        operator=operands.operator,
        inputs=described(host),
        outputs=described(out),
        attributes={"epsilon": operands.epsilon},
        axes={"rows": (rows,), "columns": (columns,)},
        in_place=frozenset({(in_place, OUTPUTS[operands.operator][0])} if in_place else ()),
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
                each.poison(0)
            made(*arguments, 0)
        got = {name: np.array(each.fetch()) for name, each in results.items()}
        for each in there.values():
            each.fetch()
        for each in {*there.values(), *results.values()}:
            each.free()
    return got


def check(operands: Case, **how: Any) -> None:
    operands.check(run(operands, **how))


def make(
    operator: str, rows: int, columns: int, data: str = b, parameter: str = b, biased: bool = True, residual: str = ""
) -> Case:
    return case(operator, rows, columns, data, parameter, rows + columns, biased, residual or data)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_combination_of_types(operator: str, types: tuple[str, str, str]) -> None:
    data, parameter, result = types
    if operator.startswith("Skip"):  # whose output is of the data's type
        result = data
    check(make(operator, 129, 1000, data, parameter), result=result)


@pytest.mark.parametrize("shape", [*SHAPES[::2], (16384, 768), (3, 600_001)], ids=str)
@pytest.mark.parametrize("types", [(b, f, b), (h, f, f), (b, b, b), (f, f, b)], ids="-".join)
@pytest.mark.parametrize("operator", [SKIP, SKIP_SIMPLIFIED])
def test_a_stream_of_float32_and_a_branch_of_16_bits(
    operator: str, types: tuple[str, str, str], shape: tuple[int, int]
) -> None:
    """Of the branch, the parameters and the norm."""
    data, parameter, result = types
    check(make(operator, *shape, data, parameter, residual=f), result=result)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_shape(operator: str, shape: tuple[int, int]) -> None:
    check(make(operator, *shape))


@pytest.mark.parametrize("shape", [(2000, 768), (600, 12288), (300, 16384), (40, 65536), (20, 262_144)], ids=str)
@pytest.mark.parametrize("data", [b, f])
def test_more_rows_than_fit_the_device_at_once(shape: tuple[int, int], data: str) -> None:
    check(make(LAYER, *shape, data, data))


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_too_wide_for_a_cluster(operator: str) -> None:
    check(make(operator, 3, 600_001))


@pytest.mark.parametrize("offset", [1, 2, 4])
@pytest.mark.parametrize("spread", [0, 3, 24])
def test_rows_that_start_anywhere_and_lie_apart(offset: int, spread: int) -> None:
    for operator in (LAYER, SKIP):
        for columns in (100, 1000):
            check(make(operator, 65, columns), offset=offset, spread=spread)


@pytest.mark.parametrize("outputs", [("Y",), ("Mean",), ("InvStdDev",), ("Y", "InvStdDev")])
@pytest.mark.parametrize("columns", [1024, 100_000, 600_000])
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...], columns: int) -> None:
    check(make(LAYER, 30, columns), outputs=outputs)


@pytest.mark.parametrize("operator", [LAYER, SKIP, SKIP_SIMPLIFIED])
def test_a_norm_without_a_bias(operator: str) -> None:
    check(make(operator, 129, 1000, biased=False))


@pytest.mark.parametrize("outputs", [("output",), ("input_skip_bias_sum",), ("mean", "input_skip_bias_sum")])
@pytest.mark.parametrize("columns", [1024, 16384, 600_000])
def test_a_sum_need_not_be_given_out_and_may_be_all(outputs: tuple[str, ...], columns: int) -> None:
    check(make(SKIP, 30, columns), outputs=outputs)


@pytest.mark.parametrize("columns", [1001, 4096, 16384, 600_000])
def test_the_output_may_be_written_over_an_input(columns: int) -> None:
    rows = 300 if columns < 100_000 else 5
    check(make(LAYER, rows, columns), in_place="X")
    for source in ("input", "skip"):
        check(make(SKIP, rows, columns), in_place=source)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_rows_of_nothing_have_statistics_of_zero(shape: tuple[int, int]) -> None:
    got = run(make(LAYER, *shape))
    assert [got[name].size for name in ("Y", "Mean", "InvStdDev")] == [0, shape[0], shape[0]]
    assert not got["Mean"].any()
    assert not got["InvStdDev"].any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("columns", [1000, 16384])
def test_what_is_not_finite_reaches_its_row_alone(value: float, columns: int) -> None:
    operands = make(LAYER, 40, columns, f, f)
    operands.inputs["X"][7, 11] = value
    expected = reference(LAYER, operands.inputs, {"epsilon": operands.epsilon})
    for name, out in run(operands).items():
        assert (np.isfinite(out) == np.isfinite(expected[name]).reshape(out.shape)).all(), name


@pytest.mark.parametrize("columns", [768, 4096, 16384, 65536])
def test_rows_far_from_zero_keep_their_digits(columns: int) -> None:
    operands = make(LAYER, 40, columns, f, f)
    operands.inputs["X"] = (4096 + operands.inputs["X"]).astype(f)
    expected = reference(LAYER, operands.inputs, {"epsilon": operands.epsilon})
    got = run(operands)
    # Mean is rounded by as much of a deviation. Squares about a mean that is off by that lose a fraction of it (squares
    # of the elements would lose all digits: the square of 4096 is 2^24), which a sum over warps makes larger.
    rounding = 4096 * np.finfo(f).eps * expected["InvStdDev"].ravel()
    np.testing.assert_array_less(np.abs(got["InvStdDev"] / expected["InvStdDev"].ravel() - 1), 2e-6 + rounding / 16)
    np.testing.assert_allclose(got["Y"], expected["Y"], atol=4 * 4096 * float(np.finfo(f).eps))


@pytest.mark.parametrize("columns", [128, 1001, 4096, 16384, 600_000])
def test_the_same_call_gives_the_same_bits(columns: int) -> None:
    operands = make(LAYER, 300 if columns < 100_000 else 10, columns)
    first, again = run(operands), run(operands, times=5)
    for name in first:
        assert first[name].tobytes() == again[name].tobytes()
