"""Plans of rotary embeddings under the CUDA simulator, in memory that shows every stray access."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import message, run_any
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.simulate_losses import Launch, kernel_of
from helpers.tolerance import assert_close

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.errors import ShapeError
from gradkern.ops.rotary_embedding.cuda import plan as rotary_plan
from gradkern.policy import Policy

b, h, f, d = "bfloat16", "float16", "float32", "float64"


@pytest.fixture(autouse=True)
def plans_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotary_plan, "kernel_of_config", lambda *given, arguments: kernel_of(*given))
    monkeypatch.setattr(rotary_plan, "Launch", Launch)
    monkeypatch.setattr(rotary_plan, "device_of", lambda _call: Device(0, (9, 0), 132, 232448))


def check(
    shape: tuple[int, int, int, int],
    half: int,
    dtype: str,
    cache: str = "",
    positions: bool = False,
    backward: bool = False,
    interleaved: int = 0,
    in_place: bool = False,
    **how: Any,
) -> None:
    batch, _, sequence, elements = shape
    random = np.random.default_rng(0)
    cached = (7,) if positions else (batch, sequence)
    data, result = ("dY", "dX") if backward else ("X", "Y")
    inputs = {data: random.standard_normal(shape).astype(dtype)}
    inputs |= {
        name: random.uniform(-1, 1, (*cached, half)).astype(cache or dtype) for name in ("cos_cache", "sin_cache")
    }
    if positions:
        inputs["position_ids"] = random.integers(0, 7, (batch, sequence))
    held = {name: hold(each, **(how if name == data else {})) for name, each in inputs.items()}
    for each in [*held.values()][in_place:]:
        each.memory.freeze()
    output = held[data] if in_place else Held(shape, dtype, **how)
    operator, attributes = f"RotaryEmbedding{'Grad' * backward}", {"interleaved": interleaved}
    tensors = {name: each.tensor for name, each in held.items()}
    axes = {"B": batch, "N": shape[1], "S": sequence, "D": elements, "half": half, "cached": cached}
    pairs = frozenset({(data, result)}) if in_place else frozenset[tuple[str, str]]()
    call = Call(operator, tensors, {result: output.tensor}, attributes, axes, pairs, "cuda:0", Policy())
    rotary_plan.plan(call)(tuple(each.address for each in held.values()), (output.address,), 0)
    for each in (*held.values(), output):
        each.memory.check()
    assert_close(operator, result, np.array(output.array), reference(operator, inputs, attributes)[result])


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("dtype", "cache"), [(b, b), (b, f), (h, h), (f, f), (d, d)])
def test_every_type_and_form(dtype: str, cache: str, interleaved: int, backward: bool) -> None:
    check((2, 3, 5, 32), 16, dtype, cache, False, backward, interleaved)


def test_lines_of_the_cache_by_position() -> None:
    check((2, 3, 5, 32), 16, b, f, True)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("elements", "half"), [(2, 1), (10, 3), (12, 6), (48, 8), (40, 0), (1040, 520)])
def test_any_number_of_pairs_and_elements_behind_them(elements: int, half: int, interleaved: int) -> None:
    check((2, 1, 3, elements), half, b, interleaved=interleaved)


@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (2, 0, 1, 3)])
def test_rows_in_any_order_of_memory_and_in_place(axes: tuple[int, ...]) -> None:
    check((2, 3, 5, 32), 16, b, in_place=True, axes=axes)
    check((2, 3, 5, 32), 16, b, axes=axes, spread=4, offset=2, interleaved=1)


def test_a_position_outside_of_the_cache_reads_its_end() -> None:
    """As the package says of GPUs."""
    X, cos, sin = np.ones((1, 1, 3, 2), f), np.arange(3, dtype=f)[:, None], np.zeros((3, 1), f)
    positions = np.array([[-1, 1, 1 << 40]])
    held = {"X": hold(X), "cos_cache": hold(cos), "sin_cache": hold(sin), "position_ids": hold(positions)}
    output = Held(X.shape, f)
    axes = {"B": 1, "N": 1, "S": 3, "D": 2, "half": 1, "cached": (3,)}
    tensors = {name: each.tensor for name, each in held.items()}
    call = Call(
        "RotaryEmbedding", tensors, {"Y": output.tensor}, {"interleaved": 0}, axes, frozenset(), "cuda:0", Policy()
    )
    rotary_plan.plan(call)(tuple(each.address for each in held.values()), (output.address,), 0)
    np.testing.assert_array_equal(output.array[0, 0], [[0, 0], [1, 1], [2, 2]])


def test_positions_need_a_cache_that_has_one() -> None:
    X, angles = np.ones((1, 1, 3, 2), f), np.ones((0, 1), f)
    given = angles, angles, np.zeros((1, 3), np.int64)
    assert "expected a position at least" in message(ShapeError, run_any, "RotaryEmbedding", X, *given)
    empty = run_any("RotaryEmbedding", X[:, :, :0], *given[:2], given[2][:, :0]).Y
    assert empty.shape == (1, 1, 0, 2)


def test_an_address_that_no_access_is_aligned_to_is_refused() -> None:
    lines, X = hold(np.ones((1, 3, 1), f)).tensor, hold(np.ones((1, 1, 3, 2), f)).tensor
    tensors = {"X": X, "cos_cache": lines._replace(strides=(18, 6, 4)), "sin_cache": lines}
    axes = {"B": 1, "N": 1, "S": 3, "D": 2, "half": 1, "cached": (1, 3)}
    call = Call("RotaryEmbedding", tensors, {"Y": X}, {"interleaved": 0}, axes, frozenset(), "cuda:0", Policy())
    with pytest.raises(Refusal, match="cos_cache: an address is no multiple of 4"):
        rotary_plan.plan(call)
