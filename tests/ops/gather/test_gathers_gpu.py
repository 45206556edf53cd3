"""The gradients of gathers and slices on a GPU against float64: types, indices, sizes, the same bits, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.examples import attributes_of, cases, sample
from helpers.reference import reference
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

import gradkern
from gradkern.contract.schema import Example, Operator

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

NAMES = [name for name, each in gradkern.operators().items() if each.family == "gather"]
INDICES = {
    "uniform": lambda random, n, V: random.integers(-V, V, n),
    "one": lambda random, n, V: np.full(n, V // 2),
    "skewed": lambda random, n, V: np.where(random.random(n) < 0.9, V // 2, random.integers(0, V, n)),
    "twins": lambda random, n, V: np.where(np.arange(n) % 2, V - 1, -1),
}


@pytest.mark.parametrize(("name", "operator", "row", "example"), list(cases(names=NAMES)))
def test_examples_agree_with_float64_mathematics(name: str, operator: Operator, row: dict, example: Example) -> None:
    inputs = sample(operator, row, example)
    expected = reference(name, inputs, example.attributes)
    tensors = {key: there(each) for key, each in inputs.items()}
    found: Any = run_any(name, **tensors, **attributes_of(operator, row, example))
    assert_close(name, operator.outputs[0].name, back(found[0]), expected[operator.outputs[0].name])


@pytest.mark.parametrize("how", INDICES)
@pytest.mark.parametrize(
    ("n", "V", "columns", "dtype"),
    [
        (4096, 50257, 1024, "bfloat16"),
        (30000, 1000, 65, "float32"),
        (5000, 3, 768, "float16"),
        (100, 300, 3, "float64"),
    ],
)
def test_sums_of_rows_have_the_same_bits_every_time(how: str, n: int, V: int, columns: int, dtype: str) -> None:
    random = np.random.default_rng(0)
    indices, dY = INDICES[how](random, n, V), random.standard_normal((n, columns)).astype(dtype)
    tensors = {"indices": there(indices), "dY": there(dY)}
    found: Any = run_any("GatherGrad", [V, columns], **tensors).dX
    expected = reference("GatherGrad", {"indices": indices, "dY": dY}, {"shape": [V, columns]})["dX"]
    assert_close("GatherGrad", "dX", back(found), expected)
    bits = back(found).tobytes()
    for _ in range(100):
        again: Any = run_any("GatherGrad", [V, columns], **tensors, out={"dX": found.fill_(7)}).dX
        assert back(again).tobytes() == bits


def test_sums_are_added_to_a_gradient_and_to_one_with_gaps() -> None:
    import torch

    random = np.random.default_rng(0)
    indices, dY = random.integers(0, 100, 5000), random.standard_normal((5000, 64)).astype("bfloat16")
    held = random.standard_normal((100, 64)).astype("bfloat16")
    inputs = {"indices": indices, "dY": dY, "accumulator": held}
    expected = reference("GatherGrad", inputs, {"shape": [100, 64]})["dX"]
    wide = torch.full((100, 128), 7.0, dtype=torch.bfloat16, device="cuda")
    for accumulator in (there(held), wide[:, ::2].copy_(there(held))):
        found: Any = run_any("GatherGrad", [100, 64], there(indices), there(dY), accumulator).dX
        assert found is accumulator
        assert_close("GatherGrad", "dX", back(found.contiguous()), expected)
    assert (wide[:, 1::2] == 7).all()


def test_an_index_out_of_range_adds_to_nothing() -> None:
    random = np.random.default_rng(0)
    indices, dY = random.integers(0, 100, 999), random.standard_normal((999, 64)).astype("float32")
    wrong = np.arange(999) % 3 == 0
    expected = reference("GatherGrad", {"indices": indices[~wrong], "dY": dY[~wrong]}, {"shape": [100, 64]})["dX"]
    for beyond in (100, -101, 1 << 40, -(1 << 62)):
        found: Any = run_any("GatherGrad", [100, 64], there(np.where(wrong, beyond, indices)), there(dY)).dX
        assert_close("GatherGrad", "dX", back(found), expected)


def test_a_captured_call_reads_the_indices_of_each_replay() -> None:
    import torch

    random = np.random.default_rng(0)
    indices, dY = there(random.integers(0, 1000, 4096)), there(random.standard_normal((4096, 256)).astype("float32"))
    out = {"dX": torch.empty(1000, 256, device="cuda")}
    run_any("GatherGrad", [1000, 256], indices, dY, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run_any("GatherGrad", [1000, 256], indices, dY, out=out)
    for seed in range(3):
        given = np.random.default_rng(seed).integers(-1000, 1000, 4096)
        indices.copy_(there(given))
        graph.replay()
        expected = reference("GatherGrad", {"indices": given, "dY": back(dY)}, {"shape": [1000, 256]})["dX"]
        assert_close("GatherGrad", "dX", back(out["dX"]), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("orders", [(False, False), (True, True), (True, False)])  # of dY and of dX: channels last
@pytest.mark.parametrize("cuts", [(slice(8, 24), slice(None)), (slice(1, 22, 4), slice(30, 3, -3))])
def test_slices_in_both_orders_of_memory(dtype: str, orders: tuple[bool, bool], cuts: tuple[slice, slice]) -> None:
    expected = np.zeros((2, 32, 33, 40), dtype)
    read = (slice(None), cuts[0], slice(None), cuts[1])
    dY = np.random.default_rng(0).standard_normal(expected[read].shape).astype(dtype)
    expected[read] = dY
    out = there(np.full_like(expected, 7), orders[1])
    bounds = [each.indices(size) for each, size in zip(cuts, (32, 40), strict=True)]
    starts, ends, steps = ([each[n] for each in bounds] for n in range(3))
    named = {"starts": starts, "ends": ends, "axes": [1, 3], "steps": steps}
    found: Any = run_any("SliceGrad", there(dY, orders[0]), shape=[*expected.shape], **named, out={"dX": out}).dX
    assert found.data_ptr() == out.data_ptr()
    np.testing.assert_array_equal(back(out), expected)


def test_a_weight_of_more_elements_than_32_bits_can_count() -> None:
    import torch

    V, C = 1 << 21, 2056
    if torch.cuda.mem_get_info()[0] < 2 * V * C + (1 << 30):
        pytest.skip("the GPU has too little free memory")
    indices = torch.tensor([V - 1, 0, -1, 5], device="cuda")
    dY = torch.ones(4, C, dtype=torch.bfloat16, device="cuda")
    found: Any = gradkern.run("GatherGrad", [V, C], indices, dY).dX
    assert (found[-1] == 2).all()
    assert (found[[0, 5]] == 1).all()
    assert int(torch.count_nonzero(found)) == 3 * C
