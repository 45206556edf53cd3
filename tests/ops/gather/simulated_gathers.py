"""The plans of gathers' gradients under the CUDA simulator, in blocks of few threads: the sort, the sums, the parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.guarded import Guarded
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.simulate_losses import Launch, kernel_of
from helpers.tolerance import assert_close

from gradkern.arrays.view import view
from gradkern.call import Call
from gradkern.contract.check import check as checked
from gradkern.contract.request import Views, request_of
from gradkern.cuda import launches_plan
from gradkern.cuda.device import Device
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.segments import config as configs
from gradkern.kernels.segments import plan as segments
from gradkern.ops.gather import resolve
from gradkern.ops.gather.cuda.plan import plan
from gradkern.policy import Policy

b, h, f, d = "bfloat16", "float16", "float32", "float64"
random = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> list[Guarded]:
    """The scratch memory of each call. Blocks have 64 threads, with two keys and two rows in flight; pieces of the
    sorted list are 4 rows long, and rows from 16 bytes on are wide.
    """
    held: list[Guarded] = []

    def sort_config(rows: int, count: int) -> tuple[configs.SortConfig, int]:
        return configs.SortConfig(6, threads=64, steps=2), -(-rows.bit_length() // 6)

    def sums_config(data: str, columns: int, alignment: int) -> configs.SumsConfig:
        made = configs.sums_config(data, columns, alignment)
        return replace(made, threads=64, unroll=2, lanes=min(made.lanes, 64))

    def scratch(_device: Device, _stream: int, size: int) -> tuple[int, int]:
        held.append(Guarded((size,), np.uint8))
        return 0, held[-1].address

    changes: dict[str, Any] = {
        "sort_config": sort_config,
        "sums_config": sums_config,
        "piece_of": lambda count, groups: 4,
        "_LEAST_ZEROS": 256,
        "_WIDE": 16,
        "_WRITTEN_AGAIN": 400,
        "kernel_of": kernel_of,
        "Launch": Launch,
        "device_of": lambda call: Device(0, (9, 0), 132, 232448),
    }
    for name, value in changes.items():
        monkeypatch.setattr(segments, name, value)
    monkeypatch.setattr(launches_plan, "scratch", scratch)
    monkeypatch.setattr(configs, "_STORES", 1)
    return held


def call_of(operator: str, inputs: dict[str, np.ndarray], held: dict[str, Held], attributes: dict[str, Any]) -> Call:
    """The checked call, with what a device's plan knows of the arrays."""
    pairs = {("accumulator", "dX")} if "accumulator" in inputs else set[tuple[str, str]]()
    out = {target: view(inputs[source], target) for source, target in pairs}
    views = Views({name: view(each, name) for name, each in inputs.items()}, out, frozenset(pairs))
    call = checked(request_of(operator, (), {**inputs, **attributes}), views, Policy(), resolve)
    return replace(call, inputs={name: held[name].tensor for name in call.inputs}, device="cuda:0")


def found_by(
    memory: list[Guarded], operator: str, inputs: dict[str, np.ndarray], offset: int = 0, **attributes: Any
) -> np.ndarray:
    held = {name: hold(np.atleast_2d(each), offset=offset) for name, each in inputs.items()}
    for name, each in inputs.items():
        held[name].array = held[name].array.reshape(each.shape)
    for name, each in held.items():
        if name != "accumulator":
            each.memory.freeze()
    call = call_of(operator, inputs, held, attributes)
    ((name, output),) = call.outputs.items()
    made = held.get("accumulator") or Held((1, output.size), output.dtype, offset=offset)
    made.array = made.array.reshape(output.shape)
    alignment = made.tensor.alignment
    call = replace(call, outputs={name: output._replace(alignment=alignment)})
    planned = plan(call)
    if isinstance(planned, EmptyPlan):
        pytest.skip("nothing is launched")
    planned(tuple(held[each].address for each in call.inputs), (made.address,), 0)
    for each in (*(each.memory for each in held.values()), made.memory, *memory):
        each.check()
    return np.array(made.array)


def check(
    memory: list[Guarded], operator: str, inputs: dict[str, np.ndarray], offset: int = 0, **attributes: Any
) -> None:
    expected = next(iter(reference(operator, inputs, attributes).values()))
    assert_close(operator, "dX", found_by(memory, operator, inputs, offset, **attributes), expected)


def rows(count: int, columns: int, dtype: str) -> np.ndarray:
    return random.standard_normal((count, columns)).astype(dtype)


INDICES = {
    "uniform": lambda n, V: random.integers(-V, V, n),
    "one": lambda n, V: np.full(n, V // 2),
    "skewed": lambda n, V: np.where(random.random(n) < 0.9, V - 1, random.integers(0, V, n)),
    "twins": lambda n, V: np.where(np.arange(n) % 2, V - 1, -1),
    "each once": lambda n, V: np.roll(np.arange(n), 3) % V,
}


@pytest.mark.parametrize("how", INDICES)
@pytest.mark.parametrize(("n", "V", "columns", "dtype", "index"), [(300, 70, 24, b, "int64"), (41, 9, 5, f, "int32")])
def test_sums_of_rows_however_often_each_is_there(
    memory: list[Guarded], how: str, n: int, V: int, columns: int, dtype: str, index: str
) -> None:
    indices = INDICES[how](n, V).astype(index)
    check(memory, "GatherGrad", {"indices": indices, "dY": rows(n, columns, dtype)}, shape=[V, columns])


@pytest.mark.parametrize(
    ("columns", "dtype", "offset"),
    [(1, f, 0), (1, h, 1), (3, d, 0), (8, h, 0), (8, b, 4), (33, b, 0), (136, f, 0), (520, b, 0), (600, h, 0)],
)
def test_rows_of_any_width_type_and_alignment(memory: list[Guarded], columns: int, dtype: str, offset: int) -> None:
    indices = random.integers(0, 6, 11)
    inputs = {"indices": indices, "dY": rows(11, columns, dtype)}
    check(memory, "GatherGrad", inputs, offset, shape=[20, columns])


@pytest.mark.parametrize("dtype", [b, d])
def test_sums_are_added_to_what_is_there_in_one_rounding(memory: list[Guarded], dtype: str) -> None:
    inputs = {"indices": INDICES["skewed"](50, 12), "dY": rows(50, 16, dtype), "accumulator": rows(12, 16, dtype)}
    check(memory, "GatherGrad", inputs, shape=[12, 16], padding_idx=3)


def test_axes_before_the_one_that_is_gathered_share_a_sort(memory: list[Guarded]) -> None:
    inputs = {"indices": random.integers(-5, 5, (3, 4)), "dY": random.standard_normal((2, 3, 3, 4, 8)).astype(f)}
    check(memory, "GatherGrad", inputs, shape=[2, 3, 5, 8], axis=2)


@pytest.mark.parametrize("padding_idx", [0, -1])
def test_the_row_of_the_padding_is_zero(memory: list[Guarded], padding_idx: int) -> None:
    inputs = {"indices": random.integers(0, 4, 30), "dY": rows(30, 8, f)}
    check(memory, "GatherGrad", inputs, shape=[4, 8], padding_idx=padding_idx)


@pytest.mark.parametrize("beyond", [4, -5, 1 << 40, -(1 << 62)])
def test_an_index_out_of_range_is_as_if_it_were_not_there(memory: list[Guarded], beyond: int) -> None:
    indices, dY = random.integers(0, 4, 30), rows(30, 8, f)
    wrong = np.arange(30) % 3 == 0
    expected = reference("GatherGrad", {"indices": indices[~wrong], "dY": dY[~wrong]}, {"shape": [4, 8]})["dX"]
    inputs = {"indices": np.where(wrong, beyond, indices), "dY": dY}
    assert_close("GatherGrad", "dX", found_by(memory, "GatherGrad", inputs, shape=[4, 8]), expected)


@pytest.mark.parametrize(
    ("data", "given", "axis"),
    [((4, 9), (4, 21), 1), ((6, 5, 3), (8, 4, 3), 0), ((2, 3, 5, 4), (2, 2, 7, 4), -2), ((70,), (200,), 0)],
)
def test_gathered_elements(memory: list[Guarded], data: tuple[int, ...], given: tuple[int, ...], axis: int) -> None:
    indices = random.integers(-data[axis], data[axis], given)
    inputs = {"dY": random.standard_normal(given).astype(f), "indices": indices}
    check(memory, "GatherElementsGrad", inputs, shape=list(data), axis=axis)


@pytest.mark.parametrize(
    ("data", "gathered", "q", "batch_dims"),
    [((3, 4, 5), (15,), 2, 0), ((2, 3, 4), (7,), 1, 2), ((2, 6, 5, 8), (3, 2), 2, 1)],
)
def test_gathered_slices(
    memory: list[Guarded], data: tuple[int, ...], gathered: tuple[int, ...], q: int, batch_dims: int
) -> None:
    batch, bounds = data[:batch_dims], np.array(data[batch_dims : batch_dims + q])
    indices = random.integers(-bounds, bounds, (*batch, *gathered, q))
    update = random.standard_normal((*batch, *gathered, *data[batch_dims + q :])).astype(f)
    inputs = {"indices": indices, "update": update}
    check(memory, "GatherNDGrad", inputs, shape=list(data), batch_dims=batch_dims)


def test_keys_of_more_than_31_bits(memory: list[Guarded], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sort alone: their rows would fill the memory."""
    made = segments._Launches(
        call_of("GatherGrad", *long_call(), {"shape": [1 << 33, 0]}), Device(0, (9, 0), 132, 232448), 40, True
    )
    made.sort(
        "gradkern.ops.gather.cuda.kernel:build",
        configs.KeyTypes("int64", 0, 1, True),
        segments.Keys((), (), (1 << 33,), (1,)),
        1 << 33,
    )
    planned = made.plan("sort")
    indices = long_call()[0]["indices"]
    planned((indices.ctypes.data, 0), (0,), 0)
    memory[0].check()
    keys, positions = (
        np.frombuffer(memory[0].array.tobytes(), kind, 40, planned.offsets[segments._OWN.index(name)])
        for name, kind in zip(made._sorted, (np.int64, np.int32), strict=True)
    )
    order = np.argsort(indices % (1 << 33), kind="stable")
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(keys, (indices % (1 << 33))[order])


def long_call() -> tuple[dict[str, np.ndarray], dict[str, Held]]:
    indices = np.random.default_rng(1).integers(-(1 << 33), 1 << 33, 20).repeat(2)
    inputs = {"indices": indices, "dY": np.zeros((40, 0), f)}
    return inputs, {"indices": hold(indices[None]), "dY": Held((1, 1), f)}
