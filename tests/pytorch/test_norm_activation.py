"""batch_norm_act and batch norms with an activation: PyTorch's numbers, running statistics, types and derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.examples import in_turn
from torch.nn import functional

from gradkern.torch import BatchNorm2d, batch_norm_act, direct, group_norm_act

pytestmark = pytest.mark.torch

ALPHA = 0.2
ACT: dict[str, Any] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "none": lambda t: t,
    "leaky_relu": lambda t: functional.leaky_relu(t, ALPHA),
}
CASES = [("relu", False), ("relu", True), ("silu", False), ("gelu", False), ("none", True), ("leaky_relu", False)]
CASES += [("leaky_relu", True)]
SHAPE = (4, 3, 5, 6)


def leaves(dtype: torch.dtype, last: bool, residual: bool) -> list[torch.Tensor]:
    """Input, scale and bias, and the residual."""
    generator = torch.Generator().manual_seed(0)
    order = torch.channels_last if last else torch.contiguous_format
    X, Z = (torch.randn(SHAPE, generator=generator).to(dtype).to(memory_format=order) for _ in range(2))
    parameter = torch.float32 if dtype is torch.bfloat16 else dtype
    scale, bias = (torch.randn(3, generator=generator).to(parameter) for _ in range(2))
    return [each.requires_grad_() for each in (X, scale, bias, *([Z] if residual else []))]


def apart(x: Any, w: Any, b: Any, z: Any = None, running: Any = (None, None), act: str = "relu") -> torch.Tensor:
    t = functional.batch_norm(x, running[0], running[1], w, b, True)
    return ACT[act](t if z is None else t + z)


@pytest.mark.parametrize(
    ("activation", "residual", "dtype", "last"),
    in_turn(CASES, [(torch.float32,), (torch.float64,), (torch.bfloat16,)], [False, True]),
)
def test_two_steps_give_what_the_parts_give(activation: str, residual: bool, dtype: torch.dtype, last: bool) -> None:
    """In 16 bits against the parts in float64: between the parts PyTorch rounds, and what is joined does not."""
    given = leaves(dtype, last, residual)
    wide = [each.detach().double().requires_grad_() for each in given]
    running = [torch.zeros_like(given[1].detach()), torch.ones_like(given[1].detach())]
    expected = [each.double() for each in running]
    close: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for _ in range(2):
        x, w, b, *z = given
        more = {"residual": z[0] if z else None, "activation_alpha": ALPHA}
        y = batch_norm_act(x, running[0], running[1], w, b, activation=activation, **more)
        exact = apart(*wide, running=expected, act=activation)
        assert y.dtype == dtype
        assert y.stride() == x.stride()
        upstream = torch.randn_like(y)
        if "relu" in activation:  # where rounding decides, no gradient comes
            upstream = upstream * (exact.abs() > 0.05)
        gradients = torch.autograd.grad(y, given, upstream)
        exacts = torch.autograd.grad(exact, wide, upstream.double())
        for one, other in zip((y, *running, *gradients), (exact, *expected, *exacts), strict=True):
            if one.dtype is torch.bfloat16:
                assert (one.double() - other).norm() <= 4e-3 * other.norm()
            else:
                torch.testing.assert_close(one.double(), other, **close)


@pytest.mark.parametrize(("activation", "residual"), CASES)
def test_it_has_first_and_second_derivatives(activation: str, residual: bool) -> None:
    def function(x: Any, w: Any, b: Any, z: Any = None) -> torch.Tensor:
        return batch_norm_act(x, None, None, w, b, activation=activation, residual=z, activation_alpha=ALPHA)

    x, *others = leaves(torch.float64, False, residual)
    given = (x[:2, :2, :2, :3], others[0][:2], others[1][:2], *(each[:2, :2, :2, :3] for each in others[2:]))
    given = tuple(each.detach().clone().requires_grad_() for each in given)
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given)


@pytest.mark.parametrize(("activation", "residual"), CASES)
def test_only_needed_gradients_are_computed(activation: str, residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given, wanted = leaves(torch.float64, False, residual), []
    run = direct.run

    def noted(name: str, *arrays: Any, **named: Any) -> Any:
        wanted.append(named["outputs"] if name == "BatchNormalizationGrad" else None)
        return run(name, *arrays, **named)

    monkeypatch.setattr(direct, "run", noted)
    for place in range(len(given)):
        frozen = [each if number == place else each.detach() for number, each in enumerate(given)]
        x, w, b, *z = frozen
        more = {"residual": z[0] if z else None, "activation_alpha": ALPHA}
        y = batch_norm_act(x, None, None, w, b, activation=activation, **more)
        (found,) = torch.autograd.grad(y.sum(), frozen[place])  # of a gradient that is one number, expanded
        exact = apart(*frozen, act=activation)
        torch.testing.assert_close(found, torch.autograd.grad(exact.sum(), frozen[place])[0])
    names = [("dX",), ("dScale",), ("dBias",), ("dZ",)][: 4 if residual and activation != "none" else 3]
    assert [each for each in wanted if each is not None] == names


def test_what_the_operators_do_not_compute_is_pytorchs() -> None:
    x, w, b = leaves(torch.float32, False, False)
    mean, var = torch.zeros(3), torch.ones(3)
    evaluated = batch_norm_act(x, mean, var, w, b, training=False)
    torch.testing.assert_close(evaluated, functional.relu(functional.batch_norm(x, mean, var, w, b)))
    plain = batch_norm_act(x, mean, var)
    torch.testing.assert_close(plain, functional.relu(functional.batch_norm(x, None, None, training=True)))
    wider = batch_norm_act(x.bfloat16(), None, None, w, b, residual=x)  # PyTorch's rules of types
    assert wider.dtype is torch.float32
    assert batch_norm_act(x[:0], mean, var, w, b).shape == (0, *SHAPE[1:])
    leaky = batch_norm_act(x, None, None, w, b, activation="leaky_relu", activation_alpha=-0.5)
    torch.testing.assert_close(leaky, functional.leaky_relu(functional.batch_norm(x, None, None, w, b, True), -0.5))
    with pytest.raises(ValueError, match=r"activation is 'mish'; expected one of none, relu, leaky_relu, silu"):
        batch_norm_act(x, None, None, w, b, activation="mish")
    with pytest.raises(ValueError, match=r"Expected more than 1 value per channel when training"):
        batch_norm_act(x[:1, :, :1, :1], None, None, w, b)


@pytest.mark.parametrize("activation", ["none", "relu", "leaky_relu"])
def test_no_residual_is_kept_for_the_backward_pass(activation: str) -> None:
    """Nor is it by PyTorch's functions, of which the addition keeps nothing."""
    x, w, b, z = leaves(torch.float32, False, True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each.data_ptr()) or each, lambda each: each):
        y = batch_norm_act(x, None, None, w, b, activation=activation, residual=z)
    assert x.data_ptr() in kept
    assert (y.data_ptr() in kept) is (activation != "none")
    assert z.data_ptr() not in kept


def test_an_output_that_is_changed_in_place_is_noticed() -> None:
    """relu's mask is read from the output where a residual is in it."""
    x, w, b, z = leaves(torch.float32, False, True)
    y = batch_norm_act(x, None, None, w, b, residual=z)
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_module_with_an_activation_keeps_the_names_of_its_state(momentum: float | None, activation: str) -> None:
    act = ACT[activation]
    ours = BatchNorm2d(3, activation=activation, activation_alpha=ALPHA, momentum=momentum)
    theirs = torch.nn.BatchNorm2d(3, momentum=momentum)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x, *_, z = leaves(torch.float32, True, True)
    for _ in range(2):
        torch.testing.assert_close(ours(x, z), act(theirs(x) + z))
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other)
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(ours(x), act(theirs(x)))
    assert f"activation={activation!r}" in repr(ours)
    assert ("activation_alpha=0.2" in repr(ours)) == (activation == "leaky_relu")
    with pytest.raises(ValueError, match="activation is 'tanh'"):
        BatchNorm2d(3, activation="tanh")


def test_autocast_changes_nothing() -> None:
    """As with functional.batch_norm, which is of the type of its input."""
    x, w, b = leaves(torch.bfloat16, True, False)
    plain = batch_norm_act(x, None, None, w, b)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(batch_norm_act(x, None, None, w, b), plain, rtol=0, atol=0)


def test_it_is_traced_whole_as_its_parts() -> None:
    def step(x: Any, w: Any, b: Any, z: Any, mean: Any, var: Any) -> torch.Tensor:
        return batch_norm_act(x, mean, var, w, b, residual=z)

    given = leaves(torch.float32, False, True)
    states = [[torch.zeros(3), torch.ones(3)] for _ in range(2)]
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    one, other = compiled(*given, *states[0]), step(*given, *states[1])
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(states[0], states[1])
    torch.testing.assert_close(torch.autograd.grad(one.sum(), given), torch.autograd.grad(other.sum(), given))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "elu"])
def test_an_alpha_that_no_operator_takes_is_pytorchs(activation: str) -> None:
    x = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    ones, zeros = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    ours = (
        batch_norm_act(x, None, None, ones, zeros, activation=activation, activation_alpha=-0.7),
        group_norm_act(x, 2, ones, zeros, activation=activation, activation_alpha=-0.7),
    )
    norms = functional.batch_norm(x, None, None, ones, zeros, True), functional.group_norm(x, 2, ones, zeros)
    for y, norm in zip(ours, norms, strict=True):
        expected = functional.relu(norm) if activation == "relu" else getattr(functional, activation)(norm, -0.7)
        torch.testing.assert_close(y, expected)
        found, wanted = (torch.autograd.grad(each.sin().sum(), x)[0] for each in (y, expected))
        torch.testing.assert_close(found, wanted)
