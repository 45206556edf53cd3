"""accelerate joins batch norms with the activations behind them, and says where it does not."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from gradkern.torch import BatchNorm1d, BatchNorm2d, accelerate

pytestmark = pytest.mark.torch


def network() -> nn.Sequential:
    inner = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.SiLU())
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), inner, nn.BatchNorm2d(4), nn.LeakyReLU(0.2)
    ).double()


def step(model: nn.Module) -> list[torch.Tensor]:
    """The output, the gradients and the buffers after two steps of training, and the output of evaluation."""
    x = torch.randn(3, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model.train()
    model(x).sum().backward()
    model.zero_grad()
    y = model(x)
    y.sin().sum().backward()
    found = [y, *(each.grad for each in model.parameters()), *model.buffers()]
    return [each.detach().clone() for each in (*found, model.eval()(x))]  # pyright: ignore[reportOptionalMemberAccess]


def test_norms_and_activations_become_one_and_come_back() -> None:
    model = network()
    state, kinds = copy.deepcopy(model.state_dict()), [type(each) for each in model.modules()]
    expected = step(copy.deepcopy(model))
    done = accelerate(model)
    fused = {"2": "FusedReLU", "3.2": "FusedSiLU", "5": "FusedLeakyReLU"}
    assert done.replaced == {**dict.fromkeys(("1", "3.1", "4"), "BatchNorm2d"), **fused}
    assert done.left == {}
    assert isinstance(model[1], BatchNorm2d)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(step(other), expected)
    assert list(model.state_dict()) == list(state)
    done.undo()
    assert [type(each) for each in model.modules()] == kinds
    torch.testing.assert_close(step(model), expected)


def test_subclasses_that_call_their_children_in_order_are_sequences_too() -> None:
    class Named(nn.Sequential):
        pass

    class Doubled(nn.Sequential):
        def forward(self, input: Any) -> Any:  # noqa: A002
            return 2 * super().forward(input)

    model = nn.Sequential(Named(nn.BatchNorm1d(4), nn.ReLU()), Doubled(nn.BatchNorm1d(4), nn.ReLU()))
    assert accelerate(model).replaced == {"0.0": "BatchNorm1d", "0.1": "FusedReLU"}
    assert isinstance(model[0][0], BatchNorm1d)  # pyright: ignore[reportIndexIssue]


def test_what_is_left_has_its_reason() -> None:
    relu, hooked = nn.ReLU(), nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())
    hooked[0].register_forward_hook(lambda *_: None)
    model = nn.Sequential(
        nn.Sequential(nn.BatchNorm1d(4), relu, nn.BatchNorm1d(4), relu),
        nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.ReLU()),
        nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.SiLU()),
        hooked,
        nn.Sequential(nn.BatchNorm1d(4), nn.Tanh()),
    ).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    expected = model(x)
    done = accelerate(model)
    assert done.replaced == {}
    assert done.left == {
        "0.0": "a module of it is in several places",
        "0.2": "a module of it is in several places",
        "1.0": "it has no weight and bias",
        "2.0": "its momentum is None",
        "3.0": "hooks look at what is inside",
    }
    torch.testing.assert_close(model(x), expected)


def test_a_filter_leaves_a_pair_alone() -> None:
    done = accelerate(network(), lambda module, name: name != "2")
    assert set(done.replaced) == {"3.1", "3.2", "4", "5"}


def test_a_gelu_that_stands_in_two_places_stays() -> None:
    gelu = nn.GELU()
    model = nn.Sequential(nn.Linear(4, 4), gelu, nn.Linear(4, 4), gelu)
    x = torch.randn(5, 4)
    expected = model(x)
    assert accelerate(model).replaced == {}
    torch.testing.assert_close(model(x), expected)
