"""The overrides on a GPU: gradients against PyTorch's in float64, streams, threads, graphs, synchronisation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import pytest
import torch
from helpers.torch_on_gpu import no_synchronization
from torch.nn import functional

import gradkern
import gradkern.torch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gpu,
    # what PyTorch says of its own features and settings
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),  # the one that Inductor begins its trees with
]

CONV: Any = import_module("torch.backends.cudnn").conv  # it has no types
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
CLOSE = {F16: (4e-3, 4e-3), BF16: (3e-2, 3e-2), F32: (2e-4, 2e-4), F64: (1e-10, 1e-10)}
"""Relative to the largest element, by the type of the gradient."""


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gradkern.torch.forget()
    precision = CONV.fp32_precision
    CONV.fp32_precision = "ieee"
    with gradkern.torch.enabled(min_bytes=0, plan="now"):
        yield
    CONV.fp32_precision = precision
    gradkern.torch.forget()


def random(*shape: int, dtype: Any = F32, device: str = "cuda") -> torch.Tensor:
    return torch.randn(shape, device=device).to(dtype).requires_grad_()


def taken(name: str = "") -> int:
    return sum(row.taken for row in gradkern.torch.report() if row.op.startswith(name))


def check(name: str, function: Callable[..., torch.Tensor], *leaves: Any) -> None:
    """The gradients of all leaves that gradkern gives are those of float64, look like PyTorch's, and were taken."""
    y = function(*leaves)
    upstream = torch.randn_like(y)
    gradkern.torch.disable()
    theirs = torch.autograd.grad(y, leaves, upstream, retain_graph=True)
    exact = [each.detach().double().requires_grad_() for each in leaves]
    expected = torch.autograd.grad(function(*exact), exact, upstream.double())
    gradkern.torch.enable(min_bytes=0, plan="now", on_refusal="raise")
    torch.autograd.grad(y, leaves, upstream, retain_graph=True)
    before = taken(name)
    results = torch.autograd.grad(y, leaves, upstream)
    assert taken(name) == before + 1
    for one, other, exactly in zip(results, theirs, expected, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        relative, absolute = CLOSE[one.dtype]
        atol = absolute * max(1.0, float(exactly.abs().max()))
        torch.testing.assert_close(one.double(), exactly, rtol=relative, atol=atol)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("shape", "axes"), [((64, 256), 1), ((3, 5, 40), 2), ((2, 3, 4, 5, 8), 3), ((1000,), 1)])
def test_layer_norm(dtype: Any, shape: tuple[int, ...], axes: int) -> None:
    columns = shape[-axes:]
    leaves = random(*shape, dtype=dtype), random(*columns, dtype=dtype), random(*columns, dtype=dtype)
    check("native_layer_norm", lambda x, w, b: functional.layer_norm(x, columns, w, b), *leaves)


@pytest.mark.parametrize("dtype", CLOSE)
def test_rms_norm(dtype: Any) -> None:
    leaves = random(3, 64, 256, dtype=dtype), random(256, dtype=dtype)
    check("_fused_rms_norm", lambda x, w: functional.rms_norm(x, (256,), w, 1e-5), *leaves)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(dtype: Any, approximate: str) -> None:
    check("gelu", lambda x: functional.gelu(x, approximate=approximate), random(6, 40, 64, dtype=dtype))


VIEWS: dict[str, Any] = {
    "half of the columns": lambda x: x.chunk(2, -1)[1],
    "some rows": lambda x: x[:, 1:30],
    "every second column": lambda x: x[..., ::2],
    "rows that repeat": lambda x: x[:, None].expand(-1, 3, -1, -1),
    "columns that repeat": lambda x: x[..., None].expand(-1, -1, -1, 3),
    "half of the channels": lambda x: x.view(6, 4, 10, 64).chunk(2, 1)[1],
}


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("view", VIEWS)
def test_gelu_of_a_view(dtype: Any, view: str) -> None:
    check("gelu", lambda x: functional.gelu(VIEWS[view](x)), random(6, 40, 64, dtype=dtype))


REPEATED: dict[str, Any] = {
    "inner rows": lambda rows: rows[:, None].expand(-1, 4, -1),
    "outer rows": lambda rows: rows[None].expand(4, -1, -1),
    "all rows": lambda rows: rows[1, None, None].expand(3, 4, -1),
    "columns": lambda rows: rows[..., None].expand(-1, -1, 64),
}


@pytest.mark.parametrize("name", REPEATED)
def test_rows_that_repeat_are_read_as_they_lie(name: str) -> None:
    """Against copies of them, in which nothing repeats. Beyond the last of the rows there is nothing to be read."""
    x, dy = (REPEATED[name](torch.randn(5, 64, device="cuda")) for _ in range(2))
    weight = torch.randn(x.shape[-1], device="cuda")
    mean = x.mean(-1, keepdim=True)
    inv_std = (x.var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()
    calls: dict[str, tuple[Any, ...]] = {
        "BiasGeluGrad_dX": (dy, x, weight),
        "BiasGelu": (x, weight),
        "LayerNormalizationGrad": (dy, x, weight, mean, inv_std),
        "LayerNormalization": (x, weight, weight),
        "SimplifiedLayerNormalizationGrad": (dy, x, weight, inv_std),
    }
    anything: Any = gradkern.run
    for operator, arrays in calls.items():
        attributes = {"axis": 2} if "Norm" in operator else {}
        found = anything(operator, *arrays, **attributes)
        expected = anything(operator, *[each.contiguous() for each in arrays], **attributes)
        for one, other in zip(found, expected, strict=True):
            if one is not None:
                torch.testing.assert_close(
                    one, other, rtol=1e-5, atol=1e-5, msg=lambda text, n=operator: f"{n}: {text}"
                )


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(dtype: Any, name: str) -> None:
    for dim in range(3):
        check(f"_{name}", lambda x, dim=dim: getattr(functional, name)(x, dim), random(6, 40, 64, dtype=dtype))
    check(f"_{name}", lambda x: getattr(functional, name)(x, 1), random(5, 333, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_softmax_that_widens_its_input(dtype: Any) -> None:
    check("", lambda x: functional.softmax(x, 1, dtype=F32), random(64, 333, dtype=dtype))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("parameters", ["same", F32])
def test_batch_norm_by_whichever_of_its_kernels(dtype: Any, order: Any, parameters: Any) -> None:
    if dtype is F64 and parameters is F32:
        pytest.skip("PyTorch takes no such types")
    kind = dtype if parameters == "same" else parameters
    x = torch.randn(8, 16, 14, 14, device="cuda").to(dtype).to(memory_format=order).requires_grad_()
    leaves = x, random(16, dtype=kind), random(16, dtype=kind)
    check("", lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True), *leaves)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_the_steps_of_a_batch_norm_over_several_gpus(dtype: Any, order: Any) -> None:
    """With one part, which is the whole batch."""
    kind = F64 if dtype is F64 else F32
    x, grad = (torch.randn(8, 16, 14, 14, device="cuda").to(dtype).to(memory_format=order) for _ in range(2))
    weight, count = random(16, dtype=kind).detach(), torch.tensor([8 * 14 * 14], dtype=torch.int32, device="cuda")
    mean, inv_std = torch.batch_norm_stats(x, 1e-5)

    def steps() -> tuple[torch.Tensor, ...]:
        sums = torch.batch_norm_backward_reduce(grad, x, mean, inv_std, weight, True, True, True)
        return torch.batch_norm_backward_elemt(grad, x, mean, inv_std, weight, *sums[:2], count), *sums

    gradkern.torch.disable()
    theirs = steps()
    gradkern.torch.enable(min_bytes=0, plan="now", on_refusal="raise")
    steps()
    before = taken("batch_norm_backward_")
    results = steps()
    assert taken("batch_norm_backward_") == before + 2
    leaves = [each.double().requires_grad_() for each in (x, weight, torch.zeros_like(weight))]
    y = functional.batch_norm(leaves[0], None, None, *leaves[1:], training=True)
    dx, dweight, dbias = torch.autograd.grad(y, leaves, grad.double())
    expected = dx, dbias, dweight / inv_std.double(), dweight, dbias
    for one, other, exactly in zip(results, theirs, expected, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        relative, absolute = CLOSE[one.dtype]
        atol = absolute * max(1.0, float(exactly.abs().max()))
        torch.testing.assert_close(one.double(), exactly, rtol=relative, atol=atol)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_frozen_batch_norm(dtype: Any) -> None:
    mean, variance = torch.randn(16, device="cuda", dtype=dtype), torch.rand(16, device="cuda", dtype=dtype) + 0.1
    leaves = random(8, 16, 14, 14, dtype=dtype), random(16, dtype=dtype), random(16, dtype=dtype)
    check("native_batch_norm", lambda x, w, b: functional.batch_norm(x, mean.to(x), variance.to(x), w, b), *leaves)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("groups", [1, 16])
def test_conv(dtype: Any, last: bool, groups: int) -> None:
    order = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(4, 16, 14, 14, device="cuda").to(dtype).to(memory_format=order).requires_grad_()
    weight = torch.randn(16, 16 // groups, 3, 3, device="cuda").to(dtype).to(memory_format=order).requires_grad_()
    leaves = x, weight, random(16, dtype=dtype)
    check("convolution", lambda x, w, b: functional.conv2d(x, w, b, padding=1, groups=groups), *leaves)


@pytest.mark.parametrize("spatial", [1, 3])
def test_conv_of_other_ranks(spatial: int) -> None:
    leaves = random(2, 4, *[9] * spatial), random(6, 4, *[3] * spatial), random(6)
    check("convolution", getattr(functional, f"conv{spatial}d"), *leaves)


def test_transposed_conv() -> None:
    leaves = random(2, 4, 9, 9), random(4, 6, 3, 3), random(6)
    check("convolution", lambda x, w, b: functional.conv_transpose2d(x, w, b, stride=2), *leaves)


# --- a model ----------------------------------------------------------------------------------------------------------


class Model(torch.nn.Module):
    """Each of the operators, in a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.depthwise = torch.nn.Conv2d(16, 16, 3, groups=16, padding=1)
        self.last = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.gelu(self.norm(self.first(x)))
        x = self.depthwise(x).mean((2, 3))
        return self.head(functional.gelu(self.last(x)))


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().cuda()


def gradients(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    for each in model.parameters():
        each.grad = None
    model(x).square().mean().backward()
    return [each.grad.clone() for each in model.parameters() if each.grad is not None]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(8, 3, 16, 16, device="cuda", generator=torch.Generator("cuda").manual_seed(1))


def test_a_step_never_synchronises_the_host(model: Model, x: torch.Tensor) -> None:
    gradkern.torch.tune(lambda: gradients(model, x))
    gradients(model, x)
    with no_synchronization():
        gradients(model, x)
    assert taken() >= 6


def test_tune_alone_plans(model: Model, x: torch.Tensor) -> None:
    gradkern.torch.enable(min_bytes=0, plan="tune", only_faster=False)
    gradients(model, x)
    gradients(model, x)
    assert taken() == 0
    gradkern.torch.tune(lambda: gradients(model, x))
    gradients(model, x)
    assert taken() == 6


def test_tune_leaves_to_pytorch_what_gains_nothing(model: Model, x: torch.Tensor) -> None:
    gradkern.torch.disable()
    expected = gradients(model, x)
    large = torch.randn(32, 96, 56, 56, device="cuda", dtype=BF16).to(memory_format=torch.channels_last)
    weight = torch.randn(96, 1, 7, 7, device="cuda", dtype=BF16)

    def step() -> None:
        gradients(model, x)
        arrays = large.requires_grad_(), weight.requires_grad_()
        y = functional.conv2d(*arrays, padding=3, groups=96)
        torch.autograd.grad(y, arrays, torch.randn_like(y))

    gradkern.torch.enable(min_bytes=0)
    gradkern.torch.tune(step)
    before = {row.signature: row.taken + row.declined for row in gradkern.torch.report()}
    step()
    rows = {row.signature: row for row in gradkern.torch.report()}
    assert all(row.reason == "" or row.reason.startswith("no gain") for row in rows.values())
    (depthwise,) = [row for signature, row in rows.items() if "[32, 96, 56, 56]" in signature]
    assert depthwise.reason == ""  # several times as fast
    assert depthwise.taken == 1
    assert all(rows[signature].taken + rows[signature].declined - count <= 2 for signature, count in before.items())
    for one, other in zip(gradients(model, x), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_step_captured_in_a_graph(model: Model, x: torch.Tensor) -> None:
    expected: Any = None
    for _ in range(3):
        expected = gradients(model, x)
    # Parameters of its own: autograd's nodes for the model's belong to the default stream for as long as they live, and
    # its thread may let go of them later than `backward` returns.
    graphed: Any = torch.cuda.make_graphed_callables(copy.deepcopy(model), (x,))
    assert taken() > 6
    for _ in range(2):
        for one, other in zip(gradients(graphed, x), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_nothing_is_planned_while_a_graph_is_captured(model: Model, x: torch.Tensor) -> None:
    gradkern.torch.disable()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            gradients(model, x)
    stream.synchronize()
    gradkern.torch.enable(min_bytes=0, plan="now")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        gradients(model, x)
    graph.replay()
    torch.cuda.synchronize()
    assert taken() == 0
    assert {row.reason for row in gradkern.torch.report()} == {"waits for a plan: gradkern.torch.tune"}


def test_two_streams(model: Model, x: torch.Tensor) -> None:
    expected: Any = None
    for _ in range(2):
        expected = gradients(model, x)
    streams = [torch.cuda.Stream() for _ in range(2)]
    models = [model, Model().cuda()]
    models[1].load_state_dict(model.state_dict())
    torch.cuda.synchronize()
    for _ in range(5):
        results = []
        for stream, each in zip(streams, models, strict=True):
            with torch.cuda.stream(stream):
                results.append(gradients(each, x))
        torch.cuda.synchronize()
        for result in results:
            for one, other in zip(result, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_backward_from_eight_threads() -> None:
    def step(rows: int) -> torch.Tensor:
        x = torch.ones(rows, 256, device="cuda").cumsum(1).requires_grad_()
        weight = torch.ones(256, device="cuda")
        for _ in range(10):
            x.grad = None
            functional.layer_norm(x, (256,), weight).square().sum().backward()
        assert x.grad is not None
        return x.grad.cpu()

    alone = [step(rows) for rows in range(32, 40)]
    with ThreadPoolExecutor(8) as pool:
        for one, other in zip(pool.map(step, range(32, 40)), alone, strict=True):
            torch.testing.assert_close(one, other)
    assert taken() >= 150


def test_gradkerns_policy_reaches_autograds_thread(x: torch.Tensor) -> None:
    from gradkern.torch import flags

    seen = []
    weight = random(4, 3, 3, 3)
    y = functional.conv2d(x, weight)
    y.register_hook(lambda grad: seen.append(flags.policy_of(flags.flags()).deterministic))
    with gradkern.policy(deterministic=True):
        y.square().sum().backward()
    assert seen == [True]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_current_device_may_be_another() -> None:
    leaves = random(64, 256, device="cuda:1"), random(256, device="cuda:1"), random(256, device="cuda:1")
    with torch.cuda.device(0):
        check("native_layer_norm", lambda x, w, b: functional.layer_norm(x, (256,), w, b), *leaves)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports, in PyTorch 2.11
def test_compiled_models_take_convolutions(model: Model, x: torch.Tensor) -> None:
    gradkern.torch.disable()
    expected = gradients(model, x)
    gradkern.torch.enable(min_bytes=0, plan="now")
    torch.compiler.reset()
    compiled: Any = torch.compile(model)
    results: Any = None
    for _ in range(3):
        results = gradients(compiled, x)
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert taken("convolution") >= 2


def test_peak_memory_is_eagers(model: Model, x: torch.Tensor) -> None:
    def peak() -> int:
        gradients(model, x)
        torch.cuda.reset_peak_memory_stats()
        gradients(model, x)
        return torch.cuda.max_memory_allocated()

    gradients(model, x)
    ours = peak()
    gradkern.torch.disable()
    assert ours <= 1.02 * peak()
