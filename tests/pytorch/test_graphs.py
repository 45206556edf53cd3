"""gradkern.torch.graphed: a call is a step, before and after the capture; and what cannot be is said."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.compiled_models import Block, Transformer
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

import gradkern
import gradkern.torch
from gradkern import ArgumentError, DeviceError, ProviderError
from gradkern.torch.compile_backend import findings

pytestmark = pytest.mark.torch


def nothing(*_: Any) -> None:
    return


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ((torch.ones(2),), DeviceError, "input 0 is on cpu; .* elsewhere call the step itself"),
        ((0.1,), ArgumentError, "input 0 is a float; expected a tensor"),
    ],
)
def test_inputs_of_no_gpu_are_refused_before_anything_runs(given: Any, error: Any, text: str) -> None:
    def step(*_: Any) -> None:
        pytest.fail("it ran")

    with pytest.raises(error, match=f"graphed: {text}"):
        gradkern.torch.graphed(step)(*given)


def test_options_are_checked_when_it_is_made() -> None:
    graphed: Any = gradkern.torch.graphed
    with pytest.raises(ArgumentError, match="step is a int; expected a function"):
        graphed(3)
    for warmup in (0, True, 2.0):
        with pytest.raises(ArgumentError, match=r"warmup is .*; expected a number of calls, 1 or more"):
            graphed(nothing, warmup=warmup)
    with pytest.raises(ArgumentError, match="capture_error_mode is 'local'; expected one of global, thread_local"):
        graphed(nothing, capture_error_mode="local")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_step_of_nothing_is_refused_too() -> None:
    with pytest.raises(DeviceError, match="PyTorch finds no GPU"):
        gradkern.torch.graphed(nothing)()


class Recorder:
    """In the place of CUDA: what is captured runs, and a replay is only counted."""

    def __init__(self) -> None:
        self.capturing, self.captures, self.replays = False, 0, 0

    def stream(self, *_: Any) -> Any:
        return SimpleNamespace(wait_stream=nothing)

    @contextmanager
    def graph(self, graph: Any, *, stream: Any, capture_error_mode: str) -> Iterator[None]:
        self.capturing, self.captures = True, self.captures + 1
        try:
            yield
        except Exception:
            raise RuntimeError("the capture was invalidated") from None
        finally:
            self.capturing = False

    def new(self) -> Any:
        def replay() -> None:
            self.replays += 1

        return SimpleNamespace(replay=replay)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    replaced = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "current_device": lambda: 0,
        "current_stream": made.stream,
        "Stream": made.stream,
        "stream": lambda _: nullcontext(),
        "graph": made.graph,
        "CUDAGraph": made.new,
    }
    for name, each in replaced.items():
        monkeypatch.setattr(torch.cuda, name, each)
    return made


def test_calls_run_until_one_is_captured_and_replayed(recorder: Recorder) -> None:
    ran: list[bool] = []
    weight = torch.ones(2, requires_grad=True)

    def step() -> Any:
        ran.append(recorder.capturing)
        return {"loss": weight * len(ran), "count": 3}

    graphed = gradkern.torch.graphed(step, warmup=2)
    results = [graphed() for _ in range(5)]
    assert ran == [False, False, True]
    assert (recorder.captures, recorder.replays) == (1, 3)
    assert graphed.captured
    assert [float(each["loss"][0]) for each in results] == [1, 2, 3, 3, 3]
    assert not any(each["loss"].requires_grad for each in results)
    assert results[4]["count"] == 3


def test_autograd_graphs_of_earlier_steps_are_collected_before_the_first_call(recorder: Recorder) -> None:
    weight = torch.ones(2, requires_grad=True)
    gone = _in_a_cycle(weight * 2)
    assert not gone
    gradkern.torch.graphed(lambda: None)()
    assert gone


def _in_a_cycle(loss: torch.Tensor) -> list[bool]:
    """Leave a result to the garbage collector; what is returned has an entry once it is freed."""
    kept, gone = list[Any]([loss]), list[bool]()
    kept.append(kept)
    weakref.finalize(loss, gone.append, True)
    return gone


def test_a_step_that_cannot_be_captured_is_told_with_its_own_error(recorder: Recorder) -> None:
    def step() -> None:
        if recorder.capturing:
            raise ValueError("it waits")

    graphed = gradkern.torch.graphed(step, warmup=1)
    graphed()
    with pytest.raises(ProviderError, match=r"ValueError: it waits\n.*\.item\(\).*capturable=True") as caught:
        graphed()
    assert isinstance(caught.value.__cause__, ValueError)
    assert not graphed.captured


def test_inputs_are_copied_and_those_unlike_the_first_ones_refused(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    copied: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "copy_", lambda to, one, non_blocking: copied.append((to, one)))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        seen.append((x, y))

    graphed: Any = gradkern.torch.graphed(step, warmup=1)
    with FakeTensorMode():
        x, y = torch.empty(4, 3, device="cuda"), torch.empty(4, device="cuda", dtype=torch.int64)
        with pytest.raises(ArgumentError, match=r"input 0 requires grad; .* x.detach\(\).requires_grad_\(\)"):
            gradkern.torch.graphed(step)(x.clone().requires_grad_(), y)
        with pytest.raises(DeviceError, match="input 1 is on cpu"):
            gradkern.torch.graphed(step)(x, torch.empty(4))
        for _ in range(3):
            graphed(x, y)
        shorter, narrower = torch.empty(3, 3, device="cuda"), torch.empty(4, device="cuda", dtype=torch.int32)
        wrong = {
            r"input 0 is float32 \(3, 3\) on cuda:0; .* float32 \(4, 3\) on cuda:0: pad it": (shorter, y),
            "input 1 is int32": (x, narrower),
            r"input 1 is int64 \(4,\) on cpu": (x, torch.empty(4, dtype=torch.int64)),
            "input 1 is a int": (x, 4),
            "1 inputs given; the first call had 2": (x,),
        }
        for text, given in wrong.items():
            with pytest.raises(ArgumentError, match=f"graphed: {text}"):
                graphed(*given)
    assert recorder.replays == 2
    (own_x, own_y), (again_x, again_y) = seen
    assert own_x is again_x is not x
    assert own_y is again_y is not y
    assert [(id(to), id(one)) for to, one in copied] == [(id(own_x), id(x)), (id(own_y), id(y))] * 3


# --- on a GPU ---------------------------------------------------------------------------------------------------------

CONV: Any = import_module("torch.backends.cudnn").conv  # it has no types
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "ResNet": (
        lambda: nn.Sequential(Block(16, 16, "in place"), Block(16, 32, "functions"), nn.AdaptiveAvgPool2d(1)),
        lambda: torch.randn(8, 16, 16, 16, device="cuda"),
    ),
    "GPT": (lambda: Transformer(64, nn.LayerNorm), lambda: torch.randint(11, (16, 4), device="cuda")),
}
WAYS = [
    ("compiled", torch.float32),
    ("compiled", torch.bfloat16),
    ("compiled, reduce-overhead", torch.bfloat16),
    ("graphed, compiled", torch.float32),
    ("graphed, enabled", torch.bfloat16),
]


def trained(model: nn.Module, batches: list[torch.Tensor], way: str, dtype: Any) -> list[torch.Tensor]:
    """The losses of some steps, one with each batch, and the parameters and buffers after them."""
    options: Any = {"gradkern": True, "triton.cudagraphs": "reduce-overhead" in way}  # as mode="reduce-overhead" has it
    compiled: Any = torch.compile
    run: Any = compiled(model, backend="gradkern", options=options) if "compiled" in way else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            loss = run(x).float().sin().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    whole = gradkern.torch.graphed(step) if "graphed" in way else step
    losses = [whole(each).clone() for each in batches]
    return [*losses, *[each.detach().clone() for each in model.state_dict().values()]]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("way", "dtype"), WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_training_goes_as_in_float64_on_a_gpu(name: str, dtype: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As near as eager does, or nearly so: seven steps, of which a graph replays four."""
    torch.manual_seed(0)
    torch.compiler.reset()
    gradkern.torch.forget()
    make, batch = MODELS[name]
    model: Any = make().cuda()
    batches = [batch() for _ in range(7)]
    if name == "ResNet":
        model = model.to(memory_format=torch.channels_last)
    doubles = [each.double() if each.is_floating_point() else each for each in batches]
    exact = trained(copy.deepcopy(model).double(), doubles, "eager", torch.float32)
    monkeypatch.setattr(CONV, "fp32_precision", "ieee")
    eager = trained(copy.deepcopy(model), batches, "eager", dtype)
    with gradkern.torch.enabled(min_bytes=0) if "enabled" in way else nullcontext():
        found = trained(model, batches, way, dtype)
    torch.compiler.reset()
    if "compiled" in way:
        assert any(not each.reason for each in findings.findings())
    for ours, theirs, right in zip(found, eager, exact, strict=True):
        if right.is_floating_point():
            scale = float(right.abs().max())
            least = scale * (2**-17 if dtype == torch.float32 else 2**-8)
            error = float((ours.double() - right).abs().max())
            assert error <= 3 * float((theirs.double() - right).abs().max()) + least
        else:
            assert torch.equal(ours, right)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", MODELS)
def test_tune_reaches_what_a_compiled_step_calls(name: str) -> None:
    torch.compiler.reset()
    gradkern.torch.forget()
    gradkern.plan_cache.clear()
    make, batch = MODELS[name]
    model: Any = make().cuda()
    run = torch.compile(model, backend="gradkern", options={"gradkern": True})
    x = batch()
    expected = {"SkipLayerNormalization", "LayerNormalizationGrad", "BiasGeluGrad_dX"}
    if name == "ResNet":
        expected = {"BatchNormalization", "BatchNormalizationGrad"}
    gradkern.torch.tune(lambda: run(x).sin().mean().backward())
    assert expected <= {each.operator for each in gradkern.plan_cache.entries()}
    assert not any(each.provisional for each in gradkern.plan_cache.entries())
    torch.compiler.reset()


@pytest.mark.gpu
def test_a_step_is_captured_though_garbage_holds_the_autograd_graph_of_an_earlier_one() -> None:
    model = nn.Linear(8, 8, device="cuda")

    def step(x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    x = torch.randn(4, 8, device="cuda")
    _in_a_cycle(model(x).sum())
    expected = step(x).detach()
    graphed = gradkern.torch.graphed(step)
    for _ in range(5):
        torch.testing.assert_close(graphed(x), expected)
    assert graphed.captured


@pytest.mark.gpu
def test_what_waits_for_the_gpu_is_not_captured_and_the_stream_is_as_before() -> None:
    x = torch.ones(3, device="cuda")
    stream = torch.cuda.current_stream()
    graphed = gradkern.torch.graphed(lambda each: each * each.sum().item(), warmup=1)
    assert float(graphed(x)[0]) == 3
    with pytest.raises(ProviderError, match="cannot be captured in a CUDA graph"):
        graphed(x)
    assert torch.cuda.current_stream() == stream
    assert not torch.cuda.is_current_stream_capturing()
    assert float((x * 2).sum()) == 6
    assert torch.rand(3, device="cuda").max() <= 1  # a generator that is still in a capture raises


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_a_graph_outlives_the_plans_it_was_captured_with() -> None:
    import gc

    x = torch.randn(512, 64, device="cuda")
    weight = torch.ones(64, device="cuda", requires_grad=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(gradkern.torch.layer_norm(leaf, (64,), weight).sin().sum(), leaf)[0]

    graphed = gradkern.torch.graphed(step)
    for _ in range(4):
        graphed(x)
    gradkern.plan_cache.clear()
    gradkern.torch.forget()
    gc.collect()
    exact = x.double().requires_grad_()
    (expected,) = torch.autograd.grad(functional.layer_norm(exact, (64,)).sin().sum(), exact)
    torch.testing.assert_close(graphed(x).double(), expected, rtol=1e-4, atol=1e-5)
