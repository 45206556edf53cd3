"""Calls that machine code answers on a GPU: streams, captures, devices, and memory that runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradkern.torch
from gradkern.torch.native import shim, sites

aten: Any = torch.ops.aten


def _why_not() -> str:
    return shim.unavailable("CUDA") if torch.cuda.is_available() else "no GPU"


pytestmark = [
    pytest.mark.torch,
    pytest.mark.gpu,
    pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "available"),
]


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    gradkern.torch.forget()
    with gradkern.torch.enabled(min_bytes=0, plan="now", native=True):
        yield
    gradkern.torch.forget()


def natively() -> int:
    return sum(row.natively for row in gradkern.torch.report())


def random(*shape: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> torch.Tensor:
    return torch.randn(shape, device=device).to(dtype)


def layer_norm(rows: int, columns: int, mask: Any = (True, True, True), device: str = "cuda") -> Callable[[], Any]:
    dy, x = random(rows, columns, device=device), random(rows, columns, device=device)
    scale, bias = random(columns, device=device), random(columns, device=device)
    mean, rstd = x.float().mean(1, keepdim=True), x.float().std(1, keepdim=True).reciprocal()
    return lambda: aten.native_layer_norm_backward(dy, x, [columns], mean, rstd, scale, bias, list(mask))


def rms_norm() -> Callable[[], Any]:
    dy, x, scale = random(96, 512), random(96, 512), random(512)
    rstd = x.float().square().mean(1, keepdim=True).rsqrt()
    return lambda: aten._fused_rms_norm_backward(dy, x, [512], rstd, scale, [True, True])


def gelu(approximate: str) -> Callable[[], Any]:
    dy, x = random(96, 512), random(96, 512)
    return lambda: aten.gelu_backward(dy, x, approximate=approximate)


def softmax(name: str) -> Callable[[], Any]:
    dy, y = random(96, 512), random(96, 512).softmax(1)
    given = y.log() if "log" in name else y
    return lambda: getattr(aten, name)(dy, given, 1, torch.bfloat16)


def embedding() -> Callable[[], Any]:
    dy, indices = random(96, 512), torch.randint(0, 1000, (96,), device="cuda")
    return lambda: aten.embedding_dense_backward(dy, indices, 1000, -1, False)


def batch_norm() -> Callable[[], Any]:
    dy, x = (random(8, 32, 12, 12).to(memory_format=torch.channels_last) for _ in range(2))
    scale, mean = random(32, dtype=torch.float32), random(32, dtype=torch.float32)
    inv_std = random(32, dtype=torch.float32).abs() + 0.5
    every = [True, True, True]
    return lambda: aten.native_batch_norm_backward(dy, x, scale, None, None, mean, inv_std, True, 1e-5, every)


def frozen_batch_norm() -> Callable[[], Any]:
    dy, x = (random(8, 32, 12, 12, dtype=torch.float32) for _ in range(2))
    scale, mean, variance = (random(32, dtype=torch.float32).abs() + 0.5 for _ in range(3))
    every = [True, True, True]
    return lambda: aten.native_batch_norm_backward(dy, x, scale, mean, variance, None, None, False, 1e-5, every)


def group_norm() -> Callable[[], Any]:
    dy, x, scale = random(4, 32, 12, 12), random(4, 32, 12, 12), random(32)
    mean, rstd = random(4, 8), random(4, 8).abs() + 0.5
    return lambda: aten.native_group_norm_backward(dy, x, mean, rstd, scale, 4, 32, 144, 8, [True, True, True])


def images(size: int) -> torch.Tensor:
    return random(4, 32, size, size).to(memory_format=torch.channels_last)


def max_pool() -> Callable[[], Any]:
    dy, x = images(6), images(12)
    indices = functional.max_pool2d(x, 2, return_indices=True)[1]
    return lambda: aten.max_pool2d_with_indices_backward(dy, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)


def average_pool() -> Callable[[], Any]:
    dy, x = images(6), images(12)
    return lambda: aten.avg_pool2d_backward(dy, x, [2, 2], [2, 2], [0, 0], False, True, None)


def adaptive_pool() -> Callable[[], Any]:
    dy, x = images(1), images(12)
    return lambda: aten._adaptive_avg_pool2d_backward(dy, x)


def resized() -> Callable[[], Any]:
    dy = images(12)
    return lambda: aten.upsample_bilinear2d_backward(dy, [12, 12], [4, 32, 6, 6], False, None, None)


CALLS: dict[str, Callable[[], Callable[[], Any]]] = {
    "layer norm": lambda: layer_norm(96, 512),
    "layer norm of wide rows": lambda: layer_norm(4, 1 << 17),
    "layer norm's input": lambda: layer_norm(96, 512, (True, False, False)),
    "layer norm's parameters": lambda: layer_norm(96, 512, (False, True, True)),
    "RMSNorm": rms_norm,
    "GELU": lambda: gelu("none"),
    "GELU by tanh": lambda: gelu("tanh"),
    "softmax": lambda: softmax("_softmax_backward_data"),
    "log softmax": lambda: softmax("_log_softmax_backward_data"),
    "embedding": embedding,
    "batch norm in evaluation": frozen_batch_norm,
    "group norm": group_norm,
    "max pool": max_pool,
    "average pool": average_pool,
    "adaptive average pool": adaptive_pool,
    "linear upsampling": resized,
}


def results(call: Callable[[], Any]) -> list[Any]:
    found = call()
    return list(found) if isinstance(found, tuple) else [found]


def same(found: list[Any], expected: list[Any]) -> bool:
    return all(one is other is None or torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_machine_code_gives_what_python_gives(name: str) -> None:
    call = CALLS[name]()
    results(call)
    by_python = results(call)
    for _ in range(3):
        assert same(results(call), by_python)
    assert natively() == 3, str(gradkern.torch.report())


def test_batch_norms_are_answered_by_machine_code_where_the_winner_is_gradkerns_own() -> None:
    call = batch_norm()
    results(call)
    by_python = results(call)
    for _ in range(3):
        for one, other in zip(results(call), by_python, strict=True):
            torch.testing.assert_close(one, other)
    (row,) = gradkern.torch.report()
    assert row.natively == 3 or row.by_python


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "3 x 3": {},
    "with a bias": {"mask": (True, True, True)},
    "dW alone": {"mask": (False, True, False)},
    "1 x 1 in strides": {"size": 1, "stride": 2, "padding": 0},
    "depthwise": {"groups": 32},
    "of few channels": {"channels": 3},
    "in C order": {"order": torch.contiguous_format},
    "in float32": {"dtype": torch.float32},
}


def convolution(
    size: int = 3,
    channels: int = 32,
    stride: int = 1,
    padding: int = 1,
    groups: int = 1,
    mask: Any = (True, True, False),
    order: Any = torch.channels_last,
    dtype: torch.dtype = torch.bfloat16,
) -> Callable[..., Any]:
    x = random(4, channels, 16, 16).to(dtype, memory_format=order)
    weight = random(32, channels // groups, size, size).to(dtype, memory_format=order)
    dy = random(4, 32, 16 // stride, 16 // stride).to(dtype, memory_format=order)
    given: Any = ([32], [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, list(mask))

    def call(as_type: torch.dtype = dtype) -> Any:
        return aten.convolution_backward(*[each.to(as_type) for each in (dy, x, weight)], *given)

    return call


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_answered_by_machine_code_where_it_can_repeat_the_winners(name: str) -> None:
    call = convolution(**CONVOLUTIONS[name])
    with gradkern.torch.enabled(min_bytes=1 << 60):
        exact = call(torch.float64)
    for _ in range(6):
        for one, other in zip(call(), exact, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one.double(), other, rtol=0.02, atol=0.02 * float(other.abs().max()))
    row = next(each for each in gradkern.torch.report() if "f64" not in each.signature)
    assert row.natively >= 3 or row.by_python
    assert ("TF32" in row.by_python) == (name == "in float32")
    before = natively()
    with torch.backends.cudnn.flags(enabled=False):
        call()
    assert natively() == before


def test_threads_share_a_stream_and_cudnns_handle() -> None:
    calls = [convolution(channels=n) for n in (16, 32, 64)]
    expected = [[results(call) for _ in range(4)][-1] for call in calls]
    errors: list[str] = []

    def work(n: int) -> None:
        stream = torch.cuda.Stream() if n % 2 else torch.cuda.default_stream()
        with torch.cuda.stream(stream):
            for turn in range(100):
                at = (n + turn) % len(calls)
                found = results(calls[at])
                stream.synchronize()
                for one, other in zip(found, expected[at], strict=True):
                    if one is not None and not torch.allclose(one, other, rtol=0.02, atol=0.5):
                        errors.append(f"another result of convolution {at}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    assert natively() > 100 or any(row.by_python for row in gradkern.torch.report())


def test_every_stream_has_scratch_memory_of_its_own() -> None:
    call = layer_norm(512, 768)
    results(call)
    expected = results(call)
    errors: list[str] = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(200):
                call()
            found = results(call)
            torch.cuda.current_stream().synchronize()
            if not same(found, expected):
                errors.append("another result")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    assert natively() > 6 * 150


def test_captured_calls_are_pythons_and_replay() -> None:
    call = layer_norm(512, 768)
    results(call)
    expected = results(call)
    results(call)
    before, graph = natively(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = results(call)
    assert natively() == before
    for each in found:
        each.zero_()
    results(call)  # whose scratch memory the graph does not share
    graph.replay()
    torch.cuda.synchronize()
    assert same(found, expected)


def test_memory_that_runs_out_arrives_as_pytorchs_error() -> None:
    call = layer_norm(1 << 14, 1 << 12, (True, False, False))
    for _ in range(3):
        results(call)
    before = natively()
    assert before == 1
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / torch.cuda.mem_get_info()[1])
    held: list[Any] = []

    def fill() -> None:
        held.extend(call() for _ in range(1000))

    try:
        with pytest.raises(torch.OutOfMemoryError):
            fill()
    finally:
        held.clear()
        torch.cuda.set_per_process_memory_fraction(1.0)
    results(call)
    assert natively() > before


def test_memory_is_flat() -> None:
    call = layer_norm(64, 64)
    for _ in range(10):
        results(call)
    before = torch.cuda.memory_allocated()
    for _ in range(10_000):
        call()
    assert torch.cuda.memory_allocated() == before
    assert natively() >= 10_000


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_another_gpu_than_the_current_one() -> None:
    call = layer_norm(96, 512, device="cuda:1")
    results(call)
    expected = results(call)
    for _ in range(3):
        found = results(call)
        assert found[0].device == torch.device("cuda:1")
        assert same(found, expected)


class Block(nn.Module):
    """A model whose bias with GELU and residual with layer norm are operators of gradkern's when it is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.norm = nn.Linear(256, 512), nn.Linear(512, 256), nn.LayerNorm(256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.outer(functional.gelu(self.inner(x))))


def answered_in_compiled_code() -> int:
    return sum(record.calls for site in sites.living() for record in site._records)


def trained(mode: str | None, steps: int) -> tuple[list[torch.Tensor], int]:
    """The gradients of steps of a compiled model, and how many bytes all but the first steps have left allocated."""
    torch.compiler.reset()
    torch.manual_seed(5)
    model = Block().to("cuda", torch.bfloat16)
    given: Any = {"options": {"gradkern": True}} if mode is None else {"mode": mode}
    run, x, before = torch.compile(model, backend="gradkern", **given), random(512, 256), 0
    for step in range(steps):
        model.zero_grad()  # to None: gradients live in the memory of CUDA graphs, which the next step takes again
        torch.compiler.cudagraph_mark_step_begin()
        run(x).float().square().mean().backward()
        if step == 9:
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
    torch.cuda.synchronize()
    grown = torch.cuda.memory_allocated() - before
    return [each.grad.clone() for each in model.parameters() if each.grad is not None], grown


@pytest.mark.filterwarnings("ignore")  # of Inductor's own
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_operators_of_compiled_models_are_answered_by_machine_code(
    mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sites, "_records", lambda *_: None)
        before = answered_in_compiled_code()
        expected, _ = trained(mode, 12)
        assert answered_in_compiled_code() == before
    with gradkern.torch.enabled((), native=False):  # an option of other calls
        found, grown = trained(mode, 40)
    assert len(found) == len(expected) > 0
    assert all(map(torch.equal, found, expected))
    if mode is None:  # captured calls are Python's
        assert grown == 0
        assert answered_in_compiled_code() - before > 2 * 30
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore")  # of Inductor's own
def test_threads_share_a_place_in_compiled_code() -> None:
    torch.compiler.reset()
    model = Block().to("cuda", torch.bfloat16)
    run: Any = torch.compile(model, backend="gradkern", dynamic=False, options={"gradkern": True})
    given = [random(256 + 64 * n, 256) for n in range(3)]
    with torch.no_grad():
        expected = [[run(x) for _ in range(6)][-1] for x in given]
        torch.cuda.synchronize()
        errors: list[str] = []

        def work(n: int) -> None:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(60):
                    at = (n + turn) % len(given)
                    found = run(given[at])
                    torch.cuda.current_stream().synchronize()
                    if not torch.equal(found, expected[at]):
                        errors.append(f"another result of {at}")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not errors
    torch.compiler.reset()
