"""SyncBatchNorm of one to four processes, against one process that has the whole batch, in float64."""

from __future__ import annotations

import copy
import pickle
import re
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import processes, sync_batch_norm_steps
from helpers.models import torchvision
from helpers.sync_batch_norm_steps import CASES, STEPS, SYMMETRIC, WAYS, WITHOUT_WAITING, Case, images, loss, model
from helpers.tolerance import assert_close
from torch import nn

import gradkern.torch
from gradkern.arrays.host import torch_as_numpy
from gradkern.torch import SyncBatchNorm
from gradkern.torch.sync_batch_norm import exchange

pytestmark = pytest.mark.torch

needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
Steps = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]
"""What a process found in two runs of a case, by name."""
Found = list[dict[str, Any]]
"""What each process found, by case."""


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return processes.results(sync_batch_norm_steps.__file__, 4, tmp_path_factory.mktemp("gloo"))


@pytest.fixture(scope="module")
def on_gpus(tmp_path_factory: pytest.TempPathFactory) -> Found:
    size = min(4, torch.cuda.device_count())
    return processes.results(sync_batch_norm_steps.__file__, size, tmp_path_factory.mktemp("nccl"), "cuda")


@pytest.fixture(params=["on_cpu", pytest.param("on_gpus", marks=[pytest.mark.gpu, needs_two])])
def results(request: pytest.FixtureRequest) -> Found:
    return request.getfixturevalue(request.param)


def of_case(name: str, results: Found) -> list[Steps]:
    """What the processes that have a part found."""
    parts = len(CASES[name.removesuffix(", True").removesuffix(", False")].parts)
    if parts > len(results):
        pytest.skip(f"needs {parts} GPUs")
    return [each[name] for each in results[:parts]]


def whole(case: Case) -> dict[str, torch.Tensor]:
    """What PyTorch's batch norm of the whole batch gives in float64, after as many steps."""
    module: Any = case.module(torch.float64)
    found: dict[str, Any] = {}
    for step in range(STEPS):
        x, grad = case.batch(step)
        x.requires_grad_()
        module.zero_grad()
        y = module(x)
        y.backward(grad)
        found = {"y": y.detach(), "dX": x.grad, **{name: each.grad for name, each in module.named_parameters()}}
    return {**found, **dict(module.named_buffers())}


def terms_of(case: Case) -> dict[str, np.ndarray]:
    """The sums of absolute values, of what the parameters' gradients add up: they may cancel."""
    x, grad = case.batch(STEPS - 1)
    axes = (0, *range(2, x.dim()))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    xh = (x - mean) * (variance + case.options.get("eps", 1e-5)).rsqrt()
    return {"weight": (grad * xh).abs().sum(axes).numpy(), "bias": grad.abs().sum(axes).numpy()}


def joined(found: list[dict[str, torch.Tensor]], name: str) -> torch.Tensor:
    """Of all parts: images one after another, parameters' gradients added up, and buffers as everybody has them."""
    every = [each[name] for each in found]
    if name in ("y", "dX"):
        return torch.cat(every)
    if name in ("weight", "bias"):
        return torch.stack(every).double().sum(0).to(every[0].dtype)
    assert all(torch.equal(every[0], each) for each in every)
    return every[0]


@pytest.mark.parametrize("name", CASES)
def test_parts_have_the_outputs_gradients_and_statistics_of_the_whole_batch(name: str, results: Found) -> None:
    case = CASES[name]
    found = [each[0] for each in of_case(name, results)]
    expected, terms = whole(case), terms_of(case)
    assert set(found[0]) == set(expected)
    for each, exact in expected.items():
        result = joined(found, each)
        assert result.shape == exact.shape
        if each == "num_batches_tracked":
            assert torch.equal(result, exact)
        else:
            assert_close("SyncBatchNorm", each, torch_as_numpy(result), exact.numpy(), terms.get(each))
    if case.order is not torch.contiguous_format:
        assert all(each[n].is_contiguous(memory_format=case.order) for each in found for n in ("y", "dX"))


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_the_same_in_every_run(name: str, results: Found) -> None:
    for one, other in of_case(name, results):
        assert all(torch.equal(one[each], other[each]) for each in one)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_messages_through_symmetric_memory_give_the_same_bits(name: str, results: Found) -> None:
    """On the CPU, which has none, they go as ever."""
    for plain, symmetric in zip(of_case(f"{name}, False", results), of_case(f"{name}, True", results), strict=True):
        for one, other in zip(plain, symmetric, strict=True):
            assert all(torch.equal(other[each], one[each]) for each in one)


def test_all_processes_send_messages_the_same_way(results: Found) -> None:
    """By symmetric memory where NVLink joins their GPUs."""
    found = [each["by NVLink"] for each in results]
    assert found == [found[0]] * len(results)


def test_second_derivatives_are_those_of_the_whole_batch(results: Found) -> None:
    case = CASES["compiled"]
    module: Any = case.module(torch.float64)
    x, grad = case.batch(0)
    x.requires_grad_()
    (dx,) = torch.autograd.grad(module(x), x, grad, create_graph=True)
    expected = torch.autograd.grad(dx.square().sum(), (x, module.weight))
    of_case("compiled", results)  # four processes
    found = [each["second derivatives"] for each in results]
    for name, exact in zip(("dX", "weight"), expected, strict=True):
        torch.testing.assert_close(joined(found, name), exact, rtol=1e-9, atol=1e-9)


def test_groups_do_not_hear_each_other(results: Found) -> None:
    of_case("compiled", results)  # four processes
    expected = [each["two, float32"][0] for each in results[:2]]
    for rank, each in enumerate(results):
        for name, result in each["two groups at once"].items():
            assert torch.equal(result, expected[rank % 2][name])


@pytest.mark.parametrize("way", WAYS)
def test_models_have_the_gradients_of_the_whole_batch(way: str, results: Found) -> None:
    made = model()
    loss(made(images())).backward()
    for found, taken in (each[way] for each in results):
        assert set(found) == {name for name, _ in made.named_parameters()}
        for name, each in made.named_parameters():
            torch.testing.assert_close(found[name], each.grad, rtol=1e-9, atol=1e-12)
        assert taken == 2  # the convolutions


@pytest.mark.parametrize("name", WITHOUT_WAITING)
@pytest.mark.gpu
@needs_two
def test_no_step_waits_for_the_device_and_a_captured_one_is_the_same(name: str, on_gpus: Found) -> None:
    for each in on_gpus:
        assert torch.equal(each[name]["eager"], each[name]["captured"])


@pytest.mark.gpu
@needs_two
def test_every_process_runs_the_kernels_that_one_has_found(on_gpus: Found) -> None:
    assert all(each["kernels"] == on_gpus[0]["kernels"] for each in on_gpus)


# --- one process ------------------------------------------------------------------------------------------------------


def converted(**options: Any) -> tuple[Any, Any]:
    """PyTorch's batch norm after a step, and what it is converted to."""
    before = nn.BatchNorm2d(3, **options)
    before(torch.randn(4, 3, 5, 5))
    return before, SyncBatchNorm.convert_sync_batchnorm(before)


@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}], ids=str
)
@pytest.mark.parametrize("training", [True, False])
def test_without_other_processes_it_is_pytorch_s_batch_norm(options: dict[str, Any], training: bool) -> None:
    before, after = converted(**options)
    other = nn.SyncBatchNorm.convert_sync_batchnorm(before)
    other.load_state_dict(after.state_dict())
    x = torch.randn(2, 3, 4, 4)
    after.train(training)
    other.train(training)
    after, other = pickle.loads(pickle.dumps((after, other)))
    assert torch.equal(after(x), other(x))
    for one, two in zip(after.state_dict().items(), other.state_dict().items(), strict=True):
        assert one[0] == two[0]
        assert torch.equal(one[1], two[1])


def test_a_model_is_converted_in_place_with_its_parameters() -> None:
    made = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4), nn.SyncBatchNorm(4)))
    state = {name: each.data_ptr() for name, each in made.state_dict(keep_vars=True).items()}
    assert SyncBatchNorm.convert_sync_batchnorm(made, "a group") is made
    norms: Any = made[1]
    assert [type(each) for each in norms] == [SyncBatchNorm] * 2
    assert [each.process_group for each in norms] == ["a group"] * 2
    assert {name: each.data_ptr() for name, each in made.state_dict(keep_vars=True).items()} == state


def test_accelerate_takes_pytorch_s_and_gives_it_back() -> None:
    made = nn.Sequential(nn.SyncBatchNorm(4), nn.BatchNorm2d(4))
    done = gradkern.torch.accelerate(made)
    assert done.replaced == {"0": "SyncBatchNorm"}
    assert type(made[0]) is SyncBatchNorm
    done.undo()
    assert type(made[0]) is nn.SyncBatchNorm


class NormRelu(nn.BatchNorm2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return super().forward(input).relu()


class Scaled(NormRelu):
    def forward(self, input: torch.Tensor, scale: float = 1.0) -> torch.Tensor:  # noqa: A002
        return scale * super().forward(input)

    def extra_repr(self) -> str:
        return f"scaled, {super().extra_repr()}"


class Copied(nn.BatchNorm2d):
    """Calls the function, as timm's does: nothing tells where it would be synchronised."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return torch.nn.functional.batch_norm(input, None, None, self.weight, self.bias, True).relu()


class ByName(nn.BatchNorm2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return nn.BatchNorm2d.forward(self, input).relu()


SUBCLASSES: dict[str, Any] = {
    "NormRelu": NormRelu,
    "Scaled": Scaled,
    "gradkern's": gradkern.torch.BatchNorm2d,
    "gradkern's with an activation": lambda n: gradkern.torch.BatchNorm2d(n, activation="silu"),
    "without an own forward": type("Other", (nn.BatchNorm2d,), {"__module__": __name__}),
}


@pytest.mark.parametrize("name", SUBCLASSES)
def test_a_subclass_keeps_its_forward_around_the_synchronised_norm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = nn.Sequential(SUBCLASSES[name](3), nn.Sequential(SUBCLASSES[name](3))), []
    model = copy.deepcopy(before)
    model[0].register_forward_hook(lambda _, __, y: seen.append(y))
    assert SyncBatchNorm.convert_sync_batchnorm(model, "a group") is model
    norms = [each for each in model.modules() if isinstance(each, SyncBatchNorm)]
    assert [each.process_group for each in norms] == ["a group"] * 2
    if name != "without an own forward":  # whose class is in no module
        assert isinstance(pickle.loads(pickle.dumps(norms[1])), type(norms[1]))
    x = torch.randn(4, 3, 5, 5)
    torch.testing.assert_close(model(x), before(x))
    torch.testing.assert_close(model.state_dict(), before.state_dict())
    torch.testing.assert_close(model.eval()(x), before.eval()(x))
    own, calls = SyncBatchNorm.forward, []
    monkeypatch.setattr(SyncBatchNorm, "forward", lambda self, x: (calls.append(self), own(self, x))[1])
    model.train()(x)
    assert calls == norms
    assert len(seen) > 0
    assert SyncBatchNorm.convert_sync_batchnorm(model, "another") is model
    assert [each.process_group for each in norms] == ["another"] * 2


@pytest.mark.parametrize("kind", [Copied, ByName])
def test_a_norm_whose_class_is_not_known_is_refused_and_nothing_converted(kind: Any) -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), kind(3))
    text = rf"^SyncBatchNorm: 1 is a {kind.__name__}, and {kind.__name__}.forward does not call super\(\).forward"
    with pytest.raises(gradkern.ArgumentError, match=text):
        SyncBatchNorm.convert_sync_batchnorm(model)
    assert [type(each) for each in model] == [nn.BatchNorm2d, kind]
    model = nn.Sequential(nn.BatchNorm2d(3))
    model[0].forward = model[0].forward
    with pytest.raises(gradkern.ArgumentError, match="a forward of its own has been put into 0"):
        SyncBatchNorm.convert_sync_batchnorm(model)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_lazy_norm_has_the_channels_of_its_first_input(rank: int) -> None:
    lazy = getattr(nn, f"LazyBatchNorm{rank}d")(momentum=0.3)
    x = torch.randn(4, 3, *[2] * rank)
    plain = getattr(nn, f"BatchNorm{rank}d")(3, momentum=0.3)
    model: Any = SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(lazy), "a group")
    torch.testing.assert_close(model(x), plain(x))
    assert type(model[0]) is SyncBatchNorm
    assert (model[0].num_features, model[0].process_group) == (3, "a group")
    torch.testing.assert_close(model[0].state_dict(), plain.state_dict())
    late = SyncBatchNorm.convert_sync_batchnorm(getattr(nn, f"LazyBatchNorm{rank}d")(affine=False))
    assert late(x).shape == x.shape


@pytest.mark.models
@pytest.mark.parametrize("accelerated", [False, True])
def test_timm_s_norms_keep_their_activation(accelerated: bool) -> None:
    torchvision()
    layers: Any = import_module("timm.layers")
    norms = [layers.BatchNormAct2d(3), layers.BatchNormAct2d(3, act_layer=nn.SiLU, drop_layer=nn.Identity)]
    before = nn.Sequential(*norms, layers.BatchNormAct2d(3, apply_act=False))
    after = copy.deepcopy(before)
    if accelerated:
        assert len(gradkern.torch.accelerate(after).replaced) == 2
    SyncBatchNorm.convert_sync_batchnorm(after)
    assert all(isinstance(each, SyncBatchNorm) for each in after)
    after = pickle.loads(pickle.dumps(after))
    x = torch.randn(4, 3, 5, 5)
    torch.testing.assert_close(after(x), before(x))
    torch.testing.assert_close(after.eval()(x), before.eval()(x))
    again: Any = SyncBatchNorm.convert_sync_batchnorm(layers.convert_sync_batchnorm(before))
    assert [type(each) for each in again] == [type(each) for each in after]


@pytest.mark.parametrize("shape", [(3,), (3, 0)])
def test_what_is_no_batch_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=rf"input has shape {re.escape(str(shape))}; expected \(N, C, ...\) with channels"
    ):
        SyncBatchNorm(3)(torch.randn(shape))


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(gradkern.ArgumentError, match="SyncBatchNorm: input is a ndarray; expected a tensor"):
        SyncBatchNorm(3)(torch.randn(4, 3).numpy())  # pyright: ignore[reportArgumentType]  wrong on purpose


def test_another_number_of_channels_is_refused() -> None:
    with pytest.raises(
        gradkern.ShapeError, match=r"SyncBatchNorm: input has shape \(4, 5, 2\): 5 channels; expected 3"
    ):
        SyncBatchNorm(3)(torch.randn(4, 5, 2))


HERE, THERE = ("a host", "one boot"), ("a host", "another boot")
SWITCHED = [[0, 18, 18], [18, 0, 18], [18, 18, 0]]
PAIRED = [[0, 4, 0], [4, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("links", "places", "linked"),
    [
        (SWITCHED, [(HERE, "gpu 0"), (HERE, "gpu 1"), (HERE, "gpu 2")], True),
        (PAIRED, [(HERE, "gpu 0"), (HERE, "gpu 1")], True),
        (PAIRED, [(HERE, "gpu 0"), (HERE, "gpu 2")], False),
        (SWITCHED, [(HERE, "gpu 0"), (THERE, "gpu 1")], False),
        (SWITCHED, [(HERE, "gpu 0"), (HERE, "gpu 7")], False),  # which this process cannot see
        (SWITCHED, [(HERE, "gpu 0"), (HERE, "gpu 0")], False),  # two processes on a GPU
        (None, [(HERE, "gpu 0"), (HERE, "gpu 1")], False),
    ],
)
def test_gpus_read_each_others_memory_where_nvlink_joins_them(
    links: Any, places: Any, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def detect(*_: Any) -> Any:
        if links is None:
            raise RuntimeError("no detector")
        return SimpleNamespace(matrix=links)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda n: SimpleNamespace(uuid=f"gpu {n}"))
    monkeypatch.setattr("torch._C._distributed_c10d._detect_dma_connectivity", detect)
    assert exchange._linked(torch.device("cuda", 0), places[0], places) is linked


def test_processes_with_other_numbers_of_memories_send_messages_by_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyTorch's rendezvous would wait for ever."""
    monkeypatch.setattr(exchange, "_of_all", lambda mine, _group: [mine, mine + 1])
    assert exchange._set_up(1, 8, torch.device("cuda", 0), None) is None


def test_symmetric_memory_is_a_flag_and_nothing_is_converted_by_another() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3))
    for make in (SyncBatchNorm, lambda _, **how: SyncBatchNorm.convert_sync_batchnorm(model, **how)):
        with pytest.raises(TypeError, match="symmetric_memory is 'yes'; expected True, False or None"):
            make(3, symmetric_memory="yes")  # pyright: ignore[reportArgumentType]  wrong on purpose
    assert type(model[0]) is nn.BatchNorm1d
