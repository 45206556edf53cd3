"""PyTorch's autograd and gradkern: what records operations refuses, what does not is taken, what is written is noticed.

Run on the CPU, whose tensors are looked at one by one, and with tensors that a guard recognises as it does on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import message, prepare_any, run_any

import gradkern
from gradkern import ArgumentError
from gradkern.arrays.torch_guards import guard_of, of_tensors
from gradkern.policy import current

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("empty_plan_cache")]

LAYER, GELU = "LayerNormalizationGrad", "BiasGeluGrad_dX"


def parameters(dtype: str = "float32") -> tuple[Any, ...]:
    """Y_grad, X, scale, mean and inv_std_dev of a layer norm; X and the parameter scale require grad."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    X = torch.randn(6, 8, dtype=torch.float32)
    mean, inv_std = X.mean(1), 1 / X.std(1)
    scale = torch.nn.Parameter(torch.randn(8).to(kind))
    return torch.randn(6, 8).to(kind), X.to(kind).requires_grad_(), scale, mean, inv_std


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_that_require_grad_are_taken_where_no_operation_is_recorded(mode: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    inputs = parameters(dtype)
    expected = gradkern.run(LAYER, *(each.detach() for each in inputs))
    with getattr(torch, mode)():
        result = gradkern.run(LAYER, *inputs)
        out = torch.empty(8, dtype=inputs[0].dtype)
        plan = gradkern.prepare(LAYER, *inputs, out={"scale_grad": out})
        plan(*inputs, out={"scale_grad": out})
    assert all(torch.equal(one, other) for one, other in zip(result, expected, strict=True))
    assert torch.equal(out, expected.scale_grad)
    text = message(ArgumentError, gradkern.run, LAYER, *inputs)
    assert text == f"{LAYER}: input X requires grad, and autograd cannot follow gradkern; detach it: X.detach()"


def test_a_function_of_autograd_may_call_gradkern_in_its_backward_pass() -> None:
    torch = pytest.importorskip("torch")

    class LayerNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, X: Any, scale: Any, bias: Any) -> Any:
            Y, mean, inv_std = torch.native_layer_norm(X, (8,), scale, bias, 1e-5)
            ctx.save_for_backward(X, scale, mean.flatten(), inv_std.flatten())
            return Y

        @staticmethod
        def backward(ctx: Any, dY: Any) -> Any:
            return tuple(gradkern.run(LAYER, dY, *ctx.saved_tensors))

    X, scale, bias = torch.randn(6, 8), torch.randn(8), torch.randn(8)
    gradients = []
    for function in (LayerNorm.apply, lambda X, scale, bias: torch.nn.functional.layer_norm(X, (8,), scale, bias)):
        leaves = [torch.nn.Parameter(each.clone()) for each in (X, scale, bias)]
        function(*leaves).square().sum().backward()
        gradients.append([each.grad for each in leaves])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_guard_recognises_what_requires_grad_only_where_nothing_is_recorded() -> None:
    torch = pytest.importorskip("torch")
    inputs = parameters()
    addresses = tuple(each.data_ptr() for each in inputs)
    assert of_tensors(inputs) is None
    assert guard_of(inputs) is None
    with torch.no_grad():
        guard = guard_of(inputs)
        assert guard is not None
        assert guard.addresses(inputs) == addresses
        assert guard.addresses(tuple(each.detach() for each in inputs)) is None  # no parameter is among them
        with torch.enable_grad():
            assert guard.addresses(inputs) is None
    assert guard.addresses(inputs) is None


# --- what is written -------------------------------------------------------------------------------------------------


def gelu() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {"dY": torch.randn(4, 8), "X": torch.randn(4, 8), "B": torch.randn(8)}


@pytest.mark.parametrize("how", ["run", "prepared", "in place", "from NumPy arrays"])
def test_autograd_notices_that_a_tensor_it_needs_was_written(how: str) -> None:
    torch = pytest.importorskip("torch")
    given = gelu()
    leaf = torch.randn(4, 8, requires_grad=True)
    needed = given["X"] if how == "in place" else torch.randn(4, 8)
    loss = (leaf * needed).sum()  # whose gradient is what `needed` holds
    out = {"dX": needed}
    if how == "from NumPy arrays":
        given = {name: each.numpy() for name, each in given.items()}
    if how == "prepared":
        prepare_any(GELU, **given, out=out)(**given, out=out)
    else:
        run_any(GELU, **given, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_call_that_is_refused_counts_no_version_and_each_other_call_one() -> None:
    torch = pytest.importorskip("torch")
    given, out = gelu(), {"dX": torch.empty(4, 8)}
    before = out["dX"]._version
    message(ArgumentError, gradkern.run, GELU, **given, out=out, stream=7)
    assert out["dX"]._version == before
    for number in range(1, 4):
        run_any(GELU, **given, out=out)
        assert out["dX"]._version == before + number
    assert [each._version for each in given.values()] == [0, 0, 0]


def test_tensors_of_inference_mode_have_no_versions_and_can_be_written() -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        given, out = gelu(), {"dX": torch.zeros(4, 8)}
        result = run_any(GELU, **given, out=out)
        assert result.dX is out["dX"]
        assert result.dX.any()


# --- the policy ------------------------------------------------------------------------------------------------------


def in_threads_of_a_backward_pass(look: Any) -> None:
    """Call `look` in this thread and in threads of PyTorch's own: it takes one for backward passes in backward passes,
    once they are nested more than 60 deep. On a GPU every backward pass is computed in such a thread.
    """
    torch = pytest.importorskip("torch")

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, depth: int) -> Any:
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx: Any, dx: Any) -> Any:
            look()
            if ctx.depth:
                with torch.enable_grad():
                    Nested.apply(torch.ones(1, requires_grad=True), ctx.depth - 1).sum().backward()
            return dx, None

    Nested.apply(torch.ones(1, requires_grad=True), 70).sum().backward()


def seen_in_backward_pass() -> dict[int, set[gradkern.Policy]]:
    """By thread, the policies in force there."""
    import threading

    seen: dict[int, set[gradkern.Policy]] = {}
    in_threads_of_a_backward_pass(lambda: seen.setdefault(threading.get_ident(), set()).add(current()))
    assert len(seen) > 1
    return seen


def test_a_policy_is_in_force_in_the_threads_of_the_backward_pass_that_it_surrounds() -> None:
    strict, fixed = gradkern.Policy(deterministic=True), gradkern.Policy(deterministic=True, search="default")
    with gradkern.policy(deterministic=True):
        assert all(found == {strict} for found in seen_in_backward_pass().values())
        with gradkern.policy(search="default"):
            assert all(found == {fixed} for found in seen_in_backward_pass().values())
        assert all(found == {strict} for found in seen_in_backward_pass().values())
    assert all(found == {gradkern.Policy()} for found in seen_in_backward_pass().values())


def test_a_policy_of_another_thread_is_not_in_force_in_a_backward_pass() -> None:
    import threading

    entered, left = threading.Event(), threading.Event()

    def beside() -> None:
        with gradkern.policy(deterministic=True):
            entered.set()
            assert left.wait(60)

    thread = threading.Thread(target=beside)
    thread.start()
    assert entered.wait(60)
    try:
        assert all(found == {gradkern.Policy()} for found in seen_in_backward_pass().values())
    finally:
        left.set()
        thread.join()


def test_a_block_in_a_backward_pass_is_in_force_over_that_around_it() -> None:
    seen: set[tuple[bool, str]] = set()

    def look() -> None:
        with gradkern.policy(search="default"):
            seen.add((current().deterministic, current().search))
        seen.add((current().deterministic, current().search))

    with gradkern.policy(deterministic=True):
        in_threads_of_a_backward_pass(look)
    assert seen == {(True, "default"), (True, "background")}
    assert current() == gradkern.Policy()


def test_tasks_that_share_a_thread_have_their_own_policies() -> None:
    import asyncio

    pytest.importorskip("torch")
    seen: dict[str, gradkern.Policy] = {}

    async def inside(turn: asyncio.Event, back: asyncio.Event) -> None:
        with gradkern.policy(deterministic=True):
            turn.set()
            await back.wait()
            seen["inside"] = current()

    async def beside(turn: asyncio.Event, back: asyncio.Event) -> None:
        await turn.wait()
        seen["beside"] = current()
        back.set()

    async def both() -> None:
        events = asyncio.Event(), asyncio.Event()
        await asyncio.gather(inside(*events), beside(*events))

    asyncio.run(both())
    assert seen == {"inside": gradkern.Policy(deterministic=True), "beside": gradkern.Policy()}


def test_numpy_arrays_are_written_without_a_look_at_pytorch() -> None:
    given = {name: np.ones(shape, np.float32) for name, shape in {"dY": (4, 8), "X": (4, 8), "B": (8,)}.items()}
    out = {"dX": np.empty((4, 8), np.float32)}
    assert run_any(GELU, **given, out=out).dX is out["dX"]
