"""The GELU gradients on a GPU: every type, shape, layout and edge against float64, in guarded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.bias_gelu import EXACT, FAST, FORWARD, assert_right, operands
from helpers.capture import Capture
from helpers.guarded import Guarded, OnDevice
from helpers.reference import reference

from gradkern.call import Call, Tensor
from gradkern.policy import Policy

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
OPERATORS = (EXACT, FAST)
BOTH = ("dX", "dB")
TYPES = [(f, f), (d, d), (h, h), (h, f), (b, b), (b, f)]  # of the data and of B
SHAPES = [
    *[(1, 1), (5, 1), (7, 3), (5000, 1), (3001, 8), (1, 5000), (128, 3072), (129, 64)],
    *[(1001, 256), (3001, 1001), (9001, 65), (517, 8192), (3, 65537), (1003, 8712)],
]


def tensor(array: Guarded) -> Tensor:
    alignment = next(each for each in (16, 8, 4, 2, 1) if array.address % each == 0)
    return Tensor(array.array.dtype, array.array.shape, array.array.strides, alignment)


def run(
    operator: str,
    inputs: dict[str, np.ndarray],
    outputs: tuple[str, ...] = BOTH,
    offset: int = 0,
    spread: int = 0,
    in_place: str = "",
    stream: int = 0,
    times: int = 1,
    calls: Any = None,
) -> list[dict[str, np.ndarray]]:
    """The wanted outputs of each of `times` calls; `offset` elements off alignment, rows `spread` elements apart.

    Each call but the first comes after poison in the outputs of the one before. `calls` is called with the plan and its
    arguments in place of the plan.
    """
    from gradkern.cuda.device import activate, get_device
    from gradkern.ops.bias_gelu.cuda.plan import plan

    X = inputs["A" if operator in FORWARD else "X"]
    rows, columns = X.shape
    outputs = ("C",) if operator in FORWARD else outputs

    def hold(shape: tuple[int, ...], dtype: np.dtype) -> Guarded:
        if len(shape) == 1:
            return Guarded(shape, dtype)
        return Guarded(shape, dtype, offset * dtype.itemsize, (columns + spread) * dtype.itemsize)

    host = {name: hold(array.shape, array.dtype) for name, array in inputs.items()}
    for name, array in inputs.items():
        host[name].array[...] = array
        if name != in_place:
            host[name].freeze()
    out = dict.fromkeys(("dX", "C"), host[in_place] if in_place else hold((rows, columns), X.dtype))
    out |= {"dB": hold((columns,), inputs["B"].dtype)}
    out = {name: out[name] for name in outputs}
    call = Call(
        operator=operator,
        inputs={name: tensor(each) for name, each in host.items()},
        outputs={name: tensor(each) for name, each in out.items()},
        attributes={},
        axes={"rows": (rows,), "columns": columns},
        in_place=frozenset({(in_place, outputs[0])} if in_place else ()),
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
        got = []
        for before in range(times):
            for each in results.values() if before else ():
                each.poison(stream)
            if calls:
                calls(made, *arguments, stream)
            else:
                made(*arguments, stream)
            got.append({name: np.array(each.fetch()) for name, each in results.items()})
        for each in there.values():
            each.fetch()
        for each in {*there.values(), *results.values()}:
            each.free()
    return got


def check(operator: str, rows: int, columns: int, data: str = b, parameter: str = "", **how: Any) -> None:
    inputs = operands(rows, columns, data, parameter or data, operator=operator)
    assert_right(operator, inputs, run(operator, inputs, **how)[0])


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("operator", [*OPERATORS, *FORWARD])
def test_every_combination_of_types(operator: str, types: tuple[str, str]) -> None:
    check(operator, 1003, 1000, *types)


@pytest.mark.parametrize("operator", FORWARD)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gelu_itself_of_every_shape(operator: str, shape: tuple[int, int]) -> None:
    check(operator, *shape)
    check(operator, *shape, data=f, in_place="A")


@pytest.mark.parametrize("operator", FORWARD)
def test_gelu_itself_of_rows_that_start_anywhere_and_lie_apart(operator: str) -> None:
    for columns in (100, 1001):
        check(operator, 65, columns, offset=1, spread=3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("data", [b, f])
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_shape(operator: str, data: str, shape: tuple[int, int]) -> None:
    check(operator, *shape, data)


@pytest.mark.parametrize("data", [b, h, f, d])
@pytest.mark.parametrize("operator", OPERATORS)
def test_few_rows_of_many_odd_columns(operator: str, data: str) -> None:
    for rows in (13, 40):
        check(operator, rows, 58605, data)


@pytest.mark.parametrize("outputs", [("dX",), ("dB",)])
@pytest.mark.parametrize("shape", [(50, 1024), (1000, 1024), (1000, 1001), (9001, 65), (10, 100_000)], ids=str)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...], shape: tuple[int, int]) -> None:
    check(EXACT, *shape, outputs=outputs)


@pytest.mark.parametrize("columns", [65, 104])
@pytest.mark.parametrize("data", [b, h, f, d])
@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_folded_to_whole_cache_lines(operator: str, data: str, columns: int) -> None:
    check(operator, 9001, columns, data, outputs=("dX",))


@pytest.mark.parametrize("offset", [0, 1, 2, 4])
@pytest.mark.parametrize("spread", [0, 3, 24])
def test_rows_that_start_anywhere_and_lie_apart(offset: int, spread: int) -> None:
    for columns in (100, 1000):
        check(FAST, 265, columns, offset=offset, spread=spread)


@pytest.mark.parametrize("source", ["X", "dY"])
@pytest.mark.parametrize("columns", [1001, 4096])
def test_dX_may_be_written_over_what_it_is_made_from(source: str, columns: int) -> None:
    check(EXACT, 500, columns, in_place=source)
    check(FAST, 500, columns, in_place=source, outputs=("dX",))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_sums_over_no_rows_are_zero(shape: tuple[int, int]) -> None:
    got = run(EXACT, operands(*shape, b, b))[0]
    assert got["dX"].size == 0
    assert got["dB"].size == shape[1]
    assert not got["dB"].any()


@pytest.mark.parametrize("data", [b, h, f, d])
@pytest.mark.parametrize("operator", OPERATORS)
def test_large_and_infinite_z_give_the_limits_and_only_NaN_gives_NaN(operator: str, data: str) -> None:
    z = [0.0, -0.0, 3.0, 9.0, 10.03, 12.5, 30.0, 50.0, 200.0, 6e4, np.inf]
    X = np.array([*z, *(-each for each in z), np.nan] * 8).reshape(8, -1).astype(data)
    inputs = {"dY": np.ones_like(X), "X": X, "B": np.zeros(X.shape[1], data)}
    got, expected = run(operator, inputs, ("dX",))[0]["dX"].astype(np.float64), reference(operator, inputs)["dX"]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(X))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-2 if data == b else 1e-3)
    far = np.abs(X.astype(np.float64)) >= 50
    np.testing.assert_array_equal(got[far], (X[far] > 0).astype(np.float64))


@pytest.mark.parametrize("columns", [1000, 1001])
def test_one_NaN_reaches_one_element_and_one_sum(columns: int) -> None:
    inputs = operands(400, columns, f, f)
    inputs["dY"][7, 11] = np.nan
    got = run(EXACT, inputs)[0]
    assert np.argwhere(np.isnan(got["dX"])).tolist() == [[7, 11]]
    assert np.argwhere(np.isnan(got["dB"])).tolist() == [[11]]


def test_tails_are_right_relative_to_themselves() -> None:
    X = np.linspace(-12, -1.5, 8 * 4000).reshape(8, 4000).astype(f)
    inputs = {"dY": np.ones_like(X), "X": X, "B": np.zeros(4000, f)}
    for operator in OPERATORS:
        expected = reference(operator, inputs)["dX"]
        kept = np.abs(expected) > 1e-30
        relative = np.abs(run(operator, inputs, ("dX",))[0]["dX"] - expected)[kept] / np.abs(expected)[kept]
        assert relative.max() < 1e-4, operator


@pytest.mark.parametrize("shape", [(100, 768), (3000, 1001), (9000, 4096)], ids=str)
def test_the_same_call_gives_the_same_bits(shape: tuple[int, int]) -> None:
    first, *others = run(EXACT, operands(*shape, b, f), times=20)
    for other in others:
        for name in first:
            assert first[name].tobytes() == other[name].tobytes()


def test_offsets_beyond_2_to_the_31_are_right() -> None:
    from helpers.driver import driver

    from gradkern.cuda.device import activate, check, get_device
    from gradkern.ops.bias_gelu.cuda.plan import plan

    rows, columns = (1 << 20) + 77, 2048
    matrix, vector = (
        Tensor(np.dtype(b), shape, (2 * columns, 2)[-len(shape) :], 16) for shape in ((rows, columns), (columns,))
    )
    call = Call(
        operator=EXACT,
        inputs={"dY": matrix, "X": matrix, "B": vector},
        outputs={"dX": matrix, "dB": vector},
        attributes={},
        axes={"rows": (rows,), "columns": columns},
        in_place=frozenset(),
        device="cuda:0",
        policy=Policy(),
    )
    one = int(np.ones(1, b).view(np.uint16)[0])
    last = np.empty((3, columns), b)
    with activate(get_device(0)):
        X, B, dX, dB = (
            check(driver.cuMemAlloc(each.nbytes), "allocating") for each in (matrix, vector, matrix, vector)
        )
        driver.cuMemsetD16(X, one, matrix.size)
        driver.cuMemsetD16(B, 0, columns)
        driver.cuMemsetD8(dX, 0xFF, matrix.nbytes)
        plan(call)((int(X), int(X), int(B)), (int(dX), int(dB)), 0)
        for row, source in enumerate((int(dX), int(dX) + matrix.nbytes - 2 * columns, int(dB))):
            check(driver.cuMemcpyDtoH(last[row].ctypes.data, source, 2 * columns), "copying to the host")
        for each in (X, B, dX, dB):
            driver.cuMemFree(each)
    slope = 1.0833154705876862  # Phi(1) + phi(1)
    expected = np.array([slope, slope, rows * slope]).reshape(3, 1)
    np.testing.assert_allclose(last.astype(np.float64), np.broadcast_to(expected, last.shape), rtol=2**-8)


def test_a_captured_graph_gives_the_same_bits_a_hundred_times() -> None:
    from gradkern.cuda.device import activate, get_device

    inputs = operands(3000, 1024, b, b)
    expected = run(EXACT, inputs)[0]
    with activate(get_device(0)):
        capture = Capture(mode="THREAD_LOCAL")

        def replayed(plan: Any, *arguments: Any) -> None:
            if capture.graph is None:
                with capture:
                    plan(*arguments)
            capture.replay()

        for got in run(EXACT, inputs, stream=capture.stream, times=100, calls=replayed):
            for name, array in got.items():
                assert array.tobytes() == expected[name].tobytes()
