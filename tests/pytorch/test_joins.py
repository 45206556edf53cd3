"""accelerate computes pairs of modules as one, says where it does not, and heeds what becomes of the modules later."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import fx, nn

import gradkern.torch
from gradkern.torch import SyncBatchNorm, accelerate

pytestmark = pytest.mark.torch

ACTIVATIONS = nn.ReLU, nn.SiLU, nn.LeakyReLU, nn.GELU, nn.ReLU6, nn.Hardswish, nn.ELU
SCRIPT = "ignore:.torch.jit.(script|trace|trace_method|script_method|load|save). is deprecated"


def network() -> nn.Sequential:
    inner = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.SiLU())
    head = nn.Sequential(nn.Flatten(2), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(16, 5), nn.GELU())
    norms = nn.BatchNorm2d(4), nn.ReLU(), inner, nn.BatchNorm2d(4), nn.LeakyReLU(0.2)
    return nn.Sequential(nn.Conv2d(3, 4, 3), *norms, head).double()


def images() -> torch.Tensor:
    return torch.randn(3, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def step(model: nn.Module, x: torch.Tensor | None = None) -> list[torch.Tensor]:
    """The output, the gradients and the buffers after two steps of training, and the output of evaluation."""
    x = images() if x is None else x
    model.train()
    model(x).sum().backward()
    model.zero_grad()
    y = model(x)
    y.sin().sum().backward()
    found = [y, *(each.grad for each in model.parameters()), *model.buffers()]
    return [each.detach().clone() for each in (*found, model.eval()(x)) if each is not None]


def calls(model: nn.Module, x: torch.Tensor | None = None) -> int:
    """How often modules of activations are called in a step of training, by a patch of their classes."""
    count: list[type] = []

    def counting(kind: Any) -> Any:
        own = kind.forward
        return mock.patch.object(kind, "forward", lambda self, x: (count.append(kind), own(self, x))[1])

    model.train()
    with counting(nn.ReLU), counting(nn.SiLU), counting(nn.LeakyReLU), counting(nn.GELU):
        model(images() if x is None else x)
    return len(count)


def test_pairs_become_one_and_come_back() -> None:
    model = network()
    state, kinds = copy.deepcopy(model.state_dict()), [type(each) for each in model.modules()]
    expected = step(copy.deepcopy(model))
    assert calls(copy.deepcopy(model)) == 5
    done = accelerate(model)
    assert done.replaced == {
        "1": "BatchNorm2d + ReLU",
        "3.1": "BatchNorm2d + SiLU",
        "4": "BatchNorm2d + LeakyReLU",
        "6.1": "BatchNorm1d + ReLU",
        "6.3": "Linear + GELU",
    }
    assert done.left == {}
    children = [type(each) for each in model.modules() if not isinstance(each, nn.Sequential)]
    assert children == [each for each in kinds if each is not nn.Sequential]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)[:]):
        other = copy.deepcopy(other)
        assert calls(copy.deepcopy(other)) == 0
        torch.testing.assert_close(step(other), expected)
    assert list(model.state_dict()) == list(state)
    done.undo()
    assert [type(each) for each in model.modules()] == kinds
    assert not {"apart"} & vars(model).keys()
    torch.testing.assert_close(step(model), expected)


class Named(nn.Sequential):
    """A sequence by another name."""


class Doubled(nn.Sequential):
    def forward(self, input: Any) -> Any:  # noqa: A002
        return 2 * super().forward(input)


def test_subclasses_that_call_their_children_in_order_are_sequences_too() -> None:
    model = nn.Sequential(Named(nn.BatchNorm1d(4), nn.ReLU()), Doubled(nn.BatchNorm1d(4), nn.ReLU())).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    expected = step(copy.deepcopy(model), x)
    done = accelerate(model)
    assert done.replaced == {"0.0": "BatchNorm1d + ReLU"}
    assert isinstance(model[0], Named)
    assert type(model[1]) is Doubled
    torch.testing.assert_close(step(pickle.loads(pickle.dumps(model)), x), expected)
    done.undo()
    assert type(model[0]) is Named


def test_modules_in_several_places_are_joined_in_each() -> None:
    relu, norm = nn.ReLU(), nn.BatchNorm1d(4)
    model = nn.Sequential(norm, relu, nn.BatchNorm1d(4), relu, norm, nn.SiLU()).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    expected = step(copy.deepcopy(model), x)
    accelerate(model)
    assert calls(copy.deepcopy(model), x) == 0
    torch.testing.assert_close(step(model, x), expected)


def test_what_is_left_has_its_reason() -> None:
    hooked = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())
    hooked[0].register_forward_hook(lambda *_: None)
    model = nn.Sequential(
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
        "0.0": "it has no weight and bias",
        "1.0": "its momentum is None",
        "2.0": "hooks look at what is between",
    }
    torch.testing.assert_close(model(x), expected)


def test_a_filter_leaves_a_pair_alone_and_a_second_call_takes_it() -> None:
    model = network()
    done = accelerate(model, lambda module, name: name != "2")
    assert set(done.replaced) == {"3.1", "4", "6.1", "6.3"}
    assert calls(model) == 1
    again = accelerate(model)
    assert again.replaced == {"1": "BatchNorm2d + ReLU"}
    assert calls(model) == 0
    again.undo()
    assert calls(model) == 1
    assert accelerate(model, lambda module, name: name != "2").replaced == {}


# --- what becomes of modules after accelerate ---------------------------------------------------------------------


def frozen(model: Any) -> Any:
    """As timm's freeze_batch_norm_2d: other modules in the places of the norms."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            other = nn.InstanceNorm2d(child.num_features, affine=True, dtype=child.weight.dtype)
            setattr(model, name, other)
        else:
            frozen(child)
    return model


def exchanged(model: Any) -> Any:
    model[1], model[4] = nn.Identity(), nn.BatchNorm2d(4, affine=False).double()
    model[6][3] = nn.Sequential(nn.Linear(16, 5, bias=False)).double()
    return model


def other_activations(model: Any) -> Any:
    model[2], model[5], model[3][2], model[6][4] = nn.Tanh(), nn.GELU(), nn.GELU("tanh"), nn.GELU("tanh")
    return model


def patched(model: Any) -> Any:
    """As libraries that offload weights do."""
    for place in (1, 5):
        model[place].forward = lambda x, own=model[place].forward: own(x) + 1
    return model


def reordered(model: Any) -> Any:
    model.insert(2, nn.Tanh())
    del model[5]
    return nn.Sequential(*list(model.children()))


def parametrized(model: Any) -> Any:
    torch.nn.utils.parametrize.register_parametrization(model[6][3], "weight", nn.Tanh())
    torch.nn.utils.spectral_norm(model[3][1])
    return model


def untracked(model: Any) -> Any:
    """As test-time adaptation does, of models that others have trained."""
    for each in model.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.track_running_stats = False
    return model


SURGERY: dict[str, Callable[[Any], Any]] = {
    "frozen": frozen,
    "exchanged": exchanged,
    "other activations": other_activations,
    "patched": patched,
    "reordered": reordered,
    "parametrized": parametrized,
    "untracked": untracked,
    "gradkern's SyncBatchNorm": SyncBatchNorm.convert_sync_batchnorm,
    "float32": lambda model: model.float(),
}


@pytest.mark.parametrize("name", SURGERY)
@pytest.mark.filterwarnings("ignore:.torch.nn.utils.spectral_norm. is deprecated")
def test_whatever_becomes_of_its_modules_a_model_computes_what_they_say(name: str) -> None:
    model = network()
    plain = copy.deepcopy(model)
    accelerate(model)
    torch.manual_seed(0)
    model = SURGERY[name](model)
    torch.manual_seed(0)
    plain = SURGERY[name](plain)
    x = images().to(next(model.parameters()).dtype)
    found, expected = ([*step(each, x), *step(each, x)] for each in (model, plain))
    close: dict[str, Any] = {"rtol": 2e-3, "atol": 2e-4} if x.dtype is torch.float32 else {}
    torch.testing.assert_close(found, expected, **close)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("last", [True, False])
def test_pairs_in_both_orders_of_memory_and_after_their_norms_are_replaced(last: bool, device: str) -> None:
    order: Any = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(8, 3, 34, 34, dtype=torch.float64).to(device, memory_format=order)
    plain: Any = network()[:-1]
    plain = plain.to(device, memory_format=order)
    model = copy.deepcopy(plain)
    accelerate(model)
    assert calls(copy.deepcopy(model), x) == 0
    torch.testing.assert_close(step(model, x), step(plain, x))
    synchronised = [nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(each)).eval()(x) for each in (model, plain)]
    torch.testing.assert_close(*synchronised)
    torch.testing.assert_close(*[step(frozen(each).to(device), x) for each in (model, plain)])


def test_pytorch_s_conversion_to_sync_batch_norm_keeps_activations() -> None:
    """On a CPU, which trains none of these, in evaluation."""
    model = network()
    step(model)
    plain = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model)).eval()
    accelerate(model)
    found = nn.SyncBatchNorm.convert_sync_batchnorm(model).eval()
    torch.testing.assert_close(found(images()), plain(images()), rtol=0, atol=0)


HOOKS: dict[str, Callable[[Any, Callable[..., Any]], Any]] = {
    "forward": lambda module, see: module.register_forward_hook(see),
    "forward with keywords": lambda module, see: module.register_forward_hook(
        lambda m, args, kwargs, y: see(m, args, y), with_kwargs=True
    ),
    "forward before": lambda module, see: module.register_forward_pre_hook(see),
    "backward": lambda module, see: module.register_full_backward_hook(see),
    "backward before": lambda module, see: module.register_full_backward_pre_hook(see),
    "every forward": lambda _, see: nn.modules.module.register_module_forward_hook(see),
    "every forward before": lambda _, see: nn.modules.module.register_module_forward_pre_hook(see),
    "every backward": lambda _, see: nn.modules.module.register_module_full_backward_hook(see),
}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("place", ["1", "2", "3.1", "5", "6.3", "6.4"])
def test_hooks_see_what_they_see_without_accelerate(name: str, place: str) -> None:
    def seen_by(model: nn.Module) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []

        def see(module: Any, *given: Any) -> None:
            if module is model.get_submodule(place):
                tensors = (each for one in given for each in (one if isinstance(one, tuple) else (one,)))
                seen.extend([each.detach().clone() for each in tensors if each is not None])

        handle = HOOKS[name](model.get_submodule(place), see)
        try:
            model(images().requires_grad_()).sin().sum().backward()
        finally:
            handle.remove()
        return seen

    model = network()
    expected = seen_by(copy.deepcopy(model))
    accelerate(model)
    found = seen_by(model)
    assert len(found) > 0
    torch.testing.assert_close(found, expected)
    assert calls(model) == 0


# --- tracers -----------------------------------------------------------------------------------------------------


def ours() -> nn.Sequential:
    """Modules that accelerate gives another class."""
    convolutions = nn.Conv1d(4, 4, 1, groups=4), nn.Unflatten(2, (3, 2)), nn.Conv2d(4, 4, 1, groups=4), nn.Flatten(2)
    return nn.Sequential(*convolutions, nn.LayerNorm(6), nn.RMSNorm(6), nn.BatchNorm1d(4), nn.ReLU()).double()


@pytest.mark.parametrize(("make", "shape"), [(network, (3, 3, 6, 6)), (ours, (2, 4, 6))])
@pytest.mark.parametrize("invertible", [False, True])
@pytest.mark.filterwarnings(SCRIPT)
def test_tracers_see_the_model_as_it_was(make: Any, shape: Any, invertible: bool) -> None:
    plain, x = make(), torch.randn(shape, dtype=torch.float64)
    model = copy.deepcopy(plain)
    assert accelerate(model, autocast="input", invertible=invertible).replaced
    graphs = [[(each.op, each.target) for each in fx.symbolic_trace(one).graph.nodes] for one in (model, plain)]
    assert graphs[0] == graphs[1]
    torch.testing.assert_close(step(fx.symbolic_trace(copy.deepcopy(model)), x), step(copy.deepcopy(plain), x))
    model.eval()
    expected = plain.eval()(x)
    traced: Any = torch.jit.trace(model, (x,))
    assert "PythonOp" not in str(traced.inlined_graph)
    scripted: Any = torch.jit.script(copy.deepcopy(model))
    for each in (traced, scripted):
        saved = io.BytesIO()
        torch.jit.save(each, saved)
        saved.seek(0)
        torch.testing.assert_close(torch.jit.load(saved)(x), expected)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.filterwarnings(SCRIPT)
def test_gradkern_s_modules_are_leaves_of_a_graph_and_say_what_has_no_script() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kinds = gradkern.torch
            self.conv, self.norm = kinds.Conv1d(3, 4, 1), kinds.BatchNorm1d(4, activation="relu")
            self.linear, self.sync = kinds.LinearGELU(6, 6), SyncBatchNorm(4)
            self.invertible = kinds.InvertibleLayerNorm(6)

        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            return self.invertible(self.sync(self.linear(self.norm(y, residual=y))))

    model, x = Model(), torch.randn(5, 3, 6)
    traced = fx.symbolic_trace(model)
    kinds = [(each.op, each.target) for each in traced.graph.nodes if each.op not in ("placeholder", "output")]
    assert kinds == [("call_module", name) for name in ("conv", "norm", "linear", "sync", "invertible")]
    torch.testing.assert_close(traced(x), model(x))
    for name in ("norm", "linear"):
        with pytest.raises(TypeError, match=r"^torch.jit.script: PyTorch has no module that computes what gradkern"):
            torch.jit.script(getattr(model, name))
