"""Models on several devices, which exchange gradients and parts of tensors by gloo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import distributed_steps, processes
from helpers.distributed_steps import BY_ROWS, batch, block, gradients, loss

pytestmark = pytest.mark.torch

SIZE = 2
TAKEN = {"DDP": 3, "FSDP2": 3, "FSDP2 of an accelerated model": 1}
"""The layer norm, and the convolution and GELU where not accelerated; an RMS norm on the CPU is no single call."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found, by case."""
    return processes.results(distributed_steps.__file__, SIZE, tmp_path_factory.mktemp("gloo"))


def whole(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Gradients of one process that has the whole batch and PyTorch's own kernels."""
    loss(model(batch())).backward()
    return gradients(model)


@pytest.mark.parametrize("way", BY_ROWS)
def test_gradients_are_those_of_the_whole_batch(way: str, results: list[dict[str, Any]]) -> None:
    expected = whole(block())
    for found, taken in (each[way] for each in results):
        assert set(found) == set(expected)
        for name, grad in expected.items():
            torch.testing.assert_close(found[name], grad, rtol=1e-9, atol=1e-12)
        assert taken == TAKEN[way]


def test_a_norm_over_sharded_tokens(results: list[dict[str, Any]]) -> None:
    expected = whole(block().norm)
    for found, taken in (each["sequence parallel"] for each in results):
        for name, grad in expected.items():
            torch.testing.assert_close(found[name], grad, rtol=1e-9, atol=1e-12)
        assert taken == 1


def test_processes_leave_to_pytorch_what_makes_the_slowest_step_longer(results: list[dict[str, Any]]) -> None:
    operators = ["convolution_backward", "gelu_backward", "native_layer_norm_backward"]
    assert [each["repeats"] for each in results] == [(operators, 1 + 3 * 2 * 4 * 2)] * SIZE


def test_processes_without_nccl_leave_no_multiprocessor_free(results: list[dict[str, Any]]) -> None:
    assert [each["margin"] for each in results] == [0] * SIZE


@pytest.mark.parametrize(("backend", "uses"), [("nccl", True), ("cpu:gloo,cuda:nccl", True), ("gloo", False)])
def test_pytorch_names_nccl_where_a_group_uses_it(backend: str, uses: bool) -> None:
    """As the SM margin looks for it: what `get_backend_config` answers is such a text."""
    from torch.distributed.distributed_c10d import Backend, BackendConfig

    named: Any = Backend(backend)
    assert ("nccl" in str(BackendConfig(named))) == uses
