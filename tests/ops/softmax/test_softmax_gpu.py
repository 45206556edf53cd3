"""The gradients of softmax on a GPU: types, axes, strides, widths and edges against float64, in guarded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.capture import Capture
from helpers.guarded import OnDevice
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.terms import terms
from helpers.tolerance import assert_close, assert_within_terms

from gradkern.call import Call
from gradkern.policy import Policy

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
SOFTMAX, LOG = "SoftmaxGrad_13", "LogSoftmaxGrad_13"
WIDTHS = [1, 2, 3, 7, 8, 31, 33, 64, 100, 129, 512, 777, 1001, 1024, 4096, 4097, 8192, 12288, 16385, 50257, 65536]
WIDER = [128256, 300001, 1 << 20]


def operands(operator: str, shape: tuple[int, ...], axis: int, dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    dY = random.standard_normal(shape, dtype=np.float32).astype(dtype)
    scores = 2 * random.standard_normal(shape, dtype=np.float32).astype(np.float64)
    scores -= scores.max(axis, keepdims=True)
    logarithms = scores - np.log(np.exp(scores).sum(axis, keepdims=True))
    return {"dY": dY, "X" if operator.startswith("Log") else "Y": (
        logarithms if operator.startswith("Log") else np.exp(logarithms)).astype(dtype)}  # fmt: skip


def run(
    operator: str,
    inputs: dict[str, np.ndarray],
    axis: int,
    result: str = "",
    in_place: str = "",
    how: dict[str, Any] | None = None,
    stream: int = 0,
    times: int = 1,
    calls: Any = None,
) -> list[np.ndarray]:
    """dX of each of `times` calls."""
    from gradkern.cuda.device import activate, get_device
    from gradkern.ops.softmax.cuda.plan import plan

    held = {name: hold(array, **(how or {})) for name, array in inputs.items()}
    for name, each in held.items():
        if name != in_place:
            each.memory.freeze()
    first = next(iter(inputs.values()))
    output = held[in_place] if in_place else Held(first.shape, result or first.dtype, **(how or {}))
    axis %= first.ndim
    axes = {"rows": first.shape[:axis], "columns": first.shape[axis:]}
    tensors = {name: each.tensor for name, each in held.items()}
    call = Call(operator, tensors, {"dX": output.tensor}, {"axis": axis}, axes, frozenset(), "cuda:0", Policy())
    made, found = plan(call), []
    with activate(get_device(0)):
        on_device = {name: OnDevice(each.memory) for name, each in held.items()}
        written = on_device[in_place] if in_place else OnDevice(output.memory)
        addresses = tuple(each.address for each in on_device.values()), (written.address,)
        for _ in range(times):
            if not in_place:
                written.poison(stream)
            if calls is None:
                made(*addresses, stream)
            else:
                calls(made, *addresses, stream)
            written.fetch()
            found.append(np.array(output.array))
        for each in {*on_device.values(), written}:
            each.fetch()
            each.free()
    return found


def check(operator: str, shape: tuple[int, ...], dtype: str, axis: int = -1, **how: Any) -> None:
    inputs = operands(operator, shape, axis, dtype)
    got = run(operator, inputs, axis, **how)[0]
    expected = reference(operator, inputs, {"axis": axis})["dX"]
    assert_close(operator, "dX", got, expected)
    assert_within_terms(got, expected, terms(operator, inputs, {"axis": axis})["dX"])


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize("operator", [SOFTMAX, LOG])
def test_every_type_and_width(operator: str, dtype: str, columns: int) -> None:
    check(operator, (max(3, min(3001, 200_000 // columns)), columns), dtype)


@pytest.mark.parametrize("columns", WIDER)
@pytest.mark.parametrize("dtype", [b, d])
def test_rows_that_no_cluster_holds(dtype: str, columns: int) -> None:
    check(SOFTMAX, (5, columns), dtype)


@pytest.mark.parametrize(
    "shape",
    [(3, 5, 7), (2, 21, 4096), (5, 100, 49), (2, 1000, 64), (1, 3000, 24), (3, 8, 1), (7, 1, 9), (2, 20000, 8)],
)
@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize("operator", [SOFTMAX, LOG])
def test_an_inner_axis(operator: str, dtype: str, shape: tuple[int, ...]) -> None:
    check(operator, shape, dtype, axis=1)
    check(operator, shape[1:], dtype, axis=0)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("operator", ["SoftmaxGrad", "LogSoftmaxGrad"])
def test_rows_of_several_dimensions(operator: str, axis: int) -> None:
    inputs = operands(operator, (7, 6, 5, 4), axis, f)
    got = run(operator, inputs, axis)[0]
    assert_close(operator, "dX", got, reference(operator, inputs, {"axis": axis})["dX"])


@pytest.mark.parametrize("offset", [0, 1, 2, 4])
@pytest.mark.parametrize("spread", [0, 3, 24])
def test_rows_that_begin_anywhere_and_lie_apart(offset: int, spread: int) -> None:
    for columns in (72, 1000, 1001):
        check(SOFTMAX, (65, columns), b, how={"offset": offset, "spread": spread})
    check(LOG, (5, 65, 40), b, axis=1, how={"offset": offset, "spread": spread})


@pytest.mark.parametrize("axes", [(2, 0, 1), (1, 2, 0), (0, 2, 1), (2, 1, 0)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes_in_any_order(axes: tuple[int, ...], axis: int) -> None:
    check(SOFTMAX, (24, 40, 56), f, axis=axis, how={"axes": axes})


@pytest.mark.parametrize("result", [h, b])
def test_dX_of_another_type(result: str) -> None:
    for shape, axis in (((65, 1000), 1), ((65, 1001), 1), ((5, 65, 40), 1)):
        inputs = operands(SOFTMAX, shape, axis, f)
        got = run(SOFTMAX, inputs, axis, result=result)[0]
        assert_close(SOFTMAX, "dX", got, reference(SOFTMAX, inputs, {"axis": axis})["dX"])


@pytest.mark.parametrize("in_place", ["dY", "Y"])
@pytest.mark.parametrize("columns", [33, 1001, 4096, 50257, 300_001])
def test_in_place(in_place: str, columns: int) -> None:
    check(SOFTMAX, (max(3, 100_000 // columns), columns), b, in_place=in_place)


@pytest.mark.parametrize("in_place", ["dY", "Y"])
def test_in_place_over_an_inner_axis(in_place: str) -> None:
    for columns in (21, 3000):
        check(SOFTMAX, (3, columns, 72), b, axis=1, in_place=in_place)


@pytest.mark.parametrize("columns", [65, 512, 5000, 40_000])
@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_infinity_and_nan_reach_what_they_reach_in_the_formula(dtype: str, columns: int) -> None:
    """0 times an infinity is NaN, and one NaN is all of its row's; a probability's logarithm of -inf is 0."""
    for operator in (SOFTMAX, LOG):
        inputs = operands(operator, (6, columns), 1, dtype)
        dY, output = inputs.values()
        dY[1, 7], dY[2, 3], output[3, 5] = np.nan, np.inf, np.nan
        output[4, ::2] = 0 if operator == SOFTMAX else -np.inf
        output[2, 3] = 0 if operator == SOFTMAX else -np.inf
        got, expected = run(operator, inputs, 1)[0], reference(operator, inputs, {"axis": 1})["dX"]
        np.testing.assert_array_equal(np.isnan(got.astype(f)), np.isnan(expected))
        np.testing.assert_array_equal(np.isposinf(got.astype(f)), np.isposinf(expected))
        kept = np.isfinite(expected)
        np.testing.assert_allclose(got.astype(d)[kept], expected[kept], rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("shape", [(3000, 1001), (20, 50257), (4, 700, 49)])
def test_the_same_call_gives_the_same_bits(shape: tuple[int, ...]) -> None:
    first, *others = run(LOG, operands(LOG, shape, 1, b), 1, times=20)
    assert all(first.tobytes() == each.tobytes() for each in others)


def test_a_captured_graph_gives_the_same_bits() -> None:
    from gradkern.cuda.device import activate, get_device

    inputs = operands(SOFTMAX, (500, 4097), 1, b)
    expected = run(SOFTMAX, inputs, 1)[0]
    with activate(get_device(0)):
        capture = Capture(mode="THREAD_LOCAL")

        def replayed(plan: Any, *arguments: Any) -> None:
            if capture.graph is None:
                with capture:
                    plan(*arguments)
            capture.replay()

        for got in run(SOFTMAX, inputs, 1, stream=capture.stream, times=10, calls=replayed):
            assert got.tobytes() == expected.tobytes()


def test_offsets_beyond_2_to_the_31_are_right() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    import gradkern

    rows, columns = (1 << 19) + 77, 4104
    dY, Y = (torch.full((rows, columns), value, dtype=torch.bfloat16, device="cuda") for value in (1.0, 0.0))
    dY[-1, 5], Y[-1, 3:7] = 5.0, 0.25
    dX = gradkern.run("SoftmaxGrad_13", dY=dY, Y=Y, out={"dX": dY})[0]
    expected = torch.zeros(columns, dtype=torch.bfloat16, device="cuda")
    expected[3:7] = torch.tensor([-0.25, -0.25, 0.75, -0.25])
    assert torch.equal(dX[-1], expected)
    assert not dX[:-1].any()
