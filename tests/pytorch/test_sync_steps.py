"""The prepared steps of SyncBatchNorm, with the CPU's plans in place of a GPU's: addresses in, the same numbers out."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from helpers.calls import prepare_any

from gradkern.call import Tensor
from gradkern.torch.sync_batch_norm import exchange
from gradkern.torch.sync_batch_norm import module as sync_batch_norm
from gradkern.torch.sync_batch_norm import steps as sync_steps
from gradkern.torch.sync_batch_norm.module import SyncBatchNorm

pytestmark = pytest.mark.torch

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
LAST, FIRST = torch.channels_last, torch.contiguous_format
STEPS = [f"BatchNormalization{each}" for each in ("Statistics", "MergeStatistics", "FromStatistics")]
STEPS += [f"BatchNormalizationGrad{each}" for each in ("Sums", "FromSums")]


@pytest.fixture(autouse=True)
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A group of one process that passes for one of several."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    monkeypatch.setattr(sync_batch_norm, "_group_of", lambda _: dist.group.WORLD)
    yield
    dist.destroy_process_group()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps are prepared, of memory that is found by its address; the operators that they have called."""
    found: list[str] = []
    kept: list[torch.Tensor] = []

    def prepare(name: str, *inputs: Any, **how: Any) -> Any:
        made = prepare_any(name, *inputs, **how)

        def run(read: tuple[int, ...], written: tuple[int, ...], _stream: int) -> None:
            found.append(name)
            both = (read, made.call.inputs), (written, made.call.outputs)
            inputs, outputs = (tuple(map(array_at, places, tensors.values())) for places, tensors in both)
            made.plan(inputs, outputs, None)

        return SimpleNamespace(call=made.call, plan=run)

    def constant(value: float, like: torch.Tensor) -> tuple[torch.Tensor, int]:
        kept.append(torch.full_like(like, value, requires_grad=False))
        return kept[-1], kept[-1].data_ptr()

    for module in (sync_steps, exchange):
        monkeypatch.setattr(module, "device_arrays", HostArrays)
    monkeypatch.setattr(sync_steps, "prepare", prepare)
    monkeypatch.setattr(sync_steps, "_constant", constant)
    monkeypatch.setattr(sync_steps, "_may_prepare", lambda _: True)
    return found


class HostArrays:
    """Stands for the arrays of a GPU."""

    def torch_kind(self, _index: int) -> HostArrays:
        return self

    def stream(self) -> int:
        return 0

    def maker(self, tensor: Tensor) -> Any:
        strides = [step // tensor.dtype.itemsize for step in tensor.strides]

        def new(_stream: int | None) -> tuple[torch.Tensor, int]:
            made = torch.empty_strided(tensor.shape, strides, dtype=getattr(torch, tensor.dtype.name))
            return made, made.data_ptr()

        return new


def array_at(address: int, tensor: Tensor) -> np.ndarray:
    memory: Any = (ctypes.c_char * tensor.extent[1]).from_address(address)
    return np.ndarray(tensor.shape, tensor.dtype, memory, 0, tensor.strides)


def trained(module: Any, data: torch.dtype, order: torch.memory_format, steps: int = 3) -> list[torch.Tensor]:
    """Outputs, gradients and buffers of some steps."""
    found: list[Any] = []
    random = torch.Generator().manual_seed(0)
    for _ in range(steps):
        x, grad = (torch.randn(4, 8, 3, 5, generator=random).to(data, memory_format=order) for _ in range(2))
        x.requires_grad_()
        module.zero_grad()
        y = module(x)
        y.backward(grad)
        found += [y.detach(), x.grad, *(each.grad for each in module.parameters())]
        found += [each.clone() for each in module.buffers()]
    return found


@pytest.mark.parametrize(
    ("data", "parameters", "order", "options"),
    [
        (F32, F32, FIRST, {}),
        (BF16, F32, LAST, {}),
        (BF16, BF16, FIRST, {"momentum": 0.5}),
        (F64, F64, LAST, {"affine": False}),
        (F16, F32, FIRST, {"track_running_stats": False, "eps": 0.1}),
    ],
    ids=str,
)
def test_they_give_what_the_steps_give_that_are_not_prepared(
    data: torch.dtype,
    parameters: torch.dtype,
    order: torch.memory_format,
    options: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    expected = trained(SyncBatchNorm(8, **options).to(parameters), data, order)
    calls = request.getfixturevalue("calls")
    found = trained(SyncBatchNorm(8, **options).to(parameters), data, order)
    assert calls == STEPS * 3
    for one, other in zip(found, expected, strict=True):
        assert one.stride() == other.stride()
        assert torch.equal(one, other)  # as some processes of a group may prepare steps and others, of empty parts, not


def test_what_is_prepared_is_found_again_and_other_tensors_are_not_taken_for_its_own(calls: list[str]) -> None:
    module = SyncBatchNorm(8)
    for data, order in ((F32, FIRST), (F32, LAST), (F32, FIRST)):
        trained(module, data, order, 2)
    known = sync_steps._forwards._of[dist.group.WORLD]
    assert len(known.entries()) == 2
    assert calls == STEPS * 6


def test_a_gradient_alone_is_prepared_without_the_others(calls: list[str]) -> None:
    module = SyncBatchNorm(8).requires_grad_(False)
    x = torch.randn(4, 8, 3, requires_grad=True)
    (dx,) = torch.autograd.grad(module(x), x, torch.ones(4, 8, 3))
    assert calls == STEPS
    torch.testing.assert_close(dx, torch.zeros(4, 8, 3), atol=1e-6, rtol=0)


def test_running_statistics_count_as_written(calls: list[str]) -> None:
    module = SyncBatchNorm(8)
    assert module.running_mean is not None
    before = module.running_mean._version
    module(torch.randn(4, 8, 3))
    assert module.running_mean._version > before
    assert calls == STEPS[:3]


def test_a_batch_that_is_empty_everywhere_moves_running_statistics_towards_zero() -> None:
    module: Any = SyncBatchNorm(8)
    module.running_mean.fill_(2)
    x = torch.empty(0, 8, 3, requires_grad=True)
    module(x).sum().backward()
    torch.testing.assert_close(module.running_mean, torch.full((8,), 1.8))
    torch.testing.assert_close(module.running_var, torch.full((8,), 0.9))
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert all(not each.grad.any() for each in module.parameters())


def test_a_group_of_a_class_of_its_own_gets_the_messages_itself(calls: list[str]) -> None:
    class Own(dist.ProcessGroup):
        def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            tensors[0].add_(1)

    made: Any = Own
    own = made(0, 1)
    message, whole = torch.zeros(4), exchange._ByCollective("sum", torch.empty(4), 1, own)
    assert torch.equal(whole.send(message)[0], torch.ones(4))
    assert exchange._backend_of(dist.group.WORLD, message.device).name() == "gloo"
