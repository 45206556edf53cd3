"""The plan of a linear cross entropy under the CUDA simulator, its products by NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.guarded import Guarded
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.simulate_losses import Launch, kernel_of
from helpers.tolerance import assert_close

from gradkern.call import Call
from gradkern.cublas.product import Matrix, Product
from gradkern.cuda.device import Device
from gradkern.kernels.rows import plan as rows_plan
from gradkern.ops.cross_entropy.cuda import linear
from gradkern.ops.cross_entropy.cuda import plan as loss_plan
from gradkern.policy import Policy

b, h, f, d = "bfloat16", "float16", "float32", "float64"


def matrix(address: int, at: Matrix, rows: int, columns: int, dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    span = (rows - 1) * at.row + (columns - 1) * at.column + 1
    there = (ctypes.c_uint8 * (span * kind.itemsize)).from_address(address + at.start)
    memory = np.ctypeslib.as_array(there)
    strides = at.row * kind.itemsize, at.column * kind.itemsize
    return np.lib.stride_tricks.as_strided(memory.view(kind), (rows, columns), strides)


def products(what: Product) -> Iterator[Any]:
    def multiply(_handle: Any, addresses: tuple[int, ...]) -> None:
        def at(place: Matrix, rows: int, columns: int, dtype: str) -> np.ndarray:
            return matrix(addresses[place.operand], place, rows, columns, dtype)

        left = at(what.left, what.rows, what.inner, what.dtype).astype(d)
        right = at(what.right, what.inner, what.columns, what.dtype).astype(d)
        result = at(what.result, what.rows, what.columns, what.result_dtype)
        result[...] = (left @ right + (result.astype(d) if what.accumulate else 0.0)).astype(what.result_dtype)

    yield multiply


def set_memory(width: int) -> Any:
    def write(address: int, bits: int, count: int, _stream: int) -> tuple[int]:
        kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[width]
        matrix(address, Matrix(0, 0, count, 1), 1, count, np.dtype(kind).name)[...] = bits
        return (0,)

    return write


@pytest.fixture(autouse=True)
def plans_in_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    counter, buffer = np.zeros(64, np.uint32), Guarded((1 << 23,), np.uint8)
    counter[0] = 1 << 31  # as an odd number of other launches' barriers leaves it
    for module in (rows_plan, loss_plan):
        monkeypatch.setattr(module, "kernel_of", kernel_of)
        monkeypatch.setattr(module, "Launch", Launch)

    class Activated:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def set_pairs(address: int, pitch: int, bits: int, _width: int, count: int, _stream: int) -> tuple[int]:
        matrix(address, Matrix(0, 0, pitch // 4, 1), count, 1, "uint32")[...] = bits
        return (0,)

    def copy(target: int, source: int, size: int, _stream: int) -> tuple[int]:
        ctypes.memmove(target, source, size)
        return (0,)

    names: dict[str, Any] = {
        "device_of": lambda _call: Device(0, (9, 0), 132, 232448),
        "scratch": lambda *_: (counter.ctypes.data, buffer.address),
        "borrow": lambda *_: None,
        "gemms": products,
        "bindings": lambda: None,
        "handle": lambda _index: SimpleNamespace(use=lambda *_: None),
        "workspace_bytes": lambda _device: 4096,
        "activate": lambda _device: Activated(),
        "check": lambda answer, _doing: answer,
        "driver": SimpleNamespace(
            cuMemsetD8Async=set_memory(1), cuMemsetD16Async=set_memory(2), cuMemsetD32Async=set_memory(4),
            cuMemsetD2D32Async=set_pairs, cuMemcpyDtoDAsync=copy,
        ),
    }  # fmt: skip
    for name, stand_in in names.items():
        monkeypatch.setattr(linear, name, stand_in)
    yield
    buffer.check()
    assert counter[0] == 1 << 31
    assert not counter[1:].any()


def check(
    sizes: tuple[int, int, int],
    dtype: str,
    outputs: tuple[str, ...] = ("loss", "dX", "dW", "dB"),
    weighted: bool = False,
    **options: Any,
) -> None:
    rows, features, classes = sizes
    random = np.random.default_rng(0)
    U = d if dtype == d else f
    labels = random.integers(0, classes, rows)
    labels[1::3] = -100
    given = {
        "X": random.standard_normal((rows, features)).astype(dtype),
        "W": random.standard_normal((classes, features)).astype(dtype),
        "labels": labels,
    }
    if "dB" in outputs:
        given["B"] = random.standard_normal(classes).astype(dtype)
    if weighted:
        given["weight"] = random.uniform(0.5, 2, classes).astype(U)
    each = options.get("reduction") == "none"
    if each:
        given["dY"] = random.standard_normal(rows).astype(U)
    held = {name: hold(array) for name, array in given.items()}
    for array in held.values():
        array.memory.freeze()
    shapes = {"loss": (rows,) if each else (1,), "dX": (rows, features), "dW": (classes, features), "dB": (classes,)}
    made = {name: Held(shapes[name], U if name == "loss" else dtype) for name in outputs}
    tensors = {name: array.tensor for name, array in made.items()}
    if not each and "loss" in tensors:
        tensors["loss"] = tensors["loss"]._replace(shape=(), strides=())
    defaults = {
        "reduction": "mean", "label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0, "empty": "zero",
        "ignore_index": -100, "logits_bytes": 0,
    }  # fmt: skip
    call = Call(
        "LinearCrossEntropy", {name: array.tensor for name, array in held.items()}, tensors, {**defaults, **options},
        {"rows": rows, "H": features, "C": classes}, frozenset(), "cuda:0", Policy(),
    )  # fmt: skip
    plan: Any = linear.plan(call)
    plan(tuple(array.address for array in held.values()), tuple(array.address for array in made.values()), 0)
    for array in (*held.values(), *made.values()):
        array.memory.check()
    expected = reference("LinearCrossEntropy", given, options)
    for name, array in made.items():
        got = np.array(array.array).reshape(expected[name].shape)
        assert_close("LinearCrossEntropy", name, got, expected[name])


@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_one_part(dtype: str) -> None:
    check((9, 16, 40), dtype)


@pytest.mark.parametrize("dtype", [b, f])
def test_several_parts(dtype: str) -> None:
    check((1200, 8, 5), dtype)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_options_over_several_parts(reduction: str, weighted: bool) -> None:
    check((1100, 4, 3), f, weighted=weighted, reduction=reduction, label_smoothing=0.1, z_loss=0.01, softcap=5.0)


@pytest.mark.parametrize("wanted", ["loss", "dX", "dW"])
def test_one_output_alone(wanted: str) -> None:
    check((1100, 4, 7), b, (wanted,))
